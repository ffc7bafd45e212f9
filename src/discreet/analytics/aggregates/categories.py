"""Public categories: values that are listed beforehand and never taken from data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from discreet import _check
from discreet.analytics.table.semantics import literal

#: The most categories of a column, and the most cells of a marginal inside `aggregate`, where each is a column.
MAX_CELLS = 1024


def public_values(column: str, categories: object) -> tuple[Any, ...]:
    """The listed values of a column, checked."""
    if not isinstance(categories, Iterable) or isinstance(categories, str | bytes):
        raise _check.fail("categories", f"be a list of public values of {column!r}", categories, "list them")
    values = tuple(literal(value) for value in categories)
    # Engines compare numbers as 64-bit floats. If two integers are the same float, a row would lie in both cells.
    compared = {float(value) if isinstance(value, int) else value for value in values}
    if not 0 < len(values) <= MAX_CELLS or len(compared) != len(values):
        remedy = "they are public facts, never taken from data; numbers must differ as 64-bit floats"
        raise _check.fail("categories", f"be between 1 and {MAX_CELLS} distinct values", len(values), remedy)
    return values
