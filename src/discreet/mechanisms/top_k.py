"""The k best candidates, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from discreet import _check, events
from discreet.bounded import Scores
from discreet.guarantees import PureDP
from discreet.mechanisms import entropy, samplers
from discreet.mechanisms.additive import marked
from discreet.mechanisms.rationals import float_above, rounded_down
from discreet.mechanisms.selection import rate, require_scores
from discreet.neighbors import Relation
from discreet.release import Release


@dataclass(frozen=True)
class TopK:
    """`k` draws of the exponential mechanism at ε/k each, every one among the candidates not chosen yet.

    Privacy: ε-DP by basic composition; the same as adding Gumbel noise once and taking the k largest (Durfee & Rogers
    2019, Lemma 4.2). Event: `Repeated(Exponential(ε/k), k)`, so that an accountant can use the bounded range of each
    draw, which permute-and-flip lacks.

    Error: each draw's as the exponential mechanism's at ε/k.
    """

    k: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        _check.settle_integers(self, "k", remedy="it is how many candidates to choose")
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))

    def event(self) -> events.Repeated:
        """What choosing k candidates runs."""
        return events.Repeated(events.Exponential(self.epsilon / self.k), self.k)

    def guarantee(self) -> PureDP:
        """What choosing k candidates promises."""
        return PureDP(float_above(self.epsilon))

    def release(
        self, scores: Scores, *, relation: Relation | str | None = None, insecure_seed: int | None = None
    ) -> Release[tuple[Any, ...]]:
        """Choose k candidates, the first drawn first.

        Guarantee: ε-DP for one unit under `relation`, for the sensitivity that travels with `scores`.
        """
        wanted = require_scores(scores, relation)
        if self.k > len(scores.candidates):
            raise _check.fail("k", f"be ≤ {len(scores.candidates)}", self.k, "there are only so many candidates")
        event, promise = marked(self.event(), self.guarantee(), scores.unit, wanted, insecure_seed)
        bits = entropy.bits(insecure_seed)
        worth = rate(scores, self.epsilon / self.k, wanted)
        left = list(range(len(scores.candidates)))
        values: list[int] = scores.values.tolist()
        chosen = []
        for _ in range(self.k):
            best = max(values[i] for i in left)
            chosen.append(left.pop(samplers.softmax([best - values[i] for i in left], worth, bits)))
        return Release(tuple(scores.candidates[i] for i in chosen), event, promise)


def top_k(
    scores: Scores,
    *,
    k: int,
    epsilon: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[tuple[Any, ...]]:
    """Choose `k` candidates with high scores, without their scores.

    Args:
        scores: what a query such as `queries.votes` made.
        k: how many candidates to choose.
        epsilon: the privacy loss ε > 0 that all k choices together may cost.
        relation: which neighbours to protect; by default the one that the query is bounded for first.
        insecure_seed: repeatable choices, for tests and teaching only.

    Guarantee: ε-DP for one unit under `relation` (see `TopK`). Not protected: the candidates, and how long the choice
    takes.

    >>> from discreet.queries import votes
    >>> ballots = ["tea"] * 900 + ["mate"] * 400 + ["coffee"]
    >>> top_k(votes(ballots, candidates=["coffee", "mate", "tea"]), k=2, epsilon=2.0).value
    ('tea', 'mate')
    """
    mechanism = TopK(k, _check.epsilon(epsilon))
    return mechanism.release(scores, relation=relation, insecure_seed=insecure_seed)
