"""Reads calls of aggregate functions; expressions inside them become columns of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.aggregates import registry
from discreet.analytics.aggregates.aggregate import Aggregate, rank_suffix
from discreet.analytics.plan.sql.constants import number
from discreet.analytics.plan.sql.functions import clamp_of, is_clamp
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.plan.sql.values import Values
from discreet.analytics.table.expressions import Cases, Column, Expression
from discreet.errors import InvalidArgument

#: Longer names of computed columns are cut.
_LONGEST_NAME = 40


class Columns:
    """Names for expressions: each becomes a column that is computed before the aggregation."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {name.lower() for name in taken}
        self._by_text: dict[str, str] = {}
        self.computed: dict[str, Expression] = {}

    def named(self, text: str, expression: Expression) -> str:
        """The column of an expression; the same text always gives the same one."""
        if text not in self._by_text:
            name = self.free(re.sub(r"\W+", "_", text).strip("_").lower()[:_LONGEST_NAME] or "value")
            self._by_text[text] = name
            self.computed[name] = expression
        return self._by_text[text]

    def free(self, name: str) -> str:
        """A name like this one that no column has; it is taken from now on."""
        wanted, number = name, 1
        while wanted.lower() in self._taken:
            number += 1
            wanted = f"{name}_{number}"
        self._taken.add(wanted.lower())
        return wanted


class AggregateCall:
    """A call of an aggregate's function, as the aggregate reads it: each argument is checked when it is read.

    Attributes:
        name: the function, spelled as the aggregate does.
        person: the person's column, if the account protects persons.
    """

    def __init__(self, reader: Aggregates, node: Any, name: str, kept: Any = None) -> None:
        self._reader = reader
        self._node = node
        self._kept = kept
        self.name = name
        self.person = reader.values.scope.person
        anonymous = isinstance(node, ast.Anonymous)
        given = node.expressions if anonymous else [node.this, node.args.get("expression") or node.args.get("quantile")]
        self._arguments = [argument for argument in given if argument is not None]
        self._unread = set(range(len(self._arguments)))
        self._key = node.name.lower() if anonymous else node.key

    def alias(self, *columns: str) -> str:
        """The name of the result without AS."""
        return "_".join((self._key, *columns))

    @property
    def star(self) -> bool:
        """Whether the argument is *, which counts all rows."""
        if not isinstance(self._node.this, ast.Star):
            return False
        only(self._read(0))
        return self._kept is None

    @property
    def distinct(self) -> list[str] | None:
        """The columns of DISTINCT, None without it."""
        if not isinstance(self._node.this, ast.Distinct):
            return None
        node = self._read(0)
        only(node, "expressions")
        return [self._reader.column(column, self._kept) for column in node.expressions]

    def column(self, position: int = 0) -> str:
        """An argument as a column: an expression is computed as a column of its own."""
        node = self._read(position)
        return self._reader.column(ast.Boolean(this=True) if isinstance(node, ast.Star) else node, self._kept)

    def clamped(self, position: int = 0) -> tuple[str, tuple[float, float] | None]:
        """An argument as a column, and its bounds if it stands in CLAMP(column, lower, upper)."""
        node = self._read(position)
        if is_clamp(node):
            inner, low, high = clamp_of(node)
            return self._reader.column(inner, self._kept), (low, high)
        return self._reader.column(node, self._kept), None

    def number(self, position: int) -> int | float | None:
        """An argument that is a number, None if there is none."""
        return number(self._read(position)) if position < len(self._arguments) else None

    def refused(self, instead: str) -> InvalidArgument:
        """The error for a call that cannot be answered, with what to write instead."""
        return refused(self._node, instead)

    def require_all_read(self) -> None:
        """Refuse arguments that the aggregate did not read."""
        if self._unread:
            raise refused(self._node, f"{self.name} with fewer arguments")

    def _read(self, position: int) -> Any:
        if position >= len(self._arguments):
            raise refused(self._node, f"{self.name} with more arguments, such as {self.name}(column)")
        self._unread.discard(position)
        return self._arguments[position]


