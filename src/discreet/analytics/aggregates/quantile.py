"""A quantile of a column, chosen among public levels; the median, and low and high quantiles for the extremes."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from discreet import _check
from discreet.analytics.aggregates.aggregate import (
    Aggregate,
    Bounds,
    OfColumn,
    OfPerson,
    ResultColumn,
    resolve_bounds,
)
from discreet.analytics.aggregates.measurement import LEVEL, Choice, DrawingMechanism, Sums
from discreet.analytics.aggregates.terms import EachCut, EachLevel, EachMark, Level
from discreet.bounded import Bounded, Scaled, Scores, Sensitivity
from discreet.mechanisms import Exponential, NoisyMax
from discreet.mechanisms.refinement import Refinement
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation, Unit
from discreet.queries.aggregated import Summed, bounded
from discreet.queries.grid import Grid
from discreet.queries.statistics.marks import Marks, marks
from discreet.queries.statistics.quantile import (
    Place,
    RefinedScores,
    fraction,
    levels_of,
    places_of,
    refined_scores,
    scores_of_cells,
    scores_of_places,
)
from discreet.queries.weighted import scale

if TYPE_CHECKING:
    from discreet.analytics.plan.sql import AggregateCall

#: The quantiles that stand for the extremes, which belong to single people.
LOWEST, HIGHEST = 0.01, 0.99
#: About how many levels a quantile is chosen among: fine enough to read, and cheap to count.
LEVELS = 1024
#: The most levels: the engine returns a count for each, in each group.
MAX_LEVELS = 1 << 17
#: The most levels in the second of two passes: the engine returns counts of all that could be chosen in the first.
MAX_REFINED = 1 << 14
#: The most listed candidates: a row is compared with one after another.
MAX_CANDIDATES = 1 << 10
#: The part of ε that the first of two passes gets. It only has to find the right coarse interval or one beside it.
FIRST_PASS = Fraction(1, 8)
#: The second pass divides up to three intervals beside the coarse ones, into this many times `levels` parts in all.
_PARTS_OF_LEVELS = 8


@dataclass(frozen=True)
class Quantile(OfColumn):
    """A quantile of clamped values, chosen among public levels and the places between them.

    The answer has two ends, the level itself or the two around it. Errors say how many rows may lie between these ends
    and the true quantile. A quantile among listed candidates has no ends: its errors are counted from the candidate
    nearest to the quantile.
    """

    name = "quantile"
    sql_names = ("MEDIAN", "QUANTILE_CONT", "MIN", "MAX")
    error_in = "rank"

    rank: float = 0.5
    levels: int = LEVELS
    candidates: tuple[float, ...] | None = None
    refine: bool = False

    def __post_init__(self) -> None:
        OfColumn.__post_init__(self)
        remedy = "it is about how many levels within the bounds to choose among"
        _check.settle_integers(self, "levels", remedy=remedy, at_least=2, at_most=MAX_LEVELS)
        if self.candidates is not None:
            object.__setattr__(self, "candidates", _checked(self.candidates))
        if not isinstance(self.refine, bool):
            raise _check.fail("refine", "be True or False", self.refine, "True places finer levels where the rows are")
        if self.refine and self.candidates is not None:
            raise _check.fail("refine", "not go with listed candidates", True, "give bounds instead of candidates")
        if self.refine and self.levels > MAX_REFINED:
            raise _check.fail("levels", f"be ≤ {MAX_REFINED} with refine=True", self.levels, "two passes need fewer")

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
        given = _check.bounds(resolve_bounds(self.column, self.bounds, declared))
        bounds = float(given[0]), float(given[1])
        rank, weight = fraction(self.rank), scale(unit)
        if self.refine:
            over = marks(bounds, builtins.max(self.levels // _PARTS_OF_LEVELS, 2))
            return _BestMark(self, unit, (EachMark(self.column, over),), over, rank, weight)
        grid = Grid.multiples(bounds, self.levels)
        levels = EachLevel(Level(self.column, grid), bounds)
        return _BestPlace(self, unit, (levels,), places_of(levels_of(grid), bounds), rank, weight)

    def outputs(self, alias: str) -> tuple[ResultColumn, ...]:
        """The quantile with its rank error and, unless candidates are listed, its ends."""
        ends = () if self.candidates is not None else (f"{alias}_low", f"{alias}_high")
        return (ResultColumn(alias, f"{alias}_rank_error", self.error_in, ends),)

    @classmethod
    def from_sql(cls, call: AggregateCall) -> tuple[str, Aggregate]:
        """MEDIAN(column), QUANTILE_CONT(column, rank), or MIN(column) and MAX(column) as low and high quantiles."""
        standard = {"MIN": LOWEST, "MAX": HIGHEST}.get(call.name, 0.5)
        given = call.number(1)
        column, bounds = call.clamped()
        return call.alias(column), cls(column, bounds, standard if given is None else float(given))


@dataclass(frozen=True)
class _BestLevel(Choice):
    """How well each listed candidate splits the rows, in units of 1/`scale` rows."""

    candidates: tuple[float, ...]
    quantile: Fraction
    scale: int

    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        return scores_of_cells(self.candidates, self.quantile, counts, self.unit, scale=self.scale, relation=relation)

    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> Exponential | NoisyMax:
        return NoisyMax(epsilon) if pure else Exponential(epsilon)

    def gap(self) -> Sums:
        """How many rows lie between the quantile and the nearest candidate, at most over all groups."""
        step = Fraction(1, self.quantile.denominator * self.scale)
        empty = self.scores([0] * self.coordinates, ADD_REMOVE)
        add_remove, replace_one = (
            Sensitivity.scalar(empty.sensitivity(relation)) for relation in (ADD_REMOVE, REPLACE_ONE)
        )
        summed = Summed(GridGap.name, 1, step, add_remove, replace_one, Scaled(step), once_in_all=True)
        assert isinstance(self.aggregate, Quantile)
        return _Gap(GridGap(self.aggregate), self.unit, self.terms, summed, lower=0.0, choice=self)

    def score_error(self, mechanism: DrawingMechanism, relation: Relation) -> float:
        """In ranks: how many rows more than for the nearest candidate may lie between the answer and the quantile."""
        assert isinstance(mechanism, Exponential | NoisyMax)
        scores = self.scores([0] * self.coordinates, relation)
        return mechanism.loss_bound(scores, LEVEL, relation) / (self.quantile.denominator * self.scale)


@dataclass(frozen=True)
class _Placed(Choice):
    """A choice among places, which have ends. Abstract."""

    def shown(self, drawn: Any) -> float:
        assert isinstance(drawn, Place)
        return drawn.value

    def ends(self, drawn: Any) -> tuple[float, float]:
        assert isinstance(drawn, Place)
        return drawn.low, drawn.high


@dataclass(frozen=True)
class _BestPlace(_Placed):
    """In which place the quantile lies, on a level or between two, in units of 1/`scale` rows."""

    places: tuple[Place, ...]
    quantile: Fraction
    scale: int

    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        return scores_of_places(self.places, self.quantile, counts, self.unit, scale=self.scale, relation=relation)

    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> Exponential | NoisyMax:
        return NoisyMax(epsilon) if pure else Exponential(epsilon)

    def score_error(self, mechanism: DrawingMechanism, relation: Relation) -> float:
        """In ranks: how many rows may lie between the ends of the answer and the quantile."""
        assert isinstance(mechanism, Exponential | NoisyMax)
        scores = self.scores([0] * self.coordinates, relation)
        return mechanism.loss_bound(scores, LEVEL, relation) / (self.quantile.denominator * self.scale)


@dataclass(frozen=True)
class _BestMark(_Placed):
    """In which place the quantile lies, found in two passes, in units of 1/`scale` rows."""

    marks: Marks
    quantile: Fraction
    scale: int

    @property
    def draws(self) -> Fraction:
        """Two, of unequal shares."""
        return 1 / (FIRST_PASS**2 + (1 - FIRST_PASS) ** 2)

    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        """Those of the first pass."""
        return self._refined(counts, relation).coarse

    def values(
        self, totals: Sequence[Sequence[int]], relation: Relation, labels: tuple[Any, ...] | None, universe: int
    ) -> list[RefinedScores]:
        """The scores of both passes for each group."""
        return [self._refined(counts, relation) for counts in totals]

    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> Refinement:
        kind = NoisyMax if pure else Exponential
        return Refinement(kind(epsilon * FIRST_PASS), kind(epsilon * (1 - FIRST_PASS)))

    def score_error(self, mechanism: DrawingMechanism, relation: Relation) -> float:
        """In ranks: how many rows may lie between the ends of the answer and the quantile, whatever came out first."""
        assert isinstance(mechanism, Refinement)
        empty = self._refined([0] * self.coordinates, relation)
        most = empty.fine(empty.coarse.candidates[self.marks.widest])
        return mechanism.second.loss_bound(most, LEVEL, relation) / (self.quantile.denominator * self.scale)

    def _refined(self, counts: Sequence[int], relation: Relation) -> RefinedScores:
        return refined_scores(self.marks, self.quantile, counts, self.unit, scale=self.scale, relation=relation)


@dataclass(frozen=True)
class GridGap(Aggregate):
    """How many rows lie between a quantile and its nearest listed candidate, in the group where these are most."""

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
    """The best score, with its sign changed, or 0: a number of ranks in units of 1/(denominator · scale).

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
        gaps = [-int(self.choice.scores(counts, relation).values.max()) for counts in totals]
        return [bounded(self.summed, [[builtins.max([0, *gaps])]], self.unit, relation=relation)]

    def shape(self, groups: int, universe: int, relation: Relation) -> Bounded:
        """The sensitivity of that number."""
        return bounded(self.summed, [[0]], self.unit, relation=relation)


