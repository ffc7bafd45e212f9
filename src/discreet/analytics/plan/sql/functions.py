"""The functions of SQL that compute a value from a row: the list of those that are total, and how each is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import expressions as ast

from discreet.analytics.plan.sql.constants import constant, number
from discreet.analytics.plan.sql.refusals import only, refused
from discreet.analytics.table.expressions import (
    Cases,
    Expression,
    FunctionCall,
    Present,
    coalesce,
    dates,
    greatest,
    least,
    numbers,
    text,
)

Read = Callable[[Any], Expression]

_OPERATORS: dict[type, Any] = {
    ast.Add: numbers.ADD,
    ast.Sub: numbers.SUBTRACT,
    ast.Mul: numbers.MULTIPLY,
    ast.Div: numbers.DIVIDE,
    ast.Mod: numbers.REMAINDER,
    ast.IntDiv: numbers.WHOLE_DIVIDE,
    ast.DPipe: text.CONCAT,
}
#: Functions of one value.
_SIMPLE: dict[type, Any] = {
    ast.Abs: numbers.ABS,
    ast.Floor: numbers.FLOOR,
    ast.Ceil: numbers.CEIL,
    ast.Trunc: numbers.TRUNC,
    ast.Sign: numbers.SIGN,
    ast.Sqrt: numbers.SQRT,
    ast.Exp: numbers.EXP,
    ast.Ln: numbers.LN,
    ast.Lower: text.LOWER,
    ast.Upper: text.UPPER,
    ast.Trim: text.STRIP,
    ast.Length: text.LENGTH,
    ast.Year: dates.YEAR,
    ast.Quarter: dates.QUARTER,
    ast.Month: dates.MONTH,
    ast.Week: dates.WEEK,
    ast.WeekOfYear: dates.WEEK,
    ast.Day: dates.DAY,
    ast.DayOfMonth: dates.DAY,
    ast.Hour: dates.HOUR,
    ast.Minute: dates.MINUTE,
    ast.DayOfWeekIso: dates.ISO_WEEKDAY,
    ast.Date: dates.DATE,
}
#: The fields of EXTRACT and DATE_PART.
_FIELDS = {
    "YEAR": dates.YEAR,
    "QUARTER": dates.QUARTER,
    "MONTH": dates.MONTH,
    "WEEK": dates.WEEK,
    "DAY": dates.DAY,
    "HOUR": dates.HOUR,
    "MINUTE": dates.MINUTE,
    "ISODOW": dates.ISO_WEEKDAY,
}
#: The types of CAST, by the kind of value that each stands for.
_KINDS = {
    "number": ("double", "float", "decimal", "real"),
    "integer": ("int", "bigint", "smallint", "tinyint"),
    "text": ("text", "varchar", "char"),
    "date": ("date",),
    "boolean": ("boolean",),
}
#: How names that the parser has no class for are spelled.
_NAMED = "columns, literals, arithmetic, CASE, COALESCE, CAST, and the functions of numbers, text and dates on the list"


def read(node: Any, value: Read) -> Expression:
    """The expression that a function's call stands for."""
    if type(node) in _OPERATORS:
        only(node, "this", "expression", "typed", "safe")
        return FunctionCall(_OPERATORS[type(node)], (value(node.this), value(node.expression)))
    if type(node) in _SIMPLE:
        only(node, "this")
        return FunctionCall(_SIMPLE[type(node)], (value(node.this),))
    reader = _READERS.get(type(node))
    if reader is None:
        raise refused(node, _NAMED)
    return reader(node, value)


def _round(node: Any, value: Read) -> Expression:
    only(node, "this", "decimals")
    digits = node.args.get("decimals")
    return value(node.this).round(0 if digits is None else int(number(digits)))


def _logarithm(node: Any, value: Read) -> Expression:
    only(node, "this", "expression")
    if node.expression is None:
        return value(node.this).log10()  # as in DuckDB and PostgreSQL
    if constant(node.this) is None or number(node.this) != 10:
        raise refused(node, "LOG10(x) or LN(x)")
    return value(node.expression).log10()


def _power(node: Any, value: Read) -> Expression:
    only(node, "this", "expression")
    return value(node.this) ** number(node.expression)


def _substring(node: Any, value: Read) -> Expression:
    only(node, "this", "start", "length")
    start, length = int(number(node.args["start"])), node.args.get("length")
    if start < 1:
        raise refused(node, "SUBSTRING(text, start) with a start of 1 or more")
    return value(node.this).substring(start - 1, None if length is None else int(number(length)))


def _left(node: Any, value: Read) -> Expression:
    only(node, "this", "expression")
    return value(node.this).substring(0, int(number(node.expression)))


def _right(node: Any, value: Read) -> Expression:
    only(node, "this", "expression")
    return value(node.this).right(int(number(node.expression)))


def _concatenated(node: Any, value: Read) -> Expression:
    """CONCAT leaves out what is missing, unlike ||."""
    only(node, "expressions", "safe", "coalesce")
    return FunctionCall(text.CONCAT, tuple(coalesce(value(argument), "") for argument in node.expressions))


