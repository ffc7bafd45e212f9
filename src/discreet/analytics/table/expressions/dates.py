"""Functions of dates and times that never fail and mean the same on every engine.

They know the years 1 to 9999 of the Gregorian calendar; any other date, such as PostgreSQL's infinity, is missing.
Weeks are those of ISO 8601. A time with a zone is an instant: `in_zone` says in which zone it is read.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from typing import TYPE_CHECKING, Any

import ibis

from discreet import _check
from discreet.analytics.table.expressions.calls import Methods, RowFunction, within
from discreet.analytics.table.semantics import engine_of, family

if TYPE_CHECKING:
    from discreet.analytics.table.expressions.nodes import Expression

_FIRST, _LAST = 1, 9999
#: Units that a date can be truncated to, as Ibis names them; those of times of the day need a timestamp.
_UNITS = {"year": "Y", "quarter": "Q", "month": "M", "week": "W", "day": "D"}
_TIMES = {"hour": "h", "minute": "m"}
#: Days from March 1 of year 0 to January 1, 1970, in the proleptic Gregorian calendar.
_EPOCH = 719468
#: What `text` of a date may be made of.
_FORMATS = {"%Y": ("year", 4), "%m": ("month", 2), "%d": ("day", 2), "%H": ("hour", 2), "%M": ("minute", 2)}


@ibis.udf.scalar.builtin(name="timezone", signature=(("string", "timestamp('UTC')"), "timestamp"))  # type: ignore[untyped-decorator]
def _local_time(zone: Any, instant: Any) -> Any:
    """The engine's own function: an instant as the time that clocks in a zone show."""


def known(value: Any, wanted_by: str) -> Any:
    """An engine's date or time within the years 1 to 9999, else missing; other types are refused."""
    kind = family(value)
    if kind == "timestamp with zone":
        remedy = "say in which zone to read it: column.in_zone('Europe/Paris'), or in SQL column AT TIME ZONE 'UTC'"
        raise _check.fail(wanted_by, "get a date or a time without a zone", "an instant", remedy)
    if kind not in ("date", "timestamp") and not kind.startswith("timestamp without zone"):
        remedy = "choose a date or time column, or cast text like 2024-12-31 to a date"
        raise _check.fail(wanted_by, "get a date or a time", f"a value of type {value.type()}", remedy)
    return _plain(value)


def _plain(value: Any) -> Any:
    if engine_of(value) == "pyspark":  # whose dates are always finite, and whose literals of times have a zone
        years = value.year()
        inside = (years >= _FIRST) & (years <= _LAST)
    elif value.type().is_date():
        inside = (value >= ibis.literal(dt.date(_FIRST, 1, 1))) & (value <= ibis.literal(dt.date(_LAST, 12, 31)))
    else:
        zone = None if value.type().timezone is None else dt.UTC
        # A day less at each end, so that no zone moves an instant out of these years.
        first, last = dt.datetime(_FIRST, 1, 2, tzinfo=zone), dt.datetime(_LAST, 12, 31, tzinfo=zone)
        inside = (value >= ibis.literal(first)) & (value < ibis.literal(last))
        if zone is None:
            first, last = dt.datetime(_FIRST, 1, 1), dt.datetime(_LAST, 12, 31, 23, 59, 59, 999999)
            inside = (value >= ibis.literal(first)) & (value <= ibis.literal(last))
    return ibis.cases((inside, value), else_=ibis.null(value.type()))


def _field(name: str, method: str, low: int, high: int, *, first_of_week: int = 0) -> RowFunction:
    def build(value: Any) -> Any:
        checked = known(value, name)
        if name in _TIMES and value.type().is_date():
            raise _check.fail(name, "get a time", "a date", "a date has no time of the day")
        field = checked.day_of_week.index() if method == "day_of_week" else getattr(checked, method)()
        whole = field.cast("int64")
        return whole + first_of_week if first_of_week else whole

    few = tuple(range(low, high + 1)) if high - low < 60 else None  # minutes and weeks are few
    return RowFunction(name, build, within(float(low), float(high)), few)


YEAR = _field("year", "year", _FIRST, _LAST)
QUARTER = _field("quarter", "quarter", 1, 4)
MONTH = _field("month", "month", 1, 12)
WEEK = _field("week", "week_of_year", 1, 53)
DAY = _field("day", "day", 1, 31)
HOUR = _field("hour", "hour", 0, 23)
MINUTE = _field("minute", "minute", 0, 59)
#: Monday is 0 in Python, and 1 in SQL's ISODOW.
WEEKDAY = _field("weekday", "day_of_week", 0, 6)
ISO_WEEKDAY = _field("isodow", "day_of_week", 1, 7, first_of_week=1)


def day_of(value: Any, wanted_by: str) -> Any:
    """The date of an engine's date or time."""
    checked = known(value, wanted_by)
    return checked if value.type().is_date() else checked.cast("date")


def _truncated(value: Any, unit: str) -> Any:
    """The first day of the unit, or the time at which the hour or minute starts."""
    if unit in _TIMES:
        if value.type().is_date():
            raise _check.fail("truncate", "get a time", "a date", "a date has no time of the day")
        if engine_of(value) == "pyspark":
            remedy = "truncate to the day and group by hour() as well"
            raise _check.fail("truncate", "have a unit of a day or more on Spark", unit, remedy)
        return known(value, "truncate").truncate(_TIMES[unit])
    day = day_of(value, "truncate")
    if unit == "day":
        return day
    # Through a time without a zone: engines return some truncated dates as times, some of these in their own zone.
    return day.cast("timestamp").truncate(_UNITS[unit]).cast("date")


