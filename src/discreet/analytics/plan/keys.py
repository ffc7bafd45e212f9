"""Group keys: public facts, given as a list or as a table and never taken from data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import ibis
import pyarrow as pa

from discreet import _check
from discreet.analytics.table.expressions import Column as ColumnExpression
from discreet.analytics.table.expressions import Compared, Constant, Expression, Logic
from discreet.analytics.table.semantics import exact, literal, number
from discreet.analytics.table.source import arrow_table

#: The most keys of a question: each is answered, and each answer takes noise and memory.
MAX_KEYS = 1 << 20
_REMEDY = "list the groups that are publicly known to be possible; absent ones are answered as noisy zeros"


@dataclass(frozen=True)
class Keys:
    """The columns of a grouping, and the tuples of values that are answered, in that order."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def condition(self) -> Expression:
        """Whether a row belongs to one of the groups."""
        return _listed(self.columns, self.values)

    def labels(self) -> tuple[Any, ...]:
        """One label for each group: the value, or the tuple of values."""
        return tuple(key[0] if len(self.columns) == 1 else key for key in self.values)


@dataclass(frozen=True, eq=False)
class Membership(Expression):
    """Whether a column's value is one of many public ones."""

    inner: Expression
    values: tuple[Any, ...]

    def to_ibis(self, table: Any) -> Any:
        return self.to_filter(table).fill_null(False)

    def to_filter(self, table: Any) -> Any:
        column = self.inner.to_ibis(table)
        column = number(column, "keys") if column.type().is_decimal() else column
        for value in {type(key): key for key in self.values}.values():  # refuses a key of another type
            Compared("==", self.inner, Constant(value)).to_ibis(table)
        integers = {value for value in self.values if type(value) is int}
        if column.type().is_integer() and len(integers) == len(self.values) == max(integers) - min(integers) + 1:
            return (column >= min(integers)) & (column <= max(integers))  # the same rows, found faster
        return column.isin([exact(value) if isinstance(value, float) else value for value in self.values])


def public_keys(columns: tuple[str, ...], keys: object) -> Keys:
    """Keys from a list (of tuples, for several columns), from a table with these columns, or from a mapping.

    A mapping of columns to lists stands for all combinations. A table (pandas, polars, Arrow, Ibis) stands for its
    rows, each of which is a key; it must be public, and rows that repeat are taken once.
    """
    if isinstance(keys, Mapping):
        if set(keys) != set(columns):
            raise _check.fail("keys", f"name the columns {columns}", tuple(keys), "give one list for each")
        rows: list[Any] = list(product(*(_several(keys[column]) for column in columns)))
    elif (listed := _rows_of(columns, keys)) is not None:
        rows = listed
    else:
        rows = [key if isinstance(key, tuple) else (key,) for key in _several(keys)]
    if not 0 < len(rows) <= MAX_KEYS:
        raise _check.fail("keys", f"be between 1 and {MAX_KEYS}", len(rows), _REMEDY)
    if any(len(row) != len(columns) for row in rows):
        raise _check.fail("keys", f"have one value for each of {columns}", "another length", "give tuples of values")
    values = tuple(tuple(literal(value) for value in row) for row in rows)
    if len(set(values)) != len(values):
        raise _check.fail(
            "keys", "be distinct", "a repeated key", "each group is answered once; 1, 1.0 and True are equal"
        )
    return Keys(columns, values)


def _several(keys: object) -> list[Any]:
    if not isinstance(keys, Iterable) or isinstance(keys, str | bytes | Expression):
        raise _check.fail("keys", "be a public list or table", type(keys).__name__, _REMEDY)
    return list(keys)


def _rows_of(columns: tuple[str, ...], keys: object) -> list[tuple[Any, ...]] | None:
    """The distinct rows of a public table, in its order; None if `keys` is no table."""
    if isinstance(keys, ibis.Table):
        table: pa.Table = keys.to_pyarrow()
    elif isinstance(keys, pa.Table | pa.RecordBatch) or type(keys).__name__ in ("DataFrame", "LazyFrame"):
        table = arrow_table(keys)
    else:
        return None
    lacking = [name for name in columns if name not in table.column_names]
    if lacking:
        raise _check.fail("keys", f"have the columns {columns}", table.column_names, "a table's columns go by name")
    return list(dict.fromkeys(zip(*(table[name].to_pylist() for name in columns), strict=True)))


def _listed(columns: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Expression:
    """Whether the columns hold one of the tuples; first values with the same rests share a condition."""
    rests_by_first: dict[Any, dict[tuple[Any, ...], None]] = {}
    for first, *rest in values:
        rests_by_first.setdefault(first, {})[tuple(rest)] = None
    if len(columns) == 1:
        return Membership(ColumnExpression(columns[0]), tuple(rests_by_first))
    firsts_by_rests: dict[tuple[tuple[Any, ...], ...], list[Any]] = {}
    for first, rests in rests_by_first.items():
        firsts_by_rests.setdefault(tuple(rests), []).append(first)
    return _either(
        [
            Logic("and", (Membership(ColumnExpression(columns[0]), tuple(firsts)), _listed(columns[1:], rests)))
            for rests, firsts in firsts_by_rests.items()
        ]
    )


def _either(parts: Sequence[Expression]) -> Expression:
    """A balanced tree of conditions: a chain of thousands would be nested too deeply for engines."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Logic("or", (_either(parts[:half]), _either(parts[half:])))
