"""The covariance and the correlation of two clamped columns, from sums over an array or by an engine.

Both columns are clamped before they are multiplied. A row that has both values counts as (k, l, kl/R₂, R) with the
levels |k| ≤ R₁ and |l| ≤ R₂ of its distances from the middles of the bounds, and for a correlation with both squares as
well; any other row counts as nothing. docs/proofs/covariance.md proves the sensitivities that follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.bounded import Bounded, Sensitivity, Tails
from discreet.neighbors import Unit
from discreet.queries.contributions import larger, sensitivities, used_rows
from discreet.queries.grid import MIN_LEVELS, Grid, numbers
from discreet.queries.statistics.intervals import NUISANCE, ColumnSums, NoisySums, holding
from discreet.queries.statistics.variance import centered_squares, delta_method

#: Levels on each side of the middle, for each of the two columns: their products stay below 2^50.
LEVELS = 1 << 24


def covariance(
    values: ArrayLike,
    others: ArrayLike,
    *,
    bounds: tuple[tuple[float, float], tuple[float, float]],
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """The covariance (divided by n) of two columns, each clamped to its own bounds before they are multiplied.

    One release of four numbers: both sums, the sum of products, and the count. Rows that lack one of the values are
    left out.

    Args:
        values: one number for each row.
        others: the other column's number for each row.
        bounds: (lower, upper) of the first column and of the second, from what is known without looking at the data.
        persons: each row's person, to protect people who have many rows.
        max_rows: with `persons`, how many rows of one person are used.

    Guarantee: with A and B the largest levels of the two columns and R = max(A, B), add/remove and zero-out move the
    numbers by at most 2A + B + R in L1 and 2A² + B² + R² in squared L2; replace-one by max(4A, 2A + 2B) + 3 and
    max(8A², 4A² + 4B²) + 4A + 1 (docs/proofs/covariance.md). Enforced by clamping both columns. Not protected: bounds
    and the columns' types.

    >>> covariance([1, 2, 3], [5, 7, 9], bounds=((0, 4), (0, 10))).dimension
    4
    """
    grids, columns, unit = _paired(values, others, bounds, persons, max_rows)
    moves = sensitivities(*_either(*covariance_moves(*grids)), unit, 4)
    return Bounded(
        _summed(grids, columns, squares=False), Fraction(1), moves, "covariance", unit, CovarianceFinish(*grids)
    )


def correlation(
    values: ArrayLike,
    others: ArrayLike,
    *,
    bounds: tuple[tuple[float, float], tuple[float, float]],
    persons: ArrayLike | None = None,
    max_rows: int | None = None,
) -> Bounded:
    """The correlation of two columns, within ±1, each clamped to its own bounds before they are multiplied.

    One release of six numbers: those of a covariance, and the sums of both columns' squares. Arguments are those of
    `covariance`.

    Guarantee: as `covariance`, with 3A + 2B + R and 3A² + 2B² + R² under add/remove and zero-out, and under replace-one
    the bounds of two variances and 2A, or 4A², for the product (docs/proofs/covariance.md). Not protected: bounds and
    the columns' types.

    >>> correlation([1, 2, 3], [5, 7, 9], bounds=((0, 4), (0, 10))).dimension
    6
    """
    grids, columns, unit = _paired(values, others, bounds, persons, max_rows)
    moves = sensitivities(*_either(*correlation_moves(*grids)), unit, 6)
    return Bounded(
        _summed(grids, columns, squares=True), Fraction(1), moves, "correlation", unit, CorrelationFinish(*grids)
    )


def _paired(
    values: ArrayLike, others: ArrayLike, bounds: object, persons: ArrayLike | None, max_rows: int | None
) -> tuple[tuple[Grid, Grid], tuple[NDArray[np.int64], NDArray[np.int64]], Unit]:
    """Both grids, and the levels of the rows that have both values and are used."""
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise _check.fail("bounds", "be two pairs (lower, upper)", bounds, "one for each of the two columns")
    x, y = numbers(values), numbers(others, "others")
    if x.size != y.size:
        raise _check.fail("others", "have one number for each row", "another length", "take both from the same table")
    use, unit, rows = used_rows(x.size, persons, max_rows)
    use &= ~(np.isnan(x) | np.isnan(y))
    levels = max(LEVELS // rows, MIN_LEVELS)
    first, second = (Grid.over(pair, center=True, levels=levels) for pair in bounds)
    return (first, second), (first.levels(x, 0)[use], second.levels(y, 0)[use]), unit


def _summed(grids: tuple[Grid, Grid], columns: tuple[Any, Any], *, squares: bool) -> NDArray[np.int64]:
    each = [*columns, products(*columns, *grids)]
    if squares:
        each += [centered_squares(column, grid.reach) for column, grid in zip(columns, grids, strict=True)]
    rows = max(grid.reach for grid in grids) * columns[0].size
    return np.array([*(int(integers.sum(dtype=np.int64)) for integers in each), rows], dtype=np.int64)


def _either(present: Sensitivity, swapped: Sensitivity) -> tuple[Sensitivity, Sensitivity]:
    """A row may also be exchanged for one that lacks a value: that bounds a swap from below."""
    return present, larger(present, swapped)


def products(k: Any, l: Any, first: Grid, second: Grid) -> Any:  # noqa: E741  # the letters of the proof
    """kl/R₂, rounded to integers in [−R₁, R₁], for arrays and engines' columns, which divide integers ≥ 0 alike."""
    return (k * l + first.reach * second.reach + second.reach // 2) // second.reach - first.reach


def covariance_moves(first: Grid, second: Grid) -> tuple[Sensitivity, Sensitivity]:
    """The most that one row adds to (Σk, Σl, Σkl/R₂, R·count), and the most by which two rows differ."""
    a, b = first.reach, second.reach
    most = max(a, b)
    present = Sensitivity(4, 2 * a + b + most, 2 * a * a + b * b + most * most, most)
    squared = max(8 * a * a, 4 * a * a + 4 * b * b) + 4 * a + 1
    swapped = Sensitivity(4, max(4 * a, 2 * a + 2 * b) + 3, squared, 2 * most)
    return present, swapped


def correlation_moves(first: Grid, second: Grid) -> tuple[Sensitivity, Sensitivity]:
    """The same with the two centered squares between the product and the count."""
    a, b = first.reach, second.reach
    most = max(a, b)
    present = Sensitivity(6, 3 * a + 2 * b + most, 3 * a * a + 2 * b * b + most * most, most)
    squared = 21 * a * a // 4 + 8 * a + 8 + 21 * b * b // 4 + 8 * b + 8 + 4 * a * a
    swapped = Sensitivity(6, 25 * a // 8 + 3 + 25 * b // 8 + 3 + 2 * a, squared, 2 * most + 2)
    return present, swapped


@dataclass(frozen=True)
class CovarianceFinish:
    """Finish of a covariance from (Σk, Σl, Σkl/R₂, R·count); the count is taken to be at least 1."""

    first: Grid
    second: Grid

    @property
    def mixes(self) -> int:
        return 4

    @property
    def vectorized(self) -> bool:
        """Coordinates may be rows of an array with one column for each group."""
        return True

    def value(self, noisy: NDArray[Any]) -> Any:
        return _plain(_Moments.of(noisy, self.first, self.second).covariance * self._most)

    def standard_error(self, noisy: NDArray[Any], spread: float) -> Any:
        return delta_method(self.value, noisy, spread)

    def interval(self, noisy: NDArray[Any], noise: Tails, tail: float) -> tuple[Any, Any]:
        """As docs/proofs/intervals.md says, with a twentieth of `tail` for the range of each mean."""
        sums, product, columns = _noisy_sums(noisy, self.first, self.second, noise)
        means = tuple(sums.mean(column, NUISANCE / 2 * tail) for column in columns)
        low, high = sums.covariance(product, columns, (means[0], means[1]), (1 - NUISANCE) * tail)
        return holding((low * self._most, high * self._most), self.value(noisy))

    @property
    def _most(self) -> float:
        """The largest covariance of values within the bounds."""
        return float(self.first.reach * self.first.step * self.second.reach * self.second.step)


@dataclass(frozen=True)
class CorrelationFinish:
    """Finish of a correlation from (Σk, Σl, Σkl/R₂, Σ(2k²/R₁ − R₁), Σ(2l²/R₂ − R₂), R·count), within ±1.

    If a noisy variance is not positive, the estimate is 0. If one may be 0 by its range, the interval is [−1, 1].
    """

    first: Grid
    second: Grid

    @property
    def mixes(self) -> int:
        return 6

    @property
    def vectorized(self) -> bool:
        """Coordinates may be rows of an array with one column for each group."""
        return True

    def value(self, noisy: NDArray[Any]) -> Any:
        return _plain(_Moments.of(noisy, self.first, self.second).correlation)

    def standard_error(self, noisy: NDArray[Any], spread: float) -> Any:
        return np.minimum(1.0, delta_method(self.value, noisy, spread))

    def interval(self, noisy: NDArray[Any], noise: Tails, tail: float) -> tuple[Any, Any]:
        """As docs/proofs/intervals.md says, with a twentieth of `tail` for each of the means' and spreads' ranges."""
        sums, product, columns = _noisy_sums(noisy, self.first, self.second, noise)
        own = NUISANCE / 2 * tail
        first, second = (sums.mean(column, own) for column in columns)
        spreads = sums.variance(columns[0], first, own), sums.variance(columns[1], second, own)
        ends = sums.correlation(product, columns, (first, second), spreads, (1 - 2 * NUISANCE) * tail)
        return holding(ends, self.value(noisy))


def _noisy_sums(
    noisy: NDArray[Any], first: Grid, second: Grid, noise: Tails
) -> tuple[NoisySums, ColumnSums, tuple[ColumnSums, ColumnSums]]:
    """The noisy sums relative to the largest levels a and b: Σkl/R₂ relative to a is Σkl relative to ab."""
    values = np.asarray(noisy, dtype=np.float64)
    a, b, most = first.reach, second.reach, max(first.reach, second.reach)
    squares = (values[3] / a, values[4] / b) if len(values) == 6 else (None, None)
    columns = ColumnSums(values[0] / a, 1 / a, squares[0]), ColumnSums(values[1] / b, 1 / b, squares[1])
    return NoisySums(values[-1] / most, 1 / most, noise), ColumnSums(values[2] / a, 1 / a), columns


@dataclass(frozen=True)
class _Moments:
    """Estimates of both means, of the mean product and, for a correlation, of the mean squares, within ±1."""

    k: Any
    l: Any  # noqa: E741  # the letter of the proof
    product: Any
    k_squared: Any
    l_squared: Any

    @classmethod
    def of(cls, noisy: NDArray[Any], first: Grid, second: Grid) -> _Moments:
        values = np.asarray(noisy, dtype=np.float64)
        a, b = first.reach, second.reach
        count = np.maximum(values[-1] / max(a, b), 1.0)

        def mean(total: Any, reach: int) -> Any:
            return np.clip(total / reach / count, -1.0, 1.0)

        squares = [(mean(values[3 + i], reach) + 1) / 2 for i, reach in enumerate((a, b))] if len(values) == 6 else []
        return cls(mean(values[0], a), mean(values[1], b), mean(values[2], a), *(squares or (0.0, 0.0)))

    @property
    def covariance(self) -> Any:
        return np.clip(self.product - self.k * self.l, -1.0, 1.0)

    @property
    def correlation(self) -> Any:
        v, w = np.maximum(self.k_squared - self.k**2, 0.0), np.maximum(self.l_squared - self.l**2, 0.0)
        root = np.sqrt(v * w)
        safe = np.where(root > 0, root, 1.0)
        return np.where(root > 0, np.clip((self.product - self.k * self.l) / safe, -1.0, 1.0), 0.0)


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value
