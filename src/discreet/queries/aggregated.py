"""From integers that an engine has summed to `Bounded`: the same grids, bounds and finishes as the other queries.

A `Statistic` is a public plan: how a row's value becomes grid integers, and how far one row or two rows move their
sums. An engine clamps and sums by that plan, group by group; `bounded` and `scores` put its totals together with the
sensitivity that the plan enforces, for rows and for persons (docs/proofs/analytics-person-bounds.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.bounded import LARGEST, Bounded, Finish, Scaled, Scores, Sensitivity
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Person, Relation, Rows, Unit
from discreet.queries.contributions import first
from discreet.queries.grid import MAX_LEVEL, Grid
from discreet.queries.statistics.covariance import LEVELS as COVARIANCE_LEVELS
from discreet.queries.statistics.covariance import Correlation, Covariance, correlation_moves, covariance_moves
from discreet.queries.statistics.mean import LEVELS as MEAN_LEVELS
from discreet.queries.statistics.mean import moves as mean_moves
from discreet.queries.statistics.mean import quotient
from discreet.queries.statistics.quantile import fraction
from discreet.queries.statistics.quantile import moves as quantile_moves
from discreet.queries.statistics.sum import direction
from discreet.queries.statistics.sum import moves as sum_moves
from discreet.queries.statistics.variance import LEVELS as VARIANCE_LEVELS
from discreet.queries.statistics.variance import Spread, spread_grid
from discreet.queries.statistics.variance import moves as variance_moves
from discreet.queries.weighted import Counted, Weighted, levels, scale

Kind = Literal[
    "count",
    "persons",
    "sum",
    "mean",
    "variance",
    "std",
    "covariance",
    "correlation",
    "marginal",
    "top_k",
    "quantile",
]

#: A person's row limit may not exceed this: with it a grid of 2^10 levels still sums within 64 bits.
MAX_PERSON_ROWS = 1 << 18
#: Levels on each side of the middle that a quantile is chosen among.
_CANDIDATES = 512


@dataclass(frozen=True)
class Rooted:
    """Finish of a standard deviation: the root of a variance."""

    inner: Finish

    @property
    def mixes(self) -> int:
        return self.inner.mixes

    def value(self, noisy: NDArray[np.int64]) -> float:
        return math.sqrt(self.inner.value(noisy))

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> float:
        """By the delta method, and never more than the root of the variance's own error."""
        error = float(self.inner.standard_error(noisy, spread))
        return error / max(2 * self.value(noisy), math.sqrt(error), 1e-300)

    def interval(self, noisy: NDArray[np.int64], half_width: float) -> tuple[float, float]:
        low, high = self.inner.interval(noisy, half_width)
        return math.sqrt(low), math.sqrt(high)


