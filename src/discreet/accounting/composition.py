"""Composition theorems as plain functions, for teaching and for comparison: what many releases cost together.

For accounting use `accounting.epsilon`: it prices the event itself, and is tighter than everything here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from scipy import special

from discreet import _check
from discreet.accounting import closed_forms
from discreet.guarantees import ApproxDP, Guarantee, PureDP
from discreet.numeric.rounding import UNIT, float_down, float_up, log_sum, reported, total_up, up

EpsilonDelta = PureDP | ApproxDP

_COUNT_REMEDY = "it is how many times the guarantee is used"

# math.expm1 overflows above 709. With e^700 in its place a price is still beyond what a guarantee holds, and so inf.
_LARGEST_EXPONENT = 700.0
# Room for the round-off of (k − ε/ε₀)/2 before its integer part is taken.
_COUNT_ERROR = 1e-6
# Roundings of the size of each logarithm and of each gap, which take about five operations.
_MARGIN = 8 * UNIT


def basic(guarantees: Sequence[EpsilonDelta]) -> ApproxDP:
    """ε and δ add up (Dwork et al. 2006): valid for any guarantees, chosen as you go.

    >>> print(basic([PureDP(0.1)] * 100))
    (10, 0)-DP
    """
    epsilon = total_up(claim.epsilon for claim in guarantees)
    return ApproxDP(reported(epsilon), min(1.0, total_up(_delta(claim) for claim in guarantees)))


def advanced(guarantee: EpsilonDelta, count: int, slack: float) -> ApproxDP:
    """ε√(2k ln(1/δ′)) + kε(e^ε − 1) at total δ = kδ + δ′ for `count` = k uses (Dwork & Roth 2014, Theorem 3.20).

    >>> print(advanced(ApproxDP(0.1, 1e-6), 100, slack=1e-5))
    (5.85024, 0.00011)-DP
    """
    k = _check.integer("count", count, _COUNT_REMEDY, at_least=0)
    return advanced_of([guarantee], [k], slack)


def advanced_of(guarantees: Sequence[EpsilonDelta], counts: Sequence[int], slack: float) -> ApproxDP:
    """Advanced composition of different guarantees: √(2 ln(1/δ′) Σε²) + Σε(e^ε − 1), δ = Σδ + δ′.

    The martingale argument of Dwork & Roth 2014, Theorem 3.20, does not need the ε to be equal (Rogers et al. 2016).
    """
    slack = float_down(_check.delta(slack, "slack"))
    pairs = list(zip(guarantees, counts, strict=True))
    if any(math.isinf(claim.epsilon) and count for claim, count in pairs):
        return ApproxDP(math.inf, 1.0)
    squares = float_up(sum((count * Fraction(claim.epsilon) ** 2 for claim, count in pairs), Fraction(0)))
    spread = up(math.sqrt(up(2 * up(-math.log(slack)) * squares)))
    drift = total_up(
        up(count * up(claim.epsilon * math.expm1(min(claim.epsilon, _LARGEST_EXPONENT)))) for claim, count in pairs
    )
    deltas = float_up(sum((count * Fraction(_delta(claim)) for claim, count in pairs), Fraction(slack)))
    return ApproxDP(reported(up(spread + drift)), min(1.0, deltas))


def optimal_pure(epsilon: float, count: int, delta: float) -> float:
    """The smallest ε at `delta` for which `count` adaptive uses of ε₀-DP compose, rounded up.

    Kairouz, Oh & Viswanath 2015, Theorem 3.3: nothing smaller holds for every ε₀-DP mechanism, and randomized response
    attains it. `epsilon` is ε₀.

    >>> round(optimal_pure(0.1, 100, 1e-5), 9)
    4.306791373
    """
    loss, target = float_up(_check.epsilon(epsilon)), float_down(_check.delta(delta))
    k = _check.integer("count", count, _COUNT_REMEDY, at_least=0)
    if k == 0 or optimal_pure_delta(loss, k, 0.0) <= target:
        return 0.0
    most = float_up(k * Fraction(loss))
    return min(most, closed_forms.least(lambda e: optimal_pure_delta(loss, k, e) <= target, start=most))


def optimal_pure_delta(epsilon: float, count: int, total: float) -> float:
    """δ at ε = `total` of `count` = k uses of ε₀-DP: Σ_ℓ C(k,ℓ) [e^{(k−ℓ)ε₀} − e^{ε+ℓε₀}]₊/(1+e^{ε₀})^k, rounded up.

    With ℓ losses of −ε₀ the total loss is (k−2ℓ)ε₀, so this is the sum of the binomial probabilities of ℓ times
    1 − e^{ε−(k−2ℓ)ε₀}. Every term is ≥ 0, and the terms are summed from their logarithms.
    """
    loss = float_up(_check.epsilon(epsilon))
    k = _check.integer("count", count, _COUNT_REMEDY, at_least=0)
    total = float_down(_check.nonnegative("total", total, "it is the ε at which δ is asked for"))
    if Fraction(total) >= k * Fraction(loss):
        return 0.0
    # One count more than the last whose loss exceeds ε, so that rounding cannot lose a term.
    last = min(k, math.floor((k - total / loss) / 2 + _COUNT_ERROR) + 1)
    losses = np.arange(last + 1, dtype=np.float64)
    gap = (k - 2 * losses) * loss - total
    gap = gap + _MARGIN * (k * loss + total)
    kept = gap > 0
    losses, gap = losses[kept], gap[kept]
    log_choose = special.gammaln(k + 1.0) - special.gammaln(losses + 1) - special.gammaln(k - losses + 1)
    likely, unlikely = -math.log1p(math.exp(-loss)), -loss - math.log1p(math.exp(-loss))
    terms = log_choose + (k - losses) * likely + losses * unlikely + np.log(-np.expm1(-gap))
    size = 3 * special.gammaln(k + 1.0) - k * likely - losses * unlikely + 8
    return min(1.0, up(math.exp(min(0.0, log_sum(terms + _MARGIN * size)))))


def parallel(guarantees: Sequence[EpsilonDelta]) -> ApproxDP:
    """Disjoint parts of the data: one unit lies in one of them, so it is the largest (McSherry 2009, Theorem 4).

    >>> parallel([PureDP(1.0), PureDP(0.5)])
    ApproxDP(epsilon=1.0, delta=0.0)
    """
    return ApproxDP(
        max((float(claim.epsilon) for claim in guarantees), default=0.0),
        max((_delta(claim) for claim in guarantees), default=0.0),
    )


def group(guarantee: Guarantee, people: int) -> Guarantee:
    """What a guarantee for one unit gives `people` units that change together; each form has its own theorem."""
    return guarantee.group(people)


def _delta(claim: EpsilonDelta) -> float:
    return claim.delta if isinstance(claim, ApproxDP) else 0.0
