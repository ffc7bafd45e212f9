"""Group keys: public facts, given as a list or as a table and never taken from data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet import _check
from discreet.analytics.table.expressions import Expression
from discreet.analytics.table.semantics import literal
from discreet.analytics.table.source import arrow_table

#: The most keys of a question: each is answered, and each answer takes noise and memory.
MAX_KEYS = 1 << 20
#: Codes of keys must fit 64 bits.
_MAX_CODE = 1 << 62
_REMEDY = "list the groups that are publicly known to be possible; absent ones are answered as noisy zeros"


@dataclass(frozen=True)
class Keys:
    """The columns of a grouping, and the tuples of values that are answered, in that order.

    In the engine a key is one integer, its code. Each column has a list of distinct values; a key that holds the i-th
    value of one column and the j-th of the next, which has n of them, has the code i·n + j.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    @cached_property
    def by_column(self) -> tuple[tuple[Any, ...], ...]:
        """The distinct values of each column; integers ascend, so that those in a row need only a subtraction."""
        listed = [tuple(dict.fromkeys(column)) for column in zip(*self.values, strict=True)]
        return tuple(tuple(sorted(values)) if all(type(v) is int for v in values) else values for values in listed)

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """The code of each key."""
        total = np.zeros(len(self.values), dtype=np.int64)
        for column, values in zip(zip(*self.values, strict=True), self.by_column, strict=True):
            index_of = {value: index for index, value in enumerate(values)}
            total = total * len(values) + np.array([index_of[value] for value in column], dtype=np.int64)
        return total

    @property
    def complete(self) -> bool:
        """Whether every combination of the columns' values is a key."""
        return math.prod(len(values) for values in self.by_column) == len(self.values)

    def labels(self) -> tuple[Any, ...]:
        """One label for each group: the value, or the tuple of values."""
        return tuple(key[0] if len(self.columns) == 1 else key for key in self.values)


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
    keys = Keys(columns, values)
    if math.prod(len(column_values) for column_values in keys.by_column) > _MAX_CODE:
        raise _check.fail("keys", "have fewer distinct values in this many columns", columns, "group by fewer columns")
    return keys


def _several(keys: object) -> list[Any]:
    if not isinstance(keys, Iterable) or isinstance(keys, str | bytes | Expression) or getattr(keys, "ndim", 1) == 0:
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
