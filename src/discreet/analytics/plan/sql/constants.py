"""Public values that stand in a query: numbers, text, dates, times, and dates moved by an interval."""

from __future__ import annotations

import calendar
import datetime as dt
from decimal import Context, Decimal
from typing import Any

from sqlglot import expressions as ast

from discreet import _check
from discreet.analytics.plan.sql.refusals import refused
from discreet.analytics.table.expressions import Constant
from discreet.analytics.table.semantics import Literal, literal

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_DAYS = {"WEEK": 7, "DAY": 1}
#: How deeply arithmetic with numbers alone is computed here; what is deeper is left to the engine.
_FOLDED = 8
#: More digits than any product of that many literals of a float's precision has.
_DECIMALS = Context(prec=400)


def constant(node: Any) -> Constant | None:
    """A public value as an expression; None if the node is none."""
    value = _public(node)
    return None if value is None else Constant(literal(value))


def _public(node: Any) -> Literal | None:
    match node:
        case ast.Paren():
            return _public(node.this)
        case ast.Boolean():
            return bool(node.this)
        case ast.Literal():
            return str(node.name) if node.is_string else number(node)
        case ast.Neg() if isinstance(node.this, ast.Literal | ast.Paren | ast.Neg):
            inner = _public(node.this)
            return -inner if isinstance(inner, int | float) and not isinstance(inner, bool) else None
        case ast.Cast() if isinstance(node.this, ast.Literal) and node.this.is_string:
            return _dated(node)
        case ast.Add() | ast.Sub() if isinstance(node.expression, ast.Interval):
            start = _public(node.this)
            return (
                None if not isinstance(start, dt.date) else shifted(start, node.expression, isinstance(node, ast.Sub))
            )
        case ast.Add() | ast.Sub() | ast.Mul():
            exact = _decimal(node, _FOLDED)
            return None if exact is None else int(exact) if exact.as_tuple().exponent == 0 else float(exact)
    return None


def _decimal(node: Any, levels: int) -> Decimal | None:
    """The value of arithmetic with numbers alone, as SQL computes it: 0.06 + 0.01 is 0.07, which floats miss."""
    match node:
        case ast.Paren() if levels:
            return _decimal(node.this, levels - 1)
        case ast.Neg() if levels:
            inner = _decimal(node.this, levels - 1)
            return None if inner is None else _DECIMALS.minus(inner)
        case ast.Literal() if not node.is_string:
            value = number(node)
            if "e" in node.name.lower():  # with an exponent it is a float in SQL
                return None
            return Decimal(node.name if isinstance(value, float) else value)
        case ast.Add() | ast.Sub() | ast.Mul() if levels:
            first, second = _decimal(node.this, levels - 1), _decimal(node.expression, levels - 1)
            if first is None or second is None:
                return None
            operation = {ast.Add: _DECIMALS.add, ast.Sub: _DECIMALS.subtract, ast.Mul: _DECIMALS.multiply}[type(node)]
            return operation(first, second)
    return None


def _dated(node: Any) -> Literal | None:
    text = node.this.name
    try:
        if node.to.is_type("date"):
            return dt.date.fromisoformat(text)
        if node.to.is_type("timestamp", "timestampntz", "datetime"):
            return dt.datetime.fromisoformat(text)
        if node.to.is_type("timestamptz"):
            return dt.datetime.fromisoformat(text)
    except ValueError:
        remedy = "write the date like that, or TIMESTAMP '2024-12-31 23:59:59'"
        raise _check.fail("sql", "hold dates as DATE 'YYYY-MM-DD'", text, remedy) from None
    return None


def shifted(start: dt.date, interval: Any, backwards: bool) -> dt.date:
    """A public date moved by whole years, months, weeks or days; the day of the month is cut to the month's length."""
    try:
        amount = int(interval.this.name)
        unit = interval.args["unit"].name.upper().rstrip("S")
    except (AttributeError, KeyError, ValueError):
        raise refused(interval, "INTERVAL 30 DAY, or weeks, months, quarters or years") from None
    amount = -amount if backwards else amount
    try:
        if unit in _DAYS:
            return start + dt.timedelta(days=amount * _DAYS[unit])
        if unit in _MONTHS:
            months = start.year * 12 + start.month - 1 + amount * _MONTHS[unit]
            year, month = months // 12, months % 12 + 1
            last = calendar.monthrange(year, month)[1]
            return start.replace(year=year, month=month, day=min(start.day, last))
    except (OverflowError, ValueError):
        raise _check.fail(
            "sql", "hold dates of the years 1 to 9999", interval.sql(), "use a shorter interval"
        ) from None
    raise refused(interval, "INTERVAL 30 DAY, or weeks, months, quarters or years")


def number(node: Any) -> int | float:
    """A number that stands in the query."""
    if isinstance(node, ast.Neg):
        return -number(node.this)
    if isinstance(node, ast.Paren):
        return number(node.this)
    if not isinstance(node, ast.Literal) or node.is_string:
        raise refused(node, "a number")
    try:
        value: int | float = float(node.name) if set(node.name) & set(".eE") else int(node.name)
    except ValueError:
        raise refused(node, "a number") from None
    literal(value)
    return value
