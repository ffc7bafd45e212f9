"""How many rows there are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.bounded import Bounded, Sensitivity
from discreet.queries.contributions import sensitivities, used_rows
from discreet.queries.grid import column, is_missing, selected


def count(
    values: ArrayLike,
    *,
    where: ArrayLike | None = None,
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """The number of rows that hold a value: None and NaN are not counted, as in SQL's COUNT(column).

    Args:
        values: one entry for each row.
        where: a mask of the rows to count; a missing answer counts as False.
        persons: each row's person, to protect people who have many rows.
        max_rows: with `persons`, how many rows of one person are counted.

    Guarantee: one row changes the count by at most 1 (a person by `max_rows`) under every relation. Assumes that a
    row is decided by itself. Not protected: the type of the column.

    >>> count([3, None, 5])
    <count: value hidden, L1 ≤ 1, L2 ≤ 1 for one row, add/remove>
    """
    entries = column(values)
    use, unit, _ = used_rows(entries.size, persons, max_rows)
    present = _present(entries) & use & selected(where, entries.size)
    per_row = Sensitivity.scalar(1)
    return Bounded(
        np.asarray(present.sum()), Fraction(1), sensitivities(per_row, per_row, unit, 1), "count", unit, direction=1
    )


def _present(entries: NDArray[Any]) -> NDArray[np.bool_]:
    if entries.dtype.kind == "O":
        return np.fromiter((not is_missing(value) for value in entries), dtype=bool, count=entries.size)
    if entries.dtype.kind in "fcmM":
        missing: NDArray[np.bool_] = np.isnan(entries) if entries.dtype.kind in "fc" else np.isnat(entries)
        return ~missing
    return np.ones(entries.size, dtype=bool)
