"""The saddle point of a composition: how much to tilt a privacy loss so that the losses that decide δ are likely.

With K(s) = ln E[e^{sL}] of the whole composition, δ(ε) is the integral of exp(K(z) − εz)/(z(z+1)) along Re z = τ, and
the integrand's modulus is smallest, over τ, at the root of K′(τ) = ε + 1/τ + 1/(τ+1). Nothing here needs to be
certified: a poor τ makes an interval wider, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from discreet.accounting.methods.chernoff import log_constant

Cumulants = Callable[[float], tuple[float, float, float]]

# How close to its target a saddle needs to be: ln δ to 1%, ε to 0.1% (and 1e-9 near 0). Closer would not narrow the
# interval.
_LOG_DELTA_ERROR, _EPSILON_ERROR, _LEAST_EPSILON_ERROR = 1e-2, 1e-3, 1e-9
# Steps of a factor 4 that bracket the root (4^60 spans 1e36), and rounds of regula falsi within the bracket.
_FACTOR, _BRACKETS, _ROUNDS = 4, 60, 40
# Regula falsi stays this share of the bracket away from its ends, and bisects every third round.
_LEAST_WEIGHT = 0.05
# The factor between two tilts that `relaxed` tries.
_NEXT_TILT = 1.3


@dataclass(frozen=True)
class Saddle:
    """The tilt τ, the ε it belongs to, K″ there, and the first-order estimate of ln δ."""

    tilt: float
    epsilon: float
    curvature: float
    log_delta: float


def at_tilt(cumulants: Cumulants, tilt: float) -> Saddle:
    """The ε whose saddle is at `tilt`, and the Laplace approximation of δ there."""
    k, slope, curvature = cumulants(tilt)
    epsilon = slope - 1 / tilt - 1 / (tilt + 1)
    bend = max(curvature, 0.0) + tilt**-2 + (tilt + 1) ** -2
    if not bend > 0 or not math.isfinite(tilt * (tilt + 1)):
        raise OverflowError(f"the saddle's tilt {tilt:g} left the range of floats")
    log_delta = k - epsilon * tilt - math.log(tilt * (tilt + 1)) - 0.5 * math.log(2 * math.pi * bend)
    return Saddle(tilt, epsilon, curvature, log_delta)


def for_delta(cumulants: Cumulants, log_delta: float, start: float, *, limit: float = math.inf) -> Saddle:
    """The saddle where δ is about e^`log_delta`; δ falls as the tilt grows."""
    return _search(lambda saddle: log_delta - saddle.log_delta, cumulants, start, limit, _LOG_DELTA_ERROR)


def for_epsilon(cumulants: Cumulants, epsilon: float, start: float, *, limit: float = math.inf) -> Saddle:
    """The saddle of `epsilon`; ε grows with the tilt."""
    enough = _EPSILON_ERROR * epsilon + _LEAST_EPSILON_ERROR
    return _search(lambda saddle: saddle.epsilon - epsilon, cumulants, start, limit, enough)


def relaxed(cumulants: Cumulants, epsilon: float, log_delta: float, start: float, limit: float, near: float) -> float:
    """The smallest tilt at which Chernoff's bound is within e^`near` of δ, or else the one at which it is smallest."""
    tilt, best, best_tilt = start, math.inf, start
    while tilt < limit:
        excess = cumulants(tilt)[0] - tilt * epsilon + log_constant(tilt) - log_delta
        if excess < near:
            return tilt
        if excess < best:
            best, best_tilt = excess, tilt
        tilt *= _NEXT_TILT
    return best_tilt


def _search(
    excess: Callable[[Saddle], float], cumulants: Cumulants, start: float, limit: float, enough: float
) -> Saddle:
    """Root of an increasing function of ln τ by bracketing, then regula falsi with bisection as a safeguard."""
    low = high = min(start, limit)
    below = above = at_tilt(cumulants, low)
    f_low = f_high = excess(below)
    for _ in range(_BRACKETS):
        if f_low <= 0:
            break
        high, above, f_high = low, below, f_low
        low /= _FACTOR
        below = at_tilt(cumulants, low)
        f_low = excess(below)
    for _ in range(_BRACKETS):
        if f_high >= 0 or high >= limit:
            break
        low, below, f_low = high, above, f_high
        high = min(high * _FACTOR, limit)
        above = at_tilt(cumulants, high)
        f_high = excess(above)
    if f_high < 0:
        return above
    for turn in range(_ROUNDS):
        if f_high <= enough or f_high == f_low:
            return above
        if -f_low <= enough:
            return below
        a, b = math.log(low), math.log(high)
        weight = 0.5 if turn % 3 == 2 else min(1 - _LEAST_WEIGHT, max(_LEAST_WEIGHT, -f_low / (f_high - f_low)))
        middle = math.exp(a + weight * (b - a))
        saddle = at_tilt(cumulants, middle)
        value = excess(saddle)
        if value < 0:
            low, below, f_low = middle, saddle, value
        else:
            high, above, f_high = middle, saddle, value
    return above
