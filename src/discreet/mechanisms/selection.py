"""The base of all mechanisms that choose among public candidates: take `Scores`, choose, and state the event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from discreet import _check, events
from discreet.bounded import Scores
from discreet.guarantees import PureDP
from discreet.mechanisms import observation
from discreet.mechanisms.protection import marked, require_scores
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Relation
from discreet.numeric.rounding import float_up, rounded_down
from discreet.release import Release


@dataclass(frozen=True)
class Selection(ABC):
    """A private choice that costs `epsilon` in total. Abstract."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))

    @abstractmethod
    def event(self) -> events.Event:
        """The event of a choice. It does not depend on the scores."""

    @abstractmethod
    def _choose(self, scores: Scores, relation: Relation, bits: entropy.Bits) -> Any:
        """The chosen candidate or candidates."""

    @abstractmethod
    def loss_bound(self, scores: Scores, level: float = 0.95, relation: Relation | str | None = None) -> float:
        """How far below the best score left a choice falls at most, with probability at least `level`.

        It depends on the number of candidates and the sensitivity alone, and no lower bound holds for all scores
        (`TopK`: for k = 1). For most scores the choice is better (docs/proofs/intervals.md).
        """

    def guarantee(self) -> PureDP:
        """The guarantee of a choice."""
        return PureDP(float_up(self.epsilon))

    def release(
        self, scores: Scores, *, relation: Relation | str | None = None, insecure_seed: int | None = None
    ) -> Release[Any]:
        """Choose.

        Args:
            scores: the result of a query such as `queries.votes`.
            relation: which neighbors to protect; by default the first one that the query is bounded for.
            insecure_seed: repeatable choices, for tests and teaching only.

        Guarantee: ε-DP for one unit under `relation`, for the sensitivity that travels with `scores`.
        """
        wanted = require_scores(scores, relation)
        event, promise = marked(self.event(), self.guarantee(), scores.unit, wanted, insecure_seed)

        def draw() -> Release[Any]:
            return Release(self._choose(scores, wanted, entropy.bits(insecure_seed)), event, promise)

        return observation.through(self, scores, wanted, event, draw)


def rate(scores: Scores, epsilon: Fraction, relation: Relation) -> Fraction:
    """The factor of the score in the exponent: ε/2Δ, or ε/Δ if one unit moves all scores in one direction."""
    spread = scores.sensitivity(relation) * (1 if scores.is_monotone(relation) else 2)
    return epsilon / spread


def penalties(values: list[int]) -> list[int]:
    """How far each score lies below the best one, as exact integers."""
    best = max(values)
    return [best - value for value in values]
