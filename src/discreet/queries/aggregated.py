"""From integers that an engine has summed to `Bounded`: the same grids, bounds and finishes as the other queries.

`Summed` holds the public facts about such integers: how far one row, or the difference of two rows, moves them, and
how the statistic is computed from them. An engine clamps and sums group by group; `bounded` combines its totals with
the sensitivity that follows from these facts, for rows and for persons (docs/proofs/analytics-person-bounds.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.bounded import LARGEST, Bounded, Finish, Scaled, Sensitivity, Tails
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Person, Relation, Rows, Unit
from discreet.queries.contributions import first, larger
from discreet.queries.grid import Grid
from discreet.queries.weighted import Counted, Weighted, scale


@dataclass(frozen=True)
class Grouped:
    """Finish of one statistic for each group: the inner finish applied to each group's own coordinates."""

    inner: Finish
    coordinates: int

    @property
    def mixes(self) -> int:
        return self.inner.mixes

    def value(self, noisy: NDArray[np.int64]) -> NDArray[Any]:
        at_once = self._at_once(noisy)
        if at_once is not None:
            return np.asarray(self.inner.value(at_once))
        return np.array([self.inner.value(group) for group in self._by_group(noisy)])

    def standard_error(self, noisy: NDArray[np.int64], spread: float) -> NDArray[np.float64]:
        at_once = self._at_once(noisy)
        if at_once is not None:
            return np.asarray(self.inner.standard_error(at_once, spread), dtype=np.float64)
        errors = [self.inner.standard_error(group, spread) for group in self._by_group(noisy)]
        return np.array(errors, dtype=np.float64)

    def interval(self, noisy: NDArray[np.int64], noise: Tails, tail: float) -> tuple[NDArray[Any], NDArray[Any]]:
        at_once = self._at_once(noisy)
        if at_once is not None:
            low, high = self.inner.interval(at_once, noise, tail)
            return np.asarray(low), np.asarray(high)
        intervals = [self.inner.interval(group, noise, tail) for group in self._by_group(noisy)]
        return np.array([low for low, _ in intervals]), np.array([high for _, high in intervals])

    def _at_once(self, noisy: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """One row for each coordinate, if the inner finish can process all groups at once."""
        if self.coordinates == 1 and isinstance(self.inner, Scaled | Counted):
            return noisy
        if getattr(self.inner, "vectorized", False):
            return noisy.reshape(-1, self.coordinates).T
        return None

    def _by_group(self, noisy: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        if self.coordinates == 1:
            return [np.asarray(value) for value in noisy]
        return list(noisy.reshape(-1, self.coordinates))


@dataclass(frozen=True)
class Summed:
    """Public facts about the integers that an engine sums for one statistic.

    Attributes:
        name: the statistic's name.
        coordinates: how many integers the engine sums for each group.
        granularity: the step of the sums.
        present: the most that one row adds, over the coordinates of its group.
        swapped: the most by which two rows of one group differ.
        finish: computes the statistic of one group from its coordinates.
        direction: 1 or −1 where a row can only raise or only lower every coordinate, else 0.
        scale: the weight of a row, in the engine's sums, of a unit within its limits: sums are in units of 1/`scale`.
        per_count: where the last coordinate counts the rows that have a value: the weight of one such row beside the
            other coordinates. None where no coordinate does.
        counts_persons: whether a person counts at most once in each group, however many rows they have there.
        once_in_all: whether a unit, row or person, counts once, in one coordinate of all groups together.
    """

    name: str
    coordinates: int
    granularity: Fraction
    present: Sensitivity
    swapped: Sensitivity
    finish: Finish
    direction: int = 0
    scale: int = 1
    per_count: int | None = None
    counts_persons: bool = False
    once_in_all: bool = False

    def typical(self, rows: int) -> NDArray[np.int64]:
        """The coordinates of one group with `rows` rows whose values all lie in the middle of the bounds."""
        if self.per_count is None:
            return np.zeros(() if self.coordinates == 1 else self.coordinates, dtype=np.int64)
        coordinates = np.zeros(self.coordinates, dtype=np.int64)
        coordinates[-1] = rows * self.scale * self.per_count
        return coordinates


def summed_counts(name: str, unit: Unit, *, cells: int = 1, counts_persons: bool = False) -> Summed:
    """Counts of rows (or persons), one for each of some disjoint cells."""
    weight, present = scale(unit), Sensitivity.scalar(1)
    swapped = Sensitivity(2, 2, 2, 1) if cells > 1 else present
    finish: Finish = Scaled(Fraction(1)) if weight == 1 else Counted(weight)
    return Summed(
        name,
        cells,
        Fraction(1, weight),
        present,
        swapped,
        finish,
        direction=1,
        scale=weight,
        counts_persons=counts_persons,
    )


def summed_units(name: str, cells: int) -> Summed:
    """How many units fall into each of some disjoint cells: each unit into one, however many rows it has."""
    present = Sensitivity.scalar(1)
    swapped = Sensitivity(2, 2, 2, 1) if cells > 1 else present
    return Summed(name, cells, Fraction(1), present, swapped, Scaled(Fraction(1)), direction=1, once_in_all=True)


def summed_moments(
    name: str, unit: Unit, grid: Grid, moves: tuple[Sensitivity, Sensitivity], finish: Finish, per_count: int
) -> Summed:
    """Several sums of levels. The last counts the rows that have a value; `moves` is (present, swapped)."""
    weight = scale(unit)
    weighted = finish if weight == 1 else Weighted(finish, weight)
    return Summed(name, finish.mixes, grid.step / weight, *moves, weighted, scale=weight, per_count=per_count)


def groups_of(unit: Person, groups: int) -> int:
    """The number of groups in which one person may count fully where persons are counted."""
    return min(groups, unit.max_groups or unit.max_rows)


def bounded(
    summed: Summed,
    totals: Sequence[Sequence[int]],
    unit: Unit,
    *,
    relation: Relation = ADD_REMOVE,
    labels: tuple[Any, ...] | None = None,
    universe: int | None = None,
) -> Bounded:
    """The totals of each group, in the order of `labels`, with how far one unit can move them all.

    Args:
        summed: the public facts by which the engine clamped and summed.
        totals: for each group its coordinates. Where the last one counts rows with a value, it is in units of
            1/`scale` and not yet multiplied by `per_count`.
        unit: who is protected.
        relation: which neighbors mechanisms protect unless told otherwise.
        labels: the public keys of the groups; None where there are no groups.
        universe: the number of groups that the sensitivity should hold for, where it was calibrated before they were
            known.

    Guarantee: as `queries.count`, `sum`, `mean`, `variance` and docs/proofs/covariance.md state for one group; a row
    moves the coordinates of one group (two under replace-one). A person moves those of any number of groups (L0), but
    by no more than `max_rows` rows do that weigh `summed.scale` each (L1, and L2 and L∞ as if all fell into one
    group); where persons are counted, by no more than `max_groups` times `summed.scale`; where units are counted once
    in all, as a row does. Assumes that the engine enforced the bounds. Totals beyond ±2^60 are clamped, which moves no
    two of them further apart.
    """
    groups = len(totals)
    per_row = (*(1,) * (summed.coordinates - 1), summed.per_count or 1)
    flat = [int(value) * weight for group in totals for value, weight in zip(group, per_row, strict=True)]
    values = np.array([min(max(value, -LARGEST), LARGEST) for value in flat], dtype=np.int64)
    moves = _moves(summed, unit, groups if universe is None else max(groups, universe))
    if labels is None and groups == 1:
        shaped = values if summed.coordinates > 1 else values.reshape(())
        finish: Finish = summed.finish
    else:
        shaped, finish = values, Grouped(summed.finish, summed.coordinates)
    return Bounded(
        shaped, summed.granularity, first(relation, moves), summed.name, unit, finish, labels, summed.direction
    )


def _moves(summed: Summed, unit: Unit, groups: int) -> dict[Relation, Sensitivity]:
    """The sensitivity of all groups together, under each relation."""
    present, swap = summed.present, larger(summed.present, summed.swapped)
    dimension = groups * summed.coordinates
    if isinstance(unit, Rows) or summed.once_in_all:
        # A row may also be exchanged for one that a filter drops, so `present` bounds a swap from below.
        if groups > 1:  # out of one group, into another
            swap = larger(swap, Sensitivity(2 * present.l0, 2 * present.l1, 2 * present.l2_squared, present.linf))
        return {ADD_REMOVE: present, REPLACE_ONE: swap, ZERO_OUT: present}
    weight = summed.scale
    if summed.counts_persons:
        own = groups_of(unit, groups)
        full = {ADD_REMOVE: own, REPLACE_ONE: min(2 * own, groups), ZERO_OUT: own}
        return {r: Sensitivity(groups, n * weight, n * weight**2, weight) for r, n in full.items()}
    if dimension > 1:
        swap = Sensitivity(2 * present.l0, 2 * present.l1, 4 * present.l2_squared, 2 * present.linf)
    present_moves, swap_moves = (Sensitivity.times(s, unit.max_rows * weight, dimension) for s in (present, swap))
    return {ADD_REMOVE: present_moves, REPLACE_ONE: swap_moves, ZERO_OUT: present_moves}
