"""From a budget back to a parameter: the least noise, the most steps or the largest rate whose price fits.

The answer's price is certified: its upper end was computed, and fits. That no better parameter fits rests on the price
being monotone in the parameter, and holds to the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from discreet import _check
from discreet.accounting import tight
from discreet.accounting.closed_forms import gaussian_noise_multiplier
from discreet.errors import InvalidArgument
from discreet.events import Event
from discreet.guarantees import ApproxDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import exact, float_down

Quantity = Literal["noise", "steps", "rate"]

# Parameters are searched for between these: noise beyond them hides nothing, or everything.
_LARGEST_NOISE, _LARGEST_RATE, _SMALLEST = 1e12, 1.0, 1e-9
# Where the search starts. Noise starts at that of one Gaussian, for an ε of at most the second.
_FIRST_RATE, _LARGEST_FIRST_EPSILON = 0.01, 1e6
# A bracket is found by steps that grow from the first factor to the last, by the middle one each time.
_FIRST_FACTOR, _FACTOR_GROWTH, _LAST_FACTOR = 2.0, 1.5, 16.0
# Rounds of the safeguarded secant: bisection alone gets any bracket below any tolerance in fewer.
_ROUNDS = 80
# How far beyond the secant's guess to step, and how far from the ends of the bracket to stay, in tolerances.
_NUDGE, _INSIDE = 0.3, 0.1

# For steps: the next count as a factor of the last, from the excess. ε grows at least like the square root of the
# count once it is large, so e^{−2·excess} would be the count that fits; aim a little lower.
_STEPS_POWER, _LEAST_FACTOR, _MOST_FACTOR, _LARGEST_EXPONENT = -1.8, 1.1, 64.0, 5.0
# How far beside the secant's guess to try, relative to it.
_STEPS_NUDGE = 1e-6
# An ε of 0 is taken for this, so that its logarithm exists.
_LEAST_EPSILON = 1e-300


def calibrate(
    make_event: Callable[[float], Event],
    budget: ApproxDP,
    *,
    find: Quantity = "noise",
    relation: Relation = ADD_REMOVE,
    tolerance: float = 1e-6,
) -> float:
    """The parameter of `make_event` that uses up `budget`: the smallest noise, or the largest rate.

    Args:
        make_event: from the parameter to the event; the price must fall in a "noise" and grow in a "rate".
        budget: the (ε, δ) that the event may cost.
        find: what the parameter is. For "steps", see `most_steps`, which this calls.
        relation: which datasets count as neighbors.
        tolerance: relative, of the parameter.

    Returns:
        A parameter whose event has a certified price within the budget.

    >>> from discreet.events import Gaussian
    >>> round(calibrate(Gaussian, ApproxDP(1.0, 1e-6)), 4)
    4.2247
    """
    _check.one_of("find", find, ("noise", "steps", "rate"), "it says what the parameter is")
    _check_budget(budget)
    if find == "steps":
        return most_steps(make_event, budget, relation=relation)
    tolerance = float(_check.positive("tolerance", tolerance, "it is the relative error of the answer"))
    excess = _Excess(make_event, budget, relation)
    if find == "noise":
        start = gaussian_noise_multiplier(min(budget.epsilon, _LARGEST_FIRST_EPSILON), budget.delta)
        return _root(excess, start, tolerance, falling=True, largest=_LARGEST_NOISE)
    if excess(_LARGEST_RATE) <= 0:
        return _LARGEST_RATE
    return _root(excess, _FIRST_RATE, tolerance, falling=False, largest=_LARGEST_RATE)


def most_steps(
    make_event: Callable[[int], Event], budget: ApproxDP, *, relation: Relation = ADD_REMOVE, at_most: int = 10**9
) -> int:
    """The largest number of steps whose event fits the budget; 0 where not even one does.

    >>> from discreet.events import Gaussian, Repeated
    >>> most_steps(lambda count: Repeated(Gaussian(10.0), count), ApproxDP(1.0, 1e-6))
    5
    """
    _check_budget(budget)
    at_most = _check.integer("at_most", at_most, "it is the largest number of steps to try")
    excess = _Excess(lambda count: make_event(round(count)), budget, relation)
    low, high = 0, 1
    f_low, f_high = -math.inf, excess(1.0)
    while f_high <= 0:
        if high >= at_most:
            return at_most
        factor = _FIRST_FACTOR
        if math.isfinite(f_high):
            growth = math.exp(min(_LARGEST_EXPONENT, _STEPS_POWER * f_high))
            factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, growth))
        low, f_low = high, f_high
        high = min(at_most, max(high + 1, math.ceil(high * factor)))
        f_high = excess(float(high))
    turn = 0
    while high - low > 1:
        middle = (low + high) // 2
        if low > 0 and math.isfinite(f_low) and math.isfinite(f_high) and turn % 3 < 2:
            weight = f_low / (f_low - f_high)
            guess = math.exp(math.log(low) + weight * (math.log(high) - math.log(low)))
            # Alternate between a little below and a little above the secant's guess, to close in from both sides.
            below = turn % 3 == 0
            middle = math.floor(guess * (1 - _STEPS_NUDGE)) if below else math.ceil(guess * (1 + _STEPS_NUDGE))
            middle = min(max(middle, low + 1), high - 1)
        value = excess(float(middle))
        if value <= 0:
            low, f_low = middle, value
        else:
            high, f_high = middle, value
        turn += 1
    return low


class _Excess:
    """ln(ε/budget) of the certified upper end at a parameter: ≤ 0 where it fits."""

    def __init__(self, make_event: Callable[[float], Event], budget: ApproxDP, relation: Relation) -> None:
        self._make, self._relation = make_event, relation
        self._epsilon, self._delta = float_down(exact(budget.epsilon)), float_down(exact(budget.delta))

    def __call__(self, parameter: float) -> float:
        epsilon = tight.epsilon(self._make(parameter), self._delta, self._relation).upper
        if math.isinf(epsilon):
            return math.inf
        return math.log(max(epsilon, _LEAST_EPSILON) / self._epsilon)


def _check_budget(budget: ApproxDP) -> None:
    if not isinstance(budget, ApproxDP):
        raise _check.fail("budget", "be a dp.ApproxDP", budget, "give the ε and the δ to stay within")
    _check.epsilon(budget.epsilon)
    _check.delta(budget.delta)


def _root(excess: Callable[[float], float], start: float, tolerance: float, *, falling: bool, largest: float) -> float:
    """The end of the feasible side of a monotone condition, by bracketing and a safeguarded secant in ln x."""
    x, value = start, excess(start)
    good, bad = (x, None) if value <= 0 else (None, x)
    f_good, f_bad = (value, math.nan) if value <= 0 else (math.nan, value)
    factor = _FIRST_FACTOR
    while good is None or bad is None:
        toward_good = good is None
        x = x * factor if toward_good == falling else x / factor
        if x > largest:
            x = largest
        if x < _SMALLEST:
            if not falling:
                raise InvalidArgument("budget must be reachable, got a price above it at every rate: allow more ε or δ")
            return good if good is not None else _SMALLEST
        value = excess(x)
        if value <= 0:
            good, f_good = x, value
        elif x >= largest:
            raise InvalidArgument(f"budget must be reachable, got a price above it at {x:g}: allow more ε or δ")
        else:
            bad, f_bad = x, value
        factor = min(factor * _FACTOR_GROWTH, _LAST_FACTOR)
    for turn in range(_ROUNDS):
        if abs(good - bad) <= tolerance * good:
            break
        a, b = math.log(good), math.log(bad)
        middle = (a + b) / 2
        if turn % 3 < 2 and math.isfinite(f_good) and math.isfinite(f_bad) and f_good < f_bad:
            middle = a + (b - a) * (-f_good / (f_bad - f_good))
            # Step beyond the root a little, on alternate sides, so that both ends of the bracket close in.
            nudge = _NUDGE * tolerance if turn % 3 == 0 else -_NUDGE * tolerance
            middle += nudge if b > a else -nudge
            inside = sorted((a, b))
            middle = min(max(middle, inside[0] + _INSIDE * tolerance), inside[1] - _INSIDE * tolerance)
        value = excess(math.exp(middle))
        if value <= 0:
            good, f_good = math.exp(middle), value
        else:
            bad, f_bad = math.exp(middle), value
    return good
