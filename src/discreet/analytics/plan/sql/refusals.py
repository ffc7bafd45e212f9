"""What is refused, with its place in the text and what to write instead."""

from __future__ import annotations

from typing import Any

import sqlglot

from discreet import _check
from discreet.errors import InvalidArgument

_CLAUSES = {
    "joins": "join in a sub-query or in the outer query",
    "distinct": "COUNT(DISTINCT person) counts persons",
    "windows": "there are no windows over private rows",
    "qualify": "there are no windows over private rows",
    "query": "list the values, select them from a public table, or test the person: person IN (SELECT person FROM …)",
    "recursive": "write WITH without RECURSIVE",
    "all": "name the columns, such as GROUP BY 1, 2",
    "rollup": "ask for each level by itself, and fit them with dp.analytics.hierarchy(…)",
    "cube": "ask for each level by itself, and fit them with dp.analytics.hierarchy(…)",
    "grouping_sets": "ask for each level by itself, and fit them with dp.analytics.hierarchy(…)",
    "sample": "ask about all rows: a sample of a table has no lower price here",
    "symmetric": "write the smaller end first",
    "pivots": "GROUP BY the column",
}
_NEAREST = {
    "Stddev": "STDDEV_POP, which divides by n",
    "StddevSamp": "STDDEV_POP, which divides by n",
    "Variance": "VAR_POP, which divides by n",
    "CovarSamp": "COVAR_POP, which divides by n",
    "Star": "COUNT(*): rows are private",
    "Subquery": "a number that was released before, or a sub-query of a public table such as (SELECT AVG(price) FROM "
    "prices); other sub-queries stand in FROM, or in person IN (SELECT person …)",
    "Window": "GROUP BY: there are no windows over private rows",
    "Exists": "person IN (SELECT person FROM … WHERE …)",
    "ApproxQuantile": "QUANTILE_CONT(column, 0.5)",
    "ToChar": "STRFTIME(day, '%Y-%m')",
    "CurrentDate": "a date that is written out, such as DATE '2024-12-31'",
    "CurrentTimestamp": "a time that is written out, such as TIMESTAMP '2024-12-31 00:00:00'",
    "NOW(…)": "a time that is written out, such as TIMESTAMP '2024-12-31 00:00:00'",
    "TODAY(…)": "a date that is written out, such as DATE '2024-12-31'",
    "SimilarTo": "LIKE, with % and _",
    "RegexpLike": "LIKE, with % and _",
    "RegexpFullMatch": "LIKE, with % and _",
    "GroupConcat": "COUNT(*) with GROUP BY: the texts of rows are private",
    "ArrayAgg": "COUNT(*) with GROUP BY: the values of rows are private",
    "First": "MIN or MAX: the values of single rows are private",
    "ArgMax": "COUNT(*) … GROUP BY … ORDER BY … LIMIT 1: the values of single rows are private",
    "ArgMin": "COUNT(*) … GROUP BY … ORDER BY … LIMIT 1: the values of single rows are private",
    "Mode": "COUNT(*) … GROUP BY … ORDER BY … LIMIT 1",
    "ApproxDistinct": "COUNT(DISTINCT column)",
    "Distinct": "COUNT(DISTINCT column)",
    "NullSafeEQ": "a = b OR (a IS NULL AND b IS NULL)",
    "NullSafeNEQ": "NOT (a = b OR (a IS NULL AND b IS NULL))",
    "Placeholder": "the value itself: the query is read before it is asked",
    "Parameter": "the value itself: the query is read before it is asked",
    "All": "MIN or MAX of a public table, such as x > (SELECT MAX(y) FROM t)",
    "Any": "IN, or MIN or MAX of a public table, such as x > (SELECT MIN(y) FROM t)",
    "Interval": "dates: write DATE '2024-12-31' - INTERVAL 30 DAY, or a difference of dates in days",
}


def only(node: Any, *allowed: str) -> None:
    """Refuse a node with any part that is not on the list, known or not."""
    for name, value in node.args.items():
        if value and name not in allowed:
            clause = name.rstrip("_").upper()
            where = _place(value[0] if isinstance(value, list) else value) or _place(node)
            raise _check.fail(
                "sql", f"have no {clause} here{where}", node.sql(), _CLAUSES.get(name.rstrip("_"), "leave it out")
            )


def refused(node: Any, instead: str) -> InvalidArgument:
    """The error for a part that is not on the list."""
    kind = f"{node.name.upper()}(…)" if isinstance(node, sqlglot.exp.Anonymous) else type(node).__name__
    return _check.fail("sql", f"not have {kind} here{_place(node)}", node.sql(), f"use {_NEAREST.get(kind, instead)}")


def _place(node: Any) -> str:
    """Where a part stands, if the parser kept it."""
    if not hasattr(node, "walk"):
        return ""
    position = next((inner.meta for inner in node.walk() if "line" in inner.meta and "col" in inner.meta), None)
    if position is None:
        return ""
    column = position["col"] - (position.get("end", 0) - position.get("start", 0))
    return f" (line {position['line']}, column {column})"


def syntax_error(text: str, error: sqlglot.errors.SqlglotError) -> InvalidArgument:
    """The error for text that cannot be parsed: the line, the column and a caret below it."""
    errors = getattr(error, "errors", None)
    if not errors:
        return _check.fail("sql", "be one SELECT that can be parsed", text, "check its quotes and comments")
    line = int(errors[0].get("line") or 1)
    highlight = str(errors[0].get("highlight") or "")
    column = max(int(errors[0].get("col") or 1) - len(highlight) + 1, 1)
    lines = text.splitlines() or [""]
    shown = lines[min(line, len(lines)) - 1]
    caret = " " * (column - 1) + "^"
    return InvalidArgument(
        f"sql must be one SELECT that can be parsed, got an error at line {line}, column {column}: check its syntax "
        f"there\n  {shown}\n  {caret}"
    )
