"""What a value means, the same on every engine: public literals, numbers, missing values, and comparable types."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import ibis
import ibis.expr.operations as ops

from discreet import _check
from discreet.analytics.table.sizes import of_size, size_of, within

#: Smaller floats, other than 0, are refused as literals: engines read them inexactly.
SMALLEST = 1e-290
#: Numbers enter arithmetic moved to these sizes: products and quotients of four of them are floats.
_TAME = (1e-60, 1e60)
#: What a public literal may be.
Literal = str | int | float | bool | dt.date | dt.datetime


def cuts(edges: Iterable[Any]) -> tuple[Any, ...]:
    """Public edges of bins, checked: numbers as floats, or dates, or times."""
    try:
        given = tuple(edges)
    except TypeError:
        given = ()
    if not given:
        raise _check.fail("edges", "be a list of numbers or dates", type(edges).__name__, "n bins have n + 1 edges")
    if given and all(isinstance(edge, dt.date) for edge in given):
        kinds = {(isinstance(edge, dt.datetime), getattr(edge, "tzinfo", None) is None) for edge in given}
        dates = tuple(literal(edge) for edge in given)
        if len(kinds) > 1 or len(dates) < 2 or any(a >= b for a, b in pairwise(dates)):  # type: ignore[operator]
            raise _check.fail("edges", "be at least two ascending dates of one kind", given, "n bins have n + 1 edges")
        return dates
    edges = given
    # Adding 0.0 turns −0.0 into 0.0.
    checked = tuple(float(_check.real("edges", edge, "bins have finite public edges")) + 0.0 for edge in edges)
    if len(checked) < 2 or any(a >= b for a, b in pairwise(checked)):
        raise _check.fail("edges", "be at least two ascending numbers", checked, "n bins have n + 1 edges")
    return checked


def literal(value: object) -> Literal:
    """A public value that an engine's literal can hold."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, Fraction):
        value = float(value)
    if not isinstance(value, str | int | float | bool | dt.date | dt.datetime):
        raise _check.fail(
            "literal", "be text, a number, a date or a boolean", type(value).__name__, "use a plain value"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise _check.fail("literal", "be finite", value, "is_null() finds missing values")
    if isinstance(value, float) and 0 < abs(value) < SMALLEST:  # `double` would make different ones equal
        raise _check.fail("literal", f"be 0 or at least {SMALLEST} in size", value, "use 0")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        raise _check.fail("literal", "fit 64 bits", value, "use a float")
    # pandas' times have nanoseconds, which engines' literals drop: two different times would become equal.
    if isinstance(value, dt.datetime) and (getattr(value, "nanosecond", 0) != 0 or value != value):
        raise _check.fail("literal", "be a time in whole microseconds", value, "round it")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return _instant(value)
    if isinstance(value, str) and "\0" in value:
        raise _check.fail("literal", "hold no NUL character", value, "no engine stores one")
    return value


def _instant(value: dt.datetime) -> dt.datetime:
    """A time with a zone as the same instant in UTC: engines read the names of other zones in different ways."""
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise _check.fail(
            "literal", "be a time between the years 1 and 9999 in UTC", value, "move it inwards"
        ) from None


def double(value: float) -> Any:
    """A float as an engine's 64-bit float, bit for bit.

    Engines read a decimal of 17 digits with an error in the last place; an integer of 53 bits times a power of two is
    read exactly.
    """
    if value.is_integer() and abs(value) < 1 << 53:
        # PostgreSQL reads 1.0 as a decimal, whose division has other digits; a cast from an integer is a float.
        return ibis.literal(int(value), type="int64").cast("float64")
    fraction, exponent = math.frexp(value)
    return ibis.literal(int(math.ldexp(fraction, 53)), type="int64").cast("float64") * ibis.literal(
        math.ldexp(1.0, max(exponent - 53, -1022)), type="float64"
    )


def of_type(value: Literal, kind: Any) -> Any:
    """A public value as a literal of a column's own type; None if no value of that type equals it.

    The value must be of the column's kind. For a decimal column, a float is the number that it is written as: 0.1.
    """
    if kind.is_floating():
        return double(float(value)) if float(value) == value else None  # type: ignore[arg-type]  # a number
    if kind.is_integer():
        whole = int(value)  # type: ignore[arg-type]  # a number
        low, high, wide = (0, 1 << 64, "uint64") if kind.is_uint64() else (-(1 << 63), 1 << 63, "int64")
        return ibis.literal(whole, type=wide) if whole == value and low <= whole < high else None
    if kind.is_decimal():
        return _decimal(Decimal(repr(value)), kind)
    return ibis.literal(value)


def _decimal(value: Decimal, kind: Any) -> Any:
    """A number as a literal of a decimal type, None if it does not fit."""
    digits = kind.scale  # after the point; None where PostgreSQL sets no limit
    if digits is not None:
        whole = (kind.precision or 1000) - digits
        if -int(value.normalize().as_tuple().exponent) > digits or abs(value) >= Decimal(10) ** whole:
            return None
        if not digits:  # DuckDB's 128-bit integers are reported as such decimals
            return ibis.literal(int(value), type="int64") if abs(value) < 1 << 63 else None
    return ibis.literal(value, type=kind)


def present(value: Any) -> Any:
    """An engine's value with NaN made missing."""
    if value.type().is_floating():
        return ibis.cases((value.isnan(), ibis.null(value.type())), else_=value)
    return value


_NUMERIC = "choose a numeric column; one of a CSV file without any number in it counts as text"


def number(value: Any, wanted_by: str) -> Any:
    """An engine's number or boolean as a 64-bit float."""
    if family(value) not in ("number", "boolean"):
        kind = "unknown" if value.type().is_unknown() else value.type()  # such as that of an empty list
        raise _check.fail(wanted_by, "get numbers", f"a column of type {kind}", _NUMERIC)
    if value.type().is_boolean():
        counted = ibis.cases((value, double(1.0)), (~value, double(0.0)), else_=ibis.null("float64"))
        return of_size(counted, (1.0, 1.0))
    if value.type().is_decimal():
        size = size_of(value)
        return _float_of_decimal(value) if size is None else of_size(_float_of_decimal(value), size)
    return value if value.type().is_float64() else value.cast("float64")


def _float_of_decimal(value: Any) -> Any:
    """A decimal as a 64-bit float, NaN made missing. PostgreSQL's may be beyond any float, where a cast fails.

    Such decimals are clamped to sizes that a float holds. The engine sorts NaN above all numbers: it is tested first.
    """
    kind, most = value.type(), 300
    if max(kind.precision or most + 1, kind.scale or 0) <= most:
        return present(value.cast("float64"))
    large, small = Decimal(10) ** most, Decimal(10) ** -most
    return ibis.cases(
        (value.cast("string") == "NaN", ibis.null("float64")),
        (value > ibis.literal(large), double(float(large))),
        (value < ibis.literal(-large), double(-float(large))),
        ((value < ibis.literal(small)) & (value > ibis.literal(-small)), double(0.0)),
        else_=value.cast("float64"),
    )


def tame(value: Any) -> Any:
    """A number clamped to sizes of which several can be multiplied and divided without overflow or underflow."""
    if within(size_of(value), _TAME):
        return value
    large, small = double(_TAME[1]), double(_TAME[0])
    clamped = ibis.cases(
        (value > large, large),
        (value < -large, -large),
        ((value < small) & (value > -small), double(0.0)),
        else_=value,
    )
    return of_size(clamped, _TAME)


def clamped(value: Any, low: float, high: float) -> Any:
    """A number moved into an interval, missing where it is missing; its SQL repeats the number three times."""
    lowest, highest = double(low), double(high)
    moved = ibis.cases((value > highest, highest), (value < lowest, lowest), else_=value)
    size = size_of(value)
    if size is None:
        return moved
    return of_size(moved, (min([size[0], *(abs(end) for end in (low, high) if end)]), max(abs(low), abs(high))))


def condition(value: Any) -> Any:
    """An engine's boolean, with missing made False."""
    if not value.type().is_boolean():
        raise _check.fail(
            "condition", "be True or False", f"a value of type {value.type()}", "compare it with something"
        )
    return value.fill_null(False)


def family(value: Any) -> str:
    """Which values an engine's value may be compared with: those of the same family."""
    kind = value.type()
    if kind.is_boolean():
        return "boolean"
    if kind.is_numeric():
        return "number"
    if kind.is_string():
        return "text"
    if kind.is_timestamp():
        return _local(value) if kind.timezone is None else "timestamp with zone"
    return "date" if kind.is_date() else str(kind)


#: The family of times without a zone on Spark, which shifts some of them by its session's zone: they match nothing.
_SPARK_TIME = "timestamp without zone on Spark"


def _local(value: Any) -> str:
    return _SPARK_TIME if engine_of(value) == "pyspark" else "timestamp"


def remedy_of(families: Iterable[str], otherwise: str) -> str:
    """What to do about values that cannot be compared: Spark's times without a zone have a remedy of their own."""
    if _SPARK_TIME not in families:
        return otherwise
    return (
        "Spark would shift such a time by its session's zone: use its date(), truncate('day'), hour() or "
        "strftime('%Y-%m-%d %H:%M') (in SQL: CAST(… AS DATE), DATE_TRUNC, EXTRACT, STRFTIME)"
    )


def engine_of(value: Any) -> str:
    """The name of the engine that computes a value; empty for one that is made of literals alone."""
    if isinstance(value.op(), ops.Literal) or not value.op().find(ops.PhysicalTable):
        return ""
    return str(value.get_backend().name)
