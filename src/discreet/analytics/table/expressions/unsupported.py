"""What is not on the list of expressions, and what to use instead."""

from __future__ import annotations

from discreet.errors import InvalidArgument

#: The nearest thing that works, by the name that was tried.
NEAREST = {
    "apply": "compose arithmetic, comparisons, case() and the functions of numbers, text and dates",
    "map": "use case(), isin() or bin()",
    "str": "use lower(), strip(), substring(), like() and other functions of text",
    "fillna": "use fill_null()",
    "isna": "use is_null()",
    "isnull": "use is_null()",
    "notnull": "use ~column.is_null()",
    "dt": "use year(), month(), truncate() and other functions of dates",
    "astype": 'use cast("number"), cast("integer"), cast("text"), cast("date") or cast("boolean")',
    "sum": "ask the table: people.sum(name, bounds=…)",
    "mean": "ask the table: people.mean(name, bounds=…)",
    "count": "ask the table: people.count()",
    "unique": "group_by(name, keys=…) with public keys",
    "value_counts": "people.histogram(name, categories=…) with public categories",
    "max": "people.quantile(name, 0.99, bounds=…)",
    "min": "people.quantile(name, 0.01, bounds=…)",
}


class Unsupported(InvalidArgument, AttributeError):
    """An expression that is not on the list; the message says what to use instead."""

    def __init__(
        self, name: str, remedy: str, rule: str = "expressions must be on the list of those that cannot fail or leak"
    ) -> None:
        super().__init__(f"{rule}, got {name!r}: {remedy}")
