"""Random access to what a model is trained on: tensors, arrays, tuples and dicts of them, and torch Datasets.

A Poisson draw is a set of indices, so the data must be able to give any of them. A physical batch always has the same
number of rows: what a draw lacks is filled up with copies, and a mask says which rows count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Rows that can be fetched by index. Holds sensitive data; nothing of it is in its `repr`.

    Attributes:
        size: the number of rows. It is private under add/remove: nothing that is released may depend on it.
    """

    def __init__(self, data: Any) -> None:
        self._leaves = _as_tensors(data)
        if self._leaves is None:
            self._dataset = _map_style(data)
            self.size = len(self._dataset)
        else:
            self.size = _common_length(self._leaves)

    def fetch(self, rows: Indices, device: torch.device | str = "cpu") -> Any:
        """The given rows, stacked, on `device`."""
        if self._leaves is not None:
            return _mapped(self._leaves, lambda leaf: _moved(_taken(leaf, rows), device))
        items = [self._dataset[int(row)] for row in rows]
        return _mapped(torch.utils.data.default_collate(items), lambda leaf: _moved(leaf, device))

    def __repr__(self) -> str:
        return "Records()"


def without_column(data: Any, unit: Person) -> tuple[Any, Any]:
    """`data` without the column of persons' ids, and that column."""
    if unit.column is not None and isinstance(data, Mapping) and unit.column in data:
        return {name: values for name, values in data.items() if name != unit.column}, data[unit.column]
    raise _check.fail(
        "persons",
        "be given",
        None,
        f"pass persons= with one id for each example, or data as a dict with the column {unit.column!r}",
    )


def persons_rows(persons: Any, size: int) -> list[Indices]:
    """The rows of each person, in an order of persons that does not matter: ids are only compared.

    Missing ids (None, NaN) are one person together: the safe reading, since they may be one.
    """
    if isinstance(persons, list | tuple):  # as they are: an array of strings would drop what follows a NUL
        ids = np.fromiter(persons, dtype=object, count=len(persons))
    else:
        ids = persons.detach().cpu().numpy() if isinstance(persons, Tensor) else np.asarray(persons)
    if ids.ndim != 1 or len(ids) != size:
        raise InvalidArgument("persons must hold one id for each example, in one dimension: give as many ids as rows")
    found: dict[Any, int] = {}
    codes = np.fromiter(
        (found.setdefault(None if each != each or each is None else each, len(found)) for each in ids.tolist()),
        dtype=np.int64,
        count=size,
    )
    order = np.argsort(codes, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(codes, minlength=len(found)))
    return np.split(order, ends[:-1]) if size else []


def padded(rows: Indices, size: int) -> tuple[Indices, NDArray[np.bool_]]:
    """`rows`, of which there is at least one, filled up to `size` with copies of the first; and which rows count."""
    mask = np.arange(size) < len(rows)
    return np.concatenate([rows, np.full(size - len(rows), rows[0], dtype=np.int64)]), mask


def _as_tensors(data: Any) -> Any:
    """The same nesting with tensors as leaves; None where `data` is something else."""
    match data:
        case Tensor():
            return data
        case np.ndarray():
            return torch.from_numpy(np.ascontiguousarray(data))
        case Mapping():
            return _all({name: _as_tensors(part) for name, part in data.items()})
        case tuple() | list() if data and all(isinstance(p, Tensor | np.ndarray | Mapping | tuple) for p in data):
            return _all(tuple(_as_tensors(part) for part in data))
        case _:
            return None


def _all(parts: Any) -> Any:
    values = parts.values() if isinstance(parts, dict) else parts
    return None if any(part is None for part in values) or not values else parts


def _map_style(data: Any) -> Any:
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, str | bytes):
        return data
    if isinstance(data, torch.utils.data.DataLoader):
        remedy = "give the loader's dataset instead: the plan samples by itself, and no other sampling has its price"
        raise _check.fail("data", "not be a DataLoader", type(data).__name__, remedy)
    raise _check.fail(
        "data",
        "have random access and a length",
        type(data).__name__,
        "give tensors, numpy arrays, tuples or dicts of them, or a torch Dataset with __getitem__ and __len__; "
        "read an iterable into one of these first, because a random sample needs to reach every example",
    )


def _common_length(leaves: Any) -> int:
    lengths: set[int] = set()

    def look(leaf: Tensor) -> Tensor:
        if leaf.ndim == 0:
            raise _check.fail("data", "have a first dimension that counts examples", "a number", "stack the examples")
        lengths.add(leaf.shape[0])
        return leaf

    _mapped(leaves, look)
    if len(lengths) != 1:
        raise InvalidArgument("data must hold tensors of one length: the first dimension counts the same examples")
    return lengths.pop()


def _mapped(nested: Any, function: Any) -> Any:
    match nested:
        case Tensor():
            return function(nested)
        case Mapping():
            return {name: _mapped(part, function) for name, part in nested.items()}
        case Sequence() if not isinstance(nested, str | bytes):
            return tuple(_mapped(part, function) for part in nested)
        case _:
            raise _check.fail("data", "yield tensors or numbers", type(nested).__name__, "encode what the model reads")


def _taken(leaf: Tensor, rows: Indices) -> Tensor:
    return leaf.index_select(0, torch.from_numpy(rows).to(leaf.device))


def _moved(leaf: Tensor, device: torch.device | str) -> Tensor:
    target = torch.device(device)
    if leaf.device == target or (leaf.device.type == target.type and target.index is None):
        return leaf
    if target.type == "cuda" and leaf.device.type == "cpu":
        return leaf.pin_memory().to(target, non_blocking=True)
    return leaf.to(target)
