"""The variance of clamped values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.bounded import Bounded, Sensitivity, Tails
from discreet.queries.contributions import sensitivities, used_rows
from discreet.queries.grid import Grid, coarser, numbers
from discreet.queries.statistics.intervals import NUISANCE, ColumnSums, NoisySums, holding

#: Levels on each side of the middle.
LEVELS = 1 << 24


@dataclass(frozen=True)
class Spread:
    """Finish of a variance from (Σk, Σ(2k²/R − R), R·count) with k = (x − middle)/step and R its largest level."""

    grid: Grid

    @property
    def mixes(self) -> int:
        return 3

    @property
    def vectorized(self) -> bool:
        """Coordinates may be rows of an array with one column for each group."""
        return True

    def value(self, noisy: NDArray[Any]) -> Any:
        variance = np.clip(self._raw(np.asarray(noisy, dtype=np.float64)), 0.0, self._most)
        return float(variance) if np.ndim(variance) == 0 else variance

    def standard_error(self, noisy: NDArray[Any], spread: float) -> Any:
        """By the delta method, with the three slopes taken numerically at the noisy values."""
        return delta_method(self._raw, noisy, spread)

    def interval(self, noisy: NDArray[Any], noise: Tails, tail: float) -> tuple[Any, Any]:
        """As docs/proofs/intervals.md says, with a tenth of `tail` for the range of the mean."""
        k, q, n = np.asarray(noisy, dtype=np.float64) / self.grid.reach
        sums = NoisySums(n, 1 / self.grid.reach, noise)
        column = ColumnSums(k, sums.unit, q)
        mean = sums.mean(column, NUISANCE * tail)
        low, high = sums.variance(column, mean, (1 - NUISANCE) * tail)
        return holding((low * self._most, high * self._most), self.value(noisy))

    @property
    def _most(self) -> float:
        """The largest variance of values within the bounds."""
        return float(self.grid.reach * self.grid.step) ** 2

    def _raw(self, noisy: NDArray[np.float64]) -> Any:
        """The mean of the squares less the square of the mean, both of the distance from the middle."""
        k, q, n = noisy / self.grid.reach
        count = np.maximum(n, 1.0)
        mean, squares = np.clip(k / count, -1.0, 1.0), np.clip((q / count + 1) / 2, 0.0, 1.0)
        return (squares - mean * mean) * self._most


@dataclass(frozen=True)
class Rooted:
    """Finish of a standard deviation: the square root of a variance."""

    inner: Spread

    @property
    def mixes(self) -> int:
        return self.inner.mixes

    @property
    def vectorized(self) -> bool:
        """As the variance."""
        return True

    def value(self, noisy: NDArray[Any]) -> Any:
        return _rooted(self.inner.value(noisy))

    def standard_error(self, noisy: NDArray[Any], spread: float) -> Any:
        """By the delta method, and never more than the square root of the variance's own error."""
        error = self.inner.standard_error(noisy, spread)
        # The last one only avoids 0/0.
        return error / np.maximum(np.maximum(2 * np.asarray(self.value(noisy)), np.sqrt(error)), 1e-300)

    def interval(self, noisy: NDArray[Any], noise: Tails, tail: float) -> tuple[Any, Any]:
        low, high = self.inner.interval(noisy, noise, tail)
        return _rooted(low), _rooted(high)


def _rooted(variance: Any) -> Any:
    root = np.sqrt(variance)
    return float(root) if np.ndim(root) == 0 else root


def delta_method(value: Callable[[NDArray[np.float64]], Any], noisy: NDArray[Any], spread: float) -> Any:
    """The standard error, with the slopes taken numerically at the noisy values; one row for each coordinate."""
    at = np.asarray(noisy, dtype=np.float64)
    slopes = []
    for i in range(at.shape[0]):
        step = np.zeros_like(at)
        step[i] = spread
        slopes.append((np.asarray(value(at + step)) - np.asarray(value(at - step))) / 2)
    error = np.linalg.norm(slopes, axis=0)
    return float(error) if np.ndim(error) == 0 else error


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
