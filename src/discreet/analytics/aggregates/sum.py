"""The sum of a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfColumn, OfPerson, resolve_bounds
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import Level
from discreet.bounded import Scaled
from discreet.neighbors import Unit
from discreet.queries.aggregated import Summed
from discreet.queries.grid import MAX_LEVEL, Grid
from discreet.queries.statistics.sum import direction, moves
from discreet.queries.weighted import levels, scale


@dataclass(frozen=True)
class Sum(OfColumn):
    """The sum of clamped values; a row without a value counts as the number in the bounds nearest to 0."""

    name = "sum"
    sql_names = ("SUM",)
    adds_up = True

    @property
    def of_person(self) -> OfPerson:
        """The sum."""
        return OfPerson.SUM

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves it by the larger end of the bounds, as `queries.sum` says."""
        bounds = resolve_bounds(self.column, self.bounds, declared)
        weight = scale(unit)
        grid = Grid.over(bounds, levels=levels(unit, MAX_LEVEL))
        step = grid.step / weight
        summed = Summed(self.name, 1, step, *moves(grid), Scaled(step), direction=direction(grid), scale=weight)
        term = Level(self.column, grid, missing=grid.nearest_zero)
        return Sums(self, unit, (term,), summed, lower=float(grid.center + grid.lower * grid.step))


def sum(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The sum of `column`, each row clamped to `bounds`."""
    return Sum(column, bounds, share=share)
