"""Reads JOIN: which tables, by which equal columns, and what their columns are called afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.plan.sql.relation import FromRows, person_of
from discreet.analytics.plan.sql.values import Scope, Values, conjuncts
from discreet.analytics.table.doors import joined as join_with_names
from discreet.analytics.table.public import Public
from discreet.errors import InvalidArgument

_KINDS = {("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner"}
_KINDS |= {(side, kind): side.lower() for side in ("LEFT", "RIGHT") for kind in ("", "OUTER")}
_KINDS |= {(side, kind): kind.lower() for side in ("", "LEFT") for kind in ("SEMI", "ANTI")}
_WAYS = "write JOIN, LEFT JOIN, SEMI JOIN or ANTI JOIN, with ON a.x = b.y or USING (x)"


@dataclass(frozen=True)
class Clause:
    """One JOIN, or one comma, of a FROM.

    Attributes:
        table: the table or sub-query that it names.
        how: "inner", "left", "right", "semi" or "anti".
        on: what ON demands, side by side.
        using: the columns of USING.
        natural: whether all columns of one name are compared.
    """

    table: Any
    how: str
    on: tuple[Any, ...] = ()
    using: tuple[Any, ...] = ()
    natural: bool = False

    @classmethod
    def read(cls, node: ast.Join) -> Clause:
        """The clause of a parsed JOIN; kinds that would give rows of nobody are refused."""
        only(node, "this", "on", "using", "side", "kind", "method")
        side, kind, method = (str(node.args.get(name) or "").upper() for name in ("side", "kind", "method"))
        if side == "FULL":
            remedy = (
                "write LEFT JOIN, beginning with the private table; a key without rows is answered too, if keys list it"
            )
            raise _check.fail("sql", "have no FULL JOIN, which gives rows that are nobody's", node.sql(), remedy)
        if (side, kind) not in _KINDS or method not in ("", "NATURAL"):
            raise _check.fail("sql", "join tables by equal columns", node.sql(), _WAYS)
        on = node.args.get("on")
        using = tuple(ast.Column(this=name) for name in node.args.get("using") or ())
        sides = () if on is None else tuple(conjuncts(on))
        return cls(node.this, _KINDS[side, kind], sides, using, method == "NATURAL")

    @property
    def plain(self) -> bool:
        """Whether it is a comma or a CROSS JOIN: what it compares stands in WHERE."""
        return self.how == "inner" and not (self.on or self.using or self.natural)

    @property
    def names_no_table(self) -> bool:
        """Whether what it compares could belong to tables that SQL does not see there, before a comma."""
        columns = [column for side in self.on for column in side.find_all(ast.Column)]
        return self.natural or bool(self.using) or any(not column.table for column in columns)

    @property
    def tables(self) -> set[str]:
        """The tables that ON names."""
        return {column.table.lower() for side in self.on for column in side.find_all(ast.Column) if column.table}


def private_first(first: Any, clauses: Sequence[Clause], is_public: Any) -> tuple[Any, list[Clause], list[Any]]:
    """FROM in an order that begins with a private table, and conditions that move to WHERE by that.

    Inner joins have no order, and `a RIGHT JOIN b` is `b LEFT JOIN a`.
    """
    if not is_public(first):
        return first, list(clauses), []
    for index, clause in enumerate(clauses):
        if is_public(clause.table) and clause.how == "inner" and not (clause.using or clause.natural):
            continue
        if index == 0 and clause.how in ("inner", "right") and not is_public(clause.table):
            how = "left" if clause.how == "right" else "inner"
            return clause.table, [replace(clause, table=first, how=how), *clauses[1:]], []
        if clause.how == "inner" and not (clause.using or clause.natural or is_public(clause.table)):
            earlier = [
                Clause(table, "inner")
                for table in (first, *(earlier_clause.table for earlier_clause in clauses[:index]))
            ]
            moved = [side for earlier_clause in clauses[: index + 1] for side in earlier_clause.on]
            return clause.table, [*earlier, *clauses[index + 1 :]], moved
        break
    remedy = "name a private table first, and JOIN the public one"
    raise _check.fail("sql", "begin FROM with a private table", first.sql(), remedy)


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
class JoinedTable:
    """A private table that JOINs have made, and what each table's columns are called in it.

    `keys` are the names of columns that equal another table's column, or are missing where an outer join found nothing.
    """

    table: Any
    names: frozenset[str]
    qualified: Mapping[tuple[str, str], str]
    keys: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, rows: FromRows, name: str) -> JoinedTable:
        """The first table of FROM."""
        table = rows.private()
        columns = {(name, column.lower()): column for column in rows.scope.columns}
        return cls(table, frozenset({name}), columns)

    @property
    def scope(self) -> Scope:
        """The names that conditions and SELECT may use."""
        columns, person = tuple(self.table.columns), person_of(self.table)
        return Scope(columns, person if person in columns else None, self.names, self.qualified, self.keys)

    def relation(self) -> FromRows:
        """The rows for the rest of the SELECT."""
        return FromRows(self.table, (), self.scope)

    def is_ready(self, clause: Clause, right: Right, pool: Sequence[Any]) -> bool:
        """Whether a clause names only tables that are joined already; a comma needs a condition that compares them."""
        if clause.plain:
            return any(self._pair(side, right) is not None for side in pool)
        return clause.tables <= self.names | {right.name}

    def join(self, clause: Clause, right: Right, pool: Sequence[Any]) -> tuple[JoinedTable, list[Any]]:
        """The table after one more JOIN, and which conditions of WHERE it has compared columns by."""
        if right.name in self.names:
            raise _check.fail("sql", "name each table once", right.name, "give the second one an alias: JOIN t AS t2")
        pairs, conditions, used = self._pairs(clause, right, pool)
        if clause.how == "right":
            return self._flipped(pairs, conditions, right), used
        if clause.how != "inner":
            right, conditions = self._filtered(right, conditions)
        # An outer join keeps both sides' keys: one of them is missing where nothing matched.
        outer = clause.how == "left"
        table, renamed = join_with_names(
            self.table, right.table, pairs, clause.how, f"{{name}}_{right.name}", keep_keys=outer
        )
        if clause.how in ("semi", "anti"):
            if conditions:
                raise refused(conditions[0], "equal columns in ON; other conditions stand in a sub-query")
            return replace(self, table=table), used
        own = {(right.name, column.lower()): renamed.get(column, column) for column in right.table.columns}
        compared = {*(theirs for _, theirs in pairs), _person(right.table)} if outer else set()
        keys = self.keys | {new for name, new in renamed.items() if name in compared}
        joined = JoinedTable(table, self.names | {right.name}, {**self.qualified, **own}, keys)
        if conditions and outer:
            raise refused(conditions[0], "equal columns in ON of a LEFT JOIN; other conditions stand in a sub-query")
        values = Values(joined.scope)
        for condition in conditions:
            joined = replace(joined, table=joined.table.where(values.condition(condition)))
        return joined, used

    def _filtered(self, right: Right, conditions: list[Any]) -> tuple[Right, list[Any]]:
        """The private right side without the rows that ON rules out by their own columns, and all other conditions.

        A row that ON rules out matches nothing, so that it may as well be left out before an outer, semi or anti join.
        """
        if isinstance(right.table, Public):
            return right, conditions
        values, table, others = Values(right.scope), right.table, []
        for condition in conditions:
            columns = list(condition.find_all(ast.Column))
            if columns and all(_is_of(column, right) and not self._is_mine(column, right) for column in columns):
                table = table.where(values.condition(condition))
            else:
                others.append(condition)
        return replace(right, table=table), others

    def _flipped(self, pairs: list[tuple[str, str]], conditions: list[Any], right: Right) -> JoinedTable:
        """A RIGHT JOIN as the LEFT JOIN of the right table with this one."""
        if conditions:
            raise refused(conditions[0], "equal columns in ON of a RIGHT JOIN; other conditions stand in a sub-query")
        if isinstance(right.table, Public):
            remedy = (
                "write LEFT JOIN, which keeps the private rows; a key without rows is answered too, if keys list it"
            )
            raise _check.fail("sql", "keep rows of a private table in a RIGHT JOIN", right.name, remedy)
        turned = [(theirs, mine) for mine, theirs in pairs]
        form = f"{{name}}_{min(self.names)}"
        table, renamed = join_with_names(right.table, self.table, turned, "left", form, keep_keys=True)
        qualified = {(right.name, column.lower()): column for column in right.table.columns}
        qualified |= {of: renamed.get(column, column) for of, column in self.qualified.items()}
        compared = {*self.keys, *(mine for mine, _ in pairs), _person(self.table)}
        keys = frozenset(new for name, new in renamed.items() if name in compared)
        return JoinedTable(table, self.names | {right.name}, qualified, keys)

    def _pairs(
        self, clause: Clause, right: Right, pool: Sequence[Any]
    ) -> tuple[list[tuple[str, str]], list[Any], list[Any]]:
        """The columns that are compared, the conditions of ON that compare none of both sides, and those of WHERE."""
        using = clause.using
        if clause.natural:
            shared = {name.lower() for name in right.table.columns} & {name for _, name in self.qualified}
            using = tuple(ast.column(name) for name in right.table.columns if name.lower() in shared)
        pairs = [(self.scope.column(name), right.scope.column(name)) for name in using]
        conditions = []
        for side in clause.on:
            pair = self._pair(side, right)
            if pair is None:
                conditions.append(side)
            else:
                pairs.append(pair)
        used = [side for side in pool if self._pair(side, right) is not None] if clause.plain else []
        pairs += [pair for side in used if (pair := self._pair(side, right)) is not None]
        if not pairs:
            raise unmatched(clause, right)
        return pairs, conditions, used

    def _pair(self, node: Any, right: Right) -> tuple[str, str] | None:
        while isinstance(node, ast.Paren):
            node = node.this
        if not isinstance(node, ast.EQ):
            return None
        one_side, other_side = node.this, node.expression
        for mine, theirs in ((one_side, other_side), (other_side, one_side)):
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


def unmatched(clause: Clause, right: Right) -> InvalidArgument:
    """The error for a join that compares no columns of both sides."""
    if clause.natural:
        remedy = "write JOIN … ON a.x = b.y: they share no column's name"
        return _check.fail("sql", "have a column to compare in a NATURAL JOIN", right.name, remedy)
    if clause.plain:
        remedy = f"compare a column of {right.name} with one of the other tables: WHERE a.x = {right.name}.y"
        return _check.fail("sql", "join tables by equal columns", right.name, remedy)
    return refused(clause.on[0], "ON a.x = b.y, with a column of each table")


def _person(table: Any) -> str | None:
    return None if isinstance(table, Public) else person_of(table)


def _is_of(node: Any, right: Right) -> bool:
    if not isinstance(node, ast.Column):
        return False
    return node.table.lower() == right.name if node.table else right.scope.knows(node)