def _checked(candidates: object) -> tuple[float, ...]:
    """Ascending finite public numbers, from 1 to `MAX_CANDIDATES` of them."""
    remedy = "list the public answers that may come, in ascending order"
    if not isinstance(candidates, Iterable) or isinstance(candidates, str | bytes):
        raise _check.fail("candidates", "be a list of numbers", type(candidates).__name__, remedy)
    cuts = tuple(float(_check.real("candidates", candidate, remedy)) for candidate in candidates)
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
    refine: bool = False,
    share: float = 1.0,
) -> Aggregate:
    """A quantile of `column`, chosen among about `levels` values within `bounds`, or among listed `candidates`.

    With `refine` an eighth of its ε first finds the right scale, and the levels are placed there: for skewed columns
    and wide bounds.
    """
    listed = None if candidates is None else _checked(candidates)
    return Quantile(column, bounds, quantile, levels, listed, refine, share=share)


def median(
    column: str, *, bounds: Bounds | None = None, levels: int = LEVELS, refine: bool = False, share: float = 1.0
) -> Aggregate:
    """The median of `column`, chosen among about `levels` values within `bounds`; `refine` as in `quantile`."""
    return Quantile(column, bounds, 0.5, levels, refine=refine, share=share)


def min(column: str, *, bounds: Bounds | None = None, rank: float = LOWEST, share: float = 1.0) -> Aggregate:
    """A low quantile of `column`, by default the 1% quantile: the minimum itself is one person's value."""
    return Quantile(column, bounds, rank, share=share)


def max(column: str, *, bounds: Bounds | None = None, rank: float = HIGHEST, share: float = 1.0) -> Aggregate:
    """A high quantile of `column`, by default the 99% quantile: the maximum itself is one person's value."""
    return Quantile(column, bounds, rank, share=share)
