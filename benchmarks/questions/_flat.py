"""A question as one flat table and a few plain aggregates of its columns, for libraries that read less SQL.

The table holds a row for each row that the question aggregates, with its person, its group and the values that are
summed. Joins, expressions and sub-queries that aggregate the rows of one person are computed in it, as a data owner
would do in a view. A row keeps its person, so a library that limits the rows of a person keeps its guarantee.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import expressions as ast

from benchmarks.questions._asking import text
from benchmarks.questions._question import Asked

#: Public facts that Discreet reads from the functions themselves: the values of their results.
_DOMAINS: Mapping[str, Iterable[Any]] = {
    "hour": range(24),
    "weekday": range(1, 8),
    "week": range(1, 54),
    "quarter": range(1, 5),
    "full_time": (False, True),
    "band": ("under 30", "30 to 49", "50 and over"),
    "shift": ("day", "night"),
}
_AGGREGATES = (ast.Filter, ast.Count, ast.Sum, ast.Avg, ast.Median, ast.PercentileCont)


@dataclass(frozen=True)
class Aggregated:
    """One aggregate: `kind` is count, sum, mean, quantile or distinct; of a column v0, v1, … within bounds."""

    kind: str
    column: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)
    level: float = 0.5


@dataclass(frozen=True)
class Flat:
    """What a library is asked.

    Attributes:
        rows: the SQL of the flat table: `person` if there are persons, the group columns g0, g1, … as text, and v0, …
        person: whether rows belong to persons.
        max_rows: the most rows of one person that count.
        keys: the public values of each group column, as text.
        aggregates: what is asked, as a0, a1, …
        outputs: the numbers of the answer in SQL, made of a0, a1, …
    """

    rows: str
    person: bool
    max_rows: int
    keys: list[list[str]]
    aggregates: list[Aggregated]
    outputs: list[str]


class Unsuited(Exception):
    """A question that is no aggregation of one flat table."""


def flat(asked: Asked, private: Mapping[str, str | None], bounds: Mapping[str, tuple[float, float]]) -> Flat:
    """A question in this form; `private` maps each private table to the column that names the person."""
    query = sqlglot.parse_one(asked.sql, read="duckdb")
    assert isinstance(query, ast.Select)
    if any(isinstance(node.parent, ast.Binary) for node in query.find_all(ast.Subquery)):
        raise Unsuited("asks two questions: a released number is part of the condition of the other")
    tables = [table for table in query.find_all(ast.Table, bfs=False) if table.name in private]
    person = private[tables[0].name]
    items = [item.unalias() for item in query.expressions]
    names = [item.alias_or_name for item in query.expressions]
    groups = [_item(node, items, names) for node in _clause(query, "group")]
    reader = _Reader(bounds, person, asked.max_rows)
    reader.define(query)
    outputs = [text for item in items if item not in groups for text in reader.outputs(item)]
    columns = [] if person is None else [ast.alias_(_person(query, person, private), "person")]
    keys = []
    for i, node in enumerate(item for item in items if item in groups):
        values = list(asked.keys.get(names[items.index(node)], ()) or _DOMAINS[names[items.index(node)]])
        keys.append([text(value) for value in values])
        columns.append(ast.alias_(_as_text(node, values[0]), f"g{i}"))
    columns += [ast.alias_(node, name) for name, node in reader.columns.items()]
    rows = query.copy()
    rows.set("expressions", columns or [ast.alias_(ast.Literal.number(1), "one")])
    for clause in ("group", "having", "order", "limit"):
        rows.set(clause, None)
    if reader.persons:
        rows = rows.distinct()
    limit = min([asked.max_rows, *_most_rows(rows, person, [node.name for node in groups], _size(keys))])
    if reader.persons:
        limit = min(limit, _size(keys))
    return Flat(rows.sql("duckdb"), person is not None, limit, keys, reader.aggregates, outputs)


def _as_text(node: Any, example: Any) -> Any:
    """A group's expression as the same text."""
    kind = "DATE" if isinstance(example, dt.date) else "BIGINT" if type(example) is int else "VARCHAR"
    return ast.cast(ast.cast(node.copy(), kind), "VARCHAR")


def _size(keys: list[list[str]]) -> int:
    size = 1
    for values in keys:
        size *= len(values)
    return size


def _clause(query: Any, name: str) -> list[Any]:
    clause = query.args.get(name)
    return [] if clause is None else clause.expressions


def _item(node: Any, items: list[Any], names: list[str]) -> Any:
    """The item of SELECT that GROUP BY names by its position, its alias or itself."""
    if isinstance(node, ast.Literal):
        return items[int(node.this) - 1]
    return items[names.index(node.name)] if isinstance(node, ast.Column) and node.name in names else node


def _most_rows(query: Any, person: str | None, groups: list[str], cells: int) -> list[int]:
    """How many rows a person can have after a sub-query that makes one for each person, or for each of their groups."""
    limits = []
    for inner in query.find_all(ast.Group):
        names = {node.name for node in inner.expressions}
        if names == {person}:
            limits.append(1)
        elif names == {person, *groups}:
            limits.append(cells)
    return limits


