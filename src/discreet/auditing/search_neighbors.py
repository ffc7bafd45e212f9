"""Where to look: neighboring datasets at which mistakes show, for those who do not know where to look.

Most faults that audits of libraries found need one of these: a bound that is reached, an empty table, one record at an
extreme, or a person with more rows than expected (arXiv 2602.17454).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from discreet import _check
from discreet.auditing._replay import Pair
from discreet.bounded import Bounded, Sensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation
from discreet.neighbors import relation as as_relation

# The rows of a person who has many more than a query may use.
_HEAVY_ROWS = 100
# The rows that both datasets share, where they are not empty.
_SHARED_ROWS = 20


def neighboring_numbers(
    bounds: tuple[float, float], *, relation: Relation | str = ADD_REMOVE, shared: int = _SHARED_ROWS
) -> list[Pair]:
    """Pairs of arrays of numbers: empty or `shared` rows at each extreme, and one more (or another) at each extreme.

    Beside the bounds it tries numbers far outside of them and a missing one: a query must clamp these.
    """
    low, high = (float(end) for end in _check.bounds(bounds))
    width = high - low
    records = [low, high, high + 1000 * width, low - 1000 * width, float("nan")]
    pairs = []
    for base, record in product((None, low, high), records):
        rows = np.full(0 if base is None else shared, 0.0 if base is None else base)
        if as_relation(relation) is ADD_REMOVE:
            pairs.append(Pair(rows, np.append(rows, record), grows=True))
        elif base is not None and record != base:
            pairs.append(Pair(rows, np.append(rows[1:], record)))
    return pairs


def neighboring_tables(
    columns: Mapping[str, Sequence[Any]], *, person: str | None = None, shared: int = _SHARED_ROWS
) -> list[Pair]:
    """Pairs of tables, as columns by name, that differ in one row, or in one person with all rows.

    Args:
        columns: for each column the values to try, such as both bounds, each key, and a missing value.
        person: the column with the person's id; its values are numbers that are given here.
        shared: how many rows both tables have, where they are not empty.
    """
    width = max(map(len, columns.values()))
    corners = [{name: values[i % len(values)] for name, values in columns.items()} for i in range(width)]
    pairs = []
    for base, record in product((None, *corners), corners):
        common = [] if base is None else [base] * shared
        ids = list(range(len(common)))
        pairs.append(Pair(_table(common, ids, person), _table([*common, record], [*ids, len(ids)], person), grows=True))
        if person is not None:
            rows, owners = [*common, *[record] * _HEAVY_ROWS], [*ids, *[len(ids)] * _HEAVY_ROWS]
            pairs.append(Pair(_table(common, ids, person), _table(rows, owners, person), grows=True))
            spread = [*common, *(corners * _HEAVY_ROWS)[:_HEAVY_ROWS]]
            pairs.append(Pair(_table(common, ids, person), _table(spread, owners, person), grows=True))
    return pairs


def _table(rows: list[dict[str, Any]], owners: list[int], person: str | None) -> dict[str, list[Any]]:
    names = list(rows[0]) if rows else []
    table = {name: [row[name] for row in rows] for name in names}
    return table if person is None else {**table, person: owners}


def neighboring_values(bounded: Bounded, relation: Relation | str | None = None, *, distance: int = 1) -> list[Pair]:
    """Pairs of values at the declared distance: one coordinate as far as it may go, and as many as may move at once.

    For a mechanism: `bounded` and copies of it that a group of `distance` units could have made.
    """
    wanted = bounded.relation if relation is None else as_relation(relation)
    sensitivity = bounded.sensitivity(wanted)
    pairs = []
    for moves in _extremes(sensitivity, bounded.dimension):
        flat = np.zeros(bounded.dimension, dtype=np.int64)
        flat[: len(moves)] = distance * moves
        change = flat.reshape(bounded.values.shape)
        grows = wanted is ADD_REMOVE
        pairs.append(Pair(bounded, replace(bounded, values=bounded.values + change), grows=grows))
        if wanted is REPLACE_ONE and len(moves) > 1:
            signs = np.where(np.arange(bounded.dimension) % 2, -1, 1)
            pairs.append(Pair(bounded, replace(bounded, values=bounded.values + change * signs)))
    return pairs


def _extremes(sensitivity: Sensitivity, dimension: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Changes that reach the bounds: one coordinate by L∞, and equal changes of as many as L₀, L₁ and L₂ allow."""
    single = np.array([sensitivity.linf], dtype=np.int64)
    most = min(sensitivity.l0, dimension)
    changes = [single]
    for coordinates in {most, max(1, min(most, sensitivity.l1 // sensitivity.linf))}:
        size = min(
            sensitivity.linf, sensitivity.l1 // coordinates, int((sensitivity.l2_squared / coordinates) ** 0.5 + 1e-9)
        )
        if size > 0 and coordinates > 1:
            changes.append(np.full(coordinates, size, dtype=np.int64))
    return changes