def _replaced(node: Any, value: Read) -> Expression:
    only(node, "this", "expression", "replacement")
    old, new = node.expression, node.args.get("replacement")
    if not all(isinstance(argument, ast.Literal) and argument.is_string for argument in (old, new)):
        raise refused(node, "REPLACE(text, 'old', 'new')")
    return value(node.this).replace(old.name, new.name)


def _coalesced(node: Any, value: Read) -> Expression:
    only(node, "this", "expressions")
    return coalesce(value(node.this), *(value(argument) for argument in node.expressions))


def _extreme(node: Any, value: Read) -> Expression:
    only(node, "this", "expressions", "ignore_nulls")
    choose = greatest if isinstance(node, ast.Greatest) else least
    return choose(value(node.this), *(value(argument) for argument in node.expressions))


def _null_if(node: Any, value: Read) -> Expression:
    only(node, "this", "expression")
    kept = value(node.this)
    return Cases((Present(kept) & ~(kept == value(node.expression)),), (kept,))


def _cast(node: Any, value: Read) -> Expression:
    only(node, "this", "to", "safe", "_type")
    for kind, types in _KINDS.items():
        if node.to.is_type(*types):
            return value(node.this).cast(kind)
    raise refused(node, "CAST to DOUBLE, INTEGER, TEXT, DATE or BOOLEAN")


def _extract(node: Any, value: Read) -> Expression:
    only(node, "this", "expression")
    return _field(node, node.this.name, value(node.expression))


def _field(node: Any, name: str, value: Expression) -> Expression:
    if name.upper() not in _FIELDS:
        raise refused(node, f"EXTRACT of {', '.join(_FIELDS)}")
    return FunctionCall(_FIELDS[name.upper()], (value,))


def _truncated(node: Any, value: Read) -> Expression:
    only(node, "this", "unit", "input_type_preserved")
    return value(node.this).truncate(node.args["unit"].name.lower())


def _difference(node: Any, value: Read) -> Expression:
    only(node, "this", "expression", "unit", "date_part_boundary")
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() != "DAY":
        raise refused(node, "DATE_DIFF('day', earlier, later)")
    return value(node.this).days_since(value(node.expression))


def _formatted(node: Any, value: Read) -> Expression:
    only(node, "this", "format")
    pattern = node.args["format"]
    if not isinstance(pattern, ast.Literal) or not pattern.is_string:
        raise refused(node, "STRFTIME(day, '%Y-%m')")
    return value(node.this).strftime(pattern.name)


def _zoned(node: Any, value: Read) -> Expression:
    only(node, "this", "zone")
    zone = node.args["zone"]
    if not isinstance(zone, ast.Literal) or not zone.is_string:
        raise refused(node, "AT TIME ZONE 'Europe/Paris'")
    return value(node.this).in_zone(zone.name)


def _clamped(node: Any, value: Read) -> Expression:
    inner, low, high = clamp_of(node)
    return value(inner).clip(low, high)


def clamp_of(node: Any) -> tuple[Any, float, float]:
    """The argument of CLAMP(x, lower, upper), and its bounds."""
    only(node, "this", "expressions")
    if len(node.expressions) != 3:
        raise refused(node, "CLAMP(column, lower, upper)")
    inner, low, high = node.expressions
    return inner, number(low), number(high)


def is_clamp(node: Any) -> bool:
    """Whether a node is CLAMP(…)."""
    return isinstance(node, ast.Anonymous) and node.name.upper() == "CLAMP"


def _named(node: Any, value: Read) -> Expression:
    """A function that the parser knows by name alone."""
    only(node, "this", "expressions")
    name, given = node.name.upper(), node.expressions
    if name == "CLAMP":
        return _clamped(node, value)
    if name == "DATE_PART" and len(given) == 2 and isinstance(given[0], ast.Literal):
        return _field(node, given[0].name, value(given[1]))
    if name == "TIMEZONE" and len(given) == 2 and isinstance(given[0], ast.Literal):
        return value(given[1]).in_zone(given[0].name)
    raise refused(node, _NAMED)


_READERS: dict[type, Callable[[Any, Read], Expression]] = {
    ast.Round: _round,
    ast.Log: _logarithm,
    ast.Pow: _power,
    ast.Substring: _substring,
    ast.Left: _left,
    ast.Right: _right,
    ast.Concat: _concatenated,
    ast.Replace: _replaced,
    ast.Coalesce: _coalesced,
    ast.Greatest: _extreme,
    ast.Least: _extreme,
    ast.Nullif: _null_if,
    ast.Cast: _cast,
    ast.TryCast: _cast,
    ast.Extract: _extract,
    ast.TimestampTrunc: _truncated,
    ast.DateTrunc: _truncated,
    ast.DateDiff: _difference,
    ast.TimeToStr: _formatted,
    ast.AtTimeZone: _zoned,
    ast.Anonymous: _named,
}
