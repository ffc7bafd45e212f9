"""Reads values and conditions of SQL into expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.plan.sql import functions
from discreet.analytics.plan.sql.constants import constant
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.table.expressions import Cases, Column, Constant, Expression, Logic, Present

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
_CONDITIONS = (
    ast.Not,
    ast.And,
    ast.Or,
    *_COMPARE,
    ast.Between,
    ast.In,
    ast.Is,
    ast.Like,
    ast.ILike,
    ast.StartsWith,
    ast.EndsWith,
    ast.Contains,
)


@dataclass(frozen=True)
class Scope:
    """The names that a SELECT may use.

    Attributes:
        columns: the columns of its rows.
        person: the column that names the person, if the account protects persons and the rows have it.
        tables: the names of what it reads from, in lower case.
        qualified: for rows of several tables, what each table's column is called: by (table, column), in lower case.
        keys: columns by which an outer join compared, on the side that may be missing; without its table's name, a
            column means the other side's.
    """

    columns: tuple[str, ...]
    person: str | None
    tables: frozenset[str] = field(default_factory=frozenset)
    qualified: Mapping[tuple[str, str], str] = field(default_factory=dict)
    keys: frozenset[str] = field(default_factory=frozenset)

    def column(self, node: Any) -> str:
        """The name of a column."""
        if not isinstance(node, ast.Column) or not isinstance(node.this, ast.Identifier):
            raise refused(node, "a column's name")
        only(node, "this", "table")
        if node.table and node.table.lower() not in self.tables:
            raise _check.fail("sql", "name the table of FROM", node.table, f"it is {', '.join(sorted(self.tables))}")
        if self.qualified:
            return self._of_several(node)
        if node.name in self.columns:
            return node.name
        alike = [column for column in self.columns if column.lower() == node.name.lower()]
        if len(alike) != 1 or node.this.quoted:
            raise _check.fail("column", "be one of the table's", node.name, ", ".join(self.columns))
        return alike[0]

    def _of_several(self, node: Any) -> str:
        """The name of a column of one of several joined tables."""
        name = node.name.lower()
        held = {table: real for (table, column), real in self.qualified.items() if column == name}
        if node.table:
            held = {table: real for table, real in held.items() if table == node.table.lower()}
        elif len(held) > 1:
            held = {table: real for table, real in held.items() if real not in self.keys} or held
        meant = set(held.values())
        if len(meant) > 1:
            raise _check.fail(
                "column", "name its table", node.name, f"write one of {', '.join(sorted(held))} before it"
            )
        if not meant and node.name in self.columns:  # computed since
            return str(node.name)
        if not meant:
            raise _check.fail("column", "be one of the tables'", node.sql(), ", ".join(self.columns))
        return meant.pop()

    def knows(self, node: Any) -> bool:
        """Whether a node is a column of these rows."""
        names = {name.lower() for name in self.columns} | {column for _, column in self.qualified}
        return isinstance(node, ast.Column) and node.name.lower() in names


@dataclass(frozen=True)
class Values:
    """Reads expressions about the rows of a scope.

    Attributes:
        scope: the names.
        measured: gives the column that holds an aggregate's value, where aggregates may be compared.
    """

    scope: Scope
    measured: Callable[[Any], Expression | None] | None = None

    def value(self, node: Any) -> Expression:
        """What a node computes from a row."""
        held = None if self.measured is None else self.measured(node)
        if held is not None:
            return held
        public = constant(node)
        if public is not None:
            return public
        if isinstance(node, _CONDITIONS):
            truth, falsehood = self.condition(node, negated=False), self.condition(node, negated=True)
            return Cases((truth, falsehood), (Constant(True), Constant(False)))
        match node:
            case ast.Paren():
                return self.value(node.this)
            case ast.Column():
                return Column(self.scope.column(node))
            case ast.Neg():
                return -self.value(node.this)
            case ast.Case() | ast.If():
                return self._cases(node)
        return functions.read(node, self.value)

    def condition(self, node: Any, *, negated: bool = False) -> Expression:
        """The rows for which a condition is true in SQL's three-valued logic, or for which its NOT is."""
        match node:
            case ast.Paren():
                return self.condition(node.this, negated=negated)
            case ast.Not():
                return self.condition(node.this, negated=not negated)
            case ast.And() | ast.Or():
                sides = tuple(self.condition(side, negated=negated) for side in sides_of(node))
                return Logic("and" if isinstance(node, ast.And) != negated else "or", sides)
            case ast.EQ() | ast.NEQ() | ast.LT() | ast.LTE() | ast.GT() | ast.GTE():
                only(node, "this", "expression")
                operator = _COMPARE[type(node)][negated]
                return _APPLY[operator](self.value(node.this), self.value(node.expression))
            case ast.Between():
                only(node, "this", "low", "high")
                value, low, high = (self.value(node.args[key]) for key in ("this", "low", "high"))
                return (value < low) | (value > high) if negated else (value >= low) & (value <= high)
            case ast.In():
                only(node, "this", "expressions")
                value, listed = self.value(node.this), [self.value(item) for item in node.expressions]
                each = tuple((value != item) if negated else (value == item) for item in listed)
                return Logic("and" if negated else "or", each)
            case ast.Is() if isinstance(node.expression, ast.Null):
                missing = self.value(node.this).is_null()
                return ~missing if negated else missing
            case ast.Is() if isinstance(node.expression, ast.Boolean):
                wanted = self.condition(node.this, negated=not node.expression.this)
                return ~wanted if negated else wanted
            case ast.Like() | ast.ILike() | ast.StartsWith() | ast.EndsWith() | ast.Contains():
                return self._matched(node, negated=negated)
            case ast.Boolean():
                return Constant(bool(node.this) != negated)
        return self.value(node) == Constant(not negated)

    def _matched(self, node: Any, *, negated: bool) -> Expression:
        only(node, "this", "expression", "negate")
        if not isinstance(node.expression, ast.Literal) or not node.expression.is_string:
            raise refused(node.expression, "a pattern in quotes")
        value, pattern = self.value(node.this), node.expression.name
        match node:
            case ast.Like() | ast.ILike():
                held = value.like(pattern, ignore_case=isinstance(node, ast.ILike))
            case ast.StartsWith():
                held = value.startswith(pattern)
            case ast.EndsWith():
                held = value.endswith(pattern)
            case _:
                held = value.contains(pattern)
        if negated != bool(node.args.get("negate")):
            return Logic("and", (Present(value), ~held))
        return held

    def _cases(self, node: Any) -> Expression:
        if isinstance(node, ast.If):
            only(node, "this", "true", "false")
            branches, default, compared = [(node.this, node.args["true"])], node.args.get("false"), None
        else:
            only(node, "this", "ifs", "default")
            branches = [(branch.this, branch.args["true"]) for branch in node.args["ifs"]]
            default, compared = node.args.get("default"), node.args.get("this")
        if compared is None:
            held = tuple(self.condition(condition) for condition, _ in branches)
        else:
            value = self.value(compared)
            held = tuple(value == self.value(tested) for tested, _ in branches)
        kept = [(holds, result) for holds, (_, result) in zip(held, branches, strict=True)]
        # NULL has no kind of its own: a branch that gives it is left out, where the ones after it cannot hold as well.
        last = None if default is None or isinstance(default, ast.Null) else self.value(default)
        if any(isinstance(result, ast.Null) for _, result in kept):
            raise refused(node, "ELSE NULL, or no ELSE, in place of THEN NULL")
        return Cases(tuple(holds for holds, _ in kept), tuple(self.value(result) for _, result in kept), last)


def conjuncts(node: Any) -> list[Any]:
    """The conditions that must all hold, out of ANDs and parentheses."""
    conditions, waiting = [], [node]
    while waiting:
        condition = waiting.pop()
        if isinstance(condition, ast.Paren):
            waiting.append(condition.this)
        elif isinstance(condition, ast.And):
            waiting += reversed(sides_of(condition))
        else:
            conditions.append(condition)
    return conditions


def sides_of(node: Any) -> list[Any]:
    """What a chain of ANDs, or of ORs, joins; a loop, since a chain may be longer than Python's stack."""
    sides, first = [], node
    while type(first) is type(node):
        only(first, "this", "expression")
        sides.append(first.expression)
        first = first.this
    return [first, *reversed(sides)]
