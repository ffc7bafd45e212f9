"""Rényi divergences that have a formula, as functions of many orders at once, each rounded up.

Each returns D_α for an array of orders α > 1. No digits are lost where D_α is small, because (α−1)·D_α = ln(1 + excess)
with the excess a sum of terms ≥ 0. The remaining round-off is bounded and added.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from discreet.numeric.rounding import UNIT, Floats, exp_minus_linear, float_up, raised

# Above this exponent the logarithm of the excess is used: e^709 is the largest float.
_LARGE = 500.0
# With more orders than this, ρα is rounded in floats instead of in rationals, for speed.
_MANY_ORDERS = 256

# Margins, in roundings of the quantity that each multiplies. The formulas take fewer than 30 operations of one or two
# roundings each; the excess of `_from_two_sided` sums two terms that are good to 64 (`exp_minus_linear`).
_MARGIN = 64 * UNIT
_EXCESS_MARGIN = 256 * UNIT
_SLOPE_MARGIN = 16 * UNIT


def linear(orders: Floats, slope: float) -> Floats:
    """ρα: Gaussian noise with ρ = 1/(2σ²) (Mironov 2017, Corollary 3), and whatever is ρ-zCDP."""
    if orders.size > _MANY_ORDERS or math.isinf(slope):
        return np.zeros_like(orders) if slope <= 0 else np.nextafter(orders * slope, np.inf)
    return np.array([float_up(Fraction(float(order)) * Fraction(slope)) for order in orders])


def laplace(orders: Floats, epsilon: float) -> Floats:
    """Laplace noise with ε = Δ₁/b (Mironov 2017, Proposition 6).

    (α−1)·D_α = ln[A e^{(α−1)ε} + B e^{−αε}] with A = α/(2α−1), B = (α−1)/(2α−1). Since A(α−1) = Bα, the excess over 1
    is A·h((α−1)ε) + B·h(−αε) with h(x) = e^x − 1 − x ≥ 0. D_α is convex in ε and 0 at 0, so noise on several
    coordinates, whose ε add up to this one, costs no more.
    """
    if epsilon <= 0:
        return np.zeros_like(orders)
    gain, loss = orders / (2 * orders - 1), (orders - 1) / (2 * orders - 1)
    return _from_two_sided(orders, epsilon, gain, loss, np.zeros_like(orders))


def discrete_laplace(orders: Floats, sensitivity: int, scale: Fraction) -> Floats:
    """Discrete Laplace noise: P(x) ∝ e^{−|x|/b} shifted by the integer Δ, by summing its geometric series.

    With r = e^{−1/b} and R = r^{2α−1}: (α−1)·D_α = ln[A e^{(α−1)ε} + B e^{−αε}], ε = Δ/b, A = (1 + (1−r)R/(1−R))/(1+r)
    and B = 1 − A ≥ 0. At Δ = 1 it is randomized response, as b grows it is Laplace noise. Convex in Δ and 0 at 0, so
    noise on several coordinates costs no more.
    """
    epsilon, step = float_up(sensitivity / scale), float_up(1 / scale)
    one_less_r, one_less_power = -math.expm1(-step), -np.expm1(-(2 * orders - 1) * step)
    r, power = math.exp(-step), np.exp(-(2 * orders - 1) * step)
    gain = (1 + one_less_r * power / one_less_power) / (1 + r)
    # r − R = r(1 − r^{2(α−1)}), without a difference of numbers that are nearly equal.
    loss = r * -np.expm1(-2 * (orders - 1) * step) / one_less_power / (1 + r)
    # A(α−1) − Bα ≥ 0. On a fine grid it is near 0, and its round-off is what counts.
    slope = (one_less_r * ((orders - 1) * power + orders) / one_less_power - 1) / (1 + r)
    exact = _from_two_sided(orders, epsilon, gain, loss, np.maximum(slope, 0.0) + _SLOPE_MARGIN * orders)
    return np.minimum(exact, pure(orders, epsilon))


def _from_two_sided(orders: Floats, epsilon: float, gain: Floats, loss: Floats, slope: Floats) -> Floats:
    """ln[A e^{(α−1)ε} + B e^{−αε}]/(α−1) with A + B = 1 and A(α−1) − Bα = `slope`."""
    if math.isinf(epsilon):
        return np.full_like(orders, np.inf)
    rise, fall = (orders - 1) * epsilon, orders * epsilon
    usual = np.minimum(rise, _LARGE)
    excess = gain * exp_minus_linear(usual) + loss * exp_minus_linear(-fall) + epsilon * slope
    small = np.log1p(excess * (1 + _EXCESS_MARGIN))
    # ln A + (α−1)ε + ln(1 + (B/A) e^{−(2α−1)ε}): at rise ≥ 500 the margin exceeds the last term.
    large = rise + np.log(gain) + _MARGIN * (1 + rise)
    return np.minimum(raised(np.where(rise < _LARGE, small, large) / (orders - 1)), epsilon)


def randomized_response(orders: Floats, epsilon: float, categories: int) -> Floats:
    """k-ary randomized response, exactly: the excess is 4 r e^{ε/2} sinh((α−1)ε/2) sinh(αε/2), r = 1/(e^ε + k − 1)."""
    if epsilon <= 0:
        return np.zeros_like(orders)
    if math.isinf(epsilon):
        return np.full_like(orders, np.inf)
    # 4 sinh(a) sinh(b) = e^{a+b} (1 − e^{−2a})(1 − e^{−2b}), and a + b + ε/2 = αε.
    log_r = -epsilon - math.log1p((categories - 1) * math.exp(-epsilon))
    both = np.log(-np.expm1(-(orders - 1) * epsilon)) + np.log(-np.expm1(-orders * epsilon))
    log_excess = orders * epsilon + log_r + both
    margin = _MARGIN * (1 + orders * epsilon + abs(log_r) + np.abs(both))
    return np.minimum(raised(np.logaddexp(0.0, log_excess + margin) / (orders - 1)), epsilon)


def pure(orders: Floats, epsilon: float) -> Floats:
    """The most that an ε-DP event can have: binary randomized response's (Bun & Steinke 2016, Proposition 3.3)."""
    return randomized_response(orders, epsilon, 2)


