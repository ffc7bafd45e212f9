"""Reads JOIN: which tables, by which equal columns, and what their columns are called afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.plan.sql.relation import Relation, person_of
from discreet.analytics.plan.sql.values import Scope, Values, sides_of

_KINDS = {("", ""): "inner", ("", "INNER"): "inner", ("LEFT", ""): "left", ("LEFT", "OUTER"): "left"}
_KINDS |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}


@dataclass(frozen=True)
class Right:
    """The right side of a JOIN: a private or a public table, and its name."""

    table: Any
    name: str

    @property
    def scope(self) -> Scope:
        """Its columns under its name."""
        return Scope(self.table.columns, None, frozenset({self.name}))


@dataclass(frozen=True)
class Joined:
    """A private table that JOINs have made, and what each table's columns are called in it."""

    table: Any
    names: frozenset[str]
    qualified: Mapping[tuple[str, str], str]

    @classmethod
    def of(cls, rows: Relation, name: str) -> Joined:
        """The first table of FROM."""
        table = rows.private()
        columns = {(name, column.lower()): column for column in rows.scope.columns}
        return cls(table, frozenset({name}), columns)

    @property
    def scope(self) -> Scope:
        """The names that conditions and SELECT may use."""
        columns, person = tuple(self.table.columns), person_of(self.table)
        return Scope(columns, person if person in columns else None, self.names, self.qualified)

    def relation(self) -> Relation:
        """The rows for the rest of the SELECT."""
        return Relation(self.table, (), self.scope)

    def join(self, node: ast.Join, right: Right) -> Joined:
        """The table after one more JOIN."""
        only(node, "this", "on", "using", "side", "kind")
        how = _KINDS.get((str(node.args.get("side") or "").upper(), str(node.args.get("kind") or "").upper()))
        if how is None or not (node.args.get("on") or node.args.get("using")):
            remedy = "write JOIN, LEFT JOIN, SEMI JOIN or ANTI JOIN, with ON a.x = b.y or USING (x)"
            raise _check.fail("sql", "join tables by equal columns", node.sql(), remedy)
        if right.name in self.names:
            raise _check.fail("sql", "name each table once", right.name, "give the second one an alias: JOIN t AS t2")
        pairs, conditions = self._pairs(node, right)
        table, renamed = self.table._joined(right.table, pairs, how, f"{{name}}_{right.name}")
        if how in ("semi", "anti"):
            if conditions:
                raise refused(conditions[0], "equal columns in ON; other conditions stand in a sub-query")
            return Joined(table, self.names, self.qualified)
        own = {(right.name, column.lower()): renamed.get(column, column) for column in right.table.columns}
        joined = Joined(table, self.names | {right.name}, {**self.qualified, **own})
        if conditions and how == "left":
            raise refused(conditions[0], "equal columns in ON of a LEFT JOIN; other conditions stand in a sub-query")
        values = Values(joined.scope)
        for condition in conditions:
            joined = Joined(joined.table.where(values.condition(condition)), joined.names, joined.qualified)
        return joined

    def _pairs(self, node: ast.Join, right: Right) -> tuple[list[tuple[str, str]], list[Any]]:
        """The columns that are compared, and the conditions of ON that compare no columns of both sides."""
        using = [ast.Column(this=name) for name in node.args.get("using") or ()]
        pairs = [(self.scope.column(name), right.scope.column(name)) for name in using]
        on = node.args.get("on")
        sides = [] if on is None else sides_of(on) if isinstance(on, ast.And) else [on]
        conditions = []
        for side in sides:
            pair = self._pair(side, right)
            if pair is None:
                conditions.append(side)
            else:
                pairs.append(pair)
        if not pairs:
            raise refused(node.args["on"], "ON a.x = b.y, with a column of each table")
        return pairs, conditions

    def _pair(self, node: Any, right: Right) -> tuple[str, str] | None:
        while isinstance(node, ast.Paren):
            node = node.this
        if not isinstance(node, ast.EQ):
            return None
        one, other = node.this, node.expression
        for mine, theirs in ((one, other), (other, one)):
            if self._is_mine(mine, right) and _is_of(theirs, right):
                return self.scope.column(mine), right.scope.column(theirs)
        return None

    def _is_mine(self, node: Any, right: Right) -> bool:
        if not isinstance(node, ast.Column):
            return False
        if node.table:
            return node.table.lower() in self.names
        if self.scope.knows(node) and right.scope.knows(node):
            raise _check.fail("column", "name its table", node.name, "both tables have it: write table.column")
        return self.scope.knows(node)


def _is_of(node: Any, right: Right) -> bool:
    if not isinstance(node, ast.Column):
        return False
    return node.table.lower() == right.name if node.table else right.scope.knows(node)
