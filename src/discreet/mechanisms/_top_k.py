"""The k best candidates, one after the other."""

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
from discreet.numeric.search import least_positive
from discreet.release import Release

#: The relative precision of an error bound.
_PRECISION = 1e-9


@dataclass(frozen=True)
class TopK(Selection):
    """`k` draws of the exponential mechanism at ε/k each, without replacement.

    Privacy: ε-DP by basic composition; the same as adding Gumbel noise once and taking the k largest (Durfee & Rogers
    2019, Lemma 4.2). Event: `Repeated(Exponential(ε/k), k)`, so that an accountant can use the bounded range of each
    draw; permute-and-flip has none.

    Error: each draw has the error of the exponential mechanism at ε/k; `loss_bound` holds for all of them together.
    """

    k: int = 1

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        _check.settle_integers(self, "k", remedy="it is the number of candidates to choose")

    def event(self) -> events.Repeated:
        """The event of choosing k candidates."""
        return events.Repeated(events.Exponential(self.epsilon / self.k), self.k)

    def loss_bound(self, scores: Scores, level: float = 0.95, relation: Relation | str | None = None) -> float:
        """t·2Δk/ε, where Π 1/(1 + (m − i)e^{−t}) = level over the draws i = 1 … k; half of that if scores are monotone.

        With this probability no draw falls further below the best of the candidates that were left to it
        (docs/proofs/intervals.md).
        """
        many, draws = len(scores.candidates), range(1, self.k + 1)

        def all_good(loss: float) -> float:
            return math.exp(-sum(math.log1p((many - i) * math.exp(-loss)) for i in draws))

        loss = least_positive(lambda t: all_good(t) >= level, relative=_PRECISION) if many > 1 else 0.0
        return loss / float(rate(scores, self.epsilon / self.k, require_scores(scores, relation)))

    def _choose(self, scores: Scores, relation: Relation, bits: entropy.Bits) -> tuple[Any, ...]:
        if self.k > len(scores.candidates):
            raise _check.fail("k", f"be ≤ {len(scores.candidates)}", self.k, "there are no more candidates")
        rate_per_score = rate(scores, self.epsilon / self.k, relation)
        values: list[int] = scores.values.tolist()
        left, chosen = list(range(len(values))), []
        for _ in range(self.k):
            drawn = samplers.softmax(penalties([values[i] for i in left]), rate_per_score, bits)
            chosen.append(scores.candidates[left.pop(drawn)])
        return tuple(chosen)


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
        scores: the result of a query such as `queries.votes`.
        k: how many candidates to choose.
        epsilon: the privacy loss ε > 0 of all k choices together.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable choices, for tests and teaching only.

    Guarantee: ε-DP for one unit under `relation` (see `TopK`). Not protected: the candidates, and how long the choice
    takes.

    >>> from discreet.queries import votes
    >>> ballots = ["tea"] * 900 + ["mate"] * 400 + ["coffee"]
    >>> top_k(votes(ballots, candidates=["coffee", "mate", "tea"]), k=2, epsilon=2.0).value
    ('tea', 'mate')
    """
    mechanism = TopK(_check.epsilon(epsilon), k)
    return mechanism.release(scores, relation=relation, insecure_seed=insecure_seed)
