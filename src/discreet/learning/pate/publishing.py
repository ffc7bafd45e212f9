"""A data-dependent price that may be published: with noise in proportion to its smooth sensitivity, and charged.

What given votes cost is a fact about the data (`price`). This module releases an upper bound on it by a mechanism of
its own, at a Rényi order that is fixed in advance. The result describes the answers at hand. It is no guarantee for a
neighbor, and a ledger is still charged for all votes, and for this release on top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet import _check, accounting, events
from discreet.accounting import pate
from discreet.learning.pate._answers import Answers, Ensemble
from discreet.learning.pate.price import ORDERS, to_epsilon
from discreet.learning.pate.voting import ConfidentVoting, GaussianVoting
from discreet.ledger.receipt import Receipt
from discreet.mechanisms.sampling import entropy, samplers

#: How far above the truth the number is centered, in standard deviations of its noise: it is too low one time in 40.
_SHIFT = 2.0
#: Steps of the grid in the least smooth sensitivity, and the most steps in a standard deviation that can be drawn.
_LEAST_STEPS, _MOST_STEPS = 1 << 20, samplers.MAX_SCALE // 4
#: What rounding adds to a change, as a share of the smooth sensitivity.
_ROUNDING = 2.0**-18


@dataclass(frozen=True)
class PublishedPrice:
    """An upper bound on ε of these very votes, with noise. It may be published; it is **data-dependent**.

    Attributes:
        epsilon: ε of the answers for these votes; too low with probability 2.3%, because of the noise.
        delta: the δ it holds at.
        order: the Rényi order, which was fixed in advance.
        event: what publishing this number cost, on top of the answers.
        data_independent: ε of the answers for all votes: what was charged for them.
        receipt: the ledger's, for this number; None without an account.
    """

    epsilon: float
    delta: float
    order: float
    event: events.Claimed
    data_independent: float
    receipt: Receipt | None = None

    def __str__(self) -> str:
        return (
            f"ε ≤ {self.epsilon:.4g} at δ = {self.delta:g} for these votes (data-dependent, published with noise, not "
            f"charged; 97.7% sure); ε = {self.data_independent:.4g} for all votes (data-independent, charged)"
        )


def publish_price(
    answers: Answers,
    ensemble: Ensemble,
    delta: float,
    *,
    order: float = 20.0,
    noise: float = 5.0,
    beta: float = 0.01,
    purpose: str = "price of labels by PATE",
) -> PublishedPrice:
    """Release an upper bound on what these answers cost given their votes (Papernot et al. 2018, Appendix B).

    Args:
        answers: from `Ensemble.ask` in this process: kept answers hold no votes.
        ensemble: the one that answered. Its voting is Gaussian.
        delta: the δ at which ε is stated. The release itself has a δ of a tenth of it.
        order: the Rényi order. Fix it in advance; an order that is chosen by the votes would tell about them.
        noise: the standard deviation of the noise, in smooth sensitivities.
        beta: how fast the smooth sensitivity may change from one teacher to another.
        purpose: what the ledger records.

    Guarantee:
        `PublishedPrice.event`, charged to the ensemble's account before the noise is drawn, for the neighbors of the
        answers. The number is a statement about these votes, and is never charged in place of the answers' event.
    """
    voting, counts = ensemble.voting, answers.counts
    if counts is None:
        raise _check.fail("answers", "hold their votes", "answers that were read back", "votes are never stored")
    if not isinstance(voting, GaussianVoting):
        raise _check.fail("ensemble", "vote with Gaussian noise", voting, "no smooth sensitivity is known for others")
    chance = float(_check.delta(delta))
    alpha = 1 + float(_check.positive("order - 1", order - 1, "Rényi DP is defined for orders α > 1"))
    ratio = float(_check.positive("noise", noise, "it is in smooth sensitivities"))
    decay = float(_check.positive("beta", beta, "it bounds how fast the smooth sensitivity changes"))
    event = publishing_event(ratio, decay, chance / 10)
    account = ensemble.account
    receipt = None if account is None else account.spend(event, purpose)
    spent = _noisy(counts[answers.answered], ensemble, alpha, ratio, decay)
    if isinstance(voting, ConfidentVoting):  # the checks are priced for all votes
        spent += len(answers.labels) * alpha / (2 * voting.check_noise**2)
    epsilon = spent + math.log1p(-1 / alpha) - (math.log(chance) + math.log(alpha)) / (alpha - 1)
    independent = accounting.epsilon(answers.event, chance).upper
    return PublishedPrice(min(max(0.0, epsilon), independent), chance, alpha, event, independent, receipt)


def publishing_event(noise: float, beta: float, delta: float) -> events.Claimed:
    """What publishing a price costs. Without a finite price the noise is too small for `beta`."""
    # Neighbors move the center by one smooth sensitivity, by the shift's own change, and by rounding.
    ratio = noise / (1 + _SHIFT * noise * math.expm1(beta) + _ROUNDING)
    epsilon, _ = to_epsilon(pate.smooth_rdp(ORDERS, ratio, beta * (1 + 1e-9)), delta)
    if math.isinf(epsilon):
        raise _check.fail("beta", "be smaller", beta, "no order above 1 has a finite Rényi divergence with it")
    return events.Claimed(epsilon, delta)


def _noisy(counts: NDArray[np.int64], ensemble: Ensemble, order: float, noise: float, beta: float) -> float:
    """The Rényi divergence of the votes at `order`, above the truth with probability 97.7%, and ≥ 0."""
    teachers, classes = len(ensemble.teachers.members), len(ensemble.teachers.classes)
    sigma = ensemble.voting.vote_event().noise  # type: ignore[attr-defined]  # it is a GaussianVoting
    largest = np.sort(counts, axis=1)
    gaps = (largest[:, -1] - largest[:, -2]).tolist()
    by_gap = {gap: pate.gap_rdp(gap, classes, sigma, order) for gap in set(gaps)}
    exact = math.fsum(by_gap[gap] for gap in gaps)
    # No votes give a larger sensitivity than α/σ² for each answer, so the grid follows from public numbers alone.
    step = Fraction(noise) * Fraction(max(1, len(gaps)) * order / sigma**2) / _MOST_STEPS
    smooth = Fraction(math.fsum(pate.smooth_sensitivities(gaps, teachers, classes, sigma, order, beta)))
    scale = Fraction(noise) * max(smooth, _LEAST_STEPS * step) / step
    center = math.ceil(Fraction(exact) / step + Fraction(_SHIFT) * scale)
    drawn = int(samplers.rounded_gaussian(scale**2, 1, entropy.SYSTEM)[0])
    return max(0.0, float((center + drawn) * step))
