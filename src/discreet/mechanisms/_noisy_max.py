"""The private arg-max, by permute-and-flip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from discreet import _check, events
from discreet.bounded import Scores
from discreet.mechanisms.protection import require_scores
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import MULTIPLES_BITS, exp_neg, exp_neg_multiples, uniform_below
from discreet.mechanisms.selection import Selection, rate
from discreet.neighbors import Relation
from discreet.numeric.search import least_positive
from discreet.release import Release

#: exp(−45) < 2^−64: such a coin falls tails unless the first 64 bits of its uniform are all 0.
_CERTAIN_TAILS = 45
#: The relative precision of an error bound.
_PRECISION = 1e-9


@dataclass(frozen=True)
class NoisyMax(Selection):
    """Permute-and-flip: visit the candidates in random order; accept each with probability exp(−ε(best − score)/2Δ).

    Privacy: ε-DP, and never worse in expected score than the exponential mechanism (McKenna & Sheldon 2020, Theorems 1
    and 2). It is report-noisy-max with exponential noise (Ding et al. 2021), so monotone scores may use ε/Δ. Event:
    `NoisyMax(ε)`.

    Error: the expected loss of score is at most (2Δ/ε) ln m for m candidates, half of that if scores are monotone.
    `loss_bound` is what all but a few choices stay within.
    """

    def event(self) -> events.NoisyMax:
        """The event of one choice."""
        return events.NoisyMax(self.epsilon)

    def loss_bound(self, scores: Scores, level: float = 0.95, relation: Relation | str | None = None) -> float:
        """ln(1/p)·2Δ/ε, where (1 − (1 − p)^m)/(mp) = level; half of that if scores are monotone.

        If all others lie ln(1/p)·2Δ/ε below the best, each coin of theirs falls heads with probability p, and the best
        is one of 1 + Bin(m − 1, p) heads; no scores are worse (docs/proofs/intervals.md).
        """
        many = len(scores.candidates)

        def best_wins(loss: float) -> float:
            heads = math.exp(-loss)
            if heads in (0.0, 1.0):
                return 1.0 if heads == 0 else 1 / many
            return -math.expm1(many * math.log1p(-heads)) / (many * heads)

        loss = least_positive(lambda t: best_wins(t) >= level, relative=_PRECISION) if many > 1 else 0.0
        return loss / float(rate(scores, self.epsilon, require_scores(scores, relation)))

    def _choose(self, scores: Scores, relation: Relation, bits: entropy.Bits) -> Any:
        rate_per_score, below = rate(scores, self.epsilon, relation), int(scores.values.max()) - scores.values
        # All coins are flipped. Their order is independent of them, so the first head is a uniform one of all heads.
        words = bits.words(below.size)
        far = below > min(int(_CERTAIN_TAILS / rate_per_score), 1 << 62)
        low, high = exp_neg_multiples(rate_per_score, np.where(far, 0, below))
        prefixes = words >> np.uint64(64 - MULTIPLES_BITS)
        heads = ~far & (prefixes < low)
        # Their first 62 bits decide nearly all coins.
        undecided = np.flatnonzero(np.where(far, words == 0, (prefixes >= low) & (prefixes < high)))
        for i in undecided.tolist():
            heads[i] = _coin(rate_per_score * int(below[i]), int(words[i]), bits)
        chosen = np.flatnonzero(heads)
        return scores.candidates[int(chosen[int(samplers.uniform(len(chosen), 1, bits)[0])])]


def _coin(gamma: Fraction, prefix: int, bits: entropy.Bits) -> bool:
    """Whether U < exp(−γ), where `prefix` holds the first 64 bits of the uniform U."""
    return uniform_below(lambda precision: exp_neg(gamma, precision), prefix, 64, bits)


def noisy_max(
    scores: Scores,
    *,
    epsilon: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Choose a candidate with a high score, by permute-and-flip.

    Args:
        scores: the result of a query such as `queries.votes`.
        epsilon: the privacy loss ε > 0 of this choice.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable choices, for tests and teaching only.

    Guarantee: ε-DP for one unit under `relation` (see `NoisyMax`). Not protected: the candidates, and how long the
    choice takes.

    >>> from discreet.queries import votes
    >>> noisy_max(votes(["tea"] * 900 + ["mate"] * 3, candidates=["tea", "coffee", "mate"]), epsilon=1.0).value
    'tea'
    """
    mechanism = NoisyMax(_check.epsilon(epsilon))
    return mechanism.release(scores, relation=relation, insecure_seed=insecure_seed)
