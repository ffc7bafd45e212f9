"""Rényi divergences of sampled events, which cost less because a unit joins a batch only sometimes.

Throughout, P and Q are the laws of an event with and without the unit, q is the rate, and the *log-moment* at order α
is K(α) = (α−1)·D_α ≥ 0, a convex function with K(1) = 0. Proofs that no paper spells out in this form are in
docs/proofs/renyi-of-samples.md. All bounds are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

from discreet.numeric.rounding import UNIT, Floats, log_expm1, log_sum

LogMoment = Callable[[int], float]

# Fractional orders above this are interpolated between integers, which then costs less than 1e-5 of the value.
_QUADRATURE_ORDERS = 256
# With more points than this, a quadrature takes too long, and the interpolation is used.
_QUADRATURE_POINTS = 1 << 20
# The quadrature covers this many standard deviations beyond its two bumps: P(N > 16) is 1e-57.
_REACH = 16.0
# It is accepted once its error is below e^{−32}, that is 1e-14, of the integral.
_QUADRATURE_ERROR = 32
# Added to the logarithm of the right tail's bound, which is tiny, for its round-off.
_TAIL_ERROR = 1e-9

# Margins, in roundings of what each multiplies: sums of a few logarithms (16), formulas of up to 30 operations (64),
# and log-moments whose logarithm was taken and undone, which multiplies an error by up to the logarithm (4096).
_LOG_MARGIN = 16 * UNIT
_MARGIN = 64 * UNIT
_UNDONE_MARGIN = 4096 * UNIT
# Roundings of the terms of a difference. Each term takes about ten operations.
_DIFFERENCE_MARGIN = 32 * UNIT
# Where α|x| is below this, (1 + x)^α − 1 − αx is summed as a series of 16 terms, which leaves out less than 1e-16.
_SERIES_LIMIT, _SERIES_TERMS = 0.1, 16

# Exponents: e^709 is the largest float; 700, 600 and 300 leave room for factors, for x = q·e^w and for squares.
_LARGEST_EXPONENT, _LARGE_EXPONENT, _LARGEST_EPSILON = 700, 600, 300
# A logarithm is not counted as larger than this in a margin: beyond it e^v is 0 or inf anyway.
_LARGEST_LOG = 1e3
# Prices of one step are asked for again and again, by plans and previews.
_REMEMBERED = 1 << 14

#: Sums over all integers below an order stop here; beyond it a sample is priced by cheaper bounds.
LARGEST_ORDER = 1 << 20


def interpolated(order: float, at_integer: LogMoment) -> float:
    """K at a real order from bounds at the integers around it: K is convex, so the chord lies above it."""
    below = math.floor(order)
    if order == below:
        return at_integer(below)
    weight = order - below
    left = 0.0 if below == 1 else at_integer(below)
    return ((1 - weight) * left + weight * at_integer(below + 1)) * (1 + 8 * UNIT)


def mixture(order: int, rate: float, log_moments: Floats) -> float:
    """K(α) of (1−q)Q + qP against Q at an integer α: ln Σ_k C(α,k) (1−q)^{α−k} q^k e^{K_k}.

    `log_moments` are bounds K_k on (k−1)·D_k(P‖Q) for k = 2…α. The binomial weights sum to 1 and K_0 = K_1 = 0, so the
    excess over 1 is Σ_{k≥2} C(α,k)(1−q)^{α−k}q^k (e^{K_k} − 1): no digits cancel.
    """
    k = np.arange(2, order + 1, dtype=np.float64)
    factorials = special.gammaln(np.array([order + 1.0])), special.gammaln(k + 1), special.gammaln(order - k + 1)
    stay, join = (order - k) * math.log1p(-rate), k * math.log(rate)
    excess = log_expm1(log_moments)
    with np.errstate(invalid="ignore"):
        terms = factorials[0] - factorials[1] - factorials[2] + stay + join + excess
    size = factorials[0] + np.abs(factorials[1]) + np.abs(factorials[2]) - stay - join + np.abs(log_moments) + 4
    size += np.where(np.isfinite(excess), np.abs(excess), 0.0)
    # Each logarithm is good to a few units of its size; e^m − 1 amplifies the error of m by at most m/(1 − e^{−m}).
    return _log_one_plus(log_sum(terms + _LOG_MARGIN * size) + _MARGIN)


def symmetric_pure(orders: Floats, epsilon: float, rate: float) -> Floats:
    """D_α of a Poisson sample of an ε-DP event, at any order, both directions.

    Randomized response dominates every ε-DP event (Kairouz, Oh & Viswanath 2015), domination survives Poisson sampling
    (Zhu, Dong & Wang 2022, Theorem 11), and for a symmetric pair the direction of (1−q)Q + qP against Q is the larger:
    K(α) = ln[(1−q+qe^ε)^α/(1+e^ε) + (1−q+qe^{−ε})^α·e^ε/(1+e^ε)].
    """
    if epsilon <= 0 or rate <= 0:
        return np.zeros_like(orders)
    if math.isinf(epsilon) or epsilon > _LARGEST_EPSILON:
        return np.full_like(orders, np.inf)
    high, low = rate * math.expm1(epsilon), rate * math.expm1(-epsilon)
    weights = 1 / (1 + math.exp(epsilon)), 1 / (1 + math.exp(-epsilon))
    terms_by_order = [np.array(_bernoulli_gap(float(order), np.array([high, low]))) for order in orders]
    logs = [
        log_sum(log_terms + np.log(np.array(weights)) + _MARGIN * (2 + order * epsilon))
        for log_terms, order in zip(terms_by_order, orders, strict=True)
    ]
    return np.array([_log_one_plus(value) * (1 + _MARGIN) for value in logs]) / (orders - 1)


def toward_mixture(order: float, rate: float, second: float, own: float) -> float:
    """K(α) of Q against (1−q)Q + qP, for a pair without symmetry: from K_2 = D_2(P‖Q) and K(α) of Q against P.

    The smaller of ln[1 + C(α,2) q² (1−q)^{−α−1} (e^{K_2} − 1)], by Taylor's theorem, and ln[1 − q + q e^{K(α)}], by
    convexity.
    """
    by_convexity = _log_one_plus(math.log(rate) + float(log_expm1(np.array(own)))) if own > 0 else 0.0
    factor = math.log(order * (order - 1) / 2) + 2 * math.log(rate) - (order + 1) * math.log1p(-rate)
    by_taylor = _log_one_plus(factor + float(log_expm1(np.array(second))))
    return min(by_convexity, by_taylor) * (1 + _UNDONE_MARGIN) + _MARGIN * abs(factor) * min(1.0, by_taylor)


def convex(order: float, rate: float, own: float) -> float:
    """K(α) of two mixtures that share all but one component, of weight q: ln[1 − q + q e^{K(α)}]."""
    if rate <= 0 or own <= 0:
        return 0.0
    return _log_one_plus(math.log(rate) + float(log_expm1(np.array(own)))) * (1 + _UNDONE_MARGIN)


def without_replacement(order: int, rate: float, log_moments: Floats, epsilon: float) -> float:
    """K(α) of a sample without replacement under replace-one (Wang, Balle & Kasiviswanathan 2019, Theorem 9).

    The excess is at most Σ_{k≥2} C(α,k) γ^k T_k with T_k = e^{K_k}·min{2, (e^ε−1)^k}, and for k = 2 also 4(e^{K_2}−1);
    `epsilon` is the pure ε, inf where there is none.
    """
    k = np.arange(2, order + 1, dtype=np.float64)
    log_choose = special.gammaln(order + 1.0) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    by_epsilon = float(log_expm1(np.array(epsilon)))
    ternary = log_moments + np.minimum(math.log(2), k * by_epsilon)
    ternary[0] = min(ternary[0], math.log(4) + float(log_expm1(log_moments[:1])[0]))
    terms = log_choose + k * math.log(rate) + ternary
    size = 3 * special.gammaln(order + 1.0) - k * math.log(rate) + np.abs(log_moments) + 4
    size += k * min(abs(by_epsilon), _LARGEST_LOG) + np.minimum(np.abs(ternary), _LARGEST_LOG)
    return _log_one_plus(log_sum(terms + _LOG_MARGIN * size) + _MARGIN)


@lru_cache(maxsize=_REMEMBERED)
def gaussian(order: float, rate: float, multiplier: float) -> float:
    """K(α) of a Poisson sample of Gaussian noise (Mironov, Talwar & Zhang 2019), both directions, at any real order.

    At integers the finite sum; between them an integral over the noise (`_gaussian_integral`) or, at large orders, the
    chord. The direction of (1−q)Q + qP against Q is the larger, because the pair is symmetric.
    """

    def at_integer(whole: int) -> float:
        k = np.arange(2, whole + 1, dtype=np.float64)
        return mixture(whole, rate, k * (k - 1) / 2 / multiplier**2)

    if order > LARGEST_ORDER:
        return math.inf
    chord = interpolated(order, at_integer)
    if order == math.floor(order) or order > _QUADRATURE_ORDERS:
        return chord
    return min(chord, _gaussian_integral(order, rate, multiplier, chord))


def _gaussian_integral(order: float, rate: float, sigma: float, chord: float) -> float:
    """K(α) = ln(1 + E g) with g = (1 + x)^α − 1 − αx ≥ 0, x = q(e^w − 1), w = (2z − 1)/(2σ²), z ~ N(0, σ²).

    The trapezoid rule with step h errs by at most 2M/(e^{2πa/h} − 1) for an integrand that is analytic in the strip
    |Im z| ≤ a with integral of its modulus along the edges at most M (Trefethen & Weideman 2014, Theorem 5.1). Here
    a ≤ πσ² and M ≤ e^{a²/2σ²}(e^K + 1 + 2αq), because |1 − q + q e^w| is largest on the real line. Both tails are
    bounded by Gaussian tails. Returns inf where it would take too many points.
    """
    step = min(sigma / 2, sigma * sigma / 2)
    modulus = np.logaddexp(chord, math.log(1 + 2 * order * rate))
    while (order + 2 * _REACH * sigma) / step < _QUADRATURE_POINTS:
        low = -math.ceil(_REACH * sigma / step)
        z = step * np.arange(low, math.ceil((order + _REACH * sigma) / step) + 1, dtype=np.float64)
        w = (2 * z - 1) / (2 * sigma * sigma)
        squares = (z / sigma) ** 2 / 2
        logs = _sampled_gap(order, rate, w) - squares * (1 - 8 * UNIT)
        inside = log_sum(logs) + math.log(step / sigma) - 0.5 * math.log(2 * math.pi) + _MARGIN
        width = min(2 * math.pi * sigma * sigma / step, math.pi * sigma * sigma)
        error = math.log(2) + width**2 / (2 * sigma**2) - 2 * math.pi * width / step + float(modulus)
        if error < inside - _QUADRATURE_ERROR:
            error -= math.log(-math.expm1(-2 * math.pi * width / step))
            last = float(z[-1])
            gap = float(np.logaddexp(math.log1p(-rate) - w[-1], math.log(rate)))
            right = (
                order * gap + (order * order - order) / (2 * sigma**2) + float(special.log_ndtr((order - last) / sigma))
            )
            left = math.log(order * rate) + float(special.log_ndtr(low * step / sigma))
            return _log_one_plus(log_sum(np.array([inside, error, left, right + _TAIL_ERROR])))
        step /= 2
    return math.inf


def _sampled_gap(order: float, rate: float, w: Floats) -> Floats:
    """ln[(1 + x)^α − 1 − αx] for x = q(e^w − 1), rounded up."""
    with np.errstate(over="ignore"):
        x = rate * np.expm1(w)
    huge = w > _LARGE_EXPONENT
    usual = _bernoulli_gap(order, np.where(huge, 1.0, x), np.abs(np.where(huge, 0.0, w)))
    # Where e^w overflows, (1 + x)^α alone remains.
    return np.where(huge, order * np.logaddexp(math.log1p(-rate), math.log(rate) + w) * (1 + _LOG_MARGIN), usual)


def _bernoulli_gap(order: float, x: Floats, exponent: Floats | float = 1.0) -> Floats:
    """ln[(1 + x)^α − 1 − αx] for x > −1, rounded up; `exponent` is |w| where x = q(e^w − 1) came from a rounded w.

    Where α|x| is small the binomial series keeps the digits; elsewhere the margin covers what the difference loses.
    """
    near = np.abs(order * x) < _SERIES_LIMIT
    y = np.where(near, x, 0.0)
    series = np.ones_like(y)
    for k in range(_SERIES_TERMS, 2, -1):
        series = 1 + series * y * (order - k + 1) / k
    with np.errstate(divide="ignore"):
        by_series = np.log(order * (order - 1) / 2 * y * y * series) + _MARGIN
    far = np.where(near, 1.0, x)
    power = order * np.log1p(far)
    top = np.maximum(power, 0.0)
    # Everything is divided by e^top: the power errs by its exponent's error, the line by that of x and of w.
    line = np.exp(-top) * (1 + order * (1 + np.abs(far)) * (1 + exponent))
    margin = _DIFFERENCE_MARGIN * (3 + np.abs(power) + order * exponent + line)
    rest = np.exp(power - top) - (1 + order * far) * np.exp(-top) + margin
    with np.errstate(divide="ignore", invalid="ignore"):
        by_difference = top + np.log(np.maximum(rest, margin))
    return np.where(near, by_series, by_difference)


def _log_one_plus(log_excess: float) -> float:
    """ln(1 + e^v), rounded up."""
    if log_excess > _LARGEST_EXPONENT:
        return log_excess * (1 + 4 * UNIT) + 4 * UNIT
    return math.nextafter(math.log1p(math.exp(log_excess)) * (1 + _LOG_MARGIN), math.inf)
