"""The covariance and the correlation of two columns, each clamped to its bounds before they are multiplied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, resolve_bounds
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import Combined, HasValues, Level
from discreet.bounded import Finish, Sensitivity
from discreet.neighbors import Unit
from discreet.queries.aggregated import summed_moments
from discreet.queries.grid import Grid
from discreet.queries.statistics import covariance as joint
from discreet.queries.statistics.variance import centered_squares
from discreet.queries.weighted import levels

if TYPE_CHECKING:
    from discreet.analytics.plan.sql import AggregateCall


@dataclass(frozen=True)
class Covariance(Aggregate):
    """The covariance of two columns, divided by n; rows that lack one of the values are left out."""

    name = "covariance"
    sql_names = ("COVAR_POP",)

    one: str
    two: str
    bounds: Mapping[str, Bounds] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Both columns."""
        return (self.one, self.two)

    def clamps(self, declared: Mapping[str, Bounds]) -> dict[str, Bounds]:
        """Both columns."""
        return {column: resolve_bounds(column, self.bounds, declared) for column in self.columns}

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves the sums as docs/proofs/covariance.md says."""
        most = levels(unit, joint.LEVELS)
        pairs = [resolve_bounds(column, self.bounds, declared) for column in self.columns]
        first, second = (Grid.over(pair, center=True, levels=most) for pair in pairs)
        both = (Level(self.one, first), Level(self.two, second))
        terms = tuple(Combined(both, combine) for combine in self.products(first, second))
        reach = max(first.reach, second.reach)
        moves, finish = self.moves(first, second), self.finish(first, second)
        summed = summed_moments(self.name, unit, first, moves, finish, reach)
        return Sums(self, unit, (*terms, HasValues(terms[0])), summed)

    # The letters k and l for the two columns' levels are those of the proof.

    def products(self, first: Grid, second: Grid) -> tuple[Callable[..., Any], ...]:
        """The integers of a row, from its two levels."""
        return (
            lambda k, l: k,  # noqa: E741
            lambda k, l: l,  # noqa: E741
            lambda k, l: joint.products(k, l, first, second),  # noqa: E741
        )

    def moves(self, first: Grid, second: Grid) -> tuple[Sensitivity, Sensitivity]:
        """How far one row, and the difference of two, moves the sums."""
        return joint.covariance_moves(first, second)

    def finish(self, first: Grid, second: Grid) -> Finish:
        """How the noisy sums become the estimate."""
        return joint.CovarianceFinish(first, second)

    @classmethod
    def from_sql(cls, call: AggregateCall) -> tuple[str, Aggregate]:
        """NAME(column, column), each perhaps in CLAMP(column, lower, upper)."""
        (first, one_bounds), (second, two_bounds) = call.clamped(), call.clamped(1)
        if one_bounds is not None and first == second:
            raise call.refused("two different columns")
        given = {name: pair for name, pair in ((first, one_bounds), (second, two_bounds)) if pair is not None}
        return call.alias(first, second), cls(first, second, given)


@dataclass(frozen=True)
class Correlation(Covariance):
    """The correlation of two columns, within ±1: a covariance with both columns' squares beside it."""

    name = "correlation"
    sql_names = ("CORR",)

    def products(self, first: Grid, second: Grid) -> tuple[Callable[..., Any], ...]:
        """Those of a covariance, and both squares."""
        return (
            *Covariance.products(self, first, second),
            lambda k, l: centered_squares(k, first.reach),  # noqa: E741
            lambda k, l: centered_squares(l, second.reach),  # noqa: E741
        )

    def moves(self, first: Grid, second: Grid) -> tuple[Sensitivity, Sensitivity]:
        """How far one row, and the difference of two, moves the sums."""
        return joint.correlation_moves(first, second)

    def finish(self, first: Grid, second: Grid) -> Finish:
        """How the noisy sums become the estimate."""
        return joint.CorrelationFinish(first, second)


def covariance(one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None, share: float = 1.0) -> Aggregate:
    """The covariance of two columns (divided by n), each clamped to its `bounds` before they are multiplied.

    Rows that lack one of the two values are left out.
    """
    return Covariance(one, two, _by_column(bounds), share=share)


def correlation(one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None, share: float = 1.0) -> Aggregate:
    """The correlation of two columns, within ±1, each clamped to its `bounds` before they are multiplied.

    Rows that lack one of the two values are left out.
    """
    return Correlation(one, two, _by_column(bounds), share=share)


def _by_column(bounds: object) -> Mapping[str, Bounds] | None:
    if bounds is not None and not isinstance(bounds, Mapping):
        remedy = "such as {'age': (0, 120), 'pay': (0, 1e6)}"
        raise _check.fail("bounds", "be a pair for each of the two columns by name", bounds, remedy)
    return bounds
