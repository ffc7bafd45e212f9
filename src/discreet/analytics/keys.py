"""Group keys: public facts that are given, never taken from data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from discreet import _check
from discreet.analytics.expressions import Column as ColumnExpression
from discreet.analytics.expressions import Comparison, Constant, Expression, Logic, literal, wrap

#: More public keys than this are refused: each is answered, and each answer takes noise and memory.
MAX_KEYS = 1 << 20


@dataclass(frozen=True)
class Keys:
    """The columns of a grouping, and the tuples of values that are answered, in that order."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def condition(self) -> Expression:
        """Whether a row belongs to one of the groups."""
        each = [tuple(dict.fromkeys(column)) for column in zip(*self.values, strict=True)]
        by_column = [Membership(ColumnExpression(c), v) for c, v in zip(self.columns, each, strict=True)]
        inside = reduce(lambda a, b: a & b, by_column[1:], wrap(by_column[0]))
        if len(self.values) == _size(each):
            return inside
        listed = [
            Logic(
                "and",
                tuple(
                    Comparison("==", ColumnExpression(c), Constant(v)) for c, v in zip(self.columns, key, strict=True)
                ),
            )
            for key in self.values
        ]
        return inside & Logic("or", tuple(listed))

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
        for value in {type(one): one for one in self.values}.values():  # refuses a key of another kind
            Comparison("==", self.inner, Constant(value)).to_ibis(table)
        return column.isin(list(self.values))


def public_keys(columns: tuple[str, ...], keys: object) -> Keys:
    """Keys from a list (of tuples, for several columns), or all combinations of a list for each column in a mapping."""
    remedy = "list the groups that are publicly known to be possible; absent ones are answered as noisy zeros"
    if isinstance(keys, Mapping):
        if set(keys) != set(columns):
            raise _check.fail("keys", f"name the columns {columns}", tuple(keys), "give one list for each")
        rows: list[Any] = list(product(*(tuple(keys[column]) for column in columns)))
    elif isinstance(keys, Iterable) and not isinstance(keys, str | bytes | Expression):
        rows = [key if isinstance(key, tuple) else (key,) for key in keys]
    else:
        raise _check.fail("keys", "be a public list", type(keys).__name__, remedy)
    if not 0 < len(rows) <= MAX_KEYS:
        raise _check.fail("keys", f"be between 1 and {MAX_KEYS}", len(rows), remedy)
    if any(len(row) != len(columns) for row in rows):
        raise _check.fail("keys", f"have one value for each of {columns}", "another length", "give tuples of values")
    found = tuple(tuple(literal(value) for value in row) for row in rows)
    if len(set(found)) != len(found):
        raise _check.fail(
            "keys", "be distinct", "a repeated key", "each group is answered once; 1, 1.0 and True are equal"
        )
    return Keys(columns, found)


def _size(each: list[tuple[Any, ...]]) -> int:
    return reduce(lambda size, values: size * len(values), each, 1)