@dataclass(frozen=True)
class Grouped:
    """Finish of one statistic for each group: the inner finish on each group's own coordinates."""

    inner: Finish
    coordinates: int

    @property
    def mixes(self) -> int:
        return self.inner.mixes

    def value(self, noisy: NDArray[np.int64]) -> NDArray[Any]:
        at_once = self._at_once(noisy)
        if at_once is not None:
            return np.asarray(self.inner.value(at_once))
        return np.array([self.inner.value(part) for part in self._parts(noisy)])

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> NDArray[np.float64]:
        at_once = self._at_once(noisy)
        if at_once is not None:
            return np.asarray(self.inner.standard_error(at_once, spread), dtype=np.float64)
        return np.array([self.inner.standard_error(part, spread) for part in self._parts(noisy)], dtype=np.float64)

    def interval(self, noisy: NDArray[np.int64], half_width: float) -> tuple[NDArray[Any], NDArray[Any]]:
        at_once = self._at_once(noisy)
        if at_once is not None:
            low, high = self.inner.interval(at_once, half_width)
            return np.asarray(low), np.asarray(high)
        both = [self.inner.interval(part, half_width) for part in self._parts(noisy)]
        return np.array([low for low, _ in both]), np.array([high for _, high in both])

    def _at_once(self, noisy: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """One row for each coordinate, if the inner finish takes all groups at once."""
        if self.coordinates == 1 and isinstance(self.inner, Scaled | Counted):
            return noisy
        if getattr(self.inner, "vectorized", False):
            return noisy.reshape(-1, self.coordinates).T
        return None

    def _parts(self, noisy: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        if self.coordinates == 1:
            return [np.asarray(one) for one in noisy]
        return list(noisy.reshape(-1, self.coordinates))


@dataclass(frozen=True)
class Statistic:
    """The public plan of one statistic.

    Attributes:
        kind: what is computed.
        grid: the levels that a row's value is clamped and rounded to; None where rows or persons are counted.
        granularity: the step of the sums.
        present: how much one row adds at most, over the coordinates of its group.
        swapped: how far two rows of one group differ at most.
        finish: makes the statistic of one group out of its coordinates.
        missing: the level of a row without a value; None where such a row counts in nothing.
        direction: 1 or −1 where a row can only raise or lower every coordinate, else 0.
        rank: of a quantile, as a fraction.
        scale: what a row of a unit within its limits weighs in the engine's sums; they are in units of 1/`scale`.
        per_count: what one row of those that the last coordinate counts weighs there, beside the others.
        other: the levels of the second column of a covariance or a correlation.
        cells: how many public cells a marginal or a choice among categories counts.
    """

    kind: Kind
    grid: Grid | None
    granularity: Fraction
    present: Sensitivity
    swapped: Sensitivity
    finish: Finish
    missing: int | None = None
    direction: int = 0
    rank: Fraction | None = None
    scale: int = 1
    per_count: int = 1
    other: Grid | None = None
    cells: int = 1

    @property
    def coordinates(self) -> int:
        """How many integers an engine sums for each group."""
        several = {"mean": 2, "variance": 3, "std": 3, "covariance": 4, "correlation": 6}
        return several.get(self.kind, self.cells)


def plan(
    kind: Kind,
    unit: Unit,
    *,
    bounds: object = None,
    count_share: float = 0.5,
    rank: object = None,
    other_bounds: object = None,
    cells: int = 1,
) -> Statistic:
    """The plan of a statistic for units of this kind; the finer the grid, the fewer rows a unit may have."""
    if not isinstance(unit, Rows) and unit.max_rows > MAX_PERSON_ROWS:
        remedy = "a person with so many rows would need too coarse a grid"
        raise _check.fail("max_rows", f"be ≤ {MAX_PERSON_ROWS}", unit.max_rows, remedy)
    one, weight = Sensitivity.scalar(1), scale(unit)
    counted: Finish = Scaled(Fraction(1)) if weight == 1 else Counted(weight)
    if kind in ("count", "persons"):
        return Statistic(kind, None, Fraction(1, weight), one, one, counted, direction=1, scale=weight)
    if kind in ("marginal", "top_k"):
        moved = Sensitivity(2, 2, 2, 1) if cells > 1 else one
        return Statistic(kind, None, Fraction(1, weight), one, moved, counted, direction=1, scale=weight, cells=cells)
    if kind == "sum":
        grid = Grid.over(bounds, levels=levels(unit, MAX_LEVEL))
        step, way = grid.step / weight, direction(grid)
        return Statistic(
            kind, grid, step, *sum_moves(grid), Scaled(step), grid.nearest_zero, direction=way, scale=weight
        )
    if kind == "mean":
        ratio = quotient(bounds, levels(unit, MEAN_LEVELS), count_share)
        return _weighted(kind, ratio.grid, mean_moves(ratio), ratio, weight, ratio.weight)
    if kind in ("variance", "std"):
        grid = spread_grid(bounds, levels(unit, VARIANCE_LEVELS))
        spread = Spread(grid)
        return _weighted(
            kind, grid, variance_moves(grid), spread if kind == "variance" else Rooted(spread), weight, grid.reach
        )
    if kind in ("covariance", "correlation"):
        many = levels(unit, COVARIANCE_LEVELS)
        grid, other = (Grid.over(pair, center=True, levels=many) for pair in (bounds, other_bounds))
        joint = Covariance(grid, other) if kind == "covariance" else Correlation(grid, other)
        moves = (covariance_moves if kind == "covariance" else correlation_moves)(grid, other)
        return replace(_weighted(kind, grid, moves, joint, weight, max(grid.reach, other.reach)), other=other)
    grid = Grid.over(bounds, center=True, levels=_CANDIDATES)
    return Statistic(kind, grid, Fraction(1, weight), one, one, Scaled(grid.step), rank=fraction(rank), scale=weight)


def _weighted(
    kind: Kind, grid: Grid, moves: tuple[Sensitivity, Sensitivity], finish: Finish, weight: int, per_count: int
) -> Statistic:
    """The plan of a statistic of several coordinates, the last of which counts rows."""
    whole = finish if weight == 1 else Weighted(finish, weight)
    return Statistic(kind, grid, grid.step / weight, *moves, whole, scale=weight, per_count=per_count)


def groups_of(unit: Person, groups: int) -> int:
    """In how many groups one person may count fully where persons are counted."""
    return min(groups, unit.max_groups or unit.max_rows)


def bounded(
    statistic: Statistic,
    totals: Sequence[Sequence[int]],
    unit: Unit,
    *,
    relation: Relation = ADD_REMOVE,
    labels: tuple[Any, ...] | None = None,
    universe: int | None = None,
) -> Bounded:
    """The totals of each group, in the order of `labels`, with how far one unit can move them all.

    Args:
        statistic: the plan by which the totals were clamped and summed.
        totals: for each group the integers that `Statistic.coordinates` counts; a mean's and a variance's last one is
            the number of rows with a value, in units of 1/`scale` and not yet times `per_count`.
        unit: who is protected.
        relation: which neighbors mechanisms protect unless told otherwise.
        labels: the public keys of the groups; None where there are no groups.
        universe: for how many groups the sensitivity should hold, where it was calibrated before they were known.

    Guarantee: as `queries.count`, `sum`, `mean`, `variance` and docs/proofs/covariance.md state for one group; a row
    moves the coordinates of one group (two under replace-one). A person moves those of any number of groups (L0), but
    by no more than `max_rows` rows do that weigh `statistic.scale` each (L1, and L2 and L∞ as if all fell into one
    group); where persons are counted, by no more than `max_groups` times `statistic.scale`. Assumes that the engine
    enforced the plan. Totals beyond ±2^60 are clamped, which moves no two of them further apart.
    """
    groups = len(totals)
    per_row = (*(1,) * (statistic.coordinates - 1), statistic.per_count)
    flat = [int(value) * weight for group in totals for value, weight in zip(group, per_row, strict=True)]
    values = np.array([min(max(value, -LARGEST), LARGEST) for value in flat], dtype=np.int64)
    found = _moves(statistic, unit, groups if universe is None else max(groups, universe))
    if labels is None and groups == 1:
        single = values if statistic.coordinates > 1 else values.reshape(())
        finish: Finish = statistic.finish
    else:
        single, finish = values, Grouped(statistic.finish, statistic.coordinates)
    return Bounded(
        single,
        statistic.granularity,
        first(relation, found),
        statistic.kind,
        unit,
        finish,
        labels,
        statistic.direction,
    )


def scores(
    statistic: Statistic,
    counts: Sequence[int],
    unit: Unit,
    *,
    relation: Relation = ADD_REMOVE,
) -> Scores:
    """How well each level of the grid serves as the quantile of one group, given how many rows lie on each level.

    With q = a/d, N rows, L of them below a level and E on it, the score is −max(0, dL − aN, aN − d(L + E)): 0 where
    the level is a q-quantile of the rows, which ties on one level do not blur.

    Guarantee: adding a row moves dL − aN by d − a or −a, and aN − d(L + E) by a or a − d, so each score by at most
    max(a, d − a) times its weight; exchanging a row by at most twice that; a person's rows weigh at most `max_rows`
    times `statistic.scale` in all. These bounds hold for the changes of all groups added up, so that one draw for each
    group costs as much as a single draw (docs/proofs/analytics-person-bounds.md). Assumes that the engine enforced the
    plan. Not protected: the grid.
    """
    assert statistic.rank is not None
    a, d = statistic.rank.numerator, statistic.rank.denominator
    most = LARGEST // (d * len(counts))  # clamping a count moves no two of them further apart
    on = np.minimum(np.asarray(counts, dtype=np.int64), most)
    upto = np.cumsum(on)
    rows = int(upto[-1])
    values = -np.maximum(0, np.maximum(d * (upto - on) - a * rows, a * rows - d * upto))
    rows_of_a_unit = 1 if isinstance(unit, Rows) else unit.max_rows
    added = quantile_moves(statistic.rank, rows_of_a_unit * statistic.scale)[ADD_REMOVE]
    # A unit that is exchanged may leave one group and enter another: both changes count.
    moved = {ADD_REMOVE: added, REPLACE_ONE: 2 * added, ZERO_OUT: added}
    return Scores(values, candidates(statistic), {relation: moved[relation], **moved}, "quantile", unit)


def choices(
    statistic: Statistic,
    counts: Sequence[int],
    labels: tuple[Any, ...],
    unit: Unit,
    *,
    relation: Relation = ADD_REMOVE,
) -> Scores:
    """How often each public category occurs in one group, as scores for choosing the most frequent.

    Guarantee: adding a row raises one score by its weight and lowers none; a person's rows weigh `max_rows` times
    `statistic.scale` in all, or less. Under replace-one twice that covers the group that is left and the one that is
    entered. These bounds hold for the changes of all groups added up, so that one draw for each group costs as much as
    a single draw (docs/proofs/covariance.md). Assumes that the engine enforced the plan. Not protected: the categories.
    """
    values = np.array([min(int(count), LARGEST) for count in counts], dtype=np.int64)
    added = (1 if isinstance(unit, Rows) else unit.max_rows) * statistic.scale
    moved = {ADD_REMOVE: added, REPLACE_ONE: 2 * added, ZERO_OUT: added}
    monotone = frozenset({ADD_REMOVE, ZERO_OUT})
    return Scores(values, labels, {relation: moved[relation], **moved}, "choices", unit, monotone)


@lru_cache(maxsize=64)
def candidates(statistic: Statistic) -> tuple[float, ...]:
    """The public answers that a quantile is chosen among."""
    grid = statistic.grid
    assert grid is not None
    return tuple(float(grid.center + level * grid.step) for level in range(grid.lower, grid.upper + 1))


def _moves(statistic: Statistic, unit: Unit, groups: int) -> dict[Relation, Sensitivity]:
    """The sensitivity of all groups together, under each relation."""
    present, swap = statistic.present, _larger(statistic.present, statistic.swapped)
    dimension = groups * statistic.coordinates
    if isinstance(unit, Rows):
        # A row may also be exchanged for one that a filter drops, so `present` bounds a swap from below.
        if groups > 1:  # out of one group, into another
            swap = _larger(swap, Sensitivity(2 * present.l0, 2 * present.l1, 2 * present.l2_squared, present.linf))
        return {ADD_REMOVE: present, REPLACE_ONE: swap, ZERO_OUT: present}
    weight = statistic.scale
    if statistic.kind == "persons":
        # A person counts at most once in each group, however many rows they have there.
        own = groups_of(unit, groups)
        full = {ADD_REMOVE: own, REPLACE_ONE: min(2 * own, groups), ZERO_OUT: own}
        return {r: Sensitivity(groups, n * weight, n * weight**2, weight) for r, n in full.items()}
    if dimension > 1:
        swap = Sensitivity(2 * present.l0, 2 * present.l1, 4 * present.l2_squared, 2 * present.linf)
    one, two = (Sensitivity.times(s, unit.max_rows * weight, dimension) for s in (present, swap))
    return {ADD_REMOVE: one, REPLACE_ONE: two, ZERO_OUT: one}


def _larger(one: Sensitivity, two: Sensitivity) -> Sensitivity:
    return Sensitivity(
        max(one.l0, two.l0), max(one.l1, two.l1), max(one.l2_squared, two.l2_squared), max(one.linf, two.linf)
    )