def _person(query: Any, person: str, private: Mapping[str, str | None]) -> Any:
    """The person of a row; sub-queries that would drop it keep it."""
    for inner in query.find_all(ast.Select):
        read = isinstance(inner.parent, ast.CTE) or isinstance(inner.parent and inner.parent.parent, ast.From)
        named = [item.alias_or_name for item in inner.expressions]
        if read and inner.args.get("group") is None and person not in named:
            inner.select(ast.column(person), copy=False)
    source = query.args["from_"].this
    direct = isinstance(source, ast.Table) and source.name in private
    return ast.column(person, table=source.alias_or_name if direct else None)


class _Reader:
    """Reads the aggregates of a query: each becomes one of a column of the flat table."""

    def __init__(self, bounds: Mapping[str, tuple[float, float]], person: str | None, max_rows: int) -> None:
        self._bounds = dict(bounds)
        self._person_column = person
        self._max_rows = max_rows
        self.aggregates: list[Aggregated] = []
        self.columns: dict[str, Any] = {}
        self.persons = False

    def define(self, query: Any) -> None:
        """Learn the bounds of the numbers that sub-queries name."""
        for inner in query.find_all(ast.Select):
            for item in inner.expressions if inner is not query else ():
                if item.find(ast.Column) and isinstance(item, ast.Alias):
                    with suppress(KeyError, Unsuited):  # a text or a date, which no aggregate takes
                        self._bounds[item.alias] = self._interval(item.this)

    def outputs(self, item: Any) -> list[str]:
        """The numbers of one item of SELECT."""
        if isinstance(item, ast.PercentileCont) and isinstance(item.expression, ast.Array):
            levels = [float(level.this) for level in item.expression.expressions]
            return [self._add("quantile", item.this, level) for level in levels]
        replaced = ast.select(item.copy()).transform(self._replaced)
        return [replaced.expressions[0].sql("duckdb")]

    def _replaced(self, node: Any) -> Any:
        if not isinstance(node, _AGGREGATES):
            return node
        return ast.column(self._aggregate(node))

    def _aggregate(self, node: Any) -> str:
        if isinstance(node, ast.Filter):
            counted = ast.Case().when(node.expression.this.copy(), "1").else_("0")
            return self._add("sum", counted)
        if isinstance(node, ast.Count):
            if not isinstance(node.this, ast.Distinct):
                return self._add("count", None)
            (value,) = node.this.expressions
            if isinstance(value, ast.Column) and value.name == self._person_column:
                self.persons = True
                return self._add("count", None)
            return self._add("distinct", value)
        kinds = {ast.Sum: "sum", ast.Avg: "mean", ast.Median: "quantile"}
        return self._add(kinds[type(node)], node.this)

    def _add(self, kind: str, node: Any, level: float = 0.5) -> str:
        column, bounds = "", (0.0, 1.0)
        if node is not None:
            value = node.copy()
            if kind != "distinct":
                value, bounds = ast.cast(_unclamped(value), "DOUBLE"), self._interval(node)
            same = [name for name, expression in self.columns.items() if expression == value]
            column = same[0] if same else f"v{len(self.columns)}"
            self.columns[column] = value
        aggregated = Aggregated(kind, column, bounds, level)
        if aggregated not in self.aggregates:
            self.aggregates.append(aggregated)
        return f"a{self.aggregates.index(aggregated)}"

    def _interval(self, node: Any) -> tuple[float, float]:
        """The public bounds of an expression, from its columns' bounds."""
        match node:
            case ast.Column():
                return self._bounds[node.name]
            case ast.Literal():
                return float(node.this), float(node.this)
            case ast.Paren():
                return self._interval(node.this)
            case ast.Anonymous(expressions=[_, low, high]):  # CLAMP, whose bounds it states
                return float(low.this), float(high.this)
            case ast.Case():
                branches = [branch.args["true"] for branch in node.args["ifs"]]
                return _hull(self._interval(branch) for branch in [*branches, node.args["default"]])
            case ast.Coalesce():
                return _hull(self._interval(value) for value in (node.this, *node.expressions))
            case ast.Sum():
                return _hull([(0.0, 0.0), _scaled(self._interval(node.this), self._max_rows)])
            case ast.Add() | ast.Sub() | ast.Mul():
                (low, high), (least, most) = self._interval(node.left), self._interval(node.right)
                if isinstance(node, ast.Add):
                    return low + least, high + most
                if isinstance(node, ast.Sub):
                    return low - most, high - least
                return _hull([_scaled((low, high), least), _scaled((low, high), most)])
        raise Unsuited(f"has no public bounds for {node.sql()}")


def _unclamped(node: Any) -> Any:
    return node.expressions[0] if isinstance(node, ast.Anonymous) else node


def _scaled(bounds: tuple[float, float], factor: float) -> tuple[float, float]:
    low, high = sorted(end * factor for end in bounds)
    return low, high


def _hull(intervals: Iterable[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)