class Aggregates:
    """Reads the aggregates of one SELECT; each is measured once, however often it is written.

    Attributes:
        values: reads expressions about the rows.
        columns: names the expressions inside aggregates.
        asked: the aggregates by the name of their result.
    """

    def __init__(self, values: Values, columns: Columns, replaced: Iterable[str] = ()) -> None:
        self.values = values
        self.columns = columns
        self.asked: dict[str, Aggregate] = {}
        self._replaced = {name.lower() for name in replaced}
        self._by_text: dict[str, list[str]] = {}

    def column(self, node: Any, kept: Any = None) -> str:
        """The column of an argument; `kept` is the condition of FILTER, outside of which it is missing."""
        if kept is None and isinstance(node, ast.Column):
            name = self.values.scope.column(node)
            if name.lower() not in self._replaced:
                return name
        value = self.values.value(node)
        if kept is not None:
            value = Cases((self.values.condition(kept),), (value,))
        text = node.sql() + ("" if kept is None else f" where {kept.sql()}")
        return self.columns.named(text, value)

    @property
    def names(self) -> str:
        """The aggregate functions, for messages."""
        *others, last = [name for aggregate in registry.AGGREGATES for name in aggregate.sql_names]
        return f"{', '.join(others)} or {last}"

    def is_aggregate(self, node: Any) -> bool:
        """Whether a node is the call of an aggregate function."""
        if isinstance(node, ast.Filter | ast.WithinGroup):
            return self.is_aggregate(node.this)
        return isinstance(node, ast.AggFunc) or _function(node) in _functions(registry.AGGREGATES)

    def measure(self, node: Any, alias: str = "") -> list[str]:
        """The names of the results of an aggregate: one, or one for each of several quantiles."""
        text = node.sql()
        if text in self._by_text and not alias:
            return self._by_text[text]
        labels = []
        for suffix, call, kept in _calls(node):
            default, aggregate = self._read(call, kept)
            label = f"{alias or default}{suffix}"
            if alias and label in self.asked:
                raise _check.fail("sql", "name each result once", label, "use AS to name them")
            if not alias and label in self.asked and text not in self._by_text:
                label = self._free(label)
            self.asked[label] = aggregate
            labels.append(label)
        self._by_text[text] = labels
        return labels

    def _free(self, label: str) -> str:
        suffix = 2
        while f"{label}_{suffix}" in self.asked:
            suffix += 1
        return f"{label}_{suffix}"

    def _read(self, node: Any, kept: Any) -> tuple[str, Aggregate]:
        functions = _functions(registry.AGGREGATES)
        if _function(node) not in functions:
            raise refused(node, self.names)
        name, aggregate = functions[_function(node)]
        anonymous = ["expressions"] if isinstance(node, ast.Anonymous) else []
        only(node, "this", "expression", "big_int", "quantile", *anonymous)
        call = AggregateCall(self, node, name, kept)
        asked = aggregate.from_sql(call)
        call.require_all_read()
        return asked

    def as_column(self, node: Any) -> Expression | None:
        """The column that holds an aggregate's value; None for other nodes."""
        if not self.is_aggregate(node):
            return None
        (label,) = self.measure(node)
        return Column(label)


def _calls(node: Any) -> list[tuple[str, Any, Any]]:
    """The plain calls that an aggregate stands for: a suffix for the name, the call, and the condition of FILTER."""
    if isinstance(node, ast.Filter):
        only(node, "this", "expression")
        return [(suffix, call, node.expression.this) for suffix, call, _ in _calls(node.this)]
    if isinstance(node, ast.CountIf):
        only(node, "this", "big_int")
        return [("", ast.Count(this=ast.Star(), big_int=True), node.this)]
    if isinstance(node, ast.WithinGroup):
        only(node, "this", "expression")
        ordered = node.expression.expressions
        if not isinstance(node.this, ast.PercentileCont) or len(ordered) != 1 or ordered[0].args.get("desc"):
            raise refused(node, "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY column)")
        node = ast.PercentileCont(this=ordered[0].this, expression=node.this.this)
    ranks = node.args.get("expression") or node.args.get("quantile")
    if isinstance(node, ast.Quantile):
        node = ast.PercentileCont(this=node.this, expression=ranks)
    if isinstance(node, ast.PercentileCont) and isinstance(ranks, ast.Array):
        several = [number(rank) for rank in ranks.expressions]
        if len(set(several)) != len(several) or not several:
            raise refused(node, "a list of different ranks, such as [0.25, 0.5, 0.75]")
        return [
            (rank_suffix(rank), ast.PercentileCont(this=node.this.copy(), expression=each), None)
            for rank, each in zip(several, ranks.expressions, strict=True)
        ]
    return [("", node, None)]


def _function(node: Any) -> str:
    """What identifies a function, however it is spelled."""
    return node.name.upper() if isinstance(node, ast.Anonymous) else type(node).__name__


@lru_cache(maxsize=8)
def _functions(aggregates: tuple[type[Aggregate], ...]) -> dict[str, tuple[str, type[Aggregate]]]:
    """The functions of all aggregates, each as its aggregate spells it, with any number of arguments."""
    named = [(name, aggregate) for aggregate in aggregates for name in aggregate.sql_names]
    read = {
        name: sqlglot.parse_one(f"{name}(x)", read="duckdb", error_level=sqlglot.ErrorLevel.IGNORE) for name, _ in named
    }
    return {_function(read[name]): (name, aggregate) for name, aggregate in named}
