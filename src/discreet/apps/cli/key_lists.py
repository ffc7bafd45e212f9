"""Public keys as they are written on the command line: lists, files, and ranges of dates and integers."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

from discreet.apps.cli.printing import read_text
from discreet.apps.cli.shared_options import assignment
from discreet.errors import InvalidArgument

#: The most integers of a range.
_MOST = 100_000


#: Keys between commas; a key in quotes may hold commas.
_SEPARATED = re.compile(r"""(?:^|(?<=,))(\s*"[^"]*"\s*|\s*'[^']*'\s*|[^,]*)(?=,|$)""")


def key_list(text: str) -> tuple[str, list[Any]]:
    """The column and the keys of COLUMN=KEYS."""
    name, value = assignment(text, "--keys")
    return name, keys_of(value)


def keys_of(value: str) -> list[Any]:
    """The keys of A,B,…, of @FILE, of months(2023-01, 2024-12), or of a range such as 2023-01..2024-12 or 1..12."""
    calendar = re.fullmatch(r"(days|weeks|months|quarters|years)\(([^,]*),([^,]*)\)", value.strip())
    span = re.fullmatch(r"([^\s,']+)\.\.([^\s,']+)", value.strip())
    if calendar is not None:
        from discreet.analytics.plan import ranges

        return list(getattr(ranges, calendar[1])(calendar[2].strip(), calendar[3].strip()))
    if span is not None:
        return _range(span[1], span[2])
    if value.startswith("@"):
        listed = [line.strip() for line in read_text(value[1:]).splitlines() if line.strip()]
    else:
        listed = [key.strip() for key in _SEPARATED.findall(value)]
    return [literal(key) for key in listed]


def _range(first: str, last: str) -> list[Any]:
    from discreet.analytics.plan import ranges

    for form, listed in ((r"\d{4}-\d{2}", ranges.months), (r"\d{4}-\d{2}-\d{2}", ranges.days)):
        if re.fullmatch(form, first) and re.fullmatch(form, last):
            return list(listed(first, last))
    if re.fullmatch(r"-?\d{1,18}", first) and re.fullmatch(r"-?\d{1,18}", last):
        whole = range(int(first), int(last) + 1)
        if 0 < len(whole) <= _MOST:
            return list(whole)
    raise InvalidArgument(
        f"a range must be of months, days or integers, from the first to the last, got {first}..{last}: "
        "write 2023-01..2024-12, 2023-01-01..2023-01-31 or 1..12, and quote a key that is text"
    )


def dated(flag: str, name: str, listed: list[Any], kind: Any) -> list[Any]:
    """The keys of a date or time column as dates; other keys unchanged."""
    if kind is None or not (kind.is_date() or kind.is_timestamp()):
        return listed
    read = date.fromisoformat if kind.is_date() else datetime.fromisoformat
    try:
        return [read(str(key)) for key in listed]
    except ValueError:
        raise InvalidArgument(
            f"{flag} of {name} must be dates, got {listed!r}: write 2024-12-31, or 2024-12-31T23:59:59"
        ) from None


def literal(text: str) -> Any:
    """A key from the command line: 'quoted' is text, otherwise a number, true, false or text."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
