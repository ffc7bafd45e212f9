"""A quantile of a column, chosen among public levels; the median, and low and high quantiles for the extremes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfColumn, OfPerson, resolve_bounds
from discreet.analytics.aggregates.measurement import Choice, Sums, utility_bound
from discreet.analytics.aggregates.terms import EachCut, EachLevel, Level
from discreet.bounded import Bounded, Scaled, Scores, Sensitivity
from discreet.mechanisms import Exponential, NoisyMax
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation, Unit
from discreet.queries.aggregated import Summed, bounded
from discreet.queries.grid import Grid
from discreet.queries.statistics.quantile import fraction, levels_of, scores_of_cells
from discreet.queries.weighted import scale

if TYPE_CHECKING:
    from discreet.analytics.plan.sql import Call

#: The quantiles that stand for the extremes, which belong to single people.
LOWEST, HIGHEST = 0.01, 0.99
#: About how many levels a quantile is chosen among: fine enough to read, and cheap to count.
LEVELS = 1024
#: The most levels: the engine returns a count for each, in each group.
MAX_LEVELS = 1 << 17
#: The most listed candidates: a row is compared with one after another.
MAX_CANDIDATES = 1 << 10


@dataclass(frozen=True)
class Quantile(OfColumn):
    """A quantile of clamped values, chosen among public levels.

    Errors say how many rows more than for the nearest level may lie between the answer and the true quantile.
    """

    name = "quantile"
    sql_names = ("MEDIAN", "QUANTILE_CONT", "MIN", "MAX")
    error_in = "rank"

    rank: float = 0.5
    levels: int = LEVELS
    candidates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        remedy = "it is about how many levels within the bounds to choose among"
        _check.settle_integers(self, "levels", remedy=remedy, at_least=2, at_most=MAX_LEVELS)
        if self.candidates is not None:
            object.__setattr__(self, "candidates", _checked(self.candidates))

    @property
    def of_person(self) -> OfPerson | None:
        """The least or the greatest value; other quantiles have no exact form."""
        return {LOWEST: OfPerson.LEAST, HIGHEST: OfPerson.GREATEST}.get(self.rank)

    def clamps(self, declared: Mapping[str, Bounds]) -> dict[str, Bounds]:
        """The column, unless the candidates are listed: those need no bounds."""
        return {} if self.candidates is not None else OfColumn.clamps(self, declared)

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Choice:
        """One row moves each score as `queries.statistics.quantile.scores_of_cells` says."""
        if self.candidates is not None:
            cuts = EachCut(self.column, self.candidates)
            return _BestLevel(self, unit, (cuts,), self.candidates, fraction(self.rank), scale(unit))
        bounds = resolve_bounds(self.column, self.bounds, declared)
        weight = scale(unit)
        grid = Grid.over(bounds, center=True, levels=self.levels // 2)
        levels = EachLevel(Level(self.column, grid), (float(bounds[0]), float(bounds[1])))
        return _BestLevel(self, unit, (levels,), levels_of(grid), fraction(self.rank), weight)

    @classmethod
    def from_sql(cls, call: Call) -> tuple[str, Aggregate]:
        """MEDIAN(column), QUANTILE_CONT(column, rank), or MIN(column) and MAX(column) as low and high quantiles."""
        standard = {"MIN": LOWEST, "MAX": HIGHEST}.get(call.name, 0.5)
        given = call.number(1)
        column, bounds = call.clamped()
        return call.alias(column), cls(column, bounds, standard if given is None else float(given))


@dataclass(frozen=True)
class _BestLevel(Choice):
    """How well each level splits the rows, in units of 1/`scale` rows."""

    candidates: tuple[float, ...]
    quantile: Fraction
    scale: int

    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        return scores_of_cells(self.candidates, self.quantile, counts, self.unit, scale=self.scale, relation=relation)

    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> Exponential | NoisyMax:
        return NoisyMax(epsilon) if pure else Exponential(epsilon)

    def gap(self) -> Sums:
        """How many rows lie between the quantile and the nearest level, at most over all groups."""
        step = Fraction(1, self.quantile.denominator * self.scale)
        empty = self.scores([0] * self.coordinates, ADD_REMOVE)
        one, two = (Sensitivity.scalar(empty.sensitivity(relation)) for relation in (ADD_REMOVE, REPLACE_ONE))
        summed = Summed(GridGap.name, 1, step, one, two, Scaled(step), once_in_all=True)
        assert isinstance(self.aggregate, Quantile)
        return _Gap(GridGap(self.aggregate), self.unit, self.terms, summed, lower=0.0, choice=self)

    def score_error(self, epsilon: float, relation: Relation) -> float:
        """In ranks: so many rows more than for the nearest level may lie between the answer and the true quantile."""
        scores = self.scores([0] * self.coordinates, relation)
        return utility_bound(scores, 2, epsilon, relation) / float(self.quantile.denominator * self.scale)


@dataclass(frozen=True)
class GridGap(Aggregate):
    """How many rows lie between a quantile and its nearest level, in the group where these are most."""

    name = "grid_gap"
    limited_by = ""

    of: Quantile

    @property
    def columns(self) -> tuple[str, ...]:
        """The quantile's column."""
        return self.of.columns

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """As the quantile's own gap."""
        choice = self.of.measurement(unit, declared)
        assert isinstance(choice, _BestLevel)
        return choice.gap()


