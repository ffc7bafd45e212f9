"""What the votes of teachers cost if one looks at them: bounds that depend on the data, for PATE.

Where most teachers agree, one vote hardly changes the answer, and the privacy loss is far below that of
`events.GaussianVotes`. But a bound that depends on the votes is itself a fact about the data. So nothing here is an
event, and no ledger takes it: charge the events, which hold for all votes. To publish such a bound, add noise in
proportion to its smooth sensitivity, and charge that noise by `smooth_rdp`.

Papernot, Song, Mironov, Raghunathan, Talwar & Erlingsson 2018 (arXiv 1802.08908) for Gaussian noise; Papernot, Abadi,
Erlingsson, Goodfellow & Talwar 2017 (arXiv 1610.05755) for Laplace noise. `votes` is the number of votes of each class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from discreet import _check
from discreet.accounting.forms import renyi
from discreet.numeric.rounding import UNIT, Floats, float_down, float_up, log_sum, up

_ORDERS_REMEDY = "Rényi DP is defined for orders α > 1"
_NOISE_REMEDY = "it is the noise on each count"
# Margin on logarithms of probabilities and moments, relative to 1 + their size: thousands of roundings.
_LOG_MARGIN = 1e-12


def gaussian_log_q(votes: Sequence[float], noise: float) -> float:
    """ln of a bound on the probability that Gaussian noise changes the winner (2018, Proposition 7), rounded up.

    The sum over the other classes of P(N(0, 2σ²) > their distance to the winner), and at most 1 − 1/classes.

    Guarantee: none. The number depends on the votes and must stay secret.

    >>> round(gaussian_log_q([200, 40, 10], 40.0), 3)
    -5.903
    """
    gaps, sigma = _gaps(votes), _noise(noise)
    return _log_q(special.log_ndtr(-gaps / (sigma * math.sqrt(2)) * (1 - 8 * UNIT)))


def laplace_log_q(votes: Sequence[float], noise: float) -> float:
    """ln of a bound on the probability that Laplace noise changes the winner (2017, Lemma 4), rounded up.

    The sum over the other classes of (2 + d/b)e^{−d/b}/4, with d their distance to the winner and b the scale.

    Guarantee: none. The number depends on the votes and must stay secret.
    """
    distances = _gaps(votes) / _noise(noise) * (1 - 8 * UNIT)
    return _log_q(np.log((2 + distances) / 4) - distances)


def gaussian_votes_rdp(votes: Sequence[float], noise: float, orders: Sequence[float]) -> Floats:
    """Bounds on the Rényi divergence of one noisy plurality at each order, given these votes.

    Theorem 6 of the 2018 paper at the orders of its Proposition 10, and α/σ² where that is lower.

    Guarantee: none. The numbers depend on the votes and must stay secret.

    >>> bounds = gaussian_votes_rdp([240, 6, 4], 40.0, (2.0, 10.0))
    >>> bool(np.all(bounds < [2 / 1600, 10 / 1600]))
    True
    """
    return from_log_q(gaussian_log_q(votes, noise), noise, orders)


def vote_check_rdp(largest: float, threshold: float, noise: float, orders: Sequence[float]) -> Floats:
    """The same for the check whether the largest count reaches `threshold`: an answer among two, of sensitivity 1.

    Guarantee: none. The numbers depend on the votes and must stay secret.
    """
    sigma = _noise(noise)
    away = abs(float(threshold) - float(largest)) / sigma * (1 - 8 * UNIT)
    log_q = float(special.log_ndtr(-away))
    return from_log_q(min(math.log(0.5), log_q * (1 - _LOG_MARGIN)), sigma * math.sqrt(2) * (1 - 4 * UNIT), orders)


def laplace_votes_rdp(votes: Sequence[float], noise: float, orders: Sequence[float]) -> Floats:
    """Bounds for Laplace noise: with ε = 2/b and q ≤ 1/(1 + e^ε), by Theorem 3 of the 2017 paper, or those of ε-DP.

    (α−1)·D_α ≤ ln[(1−q)((1−q)/(1−e^ε q))^{α−1} + q e^{(α−1)ε}].

    Guarantee: none. The numbers depend on the votes and must stay secret.
    """
    alphas, epsilon, log_q = _orders(orders), up(2 / _noise(noise)), laplace_log_q(votes, noise)
    plain = renyi.pure(alphas, epsilon)
    if log_q + _LOG_MARGIN >= -np.logaddexp(0.0, epsilon):
        return plain
    kept = _log_one_less(log_q)
    agree = kept + (alphas - 1) * (kept - _log_one_less(log_q + epsilon))
    return np.minimum(plain, _divided(agree, log_q + (alphas - 1) * epsilon, alphas))


def from_log_q(log_q: float, noise: float, orders: Sequence[float]) -> Floats:
    """Theorem 6 of the 2018 paper, as a function of ln q alone: it grows in q, so a bound on q is enough.

    With μ₂ = σ√ln(1/q), μ₁ = μ₂ + 1 and ε_i = μ_i/σ²: (α−1)·D_α ≤ ln[(1−q)A^{α−1} + qB^{α−1}] for α ≤ μ₁, where
    A = (1−q)/(1 − (q e^{ε₂})^{1−1/μ₂}) and B = e^{ε₁}/q^{1/(μ₁−1)}, if q ≤ e^{(μ₂−1)ε₂}/(μ₁/(μ₁−1)·μ₂/(μ₂−1))^{μ₂}.
    """
    alphas, sigma = _orders(orders), _noise(noise)
    plain = alphas / sigma**2 * (1 + 8 * UNIT)
    if math.isinf(log_q) and log_q < 0:  # a single class always wins
        return np.zeros_like(alphas)
    if not log_q < 0:
        return plain
    second = sigma * math.sqrt(-log_q)
    first = second + 1
    if second <= 1:
        return plain
    at_first, at_second = first / sigma**2, second / sigma**2
    allowed = (second - 1) * at_second - second * (math.log1p(1 / (first - 1)) + math.log1p(1 / (second - 1)))
    if log_q > allowed - _LOG_MARGIN * (1 + abs(allowed)) or -log_q <= at_second * (1 + _LOG_MARGIN):
        return plain
    kept = _log_one_less(log_q)
    agree = kept + (alphas - 1) * (kept - _log_one_less((log_q + at_second) * (1 - 1 / second)))
    differ = log_q + (alphas - 1) * (at_first - log_q / (first - 1))
    bound = _divided(agree, differ, alphas)
    return np.where(alphas <= first * (1 - _LOG_MARGIN), np.minimum(plain, bound), plain)


def gap_rdp(gap: int, classes: int, noise: float, order: float) -> float:
    """The bound for the worst votes in which the winner leads by `gap`: q ≤ (classes − 1)·P(N(0, 2σ²) > gap).

    It depends on the votes through one integer, so its smooth sensitivity can be computed exactly.

    Guarantee: none. The number depends on the votes and must stay secret.
    """
    other_classes = _check.integer("classes", classes, "there are at least two classes", at_least=2) - 1
    lead = _check.integer("gap", gap, "it is the winner's votes minus the runner-up's", at_least=0)
    return float(from_log_q(gaussian_log_q([lead, *[0] * other_classes], noise), noise, (order,))[0])


def smooth_sensitivity(gap: int, teachers: int, classes: int, noise: float, order: float, beta: float) -> float:
    """A β-smooth bound on how much one teacher changes `gap_rdp` (Nissim, Raskhodnikova & Smith 2007).

    One vote moves the gap by at most 2. So it is the largest e^{−βd}·|f(h) − f(h′)| with h within 2d of the gap and h′
    within 2 of h, between 0 and the number of teachers. For several answers of the same teachers, add these up.

    Guarantee: none. The number depends on the votes and must stay secret.
    """
    return float(smooth_sensitivities((gap,), teachers, classes, noise, order, beta)[0])


def smooth_sensitivities(
    gaps: Sequence[int], teachers: int, classes: int, noise: float, order: float, beta: float
) -> Floats:
    """`smooth_sensitivity` at each of several gaps.

    Guarantee: none. The numbers depend on the votes and must stay secret.
    """
    most = _check.integer("teachers", teachers, "it is the number of votes")
    remedy = "it is the winner's votes minus the runner-up's"
    leads = np.array([_check.integer("gap", gap, remedy, at_least=0, at_most=most) for gap in gaps], dtype=np.int64)
    decay = float(
        _check.positive("beta", beta, "it is how fast the sensitivity may change from one teacher to another")
    )
    values = np.array([gap_rdp(h, classes, noise, order) for h in range(most + 1)])
    local = np.zeros(most + 1)
    for by in (1, 2):
        change = np.abs(values[by:] - values[:-by])
        local[by:] = np.maximum(local[by:], change)
        local[:-by] = np.maximum(local[:-by], change)
    all_leads = np.arange(most + 1)
    table = [up(float(np.max(np.exp(-decay * np.ceil(np.abs(all_leads - lead) / 2)) * local))) for lead in all_leads]
    return np.asarray(np.array(table)[leads], dtype=np.float64)


def smooth_rdp(orders: Sequence[float], noise_ratio: float, beta: float) -> Floats:
    """The Rényi divergences of publishing a number with noise N(0, (ratio·S)²), S a β-smooth bound on its sensitivity.

    On neighbors the variances differ by a factor r between e^{−2β} and e^{2β}, and the numbers by at most the lesser S.
    With g(r) = −ln(r)/2 − ln(α − (α−1)r)/(2(α−1)), which is convex and 0 at r = 1, the divergence is at most the larger
    of g(e^{2β}) + α/(2ratio²(α − (α−1)e^{2β})) and g(e^{−2β}) + α/(2ratio²), and infinite where α ≤ (α−1)e^{2β}. It
    holds for all votes, so it may be charged.

    >>> smooth_rdp((4.0,), 10.0, 0.01).round(4).tolist()
    [0.0217]
    """
    alphas = _orders(orders)
    ratio = float_down(_check.positive("noise_ratio", noise_ratio, "it is the noise over the smooth sensitivity"))
    decay = float_up(_check.positive("beta", beta, "use the β of the smooth sensitivity"))
    far, near = math.exp(2 * decay), math.exp(-2 * decay)
    left = alphas - (alphas - 1) * far
    with np.errstate(divide="ignore", invalid="ignore"):
        wider = -decay - np.log(left) / (2 * (alphas - 1)) + alphas / (2 * ratio**2 * left)
    narrower = decay - np.log(alphas - (alphas - 1) * near) / (2 * (alphas - 1)) + alphas / (2 * ratio**2)
    worst = np.maximum(np.where(left > 0, wider, np.inf), narrower)
    return np.asarray(worst * (1 + _LOG_MARGIN) + _LOG_MARGIN, dtype=np.float64)


def _gaps(votes: Sequence[float]) -> Floats:
    if len(votes) == 0:
        raise _check.fail("votes", "have a count for each class", votes, "give the number of votes of each class")
    counts = np.sort(np.array([float(count) for count in votes]))
    return np.asarray(counts[-1] - counts[:-1], dtype=np.float64)


def _noise(noise: float) -> float:
    return float_down(_check.positive("noise", noise, _NOISE_REMEDY))


def _orders(orders: Sequence[float]) -> Floats:
    alphas = np.array([float(_check.real("orders", order, _ORDERS_REMEDY)) for order in orders])
    if alphas.size == 0 or not np.all(alphas > 1):
        raise _check.fail("orders", "be > 1, at least one", tuple(orders), _ORDERS_REMEDY)
    return alphas


def _log_q(terms: Floats) -> float:
    """The logarithm of a sum of probabilities, rounded up; a winner of m classes wins with probability 1/m at least."""
    if terms.size == 0:
        return -math.inf
    total = log_sum(terms) * (1 - _LOG_MARGIN) + _LOG_MARGIN
    return min(total, math.log1p(-1 / (terms.size + 1)) * (1 - _LOG_MARGIN))


def _log_one_less(log_x: float) -> float:
    """ln(1 − x) from ln x < 0."""
    return math.log1p(-math.exp(log_x)) if log_x < -1 else math.log(-math.expm1(log_x))


def _divided(first: Floats, second: Floats, alphas: Floats) -> Floats:
    """ln(e^first + e^second)/(α−1), rounded up, and ≥ 0."""
    sizes = np.abs(first) + np.abs(second)
    total = np.logaddexp(first, second) + _LOG_MARGIN * (1 + np.minimum(sizes, np.abs(np.maximum(first, second)) + 1))
    return np.asarray(np.maximum(total, 0.0) / (alphas - 1), dtype=np.float64)
