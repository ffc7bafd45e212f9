"""The only place that maps rows to public keys: each row gets the code of its key, and the sums come back by code.

Only integers leave the engine here. Which key a row has is decided by the engine's own equality on the column's own
type, so values that the engine tells apart are never added into one group, and a person is limited by the same groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet import _check
from discreet.analytics.plan.keys import Keys
from discreet.analytics.table.expressions import Column, Constant
from discreet.analytics.table.semantics import family, of_type, remedy_of
from discreet.bounded import LARGEST
from discreet.errors import EngineFailed

#: The column with the code of a row's key.
CODE = "k"
#: Up to this many values of a column are tried one after another; more are joined as a table.
_FEW = 8


def key_columns(table: Any, columns: Iterable[str]) -> dict[str, Any]:
    """The columns g0, g1, … that hold a row's key."""
    return {f"g{i}": Column(name).to_ibis(table) for i, name in enumerate(columns)}


def require_comparable(table: Any, columns: Sequence[str], values: Sequence[Sequence[Any]]) -> None:
    """Refuse values of another kind than their column's; looks at no row."""
    for name, own in zip(columns, values, strict=True):
        column = Column(name).to_ibis(table)
        for value in {type(key): key for key in own}.values():
            kinds = family(column), family(Constant(value).to_ibis(table))
            if kinds[0] != kinds[1]:
                remedy = "numbers go with numbers, text with text, dates with dates (dp.months(…) makes some)"
                rule = f"be of one kind with the column {name!r}"
                raise _check.fail("keys", rule, " and ".join(kinds), remedy_of(kinds, remedy))


def with_codes(rows: Any, keys: Keys) -> Any:
    """The rows of public groups, with the code of their key in place of g0, g1, …"""
    names = [f"g{i}" for i in range(len(keys.columns))]
    for name, values in zip(names, keys.by_column, strict=True):
        rows = _with_place(rows, name, values, alone=len(names) == 1)
    rows = rows.mutate(**{CODE: _combined([rows[f"{name}_place"] for name in names], keys)})
    if not keys.complete:
        rows = rows.filter(rows[CODE].isin(keys.codes.tolist()))
    return rows.drop(*names, *(f"{name}_place" for name in names))


def code_of(table: Any, keys: Keys) -> Any:
    """The code of a row's key, NULL where it has none that combines listed values; a row has one at most."""
    require_comparable(table, keys.columns, keys.by_column)
    columns = key_columns(table, keys.columns).values()
    return _combined([_place(column, own) for column, own in zip(columns, keys.by_column, strict=True)], keys)


def _combined(digits: Sequence[Any], keys: Keys) -> Any:
    """The code of a group, from the index of each column's value."""
    code, *rest = digits
    for digit, values in zip(rest, keys.by_column[1:], strict=True):
        code = code * len(values) + digit
    return code


def _with_place(rows: Any, name: str, values: Sequence[Any], *, alone: bool) -> Any:
    """The rows that hold one of some public values in a column, with its place among them.

    `alone` says that the place is the whole code, and nothing else is computed with it.
    """
    column = rows[name]
    if _in_a_row(values) and column.type().is_integer():
        first, last = values[0], values[-1]
        position = _offset(column, first, last, alone)
        return rows.filter((column >= first) & (column <= last)).mutate(**{f"{name}_place": position})
    typed = _typed(column, values)
    if len(typed) <= _FEW:
        held = column.isin([value for _, value in typed]) if typed else ibis.literal(False)
        return rows.filter(held).mutate(**{f"{name}_place": _place(column, values)})
    listed = _key_table(name, typed, column.get_backend().name)
    return rows.join(listed, column == listed[f"{name}_key"]).drop(f"{name}_key")


def _offset(column: Any, first: int, last: int, alone: bool) -> Any:
    """The distance of an integer from the first key. Its value does not matter for rows that have no key.

    No integer makes it overflow, in case an engine computes it before it filters. To clamp a column takes DuckDB longer
    than all the rest of a count, so a side is clamped only where the difference might not fit 64 bits.
    """
    kind = column.type()
    if not (alone and kind.is_signed_integer()):
        return ibis.least(ibis.greatest(column, first), last).cast("int64") - _int64(first)
    if first == 0:
        return column.cast("int64")
    if kind.nbytes == ibis.dtype("int64").nbytes:
        column = ibis.greatest(column, first) if first > 0 else ibis.least(column, last)
    return column.cast("int64") - _int64(first)