@dataclass(frozen=True)
class _Gap(Sums):
    """The best score, with its sign changed: a number of ranks in units of 1/(denominator · scale).

    A unit moves all scores of all groups by no more than their sensitivity, and so the best of a group, and the largest
    gap over all groups.
    """

    choice: _BestLevel | None = None

    def __post_init__(self) -> None:
        """The engine counts cells, and one number is made of them."""

    def values(
        self, totals: Sequence[Sequence[int]], relation: Relation, labels: tuple[Any, ...] | None, universe: int
    ) -> list[Bounded]:
        """One number for all groups, whatever the labels."""
        assert self.choice is not None
        largest = builtins.max(
            (-int(self.choice.scores(counts, relation).values.max()) for counts in totals), default=0
        )
        return [bounded(self.summed, [[largest]], self.unit, relation=relation)]

    def shape(self, groups: int, universe: int, relation: Relation) -> Bounded:
        """The sensitivity of that number."""
        return bounded(self.summed, [[0]], self.unit, relation=relation)


def _checked(candidates: object) -> tuple[float, ...]:
    """Ascending finite public numbers, from 1 to `MAX_CANDIDATES` of them."""
    remedy = "list the public answers that may come, in ascending order"
    if not isinstance(candidates, Iterable) or isinstance(candidates, str | bytes):
        raise _check.fail("candidates", "be a list of numbers", type(candidates).__name__, remedy)
    cuts = tuple(float(_check.real("candidates", one, remedy)) for one in candidates)
    if not 0 < len(cuts) <= MAX_CANDIDATES or any(a >= b for a, b in pairwise(cuts)):
        raise _check.fail("candidates", f"be ascending, and 1 to {MAX_CANDIDATES} of them", len(cuts), remedy)
    return cuts


def quantile(
    column: str,
    quantile: float,
    *,
    bounds: Bounds | None = None,
    levels: int = LEVELS,
    candidates: Iterable[float] | None = None,
    share: float = 1.0,
) -> Aggregate:
    """A quantile of `column`, chosen among about `levels` values within `bounds`, or among listed `candidates`."""
    listed = None if candidates is None else _checked(candidates)
    return Quantile(column, bounds, quantile, levels, listed, share=share)


def median(column: str, *, bounds: Bounds | None = None, levels: int = LEVELS, share: float = 1.0) -> Aggregate:
    """The median of `column`, chosen among about `levels` values within `bounds`."""
    return Quantile(column, bounds, 0.5, levels, share=share)


def min(column: str, *, bounds: Bounds | None = None, rank: float = LOWEST, share: float = 1.0) -> Aggregate:
    """A low quantile of `column`, by default the 1% quantile: the minimum itself is one person's value."""
    return Quantile(column, bounds, rank, share=share)


def max(column: str, *, bounds: Bounds | None = None, rank: float = HIGHEST, share: float = 1.0) -> Aggregate:
    """A high quantile of `column`, by default the 99% quantile: the maximum itself is one person's value."""
    return Quantile(column, bounds, rank, share=share)
