"""An upper bound on δ(ε) from moments alone: for events of which nothing else is known, and as the last resort.

δ(ε) ≤ e^{K(τ) − τε} τ^τ/(1+τ)^{1+τ} for every τ > 0, where K(τ) = τ·(Rényi divergence of order 1 + τ) (Canonne, Kamath
& Steinke 2020, Proposition 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable

Moment = Callable[[float], float]

# Relative margin for the round-off of a bound: thousands of roundings, where each bound takes about ten.
_ERROR = 1e-12

# Orders τ that are tried first, 10^{−6} to 10^8 in half decades: prices of any practical size have their best order
# between them. Any order gives a bound, so the search needs no guarantee.
_ORDERS = tuple(10.0 ** (k / 2) for k in range(-12, 17))
# Golden sections between two neighbors of the best one; each shrinks the bracket by 0.62, so 40 of them by 4e-9.
_GOLDEN_ROUNDS = 40


def log_constant(order: float) -> float:
    """ln(τ^τ/(1+τ)^{1+τ}): the largest value of ln((1 − e^{−x})e^{−τx}) over x > 0."""
    return order * math.log(order) - (order + 1) * math.log1p(order)


def delta(log_moment: Moment, epsilon: float) -> float:
    """A bound on δ(ε)."""

    def exponent(order: float) -> float:
        return log_moment(order) - order * epsilon + log_constant(order)

    return min(1.0, math.exp(min(0.0, _least(exponent))) * (1 + _ERROR))


def epsilon(log_moment: Moment, delta: float) -> float:
    """A bound on the smallest ε ≥ 0 with δ(ε) ≤ `delta`."""
    log_delta = math.log(delta)

    def at(order: float) -> float:
        return (log_moment(order) + log_constant(order) - log_delta) / order

    return max(0.0, _least(at)) * (1 + _ERROR)


def _least(value: Moment) -> float:
    """The smallest value found of a function of the order."""
    values = [_finite(value, order) for order in _ORDERS]
    best = min(range(len(_ORDERS)), key=values.__getitem__)
    low, high = math.log(_ORDERS[max(best - 1, 0)]), math.log(_ORDERS[min(best + 1, len(_ORDERS) - 1)])
    least = values[best]
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(_GOLDEN_ROUNDS):
        a, b = high - shrink * (high - low), low + shrink * (high - low)
        at_a, at_b = _finite(value, math.exp(a)), _finite(value, math.exp(b))
        least = min(least, at_a, at_b)
        low, high = (low, b) if at_a < at_b else (a, high)
    return least


def _finite(value: Moment, order: float) -> float:
    """`value` at an order; inf where it overflows or is undefined."""
    try:
        result = value(order)
    except OverflowError:
        return math.inf
    return math.inf if math.isnan(result) else result
