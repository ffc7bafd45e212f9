"""The variance and the standard deviation of a column, from noisy sums of levels and squares and a noisy count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfColumn, resolve_bounds
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import Combined, HasValues, Level
from discreet.bounded import Finish
from discreet.neighbors import Unit
from discreet.queries.aggregated import summed_moments
from discreet.queries.statistics.variance import LEVELS, Rooted, Spread, centered_squares, moves, spread_grid
from discreet.queries.weighted import levels


@dataclass(frozen=True)
class Variance(OfColumn):
    """The variance of clamped values, divided by n; rows without a value are left out."""

    name = "variance"
    sql_names = ("VAR_POP",)

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves the three sums as `queries.variance` says."""
        grid = spread_grid(resolve_bounds(self.column, self.bounds, declared), levels(unit, LEVELS))
        level = Level(self.column, grid)
        square = Combined((level,), partial(centered_squares, reach=grid.reach))
        summed = summed_moments(self.name, unit, grid, moves(grid), self.finish(Spread(grid)), grid.reach)
        return Sums(self, unit, (level, square, HasValues(level)), summed)

    def finish(self, spread: Spread) -> Finish:
        """How the noisy sums become the estimate."""
        return spread


@dataclass(frozen=True)
class Std(Variance):
    """The standard deviation of clamped values: the root of the same variance."""

    name = "std"
    sql_names = ("STDDEV_POP",)

    def finish(self, spread: Spread) -> Finish:
        """The root of the variance."""
        return Rooted(spread)


def variance(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The variance of `column` (divided by n), each row clamped to `bounds`."""
    return Variance(column, bounds, share=share)


def std(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The standard deviation of `column`, each row clamped to `bounds`."""
    return Std(column, bounds, share=share)
