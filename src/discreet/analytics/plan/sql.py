"""A subset of SQL, read into the same questions as the methods; everything else is refused by clause.

    SELECT sex, COUNT(*) AS n, AVG(CLAMP(age, 0, 120)) FROM people WHERE age >= 18 GROUP BY sex

The text is only read, never run: it becomes expressions and aggregates of ours. Each part of the parsed query must be
on the list, so a clause that this file does not know is refused too. Missing values are treated as in SQL: a comparison
with one is neither true nor false, so neither a condition nor its NOT keeps the row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.aggregates import registry
from discreet.analytics.aggregates.aggregate import Aggregate
from discreet.analytics.table.expressions import Column, Constant, Expression, Logic
from discreet.analytics.table.semantics import literal
from discreet.errors import InvalidArgument

_CLAUSES = {
    "having": "filter the released result",
    "order": "sort the released result",
    "limit": "cut the released result",
    "offset": "cut the released result",
    "joins": "join before the table is private, or ask each table",
    "with_": "use where() and mutate() in place of WITH",
    "distinct": "COUNT(DISTINCT person) counts persons",
    "windows": "there are no windows over private rows",
    "qualify": "there are no windows over private rows",
    "query": "list the values: there are no subqueries",
}
_NEAREST = {
    "Stddev": "STDDEV_POP, which divides by n",
    "StddevSamp": "STDDEV_POP, which divides by n",
    "Variance": "VAR_POP, which divides by n",
    "CovarSamp": "COVAR_POP, which divides by n",
    "Like": "IN with a list of values",
    "Mod": "a comparison, or bin() in Python",
    "Star": "COUNT(*): rows are private",
    "Subquery": "the table itself: there are no subqueries",
    "Window": "GROUP BY: there are no windows over private rows",
    "Filter": "WHERE",
    "WithinGroup": "QUANTILE_CONT(column, 0.5)",
}
_COMPARE: dict[type, tuple[str, str]] = {
    ast.EQ: ("==", "!="),
    ast.NEQ: ("!=", "=="),
    ast.LT: ("<", ">="),
    ast.LTE: ("<=", ">"),
    ast.GT: (">", "<="),
    ast.GTE: (">=", "<"),
}
_APPLY: dict[str, Callable[[Any, Any], Expression]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True)
class Parsed:
    """What a query asks for."""

    where: Expression | None
    groups: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]


def parse(text: str, columns: tuple[str, ...], person: str | None) -> Parsed:
    """What a query asks of one table with these columns; `person` names the person's id."""
    if not isinstance(text, str):
        raise _check.fail("sql", "be text", type(text).__name__, "such as SELECT COUNT(*) FROM people")
    try:
        statements = sqlglot.parse(text, read="duckdb")
        if len(statements) != 1 or not isinstance(statements[0], ast.Select):
            raise _check.fail("sql", "be one SELECT", text, "ask one question at a time")
        return _Reader(columns, person).select(statements[0])
    except sqlglot.errors.SqlglotError:
        raise _check.fail("sql", "be one SELECT that can be parsed", text, "check its syntax") from None
    except RecursionError:
        remedy = "use fewer parentheses, or where() and isin() in Python"
        raise _check.fail("sql", "be nested less deeply", f"{len(text)} characters", remedy) from None


