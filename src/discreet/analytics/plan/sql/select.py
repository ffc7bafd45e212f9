"""Reads a SELECT: where its rows come from, what is done to them, what is aggregated, and what follows the release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate
from discreet.analytics.plan.sql.afterwards import Afterwards, ReleasedReader
from discreet.analytics.plan.sql.calls import Aggregates, Columns
from discreet.analytics.plan.sql.constants import number
from discreet.analytics.plan.sql.joins import Clause, JoinedTable, Right, private_first, unmatched
from discreet.analytics.plan.sql.public_values import with_public_values
from discreet.analytics.plan.sql.refusals import only, refused, syntax_error
from discreet.analytics.plan.sql.relation import FromRows, person_of
from discreet.analytics.plan.sql.steps import Keep, Matched, Mutate, OfPersons, PerPerson, TableStep, Where
from discreet.analytics.plan.sql.values import Scope, Values, conjuncts
from discreet.analytics.table.doors import spec_of
from discreet.analytics.table.expressions import Column, Expression, Logic
from discreet.analytics.table.public import Public

_CLAUSES = ("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "with_")


@dataclass(frozen=True)
class Parsed:
    """What a query asks for.

    Attributes:
        start: the private table whose rows are read.
        steps: what is done to the rows, in order.
        groups: the columns of GROUP BY.
        aggregates: what is measured, by name.
        afterwards: what happens to the released table.
        renamed: the columns of GROUP BY that have another name in the result, by their own name.
    """

    start: Any
    steps: tuple[TableStep, ...]
    groups: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    afterwards: Afterwards | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)


def parse(text: str, private: Any, tables: Mapping[str, Any]) -> Parsed:
    """What a query asks of a private table, which it may call as it likes, and of other tables by their names."""
    if not isinstance(text, str):
        raise _check.fail("sql", "be text", type(text).__name__, "such as SELECT COUNT(*) FROM people")
    try:
        statements = sqlglot.parse(text, read="duckdb")
        if len(statements) != 1 or not isinstance(statements[0], ast.Select):
            raise _check.fail("sql", "be one SELECT", text, "ask one question at a time")
        base, others = FromRows.of(private), {name.lower(): table for name, table in tables.items()}
        kept = [private, *(table for table in tables.values() if not isinstance(table, Public))]
        stored = frozenset(origin for table in kept for origin in spec_of(table).origins)
        return _Reader(base, {}, others).asked(with_public_values(statements[0], others, stored))
    except sqlglot.errors.SqlglotError as error:
        problem = syntax_error(text, error)
    except RecursionError:
        remedy = "use fewer parentheses, or where() and isin() in Python"
        problem = _check.fail("sql", "be nested less deeply", f"{len(text)} characters", remedy)
    raise problem


@dataclass(frozen=True)
class _Item:
    """One item of SELECT."""

    node: Any
    alias: str


class _Reader:
    """Reads a SELECT over a base table and others; `defined` holds what WITH has named so far."""

    def __init__(self, base: FromRows, defined: Mapping[str, FromRows], tables: Mapping[str, Any]) -> None:
        self._base = base
        self._defined = dict(defined)
        self._tables = tables

    def asked(self, query: ast.Select) -> Parsed:
        """What a query releases."""
        only(query, *_CLAUSES)
        rows = self._rows(query)
        items = _items(query)
        values = Values(rows.scope)
        groups = _Groups(query, items, values)
        columns = Columns((*rows.scope.columns, *groups.names))
        aggregates = Aggregates(values, columns, groups.computed)
        measured: dict[int, str] = {}
        for index, item in enumerate(items):
            if groups.holds(item):
                continue
            if aggregates.is_aggregate(item.node):
                labels = aggregates.measure(item.node, item.alias)
                if labels[0] in measured.values():
                    raise _check.fail("sql", "name each result once", labels[0], "use AS to name them")
                measured[index] = labels[0]
        visible = tuple(aggregates.asked)
        if not visible and all(groups.holds(item) for item in items):
            remedy = "add COUNT(*): which groups have rows is private, and each group that is listed is answered"
            raise _check.fail("sql", f"have an aggregate: {aggregates.names}", query.sql(), remedy)
        released = ReleasedReader(lambda node: _released(node, groups, aggregates, items))
        computed = {}
        for index, item in enumerate(items):
            if not groups.holds(item) and index not in measured:
                if not any(aggregates.is_aggregate(node) for node in item.node.walk()):
                    raise refused(item.node, f"a column of GROUP BY, or {aggregates.names}")
                name = columns.free(item.alias or "value")
                computed[name] = released.value(item.node)
        kept = query.args.get("having")
        condition = None if kept is None else released.condition(kept.this)
        order = tuple(self._ordered(query, released, groups, items, computed, measured))
        hidden = tuple(name for name in aggregates.asked if name not in visible)
        limit, offset = (_whole(query.args.get(clause)) for clause in ("limit", "offset"))
        then = Afterwards(computed, hidden, condition, order, limit, offset or 0)
        plain = not (computed or hidden or condition or order or limit is not None or offset)
        steps = (*rows.steps, Mutate({**groups.computed, **columns.computed}))
        return Parsed(rows.start, steps, groups.names, aggregates.asked, None if plain else then, groups.renamed)

    def _ordered(
        self,
        query: ast.Select,
        released: ReleasedReader,
        groups: _Groups,
        items: list[_Item],
        computed: Mapping[str, Any],
        measured: Mapping[int, str],
    ) -> list[tuple[Any, bool]]:
        order = query.args.get("order")
        keys = []
        for term in [] if order is None else order.expressions:
            only(term, "this", "desc", "nulls_first")
            node = term.this
            if isinstance(node, ast.Literal) and not node.is_string:
                node = _at(items, node)
            if isinstance(node, ast.Column) and node.name in computed:
                key = computed[node.name]
            else:
                key = released.value(node)
            keys.append((key, bool(term.args.get("desc"))))
        return keys

    def relation(self, query: Any) -> FromRows:
        """The rows of a sub-query: of the table itself, or one for each person (and other columns)."""
        if not isinstance(query, ast.Select):
            raise refused(query, "one SELECT")
        only(query, "expressions", "from_", "joins", "where", "group", "having", "with_")
        rows = self._rows(query)
        items = _items(query)
        values = Values(rows.scope)
        reader = Aggregates(values, Columns(rows.scope.columns))
        if query.args.get("group") is not None or any(
            reader.is_aggregate(node) for item in items for node in item.node.walk()
        ):
            return self._per_person(query, rows, items, values)
        if query.args.get("having") is not None:
            only(query, "expressions", "from_", "joins", "where", "with_")
        return _projected(rows, items, values)

    def _per_person(self, query: ast.Select, rows: FromRows, items: list[_Item], values: Values) -> FromRows:
        person = rows.scope.person
        groups = _Groups(query, items, values)
        grouped = None if person is None else groups.renamed.get(person, person)
        if grouped not in groups.names:
            whom = "an account that protects persons" if person is None else f"GROUP BY {person}"
            remedy = f"a sub-query aggregates the rows of each person: it needs {whom}"
            raise _check.fail("sql", "aggregate per person in a sub-query", query.sql(), remedy)
        by = tuple(name for name in groups.names if name != grouped)
        apart = {name: value for name, value in groups.computed.items() if name in by}
        columns = Columns((*rows.scope.columns, *groups.names))
        aggregates = Aggregates(values, columns, apart)
        own = str(person_of(rows.start))  # the id's own name, which a sub-query inside may have changed
        after = Values(Scope((*groups.names,), person, rows.scope.tables), aggregates.as_column)
        outputs: dict[str, Expression] = {}
        for item in items:
            if aggregates.is_aggregate(item.node):
                (label,) = aggregates.measure(item.node, item.alias)
                outputs[label] = Column(label)
            elif groups.holds(item):
                name = groups.name(item)
                outputs[item.alias or name] = Column(own if name == grouped else name)
            else:
                outputs[item.alias or columns.free("value")] = after.value(item.node)
        having = query.args.get("having")
        kept = None if having is None else after.condition(having.this)
        steps: list[TableStep] = [*rows.steps, Mutate({**apart, **columns.computed})]
        steps.append(PerPerson(by, dict(aggregates.asked)))
        if kept is not None:
            steps.append(Where(kept))
        return _selected(FromRows(rows.start, tuple(steps), Scope((own, *by, *aggregates.asked), own)), outputs)

    def _rows(self, query: ast.Select) -> FromRows:
        """What FROM and WHERE give."""
        reader = self
        defined = query.args.get("with_")
        if defined is not None:
            only(defined, "expressions")
            reader = _Reader(self._base, self._defined, self._tables)
            for definition in defined.expressions:
                only(definition, "this", "alias")
                only(definition.args["alias"], "this")
                reader._defined[definition.alias.lower()] = reader.relation(definition.this)
        rows, conditions = reader._source(query)
        steps: list[TableStep] = []
        plain = []
        for side in conditions:
            tested = reader._of_persons(side, rows)
            if tested is None:
                plain.append(side)
            else:
                steps.append(tested)
        if plain:
            held = tuple(Values(rows.scope).condition(side) for side in plain)
            steps.append(Where(held[0] if len(held) == 1 else Logic("and", held)))
        return FromRows(rows.start, (*rows.steps, *steps), rows.scope)

    def _of_persons(self, node: Any, rows: FromRows) -> TableStep | None:
        """The step of `person IN (SELECT person FROM a table WHERE …)`; None for other conditions."""
        inside = node.this if isinstance(node, ast.Not) else node
        if not isinstance(inside, ast.In) or inside.args.get("query") is None:
            return None
        only(inside, "this", "query")
        query = inside.args["query"].this
        person = rows.scope.person
        instead = "person IN (SELECT person FROM a table of the account WHERE …), where persons are protected"
        if person is None or not isinstance(query, ast.Select) or rows.scope.column(inside.this) != person:
            raise refused(inside, instead)
        only(query, "expressions", "from_", "joins", "where")
        same, _ = self._source(query)
        chosen = [same.scope.column(item.node) for item in _items(query)]
        if chosen != [same.scope.person]:
            raise refused(inside, instead)
        if same.start is not rows.start or same.steps != rows.steps:
            return Matched(self._rows(query).private(), "anti" if isinstance(node, ast.Not) else "semi")
        where = query.args.get("where")
        values = Values(same.scope)
        held = Column(person).is_null() | ~Column(person).is_null() if where is None else values.condition(where.this)
        return OfPersons(held, isinstance(node, ast.Not))

    def _source(self, query: ast.Select) -> tuple[FromRows, list[Any]]:
        """The rows of FROM, and what is left of the conditions of WHERE once commas have taken theirs."""
        where = query.args.get("where")
        conditions = [] if where is None else conjuncts(where.this)
        source = query.args.get("from_")
        if source is None or not _is_table(source.this):
            raise _check.fail("sql", "have FROM with one table", query.sql(), "such as FROM people")
        only(source, "this")
        clauses = [Clause.read(join) for join in query.args.get("joins") or ()]
        first, clauses, moved = private_first(source.this, clauses, self._is_public)
        conditions = [*moved, *conditions]
        rows, name = self._first(first), first.alias_or_name.lower()
        names = frozenset({first.name.lower(), name} - {""})
        rows = FromRows(rows.start, rows.steps, Scope(rows.scope.columns, rows.scope.person, names))
        if not clauses:
            return rows, conditions
        if any(clause.plain for clause in clauses) and any(clause.how == "right" for clause in clauses):
            remedy = "write JOIN … ON a.x = b.y in place of the comma"
            raise _check.fail("sql", "have no comma beside a RIGHT JOIN", query.sql(), remedy)
        if any(clause.plain for clause in clauses) and any(clause.names_no_table for clause in clauses):
            remedy = "write JOIN … ON a.x = b.y in place of the comma"
            raise _check.fail("sql", "name the table of each column in ON beside a comma", query.sql(), remedy)
        joined = JoinedTable.of(rows, name)
        waiting = [(clause, self._right(clause.table)) for clause in clauses]
        while waiting:
            # A comma waits until a condition compares its table with those that are joined already.
            ready = [entry for entry in waiting if joined.is_ready(*entry, conditions)]
            if not ready:
                raise unmatched(*waiting[0])
            joined, used = joined.join(*ready[0], conditions)
            waiting.remove(ready[0])
            conditions = [side for side in conditions if not any(side is condition for condition in used)]
        return joined.relation(), conditions

    def _first(self, node: Any) -> FromRows:
        """The rows of the first table of FROM."""
        only(node, "this", "alias")
        if node.args.get("alias") is not None:
            only(node.args["alias"], "this")  # it may not rename columns
        return self.relation(node.this) if isinstance(node, ast.Subquery) else self._named(node)

    def _is_public(self, node: Any) -> bool:
        """Whether a table of FROM is a public one."""
        if not isinstance(node, ast.Table):
            return False
        name = node.name.lower()
        return name not in self._defined and isinstance(self._tables.get(name), Public)

    def _named(self, table: ast.Table) -> FromRows:
        """The rows of a table of WITH, of another table, or of the base, which has any other name."""
        name = table.name.lower()
        if name in self._defined:
            return self._defined[name]
        if name not in self._tables:
            if any(named is self._base.start for named in self._tables.values()):  # it has a name already
                raise _check.fail("sql", "read a table that is known", table.name, ", ".join(self._tables))
            return self._base
        return FromRows.of(self._tables[name])

    def _right(self, node: Any) -> Right:
        """The right side of a JOIN."""
        if isinstance(node, ast.Subquery):
            only(node, "this", "alias")
            table = self.relation(node.this).private()
        elif isinstance(node, ast.Table) and isinstance(node.this, ast.Identifier):
            only(node, "this", "alias")
            name = node.name.lower()
            if name not in self._defined and name not in self._tables:
                names = ", ".join([*self._defined, *self._tables])
                remedy = f"it is one of {names}" if names else "pass the other tables by name, as public or private"
                raise _check.fail("sql", "JOIN a table that is known", node.name, remedy)
            table = self._tables[name] if self._is_public(node) else self._named(node).private()
        else:
            raise refused(node, "a table's name or a sub-query")
        if node.args.get("alias") is not None:
            only(node.args["alias"], "this")  # it may not rename columns
        return Right(table, node.alias_or_name.lower())


class _Groups:
    """The columns of GROUP BY: by name, by position, by alias, or as expressions that are computed first."""

    def __init__(self, query: ast.Select, items: list[_Item], values: Values) -> None:
        self._values = values
        self._by_text: dict[str, str] = {}
        self.computed: dict[str, Expression] = {}
        self.renamed: dict[str, str] = {}
        group = query.args.get("group")
        if group is not None:
            only(group, "expressions")
        listed = [] if group is None else group.expressions
        self.names = tuple(dict.fromkeys(self._read(expression, items) for expression in listed))

    def _read(self, node: Any, items: list[_Item]) -> str:
        if isinstance(node, ast.Literal) and not node.is_string:
            node = _at(items, node)
        elif not self._values.scope.knows(node):
            named = [item.node for item in items if isinstance(node, ast.Column) and item.alias == node.name]
            node = named[0] if named and not node.table else node
        alias = next((item.alias for item in items if item.alias and item.node.sql() == node.sql()), "")
        if isinstance(node, ast.Column):
            name = self._values.scope.column(node)
            if alias and alias != name:
                self.computed[alias] = Column(name)
                self.renamed[name] = alias
            self._by_text[node.sql()] = alias or name
            return alias or name
        name = alias or Columns(self._values.scope.columns).named(node.sql(), Column(""))
        self.computed[name] = self._values.value(node)
        self._by_text[node.sql()] = name
        return name

    def name(self, item: _Item) -> str:
        """The column of an item of SELECT that GROUP BY holds."""
        return self._by_text.get(item.node.sql()) or self._values.scope.column(item.node)

    def holds(self, item: _Item) -> bool:
        """Whether an item of SELECT is one of these columns."""
        return self.find(item.node) is not None

    def find(self, node: Any) -> str | None:
        """The column that a node stands for; None if it is none of these."""
        if node.sql() in self._by_text:
            return self._by_text[node.sql()]
        if isinstance(node, ast.Column):
            if self._values.scope.knows(node) and self._values.scope.column(node) in self.names:
                return self._values.scope.column(node)
            return node.name if node.name in self.names and not node.table else None
        return None


def _released(node: Any, groups: _Groups, aggregates: Aggregates, items: list[_Item]) -> str | None:
    """The released column that a node stands for: of a group, of an aggregate, or of an alias of one."""
    if aggregates.is_aggregate(node):
        (label,) = aggregates.measure(node)
        return label
    if isinstance(node, ast.Column) and not node.table and node.name in aggregates.asked:
        return node.name
    return groups.find(node)


def _is_table(node: Any) -> bool:
    """Whether FROM names a table or a sub-query."""
    return isinstance(node, ast.Subquery) or (isinstance(node, ast.Table) and isinstance(node.this, ast.Identifier))


def _items(query: ast.Select) -> list[_Item]:
    return [
        _Item(item.this, item.alias) if isinstance(item, ast.Alias) else _Item(item, "") for item in query.expressions
    ]


def _at(items: list[_Item], node: Any) -> Any:
    position = _whole_number(node)
    if not 1 <= position <= len(items):
        raise _check.fail("sql", f"number one of {len(items)} columns of SELECT", position, "count from 1")
    return items[position - 1].node


def _whole(clause: Any) -> int | None:
    if clause is None:
        return None
    only(clause, "expression")
    return _whole_number(clause.expression)


def _whole_number(node: Any) -> int:
    value = number(node)
    if not isinstance(value, int) or value < 0:
        raise refused(node, "a whole number")
    return value


def _projected(rows: FromRows, items: list[_Item], values: Values) -> FromRows:
    """The rows of a sub-query that only computes columns."""
    outputs: dict[str, Expression] = {}
    for item in items:
        if isinstance(item.node, ast.Star):
            only(item.node)
            outputs |= {name: Column(name) for name in rows.scope.columns}
            continue
        name = item.alias or (
            values.scope.column(item.node)
            if isinstance(item.node, ast.Column)
            else Columns(rows.scope.columns).named(item.node.sql(), Column(""))
        )
        outputs[name] = values.value(item.node)
    return _selected(rows, outputs)


def _selected(rows: FromRows, outputs: Mapping[str, Expression]) -> FromRows:
    """The rows with these columns alone; the person's id may have another name among them."""
    new = {name: value for name, value in outputs.items() if not (isinstance(value, Column) and value.name == name)}
    person = next(
        (name for name, value in outputs.items() if isinstance(value, Column) and value.name == rows.scope.person), None
    )
    names = tuple(outputs)
    return FromRows(rows.start, (*rows.steps, Mutate(new), Keep(names)), Scope(names, person))
