"""Public keys for a range of dates: each month from one to another, and so on. They come from the calendar alone."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

from discreet import _check

#: The most keys of a range: beyond it a range is a mistake.
_MOST = 100_000
_FORMS = {4: "%Y", 7: "%Y-%m", 10: "%Y-%m-%d"}


def days(first: str | dt.date, last: str | dt.date) -> list[dt.date]:
    """Each day from the first to the last: `dp.days("2024-01-01", "2024-12-31")`."""
    return _range(first, last, lambda day: day, lambda day: day + dt.timedelta(days=1))


def weeks(first: str | dt.date, last: str | dt.date) -> list[dt.date]:
    """The Monday of each week from that of the first day to that of the last, as `truncate("week")` gives it."""
    return _range(
        first, last, lambda day: day - dt.timedelta(days=day.weekday()), lambda day: day + dt.timedelta(days=7)
    )


def months(first: str | dt.date, last: str | dt.date) -> list[dt.date]:
    """The first day of each month: `dp.months("2023-01", "2024-12")`, as `truncate("month")` gives it."""
    return _range(first, last, lambda day: day.replace(day=1), lambda day: _next(day, 1))


def quarters(first: str | dt.date, last: str | dt.date) -> list[dt.date]:
    """The first day of each quarter: `dp.quarters("2023-01", "2024-12")`, as `truncate("quarter")` gives it."""
    return _range(first, last, lambda day: dt.date(day.year, day.month - (day.month - 1) % 3, 1), lambda d: _next(d, 3))


def years(first: str | dt.date, last: str | dt.date) -> list[dt.date]:
    """The first day of each year: `dp.years("2020", "2024")`, as `truncate("year")` gives it."""
    return _range(first, last, lambda day: dt.date(day.year, 1, 1), lambda day: _next(day, 12))


def _next(day: dt.date, months: int) -> dt.date:
    month = day.month - 1 + months
    return dt.date(day.year + month // 12, month % 12 + 1, 1)


def _range(
    first: str | dt.date, last: str | dt.date, start: Callable[[dt.date], dt.date], step: Callable[[dt.date], dt.date]
) -> list[dt.date]:
    begin, end = start(_day("first", first)), start(_day("last", last))
    if begin > end:
        raise _check.fail("last", "not be before the first", last, "give the earlier date first")
    dates = [begin]
    while dates[-1] < end:
        dates.append(step(dates[-1]))
        if len(dates) > _MOST:
            raise _check.fail("range", f"have at most {_MOST} keys", len(dates), "use longer steps")
    return dates


def _day(name: str, value: object) -> dt.date:
    """A date, or its text: 2024-12-31, 2024-12 for the first of a month, or 2024 for that of a year."""
    if isinstance(value, dt.date) and value == value:  # pandas' missing time does not equal itself
        return dt.date(value.year, value.month, value.day)
    if isinstance(value, str) and re.fullmatch(r"\d{4}(-\d{2}){0,2}", value, re.ASCII):
        try:
            return dt.datetime.strptime(value, _FORMS[len(value)]).date()
        except ValueError:
            pass
    raise _check.fail(name, "be a date", value, 'such as "2024-12-31", "2024-12" or datetime.date(2024, 12, 31)')
