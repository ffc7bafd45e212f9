"""The mean of a column: a noisy sum of distances from the middle of the bounds, divided by a noisy count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfColumn, OfPerson, resolve_bounds
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import HasValues, Level
from discreet.neighbors import Unit
from discreet.queries.aggregated import summed_moments
from discreet.queries.statistics.mean import LEVELS, moves, quotient
from discreet.queries.weighted import levels

#: The count's share of what the sum and the count cost together.
_COUNT_SHARE = 0.5


@dataclass(frozen=True)
class Mean(OfColumn):
    """The mean of clamped values; rows without a value are left out."""

    name = "mean"
    sql_names = ("AVG",)

    @property
    def of_person(self) -> OfPerson:
        """The mean."""
        return OfPerson.MEAN

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves the sum and the count as `queries.mean` says."""
        bounds = resolve_bounds(self.column, self.bounds, declared)
        finish = quotient(bounds, levels(unit, LEVELS), _COUNT_SHARE)
        level = Level(self.column, finish.grid)
        summed = summed_moments(self.name, unit, finish.grid, moves(finish), finish, finish.weight)
        return Sums(self, unit, (level, HasValues(level)), summed)


def mean(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The mean of `column`, each row clamped to `bounds`."""
    return Mean(column, bounds, share=share)
