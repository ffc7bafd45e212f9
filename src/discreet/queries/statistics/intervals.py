"""Intervals for ratios of noisy sums: means, variances, covariances and correlations (docs/proofs/intervals.md).

Each statistic θ has a linear form of the noisy sums that is pure noise at the true θ and at the true means (and, for a
correlation, the true ratio of the spreads). The interval holds the θ for which that form is no larger than a quantile
of its own noise, as Fieller (1954) does for one ratio. Means and spreads are not known exactly; they enter by ranges
that hold them with all but a tenth of the allowed probability of error, and only in second order.

Ranges are pairs of arrays with one entry for each group. All numbers are relative to the largest levels, so means lie
in [−1, 1] and variances in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.bounded import Tails

Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

#: The part of the allowed probability of error that goes to the ranges of means and spreads.
NUISANCE = 0.1
#: How often a range is narrowed by what it implies for its own noise; further rounds change little.
_ROUNDS = 3


def times(left: Ends, right: Ends) -> Ends:
    """The range of a product."""
    products = [x * y for x in left for y in right]
    return np.minimum.reduce(products), np.maximum.reduce(products)


def plus(left: Ends, right: Ends) -> Ends:
    """The range of a sum."""
    return left[0] + right[0], left[1] + right[1]


def scaled(given: Ends, factor: float) -> Ends:
    """The range of a multiple."""
    ends = given[0] * factor, given[1] * factor
    return ends if factor >= 0 else (ends[1], ends[0])


def squared(ends: Ends) -> Ends:
    """The range of a square."""
    low, high = np.square(ends[0]), np.square(ends[1])
    return np.where((ends[0] <= 0) & (ends[1] >= 0), 0.0, np.minimum(low, high)), np.maximum(low, high)


def size(ends: Ends) -> NDArray[np.float64]:
    """The largest absolute value in a range."""
    return np.asarray(np.maximum(np.abs(ends[0]), np.abs(ends[1])))


def around(estimate: Any, below: Any, above: Any, ends: tuple[float, float], usable: Any) -> Ends:
    """From `below` under the estimate to `above` over it, within `ends`; all of `ends` where nothing is usable.

    The truth lies within `ends`, so an estimate that does not is moved to the nearer end first: that brings it nearer
    to the truth, and the range is never empty.
    """
    nearest = np.clip(estimate, *ends)
    low, high = np.maximum(nearest - below, ends[0]), np.minimum(nearest + above, ends[1])
    return np.where(usable, low, ends[0]), np.where(usable, high, ends[1])


@dataclass(frozen=True)
class ColumnSums:
    """One column's noisy sum of levels and, where it was measured, its noisy sum of 2k²/R − R; both divided by R.

    `unit` is the noise of these in terms of a coordinate's noise: 1/R.
    """

    total: NDArray[np.float64]
    unit: float
    squares: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class NoisySums:
    """Noisy sums of groups: how many rows, with the noise of `unit` coordinates, and what kind of noise it is."""

    count: NDArray[np.float64]
    unit: float
    noise: Tails

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Where the noisy count says anything."""
        return np.asarray(self.count > 0)

    @property
    def rows(self) -> NDArray[np.float64]:
        """The noisy count, 1 where it is not usable."""
        return np.where(self.usable, self.count, 1.0)

    def width(self, weights: list[Any], tail: float) -> NDArray[np.float64]:
        """The quantile of a linear form of noises, per row; `weights` are the sizes of its coefficients."""
        broadcast = np.stack([np.broadcast_to(np.asarray(w, dtype=np.float64), self.count.shape) for w in weights])
        return self.noise.sum_width(broadcast, tail) / self.rows

    def mean(self, column: ColumnSums, tail: float, ends: tuple[float, float] = (-1.0, 1.0)) -> Ends:
        """The range of m = Σx/n: Σx − m·n is pure noise."""
        mean_range = around(self.count, np.inf, np.inf, ends, False)
        for _ in range(_ROUNDS):
            wide = self.width([column.unit, size(mean_range) * self.unit], tail)
            mean_range = around(column.total / self.rows, wide, wide, ends, self.usable)
        return mean_range

    def variance(self, column: ColumnSums, mean: Ends, tail: float) -> Ends:
        """The range of v = Σx²/n − m²: Σx² − 2mΣx + (m² − v)n is pure noise."""
        assert column.squares is not None
        center = column.total / self.rows
        estimate = (column.squares / self.rows + 1) / 2 - center**2
        apart = size((mean[0] - center, mean[1] - center)) ** 2
        half = self._half
        variance_range = around(self.count, np.inf, np.inf, (0.0, 1.0), False)
        for _ in range(_ROUNDS):
            of_count = plus(squared(mean), plus(scaled(variance_range, -1.0), half))
            weights = [column.unit / 2, 2 * size(mean) * column.unit, size(of_count) * self.unit]
            wide = self.width(weights, tail)
            variance_range = around(estimate, wide, wide + apart, (0.0, 1.0), self.usable)
        return variance_range

    def covariance(
        self, product: ColumnSums, columns: tuple[ColumnSums, ColumnSums], means: tuple[Ends, Ends], tail: float
    ) -> Ends:
        """The range of c = Σxy/n − m₁m₂: Σxy − m₂Σx − m₁Σy + (m₁m₂ − c)n is pure noise."""
        (first_column, second_column), (first, second) = columns, means
        estimate, apart = self.center(product, columns), self.apart(columns, means)
        covariance_range = around(self.count, np.inf, np.inf, (-1.0, 1.0), False)
        for _ in range(_ROUNDS):
            of_count = plus(times(first, second), scaled(covariance_range, -1.0))
            weights = [
                product.unit,
                size(second) * first_column.unit,
                size(first) * second_column.unit,
                size(of_count) * self.unit,
            ]
            wide = self.width(weights, tail) + apart
            covariance_range = around(estimate, wide, wide, (-1.0, 1.0), self.usable)
        return covariance_range

    def correlation(
        self,
        product: ColumnSums,
        columns: tuple[ColumnSums, ColumnSums],
        means: tuple[Ends, Ends],
        variances: tuple[Ends, Ends],
        tail: float,
    ) -> Ends:
        """The range of r = c/(s₁s₂): Σ(x−m₁)(y−m₂) − (r/2)(hΣ(x−m₁)² + Σ(y−m₂)²/h) with h = s₂/s₁ is pure noise."""
        (first_column, second_column), (first, second) = columns, means
        assert first_column.squares is not None
        assert second_column.squares is not None
        centers = [column.total / self.rows for column in columns]
        spreads = [
            (np.asarray(column.squares) / self.rows + 1) / 2 - center**2
            for column, center in zip(columns, centers, strict=True)
        ]
        estimable = self.usable & (variances[0][0] > 0) & (variances[1][0] > 0) & (spreads[0] > 0) & (spreads[1] > 0)
        safe = [(np.where(estimable, low, 1.0), np.where(estimable, high, 1.0)) for low, high in variances]
        v, w = (np.where(estimable, spread, 1.0) for spread in spreads)
        ratio = np.sqrt(safe[1][0] / safe[0][1]), np.sqrt(safe[1][1] / safe[0][0])
        inverse = 1 / ratio[1], 1 / ratio[0]
        gaps = [size((mean[0] - center, mean[1] - center)) ** 2 for mean, center in zip(means, centers, strict=True)]
        # What c is divided by: √(vw) at the least, and more by as much as h and the means may be off.
        least = np.sqrt(v * w)
        most = np.maximum.reduce([(h * (v + gaps[0]) + (w + gaps[1]) / h) / 2 for h in ratio])
        most = np.maximum(most, least)
        estimate, apart = self.center(product, columns), self.apart(columns, means)
        correlation_range = around(self.count, np.inf, np.inf, (-1.0, 1.0), False)
        half = self._half
        for _ in range(_ROUNDS):
            up, down = times(correlation_range, ratio), times(correlation_range, inverse)
            of_one = plus(times(up, first), scaled(second, -1.0))
            of_two = plus(times(down, second), scaled(first, -1.0))
            of_squares = plus(times(up, plus(squared(first), half)), times(down, plus(squared(second), half)))
            of_count = plus(times(first, second), scaled(of_squares, -0.5))
            weights = [
                product.unit,
                size(of_one) * first_column.unit,
                size(of_two) * second_column.unit,
                size(up) * first_column.unit / 4,
                size(down) * second_column.unit / 4,
                size(of_count) * self.unit,
            ]
            wide = self.width(weights, tail) + apart
            low, high = estimate - wide, estimate + wide
            low, high = np.minimum(low / least, low / most), np.maximum(high / least, high / most)
            correlation_range = around(
                estimate / least, estimate / least - low, high - estimate / least, (-1.0, 1.0), estimable
            )
        return correlation_range

    @property
    def _half(self) -> Ends:
        """The range that holds 1/2 alone."""
        return np.full(self.count.shape, 0.5), np.full(self.count.shape, 0.5)

    def center(self, product: ColumnSums, columns: tuple[ColumnSums, ColumnSums]) -> NDArray[np.float64]:
        """The covariance at the noisy means."""
        return np.asarray(product.total / self.rows - columns[0].total * columns[1].total / self.rows**2)

    def apart(self, columns: tuple[ColumnSums, ColumnSums], means: tuple[Ends, Ends]) -> NDArray[np.float64]:
        """How far the product of both means' errors may move a covariance."""
        first, second = (
            size((mean[0] - column.total / self.rows, mean[1] - column.total / self.rows))
            for column, mean in zip(columns, means, strict=True)
        )
        return np.asarray(first * second)


def holding(ends: Ends, value: Any) -> tuple[Any, Any]:
    """A range that also holds the value, which treats counts below 1 and moments out of range in its own way."""
    low, high = np.minimum(ends[0], value), np.maximum(ends[1], value)
    return (float(low), float(high)) if np.ndim(low) == 0 else (low, high)
