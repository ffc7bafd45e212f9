"""The exponential mechanism: choose a candidate, with higher scores more likely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from discreet import _check, events
from discreet.bounded import Scores
from discreet.mechanisms.protection import require_scores
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.selection import Selection, penalties, rate
from discreet.neighbors import Relation
from discreet.release import Release


@dataclass(frozen=True)
class Exponential(Selection):
    """One draw with P(candidate) ∝ exp(ε·score/2Δ), or exp(ε·score/Δ) if the scores are monotone.

    Privacy: ε-DP (McSherry & Talwar 2007, Theorem 6) and ε-bounded-range (Durfee & Rogers 2019), which composes better
    than ε-DP alone. Event: `Exponential(ε)`.

    Error: the chosen score lies more than (2Δ/ε)(ln m + t) below the best of m with probability at most e^{−t}
    (Dwork & Roth 2014, Corollary 3.12); half of that if the scores are monotone. `loss_bound` is a little sharper.
    """

    def event(self) -> events.Exponential:
        """The event of one draw."""
        return events.Exponential(self.epsilon)

    def loss_bound(self, scores: Scores, level: float = 0.95, relation: Relation | str | None = None) -> float:
        """(2Δ/ε) ln((m − 1)·level/(1 − level)), half of that if the scores are monotone (docs/proofs/intervals.md)."""
        odds = (len(scores.candidates) - 1) * level / (1 - level)
        return math.log(max(odds, 1.0)) / float(rate(scores, self.epsilon, require_scores(scores, relation)))

    def _choose(self, scores: Scores, relation: Relation, bits: entropy.Bits) -> Any:
        below = penalties(scores.values.tolist())
        return scores.candidates[samplers.softmax(below, rate(scores, self.epsilon, relation), bits)]


def exponential(
    scores: Scores,
    *,
    epsilon: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Choose a candidate with probability ∝ exp(ε·score/2Δ), exactly.

    For a single choice use `noisy_max`, which is never worse at the same ε. For many choices use this one: its bounded
    range makes their cost add up more slowly.

    Args:
        scores: the result of a query such as `queries.votes`.
        epsilon: the privacy loss ε > 0 of this choice.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable choices, for tests and teaching only.

    Guarantee: ε-DP for one unit under `relation` (see `Exponential`). Not protected: the candidates, and how long the
    choice takes.

    >>> from discreet.queries import quantile_scores
    >>> ages = [31, 35, 40, 44, 52] * 100
    >>> 31 <= exponential(quantile_scores(ages, candidates=range(120)), epsilon=1.0).value <= 52
    True
    """
    mechanism = Exponential(_check.epsilon(epsilon))
    return mechanism.release(scores, relation=relation, insecure_seed=insecure_seed)
