"""Random access to training data: tensors, arrays, tuples and dicts of them, and torch Datasets.

A Poisson draw is a set of indices, so any row must be accessible by its index. A physical batch always has the same
number of rows: a smaller draw is padded with copies, and a mask says which rows count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.neighbors import Person

Indices = NDArray[np.int64]


class Records:
    """Rows that can be fetched by index. It holds sensitive data, which its `repr` does not show.

    Args:
        data: tensors, arrays, tuples and dicts of them, or a Dataset.
        collate: makes tensors with one row of a list with one example. It never sees two examples together: a batch
            that is padded to its longest example has a shape that depends on all of them.

    Attributes:
        size: the number of rows. It is private under add/remove: no release may depend on it.
    """

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None = None) -> None:
        _check_callable(collate)
        self._collate = collate
        # With a collate function a list holds examples; without one it may also hold columns.
        self._leaves = None if collate is not None and isinstance(data, list) else _as_tensors(data)
        if self._leaves is None:
            self._dataset = _map_style(data)
            self.size = len(self._dataset)
        else:
            self.size = _common_length(self._leaves)

    def fetch(self, rows: Indices, device: torch.device | str = "cpu") -> Any:
        """The given rows, stacked, on `device`."""
        if self._collate is not None:
            collated = [_mapped(self._collate([self._item(int(row))]), _one_row) for row in rows]
            return _mapped(_stacked(collated), lambda leaf: _moved(leaf, device))
        if self._leaves is not None:
            return _mapped(self._leaves, lambda leaf: _moved(_taken(leaf, rows), device))
        items = [self._dataset[int(row)] for row in rows]
        return _mapped(torch.utils.data.default_collate(items), lambda leaf: _moved(leaf, device))

    def _item(self, row: int) -> Any:
        """One example, as the data holds it."""
        return self._dataset[row] if self._leaves is None else _mapped(self._leaves, lambda leaf: leaf[row])

    def __repr__(self) -> str:
        return "Records()"


def _check_callable(collate: object) -> None:
    if collate is not None and not callable(collate):
        remedy = "give a function from a list with one example to tensors with one row, such as PadTo(128)"
        raise _check.fail("collate", "be callable", type(collate).__name__, remedy)


def _one_row(leaf: Tensor) -> Tensor:
    if leaf.ndim == 0 or leaf.shape[0] != 1:
        raise InvalidArgument(
            "collate must return tensors whose first dimension is the number of examples, which is 1: it is called "
            "with one example at a time"
        )
    return leaf


def _stacked(rows: Sequence[Any]) -> Any:
    """Rows of the same structure as one batch."""
    first = rows[0]
    if isinstance(first, Mapping):
        return {name: _stacked([row[name] for row in rows]) for name in first}
    if isinstance(first, tuple):
        return tuple(_stacked([row[index] for row in rows]) for index in range(len(first)))
    if len({(row.shape, row.dtype) for row in rows}) != 1:
        raise InvalidArgument(
            "collate must give tensors of one shape and type for every example: pad to a fixed length that is public, "
            "for example with PadTo(128) or padding='max_length'; the longest example of a batch is not public"
        )
    return torch.cat(list(rows))


def without_column(data: Any, unit: Person) -> tuple[Any, Any]:
    """`data` without the column of persons' ids, and that column."""
    if unit.column is not None and isinstance(data, Mapping) and unit.column in data:
        return {name: values for name, values in data.items() if name != unit.column}, data[unit.column]
    raise _check.fail(
        "persons",
        "be given",
        None,
        f"pass persons= with one id per example, or data as a dict with the column {unit.column!r}",
    )


def persons_rows(persons: Any, size: int) -> list[Indices]:
    """The rows of each person, in no particular order of persons: ids are only compared.

    All missing ids (None, NaN) together count as one person, because they may belong to one.
    """
    if isinstance(persons, list | tuple):  # kept as objects: an array of strings would drop trailing NULs
        ids = np.fromiter(persons, dtype=object, count=len(persons))
    else:
        ids = persons.detach().cpu().numpy() if isinstance(persons, Tensor) else np.asarray(persons)
    if ids.ndim != 1 or len(ids) != size:
        raise InvalidArgument("persons must hold one id per example, in one dimension: give as many ids as rows")
    code_of: dict[Any, int] = {}
    codes = np.fromiter(
        (code_of.setdefault(None if each != each or each is None else each, len(code_of)) for each in ids.tolist()),
        dtype=np.int64,
        count=size,
    )
    order = np.argsort(codes, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(codes, minlength=len(code_of)))
    return np.split(order, ends[:-1]) if size else []


def padded(rows: Indices, size: int) -> tuple[Indices, NDArray[np.bool_]]:
    """`rows` (at least one), padded to `size` with copies of the first, and a mask of the rows that count."""
    mask = np.arange(size) < len(rows)
    return np.concatenate([rows, np.full(size - len(rows), rows[0], dtype=np.int64)]), mask


def _as_tensors(data: Any) -> Any:
    """The same nesting with tensors as leaves; None if `data` is something else."""
    match data:
        case Tensor():
            return data
        case np.ndarray():
            return torch.from_numpy(np.ascontiguousarray(data))
        case Mapping():
            return _all({name: _as_tensors(item) for name, item in data.items()})
        case tuple() | list() if data and all(isinstance(p, Tensor | np.ndarray | Mapping | tuple) for p in data):
            return _all(tuple(_as_tensors(item) for item in data))
        case _:
            return None


def _all(tensors: Any) -> Any:
    values = tensors.values() if isinstance(tensors, dict) else tensors
    return None if any(item is None for item in values) or not values else tensors


def _map_style(data: Any) -> Any:
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | bytes):
        return data
    if isinstance(data, torch.utils.data.DataLoader):
        remedy = "give the loader's dataset instead: the plan draws its own batches, and its price holds only for these"
        raise _check.fail("data", "not be a DataLoader", type(data).__name__, remedy)
    raise _check.fail(
        "data",
        "have random access and a length",
        type(data).__name__,
        "give tensors, numpy arrays, tuples or dicts of them, or a torch Dataset with __getitem__ and __len__; "
        "read an iterable into one of these first, because a random sample must be able to reach every example",
    )


def _common_length(leaves: Any) -> int:
    lengths: set[int] = set()

    def look(leaf: Tensor) -> Tensor:
        if leaf.ndim == 0:
            raise _check.fail("data", "have a first dimension that indexes examples", "a number", "stack the examples")
        lengths.add(leaf.shape[0])
        return leaf

    _mapped(leaves, look)
    if len(lengths) != 1:
        raise InvalidArgument("data must hold tensors of the same length: their first dimension indexes the examples")
    return lengths.pop()


def _mapped(nested: Any, function: Any) -> Any:
    match nested:
        case Tensor():
            return function(nested)
        case Mapping():
            return {name: _mapped(item, function) for name, item in nested.items()}
        case Sequence() if not isinstance(nested, str | bytes):
            return tuple(_mapped(item, function) for item in nested)
        case _:
            raise _check.fail(
                "data", "yield tensors or numbers", type(nested).__name__, "encode the inputs of the model as numbers"
            )


def _taken(leaf: Tensor, rows: Indices) -> Tensor:
    return leaf.index_select(0, torch.from_numpy(rows).to(leaf.device))


def _moved(leaf: Tensor, device: torch.device | str) -> Tensor:
    target = torch.device(device)
    if leaf.device == target or (leaf.device.type == target.type and target.index is None):
        return leaf
    if target.type == "cuda" and leaf.device.type == "cpu":
        return leaf.pin_memory().to(target, non_blocking=True)
    return leaf.to(target)