def _days(value: Any, wanted_by: str) -> Any:
    """Days since January 1, 1970, in integer arithmetic from year, month and day.

    Years are counted from March, so that a leap day is the last day of its year. All dividends are positive.
    """
    day = day_of(value, wanted_by)
    month = day.month().cast("int64")
    early = ibis.cases((month <= 2, ibis.literal(1, type="int64")), else_=ibis.literal(0, type="int64"))
    year = day.year().cast("int64") - early
    from_march = month + early * 12 - 3
    leaps = year // 4 - year // 100 + year // 400
    before = (from_march * 153 + 2) // 5
    return (year * 365 + leaps + before + day.day().cast("int64") - 1 - _EPOCH).cast("int64")


def _difference(later: Any, earlier: Any) -> Any:
    return _days(later, "days") - _days(earlier, "days")


def _in_zone(value: Any, zone: str) -> Any:
    if family(value) != "timestamp with zone":
        remedy = "leave in_zone() out: the column is read as it is written"
        raise _check.fail("in_zone", "get a time with a zone", f"a value of type {value.type()}", remedy)
    if engine_of(value) == "pyspark":
        remedy = "convert it in a view of the table: CAST(from_utc_timestamp(at, zone) AS TIMESTAMP_NTZ)"
        raise _check.fail("in_zone", "run on DuckDB or PostgreSQL", "Spark", remedy)
    return _local_time(zone, _plain(value).cast("timestamp('UTC')"))


def _formatted(value: Any, pattern: str) -> Any:
    """Year, month, day, hour and minute as digits, joined by the text between them."""
    checked = known(value, "text")
    result, rest = ibis.literal(""), pattern
    while rest:
        name, digits = _FORMATS.get(rest[:2], ("", 0))
        if name in _TIMES and value.type().is_date():
            raise _check.fail("text", "have no time of the day for a date", pattern, "leave %H and %M out")
        if name:
            number = getattr(checked, name)().cast("int64")
            padded = (number + 10**digits).cast(
                "string"
            )  # a digit more, which is cut off: no engine pads negative ones
            result = result + padded.substr(1, digits)
        else:
            result = result + ibis.literal(rest[0])
        rest = rest[2 if name else 1 :]
    return ibis.cases((checked.notnull(), result), else_=ibis.null("string"))


TRUNCATE = RowFunction("truncate", _truncated)
DATE = RowFunction("date", lambda value: day_of(value, "date"))
DIFFERENCE = RowFunction("days", _difference)
IN_ZONE = RowFunction("in_zone", _in_zone)
FORMAT = RowFunction("text", _formatted)


class DateMethods(Methods):
    """Functions of dates and times. Abstract."""

    def year(self) -> Expression:
        """The year."""
        return self._call(YEAR)

    def quarter(self) -> Expression:
        """The quarter of the year, 1 to 4."""
        return self._call(QUARTER)

    def month(self) -> Expression:
        """The month of the year, 1 to 12."""
        return self._call(MONTH)

    def week(self) -> Expression:
        """The week of ISO 8601, 1 to 53: the first one of a year holds its first Thursday."""
        return self._call(WEEK)

    def day(self) -> Expression:
        """The day of the month, 1 to 31."""
        return self._call(DAY)

    def weekday(self) -> Expression:
        """The day of the week, from 0 for Monday to 6 for Sunday."""
        return self._call(WEEKDAY)

    def hour(self) -> Expression:
        """The hour of the day, 0 to 23."""
        return self._call(HOUR)

    def minute(self) -> Expression:
        """The minute of the hour, 0 to 59."""
        return self._call(MINUTE)

    def date(self) -> Expression:
        """The date of a time."""
        return self._call(DATE)

    def truncate(self, unit: str) -> Expression:
        """The first day of the year, quarter, month or week (a Monday), or the start of the hour or minute."""
        if not isinstance(unit, str) or unit not in {**_UNITS, **_TIMES}:
            raise _check.fail("unit", f"be one of {', '.join({**_UNITS, **_TIMES})}", unit, "such as month")
        return self._call(TRUNCATE, options=(unit,))

    def days_since(self, other: object) -> Expression:
        """How many days lie between another date and this one; negative where the other is later."""
        return self._call(DIFFERENCE, other)

    def in_zone(self, zone: str) -> Expression:
        """An instant as the time that clocks in a zone show, such as "Europe/Paris" or "UTC"."""
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError):
            raise _check.fail("zone", "be the name of a time zone", zone, 'such as "Europe/Paris" or "UTC"') from None
        return self._call(IN_ZONE, options=(zone,))

    def strftime(self, pattern: str) -> Expression:
        """A date or time as text, by a public pattern of %Y, %m, %d, %H, %M and other characters."""
        remains = pattern if isinstance(pattern, str) else "%"
        for known_part in _FORMATS:
            remains = remains.replace(known_part, "")
        if "%" in remains or "\0" in remains:
            raise _check.fail("pattern", f"have {', '.join(_FORMATS)} alone after a %", pattern, "such as %Y-%m")
        return self._call(FORMAT, options=(pattern,))
