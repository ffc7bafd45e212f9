"""Casts that never fail: a value that has no counterpart becomes missing.

Engines read text as numbers and dates by rules of their own, some of them configurable. Here text must match one form
exactly: digits with a sign and a point for a number, YYYY-MM-DD for a date.
"""

from __future__ import annotations

from typing import Any

import ibis

from discreet import _check
from discreet.analytics.table.expressions.calls import RowFunction
from discreet.analytics.table.expressions.dates import FORMAT, day_of
from discreet.analytics.table.expressions.numbers import ROUND
from discreet.analytics.table.semantics import double, engine_of, family, number
from discreet.analytics.table.sizes import of_size

#: At most 15 digits before and after the point: every engine reads these as the same float or its neighbor.
_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?"
_TEXT_SIZE = (1e-15, 1e15)
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_LONG_MONTHS = ("01", "03", "05", "07", "08", "10", "12")
_SHORT_MONTHS = ("04", "06", "09", "11")
#: From this size on floats skip integers.
_LARGEST_INTEGER = 2.0**53
#: Unsigned columns may hold larger integers, on which a cast to 64 bits with a sign fails.
_LARGEST_WHOLE = 2**63 - 1


def _matches(value: Any, pattern: str) -> Any:
    """Whether the whole text matches; $ would let some engines accept a line end after it."""
    return value.re_search(pattern + ("$" if engine_of(value) == "postgres" else r"\z"))


def _to_number(value: Any) -> Any:
    if family(value) != "text":
        return number(value, "cast")
    safe = ibis.cases((_matches(value, _NUMBER), value), else_=ibis.null("string"))
    return of_size(safe.cast("float64"), _TEXT_SIZE)


def _to_integer(value: Any) -> Any:
    """The nearest whole number; missing beyond 2^53, where floats skip integers."""
    kind = value.type()
    if kind.is_unsigned_integer() and kind.nbytes >= ibis.dtype("int64").nbytes:
        return ibis.cases((value <= _LARGEST_WHOLE, value.cast("int64")), else_=ibis.null("int64"))
    if kind.is_integer():
        return value.cast("int64")
    given = _to_number(value)
    near = ROUND.build(given, 0)
    inside = (given < double(_LARGEST_INTEGER)) & (given > double(-_LARGEST_INTEGER))
    return ibis.cases((inside, near.cast("int64")), else_=ibis.null("int64"))


def _to_date(value: Any) -> Any:
    if family(value) != "text":
        return day_of(value, "cast")
    year, month, day = value.substr(0, 4), value.substr(5, 2), value.substr(8, 2)
    # The digits are compared as text of equal length, so nothing is read as a number before it is known to be one.
    digits = ibis.cases((_matches(value, _DATE), value), else_=ibis.literal("0000-00-00"))
    fourth = _divisible(digits.substr(2, 2)) & (digits.substr(2, 2) != "00")
    leap = fourth | ((digits.substr(2, 2) == "00") & _divisible(digits.substr(0, 2)))
    last = ibis.cases(
        (month.isin(_LONG_MONTHS), ibis.literal("31")),
        (month.isin(_SHORT_MONTHS), ibis.literal("30")),
        ((month == "02") & leap, ibis.literal("29")),
        (month == "02", ibis.literal("28")),
        else_=ibis.literal(""),
    )
    there = _matches(value, _DATE) & (year != "0000") & (day != "00") & (day <= last)
    return ibis.cases((there, value), else_=ibis.null("string")).cast("date")


def _divisible(two_digits: Any) -> Any:
    """Whether two digits are a number that four divides."""
    return two_digits.isin([f"{number:02d}" for number in range(0, 100, 4)])


def _to_text(value: Any) -> Any:
    kind = value.type()
    if family(value) == "text":
        return value
    if kind.is_boolean():
        return ibis.cases((value, ibis.literal("true")), (~value, ibis.literal("false")), else_=ibis.null("string"))
    if kind.is_integer():
        return value.cast("string")
    if family(value) == "date":
        return FORMAT.build(value, "%Y-%m-%d")
    remedy = "engines write such values differently: cast to an integer, or use strftime() for a time"
    raise _check.fail("cast", "make text of integers, booleans, dates and text", str(kind), remedy)


def _to_boolean(value: Any) -> Any:
    if family(value) == "boolean":
        return value
    checked = number(value, "cast")
    there = ibis.cases((checked == 0, ibis.literal(False)), else_=ibis.literal(True))
    return ibis.cases((checked.notnull(), there), else_=ibis.null("boolean"))


CASTS = {
    "number": RowFunction("cast", _to_number, lambda spans: spans[0]),
    "integer": RowFunction("cast", _to_integer, ROUND.span),
    "text": RowFunction("cast", _to_text),
    "date": RowFunction("cast", _to_date),
    "boolean": RowFunction("cast", _to_boolean, domain=(False, True)),
}