class Call:
    """A call of an aggregate's function, as the aggregate reads it: each argument is checked when it is read.

    Attributes:
        name: the function, spelled as the aggregate does.
        person: the person's column, if the account protects persons.
    """

    def __init__(self, reader: _Reader, node: Any, name: str) -> None:
        self._reader = reader
        self._node = node
        self.name = name
        self.person = reader.person
        anonymous = isinstance(node, ast.Anonymous)
        given = node.expressions if anonymous else [node.this, node.args.get("expression")]
        self._arguments = [argument for argument in given if argument is not None]
        self._unread = set(range(len(self._arguments)))
        self._key = node.name.lower() if anonymous else node.key

    def alias(self, *columns: str) -> str:
        """The name of the result without AS."""
        return "_".join((self._key, *columns))

    @property
    def star(self) -> bool:
        """Whether the argument is *."""
        if not isinstance(self._node.this, ast.Star):
            return False
        _only(self._read(0))
        return True

    @property
    def distinct(self) -> list[str] | None:
        """The columns of DISTINCT, None without it."""
        if not isinstance(self._node.this, ast.Distinct):
            return None
        node = self._read(0)
        _only(node, "expressions")
        return [self._reader.column(column) for column in node.expressions]

    def column(self, position: int = 0) -> str:
        """An argument that is a column."""
        return self._reader.column(self._read(position))

    def clamped(self, position: int = 0) -> tuple[str, tuple[float, float] | None]:
        """An argument that is a column, perhaps in CLAMP(column, lower, upper), and these bounds."""
        return self._reader.clamped(self._read(position))

    def number(self, position: int) -> int | float | None:
        """An argument that is a number, None if there is none."""
        return self._reader.number(self._read(position)) if position < len(self._arguments) else None

    def refused(self, instead: str) -> InvalidArgument:
        """The error for a call that cannot be answered, with what to write instead."""
        return _refused(self._node, instead)

    def require_all_read(self) -> None:
        """Refuse arguments that the aggregate did not read."""
        if self._unread:
            raise _refused(self._node, f"{self.name} with fewer arguments")

    def _read(self, position: int) -> Any:
        if position >= len(self._arguments):
            raise _refused(self._node, f"{self.name} with more arguments, such as {self.name}(column)")
        self._unread.discard(position)
        return self._arguments[position]


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


