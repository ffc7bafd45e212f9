"""The covariance and the correlation of two clamped columns, from sums over an array or by an engine.

Both columns are clamped before they are multiplied. A row that has both values counts as (k, l, kl/R₂, R) with the
levels |k| ≤ R₁ and |l| ≤ R₂ of its distances from the middles of the bounds, and for a correlation with both squares as
well; any other row counts as nothing. docs/proofs/covariance.md proves the sensitivities that follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.bounded import Bounded, Sensitivity
from discreet.neighbors import Unit
from discreet.queries.contributions import larger, sensitivities, used_rows
from discreet.queries.grid import MIN_LEVELS, Grid, numbers
from discreet.queries.statistics.variance import centered_squares

#: Levels on each side of the middle, for each of the two columns: their products stay below 2^50.
LEVELS = 1 << 24

_Range = tuple[float, float]


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
    one, two = (Grid.over(pair, center=True, levels=levels) for pair in bounds)
    return (one, two), (one.levels(x, 0)[use], two.levels(y, 0)[use]), unit


def _summed(grids: tuple[Grid, Grid], columns: tuple[Any, Any], *, squares: bool) -> NDArray[np.int64]:
    each = [*columns, products(*columns, *grids)]
    if squares:
        each += [centered_squares(column, grid.reach) for column, grid in zip(columns, grids, strict=True)]
    rows = max(grid.reach for grid in grids) * columns[0].size
    return np.array([*(int(integers.sum(dtype=np.int64)) for integers in each), rows], dtype=np.int64)


def _either(present: Sensitivity, swapped: Sensitivity) -> tuple[Sensitivity, Sensitivity]:
    """A row may also be exchanged for one that lacks a value: that bounds a swap from below."""
    return present, larger(present, swapped)


def products(k: Any, l: Any, one: Grid, two: Grid) -> Any:  # noqa: E741  # the letters of the proof
    """kl/R₂, rounded to integers in [−R₁, R₁], for arrays and engines' columns, which divide integers ≥ 0 alike."""
    return (k * l + one.reach * two.reach + two.reach // 2) // two.reach - one.reach


def covariance_moves(one: Grid, two: Grid) -> tuple[Sensitivity, Sensitivity]:
    """The most that one row adds to (Σk, Σl, Σkl/R₂, R·count), and the most by which two rows differ."""
    a, b = one.reach, two.reach
    most = max(a, b)
    present = Sensitivity(4, 2 * a + b + most, 2 * a * a + b * b + most * most, most)
    squared = max(8 * a * a, 4 * a * a + 4 * b * b) + 4 * a + 1
    swapped = Sensitivity(4, max(4 * a, 2 * a + 2 * b) + 3, squared, 2 * most)
    return present, swapped


def correlation_moves(one: Grid, two: Grid) -> tuple[Sensitivity, Sensitivity]:
    """The same with the two centered squares between the product and the count."""
    a, b = one.reach, two.reach
    most = max(a, b)
    present = Sensitivity(6, 3 * a + 2 * b + most, 3 * a * a + 2 * b * b + most * most, most)
    squared = 21 * a * a // 4 + 8 * a + 8 + 21 * b * b // 4 + 8 * b + 8 + 4 * a * a
    swapped = Sensitivity(6, 25 * a // 8 + 3 + 25 * b // 8 + 3 + 2 * a, squared, 2 * most + 2)
    return present, swapped


@dataclass(frozen=True)
class CovarianceFinish:
    """Finish of a covariance from (Σk, Σl, Σkl/R₂, R·count); the count is taken to be at least 1."""

    one: Grid
    two: Grid

    @property
    def mixes(self) -> int:
        return 4

    def value(self, noisy: NDArray[np.int64]) -> float:
        return self._scaled(_middle(_Moments.of(noisy, 0.0, self.one, self.two).covariance()))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> float:
        return _delta_method(self.value, noisy, spread)

    def interval(self, noisy: NDArray[np.int64], half_width: float) -> tuple[float, float]:
        low, high = _Moments.of(noisy, half_width, self.one, self.two).covariance()
        return self._scaled(low), self._scaled(high)

    def _scaled(self, levels: float) -> float:
        most = float(self.one.reach * self.two.reach)
        return min(max(levels, -most), most) * float(self.one.step * self.two.step)


@dataclass(frozen=True)
class CorrelationFinish:
    """Finish of a correlation from (Σk, Σl, Σkl/R₂, Σ(2k²/R₁ − R₁), Σ(2l²/R₂ − R₂), R·count), within ±1.

    If the noisy variances are not positive, the estimate is 0 and the interval is [−1, 1].
    """

    one: Grid
    two: Grid

    @property
    def mixes(self) -> int:
        return 6

    def value(self, noisy: NDArray[np.int64]) -> float:
        return _middle(_ratio(_Moments.of(noisy, 0.0, self.one, self.two)))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> float:
        return min(1.0, _delta_method(self.value, noisy, spread))

    def interval(self, noisy: NDArray[np.int64], half_width: float) -> tuple[float, float]:
        return _ratio(_Moments.of(noisy, half_width, self.one, self.two))


@dataclass(frozen=True)
class _Moments:
    """Ranges of the means of k, l, kl, k² and l², in levels."""

    k: _Range
    l: _Range  # noqa: E741  # the letter of the proof
    product: _Range
    k_squared: _Range
    l_squared: _Range

    @classmethod
    def of(cls, noisy: NDArray[np.int64], half: float, one: Grid, two: Grid) -> _Moments:
        """From sums that are off by at most `half` each."""
        sums = [float(x) for x in noisy]
        a, b = float(one.reach), float(two.reach)
        few, many = (max((sums[-1] + side) / max(a, b), 1.0) for side in (-half, half))

        def mean(total: float, reach: float) -> _Range:
            ends = [min(max((total + side) / count, -reach), reach) for side in (-half, half) for count in (few, many)]
            return min(ends), max(ends)

        def square(coordinate: int, reach: float) -> _Range:
            if len(sums) < 6:  # a covariance has no squares
                return 0.0, 0.0
            low, high = mean(sums[coordinate], reach)
            return (low + reach) * reach / 2, (high + reach) * reach / 2

        low, high = mean(sums[2], a)
        return cls(mean(sums[0], a), mean(sums[1], b), (low * b, high * b), square(3, a), square(4, b))

    def covariance(self) -> _Range:
        corners = [x * y for x in self.k for y in self.l]
        return self.product[0] - max(corners), self.product[1] - min(corners)

    def variances(self) -> tuple[_Range, _Range]:
        return _spread(self.k, self.k_squared), _spread(self.l, self.l_squared)


def _spread(mean: _Range, squares: _Range) -> _Range:
    """The range of a variance: the mean of the squares less the square of the mean, at least 0."""
    largest = max(mean[0] ** 2, mean[1] ** 2)
    smallest = 0.0 if mean[0] <= 0.0 <= mean[1] else min(mean[0] ** 2, mean[1] ** 2)
    return max(squares[0] - largest, 0.0), max(squares[1] - smallest, 0.0)


def _ratio(moments: _Moments) -> _Range:
    """The range of covariance over the root of the product of the variances."""
    low, high = moments.covariance()
    (x_low, x_high), (y_low, y_high) = moments.variances()
    least, most = math.sqrt(x_low * y_low), math.sqrt(x_high * y_high)
    if least <= 0.0 and most <= 0.0 and low >= high:
        return 0.0, 0.0
    if least <= 0.0:
        return -1.0, 1.0
    ends = [min(max(end / root, -1.0), 1.0) for end in (low, high) for root in (least, most)]
    return min(ends), max(ends)


def _middle(ends: _Range) -> float:
    return (ends[0] + ends[1]) / 2


def _delta_method(value: Any, noisy: NDArray[np.int64], spread: float) -> float:
    """The standard error, with the slopes taken numerically at the noisy values."""
    at = np.asarray(noisy, dtype=np.float64)
    slopes = []
    for i in range(at.size):
        step = np.zeros_like(at)
        step[i] = spread
        slopes.append((value(at + step) - value(at - step)) / 2)
    return float(np.linalg.norm(slopes))