def _place(column: Any, values: Sequence[Any]) -> Any:
    """The index of a column's value among the public ones, NULL where it is not among them."""
    tried = [(column == value, _int64(index)) for index, value in _typed(column, values)]
    return ibis.cases(*tried, else_=ibis.null("int64")) if tried else ibis.null("int64")


def _typed(column: Any, values: Sequence[Any]) -> list[tuple[int, Any]]:
    """Public values as literals of the column's type, with their places; without those that no row can hold."""
    typed = ((index, of_type(value, column.type())) for index, value in enumerate(values))
    return [(index, value) for index, value in typed if value is not None]


def _in_a_row(values: Sequence[Any]) -> bool:
    """Whether values are successive integers."""
    return all(type(value) is int for value in values) and values[-1] - values[0] == len(values) - 1


def _key_table(name: str, typed: Sequence[tuple[int, Any]], engine: str) -> Any:
    """Public values with their indices, as a table of literals; it needs no right to write in the engine."""
    key, number = f"{name}_key", f"{name}_place"
    if engine == "pyspark":
        pairs = ibis.array([ibis.struct({key: value, number: _int64(index)}) for index, value in typed])
        return pairs.unnest().name("pair").as_table().unpack("pair")
    # Lists in one SELECT are unnested side by side.
    single_row = ibis.array([_int64(0)]).unnest().name("one").as_table()
    indices = ibis.literal([index for index, _ in typed], type="array<int64>")
    return single_row.select(**{key: ibis.array([value for _, value in typed]).unnest(), number: indices.unnest()})


def _int64(value: int) -> Any:
    return ibis.literal(value, type="int64")


def totals(answer: pa.Table, keys: Keys | None, names: Sequence[str]) -> list[list[int]]:
    """For each public group, in the order of the keys, its integers of some columns; zeros where it has no row."""
    groups = _groups(answer, keys)
    _require(len(np.unique(groups)) == len(groups))
    sums = np.zeros((1 if keys is None else len(keys.values), len(names)), dtype=np.int64)
    for index, name in enumerate(names):
        sums[groups, index] = _integers(answer, name)
    return _lists(sums)


def level_totals(answer: pa.Table, keys: Keys | None, lowest: int, size: int) -> list[list[int]]:
    """For each public group, in the order of the keys, how many rows lie on each of `size` levels."""
    groups, levels = _groups(answer, keys), _integers(answer, "level") - lowest
    _require(bool(np.all((levels >= 0) & (levels < size))))
    _require(len(np.unique(groups * size + levels)) == len(groups))
    counts = np.zeros((1 if keys is None else len(keys.values), size), dtype=np.int64)
    counts[groups, levels] = _integers(answer, "rows")
    return _lists(counts)


def _lists(table: NDArray[np.int64]) -> list[list[int]]:
    lists: list[list[int]] = table.tolist()
    return lists


def _groups(answer: pa.Table, keys: Keys | None) -> NDArray[np.int64]:
    """The position of each row's key in the order of the keys."""
    if keys is None:
        return np.zeros(answer.num_rows, dtype=np.int64)
    codes = _integers(answer, CODE)
    order = np.argsort(keys.codes)
    nearest = np.minimum(np.searchsorted(keys.codes, codes, sorter=order), len(order) - 1)
    groups: NDArray[np.int64] = order[nearest].astype(np.int64)
    _require(np.array_equal(keys.codes[groups], codes))
    return groups


def _integers(answer: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of integers, clamped to ±2^60 as `queries.aggregated.bounded` does with totals."""
    column = answer[name] if name in answer.column_names else None
    _require(column is not None and not column.null_count)
    assert column is not None
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
        return np.asarray(np.clip(column.to_numpy().astype(np.int64), -LARGEST, LARGEST))
    _require(pa.types.is_decimal(column.type) or pa.types.is_uint64(column.type))
    values = column.to_pylist()
    _require(all(value == int(value) for value in values))
    return np.array([min(max(int(value), -LARGEST), LARGEST) for value in values], dtype=np.int64)


def _require(right: bool) -> None:
    """Stop at an answer that no query of ours gives. The error is the same one whatever is wrong with it."""
    if not right:
        raise EngineFailed(ValueError("an engine's answer must hold one row of integers for each group"))
