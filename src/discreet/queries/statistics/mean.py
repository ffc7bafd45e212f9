"""The mean of clamped values: a noisy sum over a noisy count, or, where the size is public, a noisy sum alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check, neighbors
from discreet.bounded import Bounded, Sensitivity, Tails
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation
from discreet.queries.contributions import first, sensitivities, used_rows
from discreet.queries.grid import Grid, coarser, numbers
from discreet.queries.statistics.intervals import ColumnSums, NoisySums, holding

#: Levels on each side of the middle. Fewer than for a sum, because the count may weigh up to nine times as much.
LEVELS = 1 << 24


@dataclass(frozen=True)
class Quotient:
    """Finish of a mean: middle + sum/count, clamped to the bounds. The count is taken to be at least 1."""

    grid: Grid
    weight: int  # of one row in the second coordinate

    @property
    def mixes(self) -> int:
        return 2

    @property
    def vectorized(self) -> bool:
        """Coordinates may be rows of an array with one column for each group."""
        return True

    def value(self, noisy: NDArray[Any]) -> Any:
        total, count = self._split(noisy)
        return self._mean(total, count)

    def standard_error(self, noisy: NDArray[Any], spread: float) -> Any:
        """By the delta method: √(Var(sum) + (mean − middle)² Var(count)) / count."""
        total, count = self._split(noisy)
        off_center = self._mean(total, count) - float(self.grid.center)
        return np.hypot(spread * float(self.grid.step), off_center * spread / self.weight) / np.maximum(count, 1.0)

    def interval(self, noisy: NDArray[Any], noise: Tails, tail: float) -> tuple[Any, Any]:
        """By Fieller's method: the sum less m times the count is pure noise at the true mean m."""
        grid, reach = self.grid, float(self.grid.reach)
        total, count = np.asarray(noisy, dtype=np.float64)
        sums = NoisySums(count / self.weight, 1 / self.weight, noise)
        column = ColumnSums(total / reach, 1 / reach)
        low, high = sums.mean(column, tail, (grid.lower / reach, grid.upper / reach))
        unit, center = float(grid.reach * grid.step), float(grid.center)
        return holding((center + low * unit, center + high * unit), self.value(noisy))

    def _split(self, noisy: NDArray[Any]) -> tuple[Any, Any]:
        return np.float64(noisy[0]) * float(self.grid.step), np.float64(noisy[1]) / self.weight

    def _mean(self, total: Any, count: Any) -> Any:
        low, high = float(self.grid.lower * self.grid.step), float(self.grid.upper * self.grid.step)
        mean = float(self.grid.center) + np.minimum(np.maximum(total / np.maximum(count, 1.0), low), high)
        return float(mean) if np.ndim(mean) == 0 else mean


@dataclass(frozen=True)
class Shifted:
    """Finish of a mean over a public number of rows: middle + sum/rows, clamped to the bounds."""

    center: Fraction
    granularity: Fraction
    half_range: Fraction

    @property
    def mixes(self) -> int:
        return 1

    def value(self, noisy: NDArray[np.int64]) -> float:
        return self._mean(float(noisy))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> float:
        return spread * float(self.granularity)

    def interval(self, noisy: NDArray[np.int64], noise: Tails, tail: float) -> tuple[float, float]:
        half_width = noise.half_width(tail)
        return self._mean(float(noisy) - half_width), self._mean(float(noisy) + half_width)

    def _mean(self, total: float) -> float:
        reach = float(self.half_range)
        return float(self.center) + min(max(total * float(self.granularity), -reach), reach)


def mean(
    values: ArrayLike,
    *,
    bounds: tuple[float, float],
    relation: Relation | str = ADD_REMOVE,
    count_share: float = 0.5,
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """The mean of `values`, each clamped to `bounds`.

    Under add/remove the number of rows is private, so the mean is a noisy sum of distances from the middle of the
    bounds, divided by a noisy count: one release of two numbers. `count_share` says how they split what is spent:
    of Laplace noise's ε the count gets that share and the sum the rest. Rows without a value are left out of both.

    Under replace-one the number of rows is public: a noisy sum is divided by it. A missing value counts as the middle.

    Args:
        values: one number for each row.
        bounds: (lower, upper), from what is known without looking at the data.
        relation: `dp.ADD_REMOVE`, `dp.ZERO_OUT` (the same sums) or `dp.REPLACE_ONE`.
        count_share: in [0.1, 0.9], under add/remove.
        persons: each row's person, to protect people who have many rows (not under replace-one).
        max_rows: with `persons`, how many rows of one person are used.

    Guarantee: with R = (upper − lower)/2, add/remove moves the sum by at most R and the count by 1; replace-one, with
    n public, moves the mean by at most 2R/n. Enforced by clamping. Not protected: bounds, the column's type, and
    under replace-one the number of rows.

    >>> mean([20, 40, 60], bounds=(0, 100), relation="replace-one")
    <mean: value hidden, L1 ≤ 33.3333, L2 ≤ 33.3333 for one row, replace-one>
    """
    amounts = numbers(values)
    wanted = neighbors.relation(relation)
    if wanted is REPLACE_ONE:
        if persons is not None:
            raise _check.fail(
                "relation", "be add/remove with persons", relation, "how many rows a person has is not public"
            )
        return mean_of_known_size(Grid.over(bounds, center=True), amounts, "mean")
    use, unit, rows = used_rows(amounts.size, persons, max_rows)
    finish = quotient(bounds, coarser(LEVELS, rows), count_share)
    use &= ~np.isnan(amounts)
    total = finish.grid.levels(amounts, 0)[use].sum(dtype=np.int64)
    return Bounded(
        np.array([total, finish.weight * int(use.sum())], dtype=np.int64),
        finish.grid.step,
        first(wanted, sensitivities(*moves(finish), unit, 2)),
        "mean",
        unit,
        finish,
    )


def quotient(bounds: object, levels: int, count_share: float) -> Quotient:
    """The finish of a mean over `bounds`: its grid with `levels` on each side, and the count's weight."""
    share = float(_check.real("count_share", count_share, "it is the count's share of the budget"))
    if not 0.1 <= share <= 0.9:
        raise _check.fail("count_share", "lie in [0.1, 0.9]", count_share, "0.5 is a good start")
    grid = Grid.over(bounds, center=True, levels=levels)
    return Quotient(grid, max(1, round(grid.reach * share / (1 - share))))


def moves(finish: Quotient) -> tuple[Sensitivity, Sensitivity]:
    """The most that one row adds to (sum, weighted count), and the most by which two rows differ."""
    weight, reach, wide = finish.weight, finish.grid.reach, finish.grid.upper - finish.grid.lower
    present = Sensitivity(2, reach + weight, reach**2 + weight**2, max(reach, weight))
    # Two rows with a value differ in the sum only; a row with and one without a value differ as `present` says.
    swapped = Sensitivity(2, max(wide, reach + weight), max(wide**2, reach**2 + weight**2), max(wide, reach, weight))
    return present, swapped


def mean_of_known_size(grid: Grid, amounts: NDArray[np.float64], name: str) -> Bounded:
    """The mean over a public number of rows, for replace-one neighbors."""
    if amounts.size == 0:
        raise _check.fail("values", "have a row", 0, "under replace-one the number of rows is public, and it is none")
    total = grid.levels(amounts, 0).sum(dtype=np.int64)
    granularity = grid.step / amounts.size
    finish: Any = Shifted(grid.center, granularity, grid.reach * grid.step)
    moved = Sensitivity.scalar(grid.upper - grid.lower)
    return Bounded(np.asarray(total), granularity, {REPLACE_ONE: moved}, name, finish=finish)
