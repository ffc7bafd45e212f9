"""An upper bound on δ(ε) from moments alone: for events of which no more is known, and as the last resort.

δ(ε) ≤ e^{K(τ) − τε} τ^τ/(1+τ)^{1+τ} for every τ > 0, where K(τ) = τ·(Rényi divergence of order 1 + τ) (Canonne, Kamath
& Steinke 2020, Proposition 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable

Moment = Callable[[float], float]


def log_constant(order: float) -> float:
    """ln(τ^τ/(1+τ)^{1+τ}): the largest value of ln((1 − e^{−x})e^{−τx}) over x > 0."""
    return order * math.log(order) - (order + 1) * math.log1p(order)


def delta(log_moment: Moment, epsilon: float) -> float:
    """A bound on δ(ε)."""

    def exponent(order: float) -> float:
        return log_moment(order) - order * epsilon + log_constant(order)

    return min(1.0, math.exp(min(0.0, _least(exponent))) * (1 + 1e-12))


def epsilon(log_moment: Moment, delta: float) -> float:
    """A bound on the smallest ε ≥ 0 with δ(ε) ≤ `delta`."""
    log_delta = math.log(delta)

    def at(order: float) -> float:
        return (log_moment(order) + log_constant(order) - log_delta) / order

    return max(0.0, _least(at)) * (1 + 1e-12)


def _least(value: Moment) -> float:
    """The smallest value found of a function of one positive number: any value is a bound, so any place will do."""
    places = [10.0 ** (k / 2) for k in range(-12, 17)]
    values = [_finite(value, place) for place in places]
    best = min(range(len(places)), key=values.__getitem__)
    low, high = math.log(places[max(best - 1, 0)]), math.log(places[min(best + 1, len(places) - 1)])
    found = values[best]
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(40):
        a, b = high - shrink * (high - low), low + shrink * (high - low)
        at_a, at_b = _finite(value, math.exp(a)), _finite(value, math.exp(b))
        found = min(found, at_a, at_b)
        low, high = (low, b) if at_a < at_b else (a, high)
    return found


def _finite(value: Moment, place: float) -> float:
    try:
        result = value(place)
    except OverflowError:
        return math.inf
    return math.inf if math.isnan(result) else result
