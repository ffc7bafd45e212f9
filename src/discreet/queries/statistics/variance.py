"""The variance of clamped values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.bounded import Bounded, Sensitivity
from discreet.queries.contributions import sensitivities, used_rows
from discreet.queries.grid import Grid, coarser, numbers

#: Levels on each side of the middle.
LEVELS = 1 << 24


@dataclass(frozen=True)
class Spread:
    """Finish of a variance from (Σk, Σ(2k²/R − R), R·count) with k = (x − middle)/step and R its largest level."""

    grid: Grid

    @property
    def mixes(self) -> int:
        return 3

    def value(self, noisy: NDArray[np.int64]) -> float:
        return self._clamped(self._raw(*(float(x) for x in noisy)))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> float:
        """By the delta method, with the three slopes taken numerically at the noisy values."""
        at = [float(x) for x in noisy]
        slopes = []
        for i in range(3):
            ahead, behind = list(at), list(at)
            ahead[i] += spread
            behind[i] -= spread
            slopes.append((self._raw(*ahead) - self._raw(*behind)) / 2)
        return float(np.linalg.norm(slopes))

    def interval(self, noisy: NDArray[np.int64], half_width: float) -> tuple[float, float]:
        k, q, n = (float(x) for x in noisy)
        near, far = max(abs(k) - half_width, 0.0), abs(k) + half_width
        few, many = n - half_width, n + half_width
        # The two moments are bounded separately, each at the end of the count's range that is worse for it.
        low = min(self._moments(far, q - half_width, m)[1] for m in (few, many)) - self._moments(far, q, few)[0]
        high = max(self._moments(near, q + half_width, m)[1] for m in (few, many)) - self._moments(near, q, many)[0]
        return self._clamped(low), self._clamped(high)

    def _clamped(self, variance: float) -> float:
        return min(max(variance, 0.0), float(self.grid.reach * self.grid.step) ** 2)

    def _raw(self, k: float, q: float, n: float) -> float:
        squared_mean, mean_of_squares = self._moments(k, q, n)
        return mean_of_squares - squared_mean

    def _moments(self, k: float, q: float, n: float) -> tuple[float, float]:
        """The square of the mean and the mean of the squares, both of the distance from the middle."""
        levels, step = float(self.grid.reach), float(self.grid.step)
        count = max(n / levels, 1.0)
        mean = min(max(k / count, -levels), levels)
        squares = min(max((q / count + levels) * levels / 2, 0.0), levels * levels)
        return mean * mean * step * step, squares * step * step


@dataclass(frozen=True)
class Rooted:
    """Finish of a standard deviation: the square root of a variance."""

    inner: Spread

    @property
    def mixes(self) -> int:
        return self.inner.mixes

    def value(self, noisy: NDArray[np.int64]) -> float:
        return math.sqrt(self.inner.value(noisy))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> float:
        """By the delta method, and never more than the square root of the variance's own error."""
        error = float(self.inner.standard_error(noisy, spread))
        return error / max(2 * self.value(noisy), math.sqrt(error), 1e-300)  # the last one only avoids 0/0

    def interval(self, noisy: NDArray[np.int64], half_width: float) -> tuple[float, float]:
        low, high = self.inner.interval(noisy, half_width)
        return math.sqrt(low), math.sqrt(high)


def variance(
    values: ArrayLike,
    *,
    bounds: tuple[float, float],
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """The variance of `values` (divided by n), each clamped to `bounds`; rows without a value are left out.

    One release of three numbers: the sum and the sum of squares of the distances from the middle of the bounds, and
    the count, scaled so that each gets a third of Laplace noise's ε.

    Args:
        values: one number for each row.
        bounds: (lower, upper), from what is known without looking at the data.
        persons: each row's person, to protect people who have many rows.
        max_rows: with `persons`, how many rows of one person are used.

    Guarantee: in units of a third of the budget one row moves each of the three numbers by at most 1 (add/remove,
    zero-out); under replace-one their L1 norm moves by at most 25/8 and their squared L2 norm by 21/4
    (docs/proofs/variance.md). Enforced by clamping. Not protected: bounds and the column's type.

    >>> variance([1, 2, 3], bounds=(0, 4)).dimension
    3
    """
    amounts = numbers(values)
    use, unit, rows = used_rows(amounts.size, persons, max_rows)
    grid = spread_grid(bounds, coarser(LEVELS, rows))
    reach = grid.reach
    use &= ~np.isnan(amounts)
    levels = grid.levels(amounts, 0)[use]
    sums = [levels.sum(dtype=np.int64), centered_squares(levels, reach).sum(dtype=np.int64), reach * int(use.sum())]
    return Bounded(
        np.array(sums, dtype=np.int64),
        grid.step,
        sensitivities(*moves(grid), unit, 3),
        "variance",
        unit,
        Spread(grid),
    )


def spread_grid(bounds: object, levels: int) -> Grid:
    """The grid of a variance over `bounds`, with `levels` on each side of the middle."""
    return Grid.over(bounds, center=True, levels=levels)


def centered_squares(levels: Any, reach: int) -> Any:
    """2k²/R − R, rounded to integers in [−R, R], for arrays and engines' columns."""
    return 2 * ((levels * levels + reach // 2) // reach) - reach


def moves(grid: Grid) -> tuple[Sensitivity, Sensitivity]:
    """The most that one row adds to the three numbers, and the most by which two rows differ."""
    reach = grid.reach
    present = Sensitivity(3, 3 * reach, 3 * reach * reach, reach)
    swapped = Sensitivity(3, 25 * reach // 8 + 3, 21 * reach * reach // 4 + 8 * reach + 8, 2 * reach + 2)
    return present, swapped
