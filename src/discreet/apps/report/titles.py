"""Short titles for charges and results: the purpose that the user gave, or the question as a phrase."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: The purpose that a table records if the user gives none, such as "hours=mean(hours_per_week), n=count() by sex".
_CALL = r"[^=,()]+=(\w+)\(([^()]*)\)"
_QUESTION = re.compile(rf"({_CALL}(?:, {_CALL})*)(?: by (.+?))?( \(discovered\))?", re.DOTALL)

_PHRASES = {
    "count_distinct": "number of persons",
    "std": "standard deviation",
    "top_k": "most frequent values",
    "min": "low quantile",
    "max": "high quantile",
}

_UNNAMED = {
    "spend": "Charge without a purpose",
    "reserve": "Reservation without a purpose",
    "close": "Returned from a reservation",
}


def charge_title(purpose: str, kind: str = "spend") -> str:
    """The title of a charge.

    >>> charge_title("hours=mean(hours_per_week), n=count() by sex")
    'Mean of hours_per_week and count, by sex'
    >>> charge_title("SELECT sex, COUNT(*) FROM people GROUP BY sex")
    'SQL query by sex'
    >>> charge_title("who earns over $50,000")
    'Who earns over $50,000'
    """
    if not purpose.strip():
        return _UNNAMED.get(kind, kind.capitalize())
    title = _question(purpose) or _sql(purpose) or purpose.strip()
    return title[:1].upper() + title[1:]


def result_title(purpose: str, columns: Sequence[str], group_columns: int) -> str:
    """The title of a result: its purpose, or else its columns.

    >>> result_title("", ("sex", "hours", "hours_error"), 1)
    'Hours by sex'
    """
    if purpose.strip():
        return charge_title(purpose)
    values = [name for name in columns[group_columns:] if not name.endswith("_error")]
    by = f" by {', '.join(columns[:group_columns])}" if group_columns else ""
    title = f"{' and '.join(values) or 'result'}{by}"
    return title[:1].upper() + title[1:]


def _question(purpose: str) -> str | None:
    matched = _QUESTION.fullmatch(purpose)
    if matched is None:
        return None
    calls = [_call(name, columns) for name, columns in re.findall(_CALL, matched[1])]
    by = f"{',' * (len(calls) > 1)} by {matched[6]}" if matched[6] else ""
    return " and ".join(calls) + by


def _call(name: str, columns: str) -> str:
    words = _PHRASES.get(name, name.replace("_", " "))
    return f"{words} of {columns.replace(', ', ' and ')}" if columns else words


def _sql(purpose: str) -> str | None:
    if not re.match(r"\s*(select|with)\s.*\sfrom\s", purpose, re.IGNORECASE | re.DOTALL):
        return None
    groups = re.search(r"\sgroup\s+by\s+([\w\s,\".]+?)\s*(?:;|having\b.*|order\b.*|limit\b.*)?$", purpose, re.I | re.S)
    return "SQL query" + (f" by {' '.join(groups[1].split())}" if groups else "")
