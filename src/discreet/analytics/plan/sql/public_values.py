"""Sub-queries of public tables alone: their values are public, and stand in the query as if written there.

`WHERE cost > (SELECT AVG(price) FROM prices)` and `ward IN (SELECT ward FROM wards WHERE region = 'north')`. Such a
sub-query is read like all others, never run as text: it must be on the list below. It is computed when a question is
asked, before anything is charged.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.engine import running
from discreet.analytics.plan.sql.constants import number
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.plan.sql.values import Scope, Values
from discreet.analytics.table.public import Public
from discreet.analytics.table.semantics import literal
from discreet.analytics.table.source import engine_table
from discreet.analytics.table.spec import origins

#: The most values that `IN (SELECT …)` may take from a public table: each is compared with each row.
MAX_LISTED = 1000
_LISTED = "COUNT, MIN, MAX, SUM, AVG or MEDIAN of a column of a public table, and arithmetic on these"
_AGGREGATES: dict[type, Callable[[Any], Any]] = {
    ast.Min: lambda column: column.min(),
    ast.Max: lambda column: column.max(),
    ast.Sum: lambda column: column.sum(),
    ast.Avg: lambda column: column.mean(),
    ast.Median: lambda column: column.median(),
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mul: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def with_public_values(query: ast.Select, tables: Mapping[str, Any], private: frozenset[Any]) -> ast.Select:
    """A query in which sub-queries of public tables are replaced by their values. Sub-queries of FROM stay.

    `private` are the stored tables that private ones are made of: nothing that is made of these is public.
    """
    defined = {defined_table.alias.lower() for defined_table in query.find_all(ast.CTE)}
    public_tables = {name: table for name, table in tables.items() if isinstance(table, Public) and name not in defined}
    # The innermost ones first: one may stand in the WHERE of another.
    for node in reversed(list(query.find_all(ast.Subquery))) if public_tables else []:
        public = _public(node, public_tables)
        if public is None or isinstance(node.parent, ast.From | ast.Join):
            continue
        if public.in_engine and origins(public.table) & private:
            remedy = "what is made of private rows is private: ask for a release, and write its value"
            raise _check.fail("public table", "not come from a private one", "a table made of it", remedy)
        if isinstance(node.parent, ast.In) and node.arg_key == "query":
            listed = [_node(value) for value in _list(node.this, public)]
            node.parent.set("expressions", listed)
            node.parent.set("query", None)
        else:
            node.replace(_node(_scalar(node.this, public)))
    return query


def _public(node: ast.Subquery, tables: Mapping[str, Public]) -> Public | None:
    """The public table that a sub-query reads; None if it reads another one, or several."""
    source = node.this.args.get("from_") if isinstance(node.this, ast.Select) else None
    table = None if source is None else source.this
    return tables.get(table.name.lower()) if isinstance(table, ast.Table) else None


def _rows(query: ast.Select, public: Public) -> tuple[Any, Values]:
    """The public rows that a sub-query keeps, and its names."""
    only(query, "expressions", "from_", "where", "distinct")
    if query.args.get("distinct") is not None:
        only(query.args["distinct"])  # not DISTINCT ON
    source = query.args["from_"].this
    only(source, "this", "alias")
    names = frozenset({source.name.lower(), source.alias_or_name.lower()})
    values = Values(Scope(public.columns, None, names))
    table = public.table if public.in_engine else engine_table(public.table)
    where = query.args.get("where")
    return (table if where is None else table.filter(values.condition(where.this).to_filter(table))), values


def _scalar(query: ast.Select, public: Public) -> Any:
    """The one value of a sub-query."""
    if len(query.expressions) != 1:
        raise refused(query, f"one value: {_LISTED}")
    table, values = _rows(query, public)
    value = _computed(query.expressions[0].unalias(), table, values)
    if value is None:
        remedy = "no row is left, or all are missing: change its WHERE, or write the value"
        raise _check.fail("sql", "have sub-queries that give a value", query.sql(), remedy)
    return value


def _computed(node: Any, table: Any, values: Values) -> Any:
    if isinstance(node, ast.Paren):
        return _computed(node.this, table, values)
    if type(node) in _ARITHMETIC:
        sides = [_computed(side, table, values) for side in (node.this, node.expression)]
        if any(not isinstance(side, int | float) for side in sides) or (isinstance(node, ast.Div) and not sides[1]):
            raise refused(node, "arithmetic on numbers, without a division by 0")
        return _ARITHMETIC[type(node)](*sides)
    if isinstance(node, ast.Literal | ast.Neg):
        return number(node)
    if isinstance(node, ast.Count):
        only(node, "this", "big_int")
        inner = node.this
        if isinstance(inner, ast.Star):
            return _asked(table.aggregate(value=table.count()))
        if isinstance(inner, ast.Distinct) and len(inner.expressions) == 1:
            return _asked(table.aggregate(value=values.value(inner.expressions[0]).to_ibis(table).nunique()))
        return _asked(table.aggregate(value=values.value(inner).to_ibis(table).count()))
    if type(node) in _AGGREGATES:
        only(node, "this")
        column = values.value(node.this).to_ibis(table)
        if not (isinstance(node, ast.Min | ast.Max) or column.type().is_numeric()):
            raise refused(node, "an aggregate of numbers")
        return _asked(table.aggregate(value=_AGGREGATES[type(node)](column)))
    raise refused(node, _LISTED)


def _list(query: ast.Select, public: Public) -> list[Any]:
    """The values of a sub-query with one column."""
    if len(query.expressions) != 1:
        raise refused(query, "one column of a public table")
    table, values = _rows(query, public)
    column = table.select(value=values.value(query.expressions[0].unalias()).to_ibis(table)).distinct()
    listed = _answers(column.limit(MAX_LISTED + 1))
    if len(listed) > MAX_LISTED:
        remedy = "JOIN the public table instead, or SEMI JOIN it"
        raise _check.fail("sql", f"list at most {MAX_LISTED} values in IN", query.sql(), remedy)
    if None in listed or not listed:
        remedy = "add WHERE … IS NOT NULL to it, or SEMI JOIN the public table"
        raise _check.fail(
            "sql", "have sub-queries in IN that give values, and none that is missing", query.sql(), remedy
        )
    return listed


def _asked(query: Any) -> Any:
    (value,) = _answers(query)
    return value


def _answers(query: Any) -> list[Any]:
    """The values of a query of public rows, as plain Python values."""
    try:
        values = [row["value"] for row in running.rows(query)]
    except Exception as error:
        kind = type(error).__name__
        failed = _check.fail("engine", "answer before anything is charged", kind, "check the public table")
    else:
        return [_plain(value) for value in values]
    raise failed


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _node(value: Any) -> Any:
    """A public value as it would stand in a query."""
    checked = literal(value)
    if isinstance(checked, bool):
        return ast.Boolean(this=checked)
    if isinstance(checked, int | float):
        size = ast.Literal.number(repr(abs(checked)))
        return ast.Neg(this=size) if checked < 0 else size
    if isinstance(checked, str):
        return ast.Literal.string(checked)
    kind = "DATE"
    if isinstance(checked, dt.datetime):
        kind = "TIMESTAMP" if checked.tzinfo is None else "TIMESTAMPTZ"
    return ast.cast(ast.Literal.string(str(checked)), kind)
