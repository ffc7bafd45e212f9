"""Reads one expression of SQL, such as DATE_TRUNC('month', day) AS month."""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.plan.sql.refusals import syntax_error
from discreet.analytics.plan.sql.values import Scope, Values
from discreet.analytics.table.expressions import Expression, within_the_stack


def expression(text: str, columns: Sequence[str]) -> tuple[str, Expression]:
    """The name and the value of an expression about some columns; without AS, its text is its name."""
    try:
        node = sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        problem = syntax_error(text, error)
    else:
        if not isinstance(node, ast.Expression) or isinstance(node, ast.Query):
            raise _check.fail("expression", "be a column or a function of columns", text, "such as YEAR(day) AS year")
        values = Values(Scope(tuple(columns), None))
        with within_the_stack():
            value = values.value(node.unalias())
        return node.alias or (values.scope.column(node) if isinstance(node, ast.Column) else text), value
    raise problem