def bounded_range(orders: Floats, epsilon: float) -> Floats:
    """The most that an event of ε-bounded range can have, such as the exponential mechanism.

    The loss of the worst pair takes the values t and t − ε for some t in [0, ε] (Dong, Durfee & Rogers 2020); the
    moment p e^{st} + (1−p) e^{s(t−ε)} with s = α − 1 and p = (e^ε − e^t)/(e^ε − 1) is largest at
    e^t = (s/α)·(e^ε − e^{−sε})/(1 − e^{−sε}). Never above αε²/8 (Cesar & Rogers 2021, Lemma 3.4) nor the pure bound.
    """
    if epsilon <= 0:
        return np.zeros_like(orders)
    if math.isinf(epsilon):
        return np.full_like(orders, np.inf)
    s = orders - 1
    # ln[(e^ε − e^{−sε})/(1 − e^{−sε})] = ε + ln[(1 − e^{−αε})/(1 − e^{−sε})], and likewise against e^ε − 1.
    log_all, log_down, log_one = (np.log(-np.expm1(-exponent * epsilon)) for exponent in (orders, s, np.ones_like(s)))
    peak = np.log(s / orders) + epsilon + log_all - log_down
    moment = s * peak + log_all - log_one - np.log(orders)
    sizes = np.abs(log_all) + np.abs(log_down) + np.abs(log_one) + np.abs(np.log(s)) + np.log(orders)
    margin = _MARGIN * (1 + orders) * (2 + epsilon + sizes)
    exact = raised((moment + margin) / s)
    return np.minimum(np.minimum(exact, linear(orders, float_up(Fraction(epsilon) ** 2 / 8))), pure(orders, epsilon))
