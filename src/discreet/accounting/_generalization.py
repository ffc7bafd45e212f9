"""How well a private model generalizes: what a guarantee says about the gap between seen and unseen examples."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.guarantees import Guarantee
from discreet.neighbors import REPLACE_ONE
from discreet.numeric.rounding import up


@dataclass(frozen=True)
class GeneralizationGap:
    """Bounds on the gap between a model's mean loss on its training examples and on new ones, for losses in [0, 1].

    Attributes:
        guarantee: what training promises when one example is replaced.
        examples: how many independent examples it was trained on.
        expected: the gap in expectation over examples and noise is at most this, in either direction.
        failure: the probability with which `likely` may fail.
        likely: the loss on new examples exceeds the training loss by at most this, except with probability `failure`;
            None where only the expectation is known.
    """

    guarantee: Guarantee
    examples: int
    expected: float
    failure: float
    likely: float | None

    def __str__(self) -> str:
        chance = (
            ""
            if self.likely is None
            else f", and with probability {1 - self.failure:.4g} it is at most {self.likely:.3g} in one training"
        )
        return (
            f"{self.guarantee}, {self.examples:,} examples: losses on new examples exceed those on the training "
            f"examples by at most {self.expected:.3g} on average{chance} (losses in [0, 1])."
        )


def generalization_gap(guarantee: Guarantee, examples: int, *, failure: float = 0.05) -> GeneralizationGap:
    """How far a private model's training loss can be from its loss on new examples. A theorem, not an estimate.

    For losses in [0, 1], such as the error rate, and independent examples from one distribution. Bounds are for
    replacing an example; a guarantee under another relation, or without one, is doubled first (`group(2)`).

    - Any form: the expected gap is at most the largest total variation distance between neighbors, δ(0).
    - Pure ε: it is also at most ε/4, and except with probability β the gap is at most ε/4 + √(ln(2/β)/2n).
    - ρ-zCDP: it is also at most √(ρ/2).

    docs/proofs/generalization.md proves them. A bound of 1 says nothing: ε around 8 bounds no gap.

    Args:
        guarantee: what the training promises.
        examples: n, the number of training examples.
        failure: β.

    >>> from discreet.guarantees import PureDP
    >>> round(generalization_gap(PureDP(0.1), 10_000).expected, 6)  # 0.1 under add/remove is 0.2 for replacing
    0.05
    """
    if not isinstance(guarantee, Guarantee):
        raise _check.fail("guarantee", "be a guarantee", guarantee, "see discreet.guarantees")
    count = _check.integer("examples", examples, "it is the number of training examples")
    allowed = float(_check.probability("failure", failure, "it is how often the bound may fail"))
    if not 0 < allowed < 1:
        raise _check.fail("failure", "be strictly between 0 and 1", failure, "for example 0.05")
    replaced = guarantee
    if guarantee.protects is None or guarantee.protects.relation is not REPLACE_ONE:
        replaced = guarantee.group(2)
    form, likely = form_of(replaced), None
    expected = form.total_variation()
    if not form.has_delta:
        [(loss, _)] = form.profile([0.0])
        expected = min(expected, up(float(loss) / 4))
        likely = min(1.0, up(float(loss) / 4 + math.sqrt(-math.log(allowed / 2) / (2 * count))))
    return GeneralizationGap(replaced, count, expected, allowed, likely)
