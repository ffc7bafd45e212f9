"""An upper bound on δ(ε) from moments alone: for events of which nothing else is known, and as the last resort.

δ(ε) ≤ e^{K(τ) − τε} τ^τ/(1+τ)^{1+τ} for every τ > 0, where K(τ) = τ·(Rényi divergence of order 1 + τ) (Canonne, Kamath
& Steinke 2020, Proposition 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

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


def delta(log_moment: Moment, epsilon: float, rough: Moment | None = None) -> float:
    """A bound on δ(ε). `rough` is about `log_moment` and quicker: it chooses the order, whose bound is then taken."""

    def exponent(moment: Moment, order: float) -> float:
        return moment(order) - order * epsilon + log_constant(order)

    return min(1.0, math.exp(min(0.0, _best(exponent, log_moment, rough))) * (1 + _ERROR))


def epsilon(log_moment: Moment, delta: float, rough: Moment | None = None) -> float:
    """A bound on the smallest ε ≥ 0 with δ(ε) ≤ `delta`. `rough` is as in `delta`."""
    log_delta = math.log(delta)

    def at(moment: Moment, order: float) -> float:
        return (moment(order) + log_constant(order) - log_delta) / order

    return max(0.0, _best(at, log_moment, rough)) * (1 + _ERROR)


def _best(bound: Callable[[Moment, float], float], certified: Moment, rough: Moment | None) -> float:
    """The least certified bound: over all orders that are tried, or at the order that is best by `rough`."""
    if rough is None:
        return _least(partial(bound, certified))[0]
    least, order = _least(partial(bound, rough))
    return _finite(partial(bound, certified), order) if math.isfinite(least) else math.inf


def _least(value: Moment) -> tuple[float, float]:
    """The smallest value found of a function of the order, and that order."""
    values = [_finite(value, order) for order in _ORDERS]
    best = min(range(len(_ORDERS)), key=values.__getitem__)
    low, high = math.log(_ORDERS[max(best - 1, 0)]), math.log(_ORDERS[min(best + 1, len(_ORDERS) - 1)])
    least, order = values[best], _ORDERS[best]
    shrink = (math.sqrt(5) - 1) / 2
    for _ in range(_GOLDEN_ROUNDS):
        a, b = high - shrink * (high - low), low + shrink * (high - low)
        at_a, at_b = _finite(value, math.exp(a)), _finite(value, math.exp(b))
        least, order = min((least, order), (at_a, math.exp(a)), (at_b, math.exp(b)))
        low, high = (low, b) if at_a < at_b else (a, high)
    return least, order


def _finite(value: Moment, order: float) -> float:
    """`value` at an order; inf where it overflows or is undefined."""
    try:
        result = value(order)
    except OverflowError:
        return math.inf
    return math.inf if math.isnan(result) else result
