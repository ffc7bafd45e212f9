"""The only place that maps public keys to the engine's rows and back: which rows count, and where their sums go.

In the engine the columns g0, g1, … hold a row's key. The sums that come back are put into lists in the order of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from discreet.analytics.plan.keys import Keys
from discreet.analytics.table.expressions import Column


def key_columns(table: Any, columns: Iterable[str]) -> dict[str, Any]:
    """The columns g0, g1, … that hold a row's key."""
    return {f"g{i}": Column(name).to_ibis(table) for i, name in enumerate(columns)}


def in_groups(table: Any, keys: Keys | None) -> Any:
    """The rows that belong to one of the public groups."""
    return table if keys is None else table.filter(keys.condition().to_filter(table))


def scattered(
    rows: Iterable[Mapping[str, Any]],
    keys: Keys | None,
    size: int,
    integers: Callable[[Mapping[str, Any]], Iterable[tuple[int, int]]],
) -> list[list[int]]:
    """For each public group, in the order of the keys, `size` integers; zeros where the engine has no row.

    `integers` gives a row's integers with their positions. Rows of other keys are dropped.
    """
    positions, columns = _positions(keys)
    totals = [[0] * size for _ in positions]
    for row in rows:
        group = _group(row, positions, columns)
        if group is not None:
            for position, value in integers(row):
                totals[group][position] += value
    return totals


def _positions(keys: Keys | None) -> tuple[dict[Any, int], int]:
    if keys is None:
        return {(): 0}, 0
    return {key: position for position, key in enumerate(keys.values)}, len(keys.columns)


def _group(row: Mapping[str, Any], positions: Mapping[Any, int], columns: int) -> int | None:
    key = tuple(row[f"g{i}"] for i in range(columns))
    if key in positions or not any(isinstance(value, Decimal) for value in key):
        return positions.get(key)
    # In Python 0.1 differs from a decimal 0.1; engines compare both as floats, so there they are equal.
    return positions.get(tuple(float(value) if isinstance(value, Decimal) else value for value in key))
