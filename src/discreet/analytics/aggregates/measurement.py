"""An aggregate for a given unit: what the engine sums, and what a mechanism gets to see of it.

There are two kinds. `Sums` get noise added to each number. A `Choice` draws among public candidates by their scores.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from discreet.analytics.aggregates.terms import EachCut, EachLevel, EachMark, EachValue, PersonsBy, Term
from discreet.bounded import Bounded, Scores
from discreet.mechanisms import Exponential, NoisyMax, TopK
from discreet.mechanisms.refinement import Refinement
from discreet.neighbors import Relation, Unit
from discreet.queries.aggregated import Summed, bounded
from discreet.queries.statistics.quantile import RefinedScores

if TYPE_CHECKING:
    from discreet.analytics.aggregates.aggregate import Aggregate

#: The probability that errors hold with, here and in results.
LEVEL = 0.95

#: What draws among candidates.
DrawingMechanism = Exponential | NoisyMax | TopK | Refinement


@dataclass(frozen=True)
class Measurement(ABC):
    """Public facts about one aggregate of a table whose units are known. Abstract: `Sums` or a `Choice`.

    Attributes:
        aggregate: what was asked for.
        unit: who is protected.
        terms: the integers of a row that the engine sums for each group.
    """

    aggregate: Aggregate
    unit: Unit
    terms: tuple[Term, ...]

    def __str__(self) -> str:
        return str(self.aggregate)

    @property
    def levels(self) -> EachLevel | EachCut | EachMark | PersonsBy | None:
        """The levels whose rows are counted in a query of their own; None where the sums share one query."""
        only = self.terms[0]
        return only if isinstance(only, EachLevel | EachCut | EachMark | PersonsBy) else None

    @property
    def different(self) -> EachValue | None:
        """The column whose different values are counted in a query of their own; None where there is none."""
        only = self.terms[0]
        return only if isinstance(only, EachValue) else None

    @property
    def coordinates(self) -> int:
        """How many integers the engine sums for each group."""
        return len(self.terms) if self.levels is None else self.levels.size

    @abstractmethod
    def values(
        self, totals: Sequence[Sequence[int]], relation: Relation, labels: tuple[Any, ...] | None, universe: int
    ) -> Sequence[Bounded | Scores | RefinedScores]:
        """The exact, unprotected values from the engine's totals of each group: one for all groups, or one for each."""


@dataclass(frozen=True)
class Sums(Measurement):
    """Numbers that noise is added to. `lower` is the least value that a sum can have, where that is known."""

    summed: Summed
    lower: float = -math.inf

    def __post_init__(self) -> None:
        # Found when the question is asked: after the charge, a mismatch would cost budget.
        if self.coordinates != self.summed.coordinates:
            raise ValueError(f"{self.aggregate} sums {self.coordinates} terms, but bounds {self.summed.coordinates}")

    def values(
        self, totals: Sequence[Sequence[int]], relation: Relation, labels: tuple[Any, ...] | None, universe: int
    ) -> list[Bounded]:
        """The totals of all groups, with how far one unit can move them."""
        return [bounded(self.summed, totals, self.unit, relation=relation, labels=labels, universe=universe)]

    def shape(self, groups: int, universe: int, relation: Relation) -> Bounded:
        """The sensitivity without a value: zeros for each group, for calibration."""
        empty = [[0] * self.coordinates] * groups
        return bounded(self.summed, empty, self.unit, relation=relation, universe=universe)

    def total(self, groups: Bounded, relation: Relation) -> Bounded:
        """The exact total over all groups, with the smaller sensitivity that one number has."""
        total = sum(int(value) for value in groups.values.ravel().tolist())
        return bounded(self.summed, [[total]], self.unit, relation=relation)


@dataclass(frozen=True)
class Choice(Measurement):
    """One draw among public candidates for each group, or several. Abstract."""

    @property
    def draws(self) -> int | Fraction:
        """How many draws share the ε equally; 1/Σ shareᵢ² where their shares of it differ."""
        return 1

    @abstractmethod
    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        """The score of each candidate in one group, from the engine's counts."""

    @abstractmethod
    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> DrawingMechanism:
        """What draws at this ε; `pure` where the budget counts ε alone, so that a bounded range earns nothing."""

    @abstractmethod
    def score_error(self, mechanism: DrawingMechanism, relation: Relation) -> float:
        """By how much a choice is worse than the best, at most and with probability 95%, in the aggregate's units."""

    def shown(self, drawn: Any) -> Any:
        """What a result shows of a drawn candidate."""
        return drawn

    def ends(self, drawn: Any) -> tuple[Any, ...]:
        """The ends of a drawn candidate, as many as the aggregate's outputs have."""
        return ()

    def gap(self) -> Measurement | None:
        """What measures how far the best candidate itself is off; None where it never is."""
        return None

    def values(
        self, totals: Sequence[Sequence[int]], relation: Relation, labels: tuple[Any, ...] | None, universe: int
    ) -> Sequence[Scores | RefinedScores]:
        """The scores of each group."""
        return [self.scores(counts, relation) for counts in totals]
