"""The Rényi orders of an (ε, δ) budget, and how δ is divided among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from discreet import _check
from discreet.accounting.forms.conversions import order_limit
from discreet.numeric.rounding import float_down

# The best order is searched among α = 1 + 10^(k/50), fifty to a decade, from 1.001 to a million and one. The best α − 1
# is about √(ln(1/δ)/ε) for a large ε and ln(1/δ)/ε for a small one, so this covers every useful budget.
_PER_DECADE = 50
_LOWEST, _HIGHEST = -3 * _PER_DECADE, 6 * _PER_DECADE
# Where the orders lie around the best one, as multiples of its α − 1.
_AROUND = (1.0, 0.6, 0.72, 0.85, 1.2, 1.5, 2.0, 4.0)
# The last order is so large that dividing by α − 1 leaves one over this of ε for the cost of δ.
_PURE_SHARE = 1000
# Smaller ε are taken for this one when the last order is chosen, which keeps it finite.
_LEAST_EPSILON = 1e-3
# Integer orders are cheapest to price. Below this one they would lie too far apart, so thousandths serve there.
_INTEGERS_FROM = 16
_STEPS_BELOW = 1000
# Only budgets with an ε near 0 would reach further.
_LARGEST_ORDER = 1e6


def default_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Nine orders for an (ε, δ) budget, the one that suits a budget spent on Gaussians first.

    At order α a budget spent in ρ-zCDP may reach ρ = limit(α)/α, and the first order is where that is largest. The
    others are spread around it, because sampled events are read at other orders, up to one so large that pure
    mechanisms lose only a thousandth of ε.
    """
    candidates = [1 + 10 ** (k / _PER_DECADE) for k in range(_LOWEST, _HIGHEST + 1)]
    best = max(candidates, key=lambda order: order_limit(order, epsilon, delta / 2) / Fraction(order)) - 1
    near = [1 + best * multiple for multiple in _AROUND]
    far = 1 - _PURE_SHARE * math.log(delta) / max(epsilon, _LEAST_EPSILON)
    rounded = [
        float(round(order)) if order >= _INTEGERS_FROM else math.ceil(_STEPS_BELOW * order) / _STEPS_BELOW
        for order in (*near, far)
    ]
    return tuple(dict.fromkeys(min(_LARGEST_ORDER, order) for order in rounded))


def checked_orders(orders: Sequence[float]) -> tuple[float, ...]:
    """Orders that a caller chose, as floats; refused unless they are different and above 1."""
    chosen = tuple(float(_check.real("orders", order, "Rényi orders are finite")) for order in orders)
    if not chosen or min(chosen) <= 1 or len(set(chosen)) < len(chosen):
        raise _check.fail("orders", "be different and > 1, at least one", orders, "δ is divided among them")
    return chosen


def shares(delta: float, count: int) -> tuple[float, ...]:
    """How δ is divided among `count` orders: half for the first, the rest equally, never more than δ together."""
    whole = Fraction(delta)
    if count == 1:
        return (delta,)
    return (float_down(whole / 2), *(float_down(whole / (2 * (count - 1))) for _ in range(count - 1)))