class _Reader:
    def __init__(self, columns: tuple[str, ...], person: str | None) -> None:
        self._columns = columns
        self.person = person
        self._table: set[str] = set()

    def select(self, query: ast.Select) -> Parsed:
        _only(query, "expressions", "from_", "where", "group")
        self._source(query)
        where = query.args.get("where")
        condition = None if where is None else self._condition(where.this, negated=False)
        group = query.args.get("group")
        groups: tuple[str, ...] = ()
        if group is not None:
            _only(group, "expressions")
            groups = tuple(self.column(one) for one in group.expressions)
        aggregates: dict[str, Aggregate] = {}
        for item in query.expressions:
            alias, inner = (item.alias, item.this) if isinstance(item, ast.Alias) else ("", item)
            if isinstance(inner, ast.Column):
                if alias or self.column(inner) not in groups:
                    raise _refused(inner, "a column of GROUP BY under its own name, or an aggregate")
                continue
            name, aggregate = self._aggregate(inner)
            label = alias or name
            if label in aggregates:
                raise _check.fail("sql", "name each result once", label, "use AS to name them")
            aggregates[label] = aggregate
        return Parsed(condition, groups, aggregates)

    def _source(self, query: ast.Select) -> None:
        source = query.args.get("from_")
        if source is None or not isinstance(source.this, ast.Table) or not isinstance(source.this.this, ast.Identifier):
            raise _check.fail("sql", "have FROM with one table", query.sql(), "such as FROM people")
        _only(source, "this")
        _only(source.this, "this", "alias")
        if source.this.args.get("alias") is not None:
            _only(source.this.args["alias"], "this")  # it may not rename columns
        self._table = {source.this.name.lower(), source.this.alias_or_name.lower()}

    def column(self, node: Any) -> str:
        """The name of a column of the table."""
        if not isinstance(node, ast.Column) or not isinstance(node.this, ast.Identifier):
            raise _refused(node, "a column's name")
        _only(node, "this", "table")
        if node.table and node.table.lower() not in self._table:
            raise _check.fail("sql", "name the table of FROM", node.table, "there is one table")
        if node.name in self._columns:
            return node.name
        alike = [column for column in self._columns if column.lower() == node.name.lower()]
        if len(alike) != 1 or node.this.quoted:
            raise _check.fail("column", "be one of the table's", node.name, ", ".join(self._columns))
        return alike[0]

    def _aggregate(self, node: Any) -> tuple[str, Aggregate]:
        functions = _functions(registry.AGGREGATES)
        if _function(node) not in functions:
            names = [name for aggregate in registry.AGGREGATES for name in aggregate.sql_names]
            raise _refused(node, f"{', '.join(names[:-1])} or {names[-1]}")
        name, aggregate = functions[_function(node)]
        _only(node, "this", "expression", "big_int", *(["expressions"] if isinstance(node, ast.Anonymous) else []))
        call = Call(self, node, name)
        asked = aggregate.from_sql(call)
        call.require_all_read()
        return asked

    def clamped(self, node: Any) -> tuple[str, tuple[float, float] | None]:
        """A column, and its bounds if it stands in CLAMP(column, lower, upper)."""
        if isinstance(node, ast.Anonymous) and node.name.upper() == "CLAMP":
            _only(node, "this", "expressions")
            if len(node.expressions) != 3:
                raise _refused(node, "CLAMP(column, lower, upper)")
            column, low, high = node.expressions
            return self.column(column), (self.number(low), self.number(high))
        return self.column(node), None

    def _condition(self, node: Any, *, negated: bool) -> Expression:
        """The rows for which a condition is true in SQL's three-valued logic, or for which its NOT is."""
        match node:
            case ast.Paren():
                return self._condition(node.this, negated=negated)
            case ast.Not():
                return self._condition(node.this, negated=not negated)
            case ast.And() | ast.Or():
                sides = tuple(self._condition(side, negated=negated) for side in _sides(node))
                return Logic("and" if isinstance(node, ast.And) != negated else "or", sides)
            case ast.EQ() | ast.NEQ() | ast.LT() | ast.LTE() | ast.GT() | ast.GTE():
                _only(node, "this", "expression")
                operator = _COMPARE[type(node)][negated]
                return _APPLY[operator](self._value(node.this), self._value(node.expression))
            case ast.Between():
                _only(node, "this", "low", "high")
                value, low, high = (self._value(node.args[part]) for part in ("this", "low", "high"))
                return (value < low) | (value > high) if negated else (value >= low) & (value <= high)
            case ast.In():
                _only(node, "this", "expressions")
                value, listed = self._value(node.this), [self._value(one) for one in node.expressions]
                each = tuple((value != one) if negated else (value == one) for one in listed)
                return Logic("and" if negated else "or", each)
            case ast.Is() if isinstance(node.expression, ast.Null):
                missing = self._value(node.this).is_null()
                return ~missing if negated else missing
            case ast.Column():
                return Column(self.column(node)) == Constant(not negated)
            case _:
                raise _refused(node, "comparisons, BETWEEN, IN, IS NULL, AND, OR and NOT")

    def _value(self, node: Any) -> Expression:
        match node:
            case ast.Paren():
                return self._value(node.this)
            case ast.Column():
                return Column(self.column(node))
            case ast.Add() | ast.Sub() | ast.Mul() | ast.Div():
                _only(node, "this", "expression", "typed", "safe")
                a, b = self._value(node.this), self._value(node.expression)
                return {"add": a.__add__, "sub": a.__sub__, "mul": a.__mul__, "div": a.__truediv__}[node.key](b)
            case ast.Abs():
                return self._value(node.this).abs()
            case ast.Neg() if not isinstance(node.this, ast.Literal):
                return -self._value(node.this)
            case ast.Boolean():
                return Constant(bool(node.this))
            case ast.Cast() if isinstance(node.this, ast.Literal) and node.to.is_type("date"):
                return Constant(_date(node.this.name))
            case ast.Literal() if node.is_string:
                return Constant(literal(node.name))
            case ast.Literal() | ast.Neg():
                return Constant(self.number(node))
            case _:
                raise _refused(node, "columns, literals, +, -, *, / and ABS")

    def number(self, node: Any) -> int | float:
        """A number that stands in the query."""
        if isinstance(node, ast.Neg):
            return -self.number(node.this)
        if not isinstance(node, ast.Literal) or node.is_string:
            raise _refused(node, "a number")
        try:
            value: int | float = int(node.name)
        except ValueError:
            value = float(node.name)
        literal(value)
        return value


def _sides(node: Any) -> list[Any]:
    """What a chain of ANDs, or of ORs, joins; a loop, since a chain may be longer than Python's stack."""
    sides, first = [], node
    while type(first) is type(node):
        _only(first, "this", "expression")
        sides.append(first.expression)
        first = first.this
    return [first, *reversed(sides)]


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise _check.fail("sql", "hold dates as DATE 'YYYY-MM-DD'", text, "write the date like that") from None


def _only(node: Any, *allowed: str) -> None:
    """Refuse a node with any part that is not on the list, known or not."""
    for name, value in node.args.items():
        if value and name not in allowed:
            clause = name.rstrip("_").upper()
            raise _check.fail("sql", f"have no {clause} here", node.sql(), _CLAUSES.get(name, "leave it out"))


def _refused(node: Any, instead: str) -> InvalidArgument:
    kind = type(node).__name__
    return _check.fail("sql", f"not have {kind} here", node.sql(), f"use {_NEAREST.get(kind, instead)}")
