"""The private arg-max, by permute-and-flip."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from discreet import _check, events
from discreet.bounded import Scores
from discreet.guarantees import PureDP
from discreet.mechanisms import entropy, samplers
from discreet.mechanisms.additive import marked
from discreet.mechanisms.fixed_point import exp_neg, uniform_below
from discreet.mechanisms.rationals import float_above, rounded_down
from discreet.mechanisms.selection import penalties, rate, require_scores
from discreet.neighbors import Relation
from discreet.release import Release


@dataclass(frozen=True)
class NoisyMax:
    """Permute-and-flip: visit the candidates in random order, and take each with probability exp(−ε(best − score)/2Δ).

    Privacy: ε-DP, and never worse in expected score than the exponential mechanism (McKenna & Sheldon 2020, Theorems 1
    and 2). It is report-noisy-max with exponential noise (Ding et al. 2021), so monotone scores may use ε/Δ. Event:
    `NoisyMax(ε)`.

    Error: the expected loss of score is at most (2Δ/ε) ln m for m candidates, half of that where scores are monotone.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))

    def event(self) -> events.NoisyMax:
        """What one choice runs."""
        return events.NoisyMax(self.epsilon)

    def guarantee(self) -> PureDP:
        """What one choice promises."""
        return PureDP(float_above(self.epsilon))

    def release(
        self, scores: Scores, *, relation: Relation | str | None = None, insecure_seed: int | None = None
    ) -> Release[Any]:
        """Choose one candidate.

        Guarantee: ε-DP for one unit under `relation`, for the sensitivity that travels with `scores`.
        """
        wanted = require_scores(scores, relation)
        event, promise = marked(self.event(), self.guarantee(), scores.unit, wanted, insecure_seed)
        bits = entropy.bits(insecure_seed)
        worth, below = rate(scores, self.epsilon, wanted), penalties(scores)
        # Every coin is thrown, also after the first success: the time does not tell how many it took.
        order = samplers.permutation(len(below), bits)
        heads = [i for i in order if _coin(worth * below[i], bits)]
        return Release(scores.candidates[heads[0]], event, promise)


def _coin(gamma: Fraction, bits: entropy.Bits) -> bool:
    return uniform_below(lambda precision: exp_neg(gamma, precision), bits.integer(64), 64, bits)


def noisy_max(
    scores: Scores,
    *,
    epsilon: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Choose a candidate with a high score, by permute-and-flip.

    Args:
        scores: what a query such as `queries.votes` made.
        epsilon: the privacy loss ε > 0 that this choice may cost.
        relation: which neighbours to protect; by default the one that the query is bounded for first.
        insecure_seed: repeatable choices, for tests and teaching only.

    Guarantee: ε-DP for one unit under `relation` (see `NoisyMax`). Not protected: the candidates, and how long the
    choice takes.

    >>> from discreet.queries import votes
    >>> noisy_max(votes(["tea"] * 900 + ["mate"] * 3, candidates=["tea", "coffee", "mate"]), epsilon=1.0).value
    'tea'
    """
    mechanism = NoisyMax(_check.epsilon(epsilon))
    return mechanism.release(scores, relation=relation, insecure_seed=insecure_seed)
