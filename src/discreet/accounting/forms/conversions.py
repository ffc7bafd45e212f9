"""From one form of guarantee to another: each bound both ways (ε given δ, δ given ε), rounded to the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy import special

from discreet import _check
from discreet.accounting import closed_forms
from discreet.accounting.forms import renyi
from discreet.accounting.forms.gdp import pure_mu
from discreet.accounting.forms.zcdp import pure_rho
from discreet.guarantees import GDP, RDP, ZCDP, PureDP
from discreet.numeric.rounding import UNIT, exact, float_down, float_up, infinite, reported, up

Conversion = Literal["tight", "textbook"]

_CONVERSIONS: tuple[Conversion, ...] = ("tight", "textbook")
_CONVERSION_REMEDY = "tight is never worse; textbook is what papers compare with"

# Margins, in roundings of the size of the terms: each bound sums four or five terms, of two or three operations each.
_DELTA_MARGIN, _EPSILON_MARGIN = 32 * UNIT, 64 * UNIT
# The smallest t = α − 1 at which a search over orders starts.
_LEAST_START = 1e-3
# A search over ln t goes this far to either side of its start. Sixty golden sections shrink it by 3e-13.
_ORDER_REACH, _GOLDEN_ROUNDS = 5, 60


def rdp_epsilon(guarantee: RDP, delta: float, conversion: Conversion = "tight") -> float:
    """ε at `delta`, the best over the listed orders.

    "tight": ε = D_α + ln((α−1)/α) − (ln δ + ln α)/(α−1) (Canonne, Kamath & Steinke 2020, Proposition 12).
    "textbook": ε = D_α + ln(1/δ)/(α−1) (Mironov 2017, Proposition 3), which is larger.

    >>> round(rdp_epsilon(RDP((8.0,), (1.0,)), 1e-5), 4), round(rdp_epsilon(RDP((8.0,), (1.0,)), 1e-5, "textbook"), 4)
    (2.2141, 2.6447)
    """
    delta = float_down(_check.delta(delta))
    _check.one_of("conversion", conversion, _CONVERSIONS, _CONVERSION_REMEDY)
    return min(
        order_epsilon(order, _float(divergence), delta, conversion)
        for order, divergence in zip(guarantee.orders, guarantee.epsilons, strict=True)
    )


def rdp_delta(guarantee: RDP, epsilon: float, conversion: Conversion = "tight") -> float:
    """δ at `epsilon`, the best over the listed orders, by the same theorems as `rdp_epsilon`.

    "tight": δ = e^{(α−1)(D_α−ε)}·(1 − 1/α)^α/(α−1). "textbook": δ = e^{(α−1)(D_α−ε)}.
    """
    epsilon = float_down(_check.nonnegative("epsilon", epsilon, "it is the ε at which δ is asked for"))
    _check.one_of("conversion", conversion, _CONVERSIONS, _CONVERSION_REMEDY)
    return min(
        order_delta(order, _float(divergence), epsilon, conversion)
        for order, divergence in zip(guarantee.orders, guarantee.epsilons, strict=True)
    )


def order_delta(order: float, divergence: float, epsilon: float, conversion: Conversion = "tight") -> float:
    """δ at `epsilon` from a bound on the divergence of one order."""
    if math.isinf(divergence):
        return 1.0
    exponent = (order - 1) * (divergence - epsilon)
    size = (order - 1) * (abs(divergence) + abs(epsilon))
    if conversion == "tight":
        exponent += order * math.log1p(-1 / order) - math.log(order - 1)
        size += 2 + abs(math.log(order - 1)) + abs(order * math.log1p(-1 / order))
    exponent += _DELTA_MARGIN * size
    return 1.0 if exponent >= 0 else min(1.0, up(math.exp(exponent)))


def order_limit(order: float, epsilon: float, delta: float) -> Fraction:
    """The largest divergence of one order, rounded down, that the tight conversion takes to (ε, δ); may be < 0."""
    log_delta = -_minus_log(delta)
    free = log_delta + math.log(order - 1) - order * math.log1p(-1 / order)
    margin = _EPSILON_MARGIN * (abs(log_delta) + abs(math.log(order - 1)) + abs(order * math.log1p(-1 / order)) + 2)
    limit = Fraction(epsilon) + Fraction(free - margin) / (Fraction(order) - 1)
    return Fraction(float_down(limit))


def order_epsilon(order: float, divergence: float, delta: float, conversion: Conversion = "tight") -> float:
    """ε at `delta` from a bound on the divergence of one order."""
    if math.isinf(divergence):
        return math.inf
    terms = [divergence, _minus_log(delta) / (order - 1)]
    if conversion == "tight":
        terms += [math.log1p(-1 / order), -math.log(order) / (order - 1)]
    # A negative value means that the bound holds at ε = 0 already.
    return max(0.0, math.fsum(terms) + _EPSILON_MARGIN * math.fsum(abs(term) for term in terms))


def zcdp_epsilon(guarantee: ZCDP, delta: float, conversion: Conversion = "tight") -> float:
    """ε at `delta` of a ρ-zCDP guarantee, over all real orders at once.

    "tight": the best order of the tight Rényi conversion at D_α = ρα (Canonne, Kamath & Steinke 2020, Prop. 12).
    "textbook": ρ + 2√(ρ ln(1/δ)) (Bun & Steinke 2016, Proposition 1.3).

    >>> round(zcdp_epsilon(ZCDP(0.5), 1e-5), 4), round(zcdp_epsilon(ZCDP(0.5), 1e-5, "textbook"), 4)
    (4.7284, 5.2985)
    """
    delta = float_down(_check.delta(delta))
    _check.one_of("conversion", conversion, _CONVERSIONS, _CONVERSION_REMEDY)
    rho = _float(guarantee.rho)
    if rho <= 0 or math.isinf(rho):
        return rho
    textbook = up(rho + up(2 * math.sqrt(up(rho * up(_minus_log(delta))))))
    if conversion == "textbook":
        return textbook
    start = math.sqrt(_minus_log(delta) / rho)
    return min(textbook, _least_over_orders(lambda a: order_epsilon(a, up(rho * a), delta, "tight"), start))


def zcdp_delta(guarantee: ZCDP, epsilon: float, conversion: Conversion = "tight") -> float:
    """δ at `epsilon` of a ρ-zCDP guarantee; "textbook": e^{−(ε−ρ)²/(4ρ)} for ε ≥ ρ (Bun & Steinke 2016, Lemma 3.5)."""
    epsilon = float_down(_check.nonnegative("epsilon", epsilon, "it is the ε at which δ is asked for"))
    _check.one_of("conversion", conversion, _CONVERSIONS, _CONVERSION_REMEDY)
    rho = _float(guarantee.rho)
    if rho <= 0:
        return 0.0
    if math.isinf(rho):
        return 1.0
    gap = max(0.0, epsilon - rho)
    exponent = -(gap**2) / (4 * rho)
    textbook = min(1.0, up(math.exp(exponent - 8 * UNIT * exponent)))
    if conversion == "textbook":
        return textbook
    start = max(gap / (2 * rho), _LEAST_START)
    return min(textbook, _least_over_orders(lambda a: order_delta(a, up(rho * a), epsilon), start))


def gdp_epsilon(guarantee: GDP, delta: float) -> float:
    """ε at `delta` of a μ-GDP guarantee, exact to round-off (Dong, Roth & Su, arXiv 1905.02383, Corollary 2.13).

    >>> round(gdp_epsilon(GDP(1.0), 1e-5), 9)
    4.377178096
    """
    delta = float_down(_check.delta(delta))
    mu = _float(guarantee.mu)
    if mu <= 0 or math.isinf(mu) or gdp_delta(guarantee, 0.0) <= delta:
        return 0.0 if mu < math.inf else math.inf
    return closed_forms.least(lambda epsilon: gdp_delta(guarantee, epsilon) <= delta)


def gdp_delta(guarantee: GDP, epsilon: float) -> float:
    """δ at `epsilon` of a μ-GDP guarantee: Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)."""
    epsilon = float_down(_check.nonnegative("epsilon", epsilon, "it is the ε at which δ is asked for"))
    return 1.0 if math.isinf(guarantee.mu) else closed_forms.gaussian_delta(epsilon, _float(guarantee.mu))


def pure_delta(guarantee: PureDP, epsilon: float) -> float:
    """δ at a smaller `epsilon` of an ε₀-DP guarantee: (e^{ε₀} − e^ε)/(1 + e^{ε₀}) (Kairouz, Oh & Viswanath 2015)."""
    epsilon = float_down(_check.nonnegative("epsilon", epsilon, "it is the ε at which δ is asked for"))
    loss = _float(guarantee.epsilon)
    if epsilon >= loss:
        return 0.0
    if math.isinf(loss):
        return 1.0
    return min(1.0, up(up(-math.expm1(epsilon - loss)) / (1 + math.exp(-loss))))


def pure_to_zcdp(guarantee: PureDP) -> ZCDP:
    """ε-DP is ε·tanh(ε/2)-zCDP, at most ε²/2 (Bun & Steinke 2016, Proposition 1.4; exact form in docs/proofs)."""
    return ZCDP(reported(pure_rho(_float(guarantee.epsilon))), protects=guarantee.protects)


def pure_to_gdp(guarantee: PureDP) -> GDP:
    """ε-DP is μ-GDP with Φ(−μ/2) = 1/(1 + e^ε)."""
    return GDP(reported(pure_mu(_float(guarantee.epsilon))), protects=guarantee.protects)


def pure_to_rdp(guarantee: PureDP, orders: Sequence[float]) -> RDP:
    """The Rényi divergences that ε-DP allows: those of randomized response (Bun & Steinke 2016, Proposition 3.3)."""
    values = renyi.pure(np.array(orders, dtype=np.float64), _float(guarantee.epsilon))
    return RDP(tuple(orders), tuple(reported(float(value)) for value in values), protects=guarantee.protects)


def zcdp_to_rdp(guarantee: ZCDP, orders: Sequence[float]) -> RDP:
    """ρ-zCDP has divergence ρα at every order, by definition."""
    values = renyi.linear(np.array(orders, dtype=np.float64), _float(guarantee.rho))
    return RDP(tuple(orders), tuple(reported(float(value)) for value in values), protects=guarantee.protects)


def gdp_to_zcdp(guarantee: GDP) -> ZCDP:
    """μ-GDP is μ²/2-zCDP: a post-processing of one Gaussian (Dong, Roth & Su, arXiv 1905.02383, Corollary B.6)."""
    mu = _float(guarantee.mu)
    return ZCDP(mu if math.isinf(mu) else reported(up(mu * mu / 2)), protects=guarantee.protects)


def variation_of(divergence: float) -> float:
    """A bound on the total variation distance from one on the KL divergence D, rounded up.

    √(D/2) by Pinsker's inequality, and √(1 − e^{−D}) by that of Bretagnolle and Huber.
    """
    return min(1.0, up(math.sqrt(divergence / 2)), up(math.sqrt(-math.expm1(-divergence))))


def _least_over_orders(bound: Callable[[float], float], start: float) -> float:
    """The least of `bound` over orders α = 1 + t near t = `start`, by golden section on ln t: any order is valid."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(start) - _ORDER_REACH, math.log(start) + _ORDER_REACH
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    best = math.inf
    values = bound(1 + math.exp(left)), bound(1 + math.exp(right))
    for _ in range(_GOLDEN_ROUNDS):
        best = min(best, *values)
        if values[0] <= values[1]:
            high, right = right, left
            left = high - ratio * (high - low)
            values = bound(1 + math.exp(left)), values[0]
        else:
            low, left = left, right
            right = low + ratio * (high - low)
            values = values[1], bound(1 + math.exp(right))
    return min(best, *values)


def _float(amount: float) -> float:
    """An amount of a guarantee as a float, rounded up; a guarantee may also hold an integer or a Fraction."""
    return math.inf if infinite(amount) else float_up(exact(amount))


def _minus_log(delta: float) -> float:
    """−ln δ ≥ 0, accurate near δ = 1 too."""
    return -float(special.xlogy(1.0, delta)) if delta < 0.5 else -math.log1p(delta - 1)
