"""The sum of clamped values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from discreet.bounded import Bounded, Sensitivity
from discreet.queries.contributions import sensitivities, used_rows
from discreet.queries.grid import Grid, numbers


def sum(
    values: ArrayLike,
    *,
    bounds: tuple[float, float],
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """The sum of `values`, each clamped to `bounds` and rounded to a grid of about 2^28 steps.

    A missing value counts as the number in the bounds that is nearest to 0. Integers below 2^28 are summed exactly.

    Args:
        values: one number for each row.
        bounds: (lower, upper), from what is known without looking at the data.
        persons: each row's person, to protect people who have many rows.
        max_rows: with `persons`, how many rows of one person are used.

    Guarantee: add/remove and zero-out: max(|lower|, |upper|); replace-one: upper − lower (a person: `max_rows` times
    that). Enforced by clamping the integers that are summed. Not protected: bounds and the column's type.

    >>> sum([1.5, 2.5, 99.0], bounds=(0, 10))
    <sum: value hidden, L1 ≤ 10, L2 ≤ 10 for one row, add/remove>
    """
    amounts = numbers(values)
    use, unit, rows = used_rows(amounts.size, persons, max_rows)
    grid = Grid.over(bounds, rows=rows)
    total = grid.levels(amounts, grid.nearest_zero)[use].sum(dtype=np.int64)
    bound = sensitivities(*moves(grid), unit, 1)
    return Bounded(np.asarray(total), grid.step, bound, "sum", unit, direction=direction(grid))


def moves(grid: Grid) -> tuple[Sensitivity, Sensitivity]:
    """The most that one row adds to the sum of levels, and the most by which two rows differ."""
    return Sensitivity.scalar(grid.reach), Sensitivity.scalar(grid.upper - grid.lower)


def direction(grid: Grid) -> int:
    """1 or −1 if a row can only raise or only lower the sum, else 0."""
    return 1 if grid.lower >= 0 else -1 if grid.upper <= 0 else 0
