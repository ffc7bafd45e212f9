"""Profiles that have a formula, from both sides: Gaussian noise, and Gaussian noise on one Poisson sample."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

from discreet.accounting.closed_forms import down, gaussian_delta, up

_SLACK = 32 * 2.0**-52

Bounds = Callable[[float], tuple[float, float]]


def gaussian(epsilon: float, mu: float) -> tuple[float, float]:
    """δ(ε) of Gaussian noise with μ = Δ₂/σ, for any real ε, from below and from above (Balle & Wang 2018)."""
    upper = gaussian_delta(epsilon, mu)
    wide = epsilon / mu + mu / 2
    # The subtraction may cancel: it is taken at the end of its error that gives the smaller δ.
    near, far = epsilon / mu - mu / 2 + 2.0**-50 * abs(wide), wide * (1 - 2.0**-50)
    if near < -6:
        missing = float(special.ndtr(near)) + math.exp(min(epsilon + float(special.log_ndtr(-far)), 0.0))
        return max(0.0, down(1.0 - up(missing))), upper
    first, second = float(special.erfcx(near / math.sqrt(2))), float(special.erfcx(far / math.sqrt(2)))
    difference = first - second - _SLACK * (first * (2 + max(0.0, -near)) + second)
    exponent = -near * near / 2
    return max(0.0, down(0.5 * math.exp(exponent - abs(exponent) * _SLACK) * difference)), upper


def sampled_gaussian(epsilon: float, mu: float, rate: float, *, adding: bool) -> tuple[float, float]:
    """δ(ε), ε ≥ 0, of Gaussian noise on one Poisson sample: the hockey-stick divergence of a mixture.

    Removing: q·δ(ln(1 + (e^ε − 1)/q)). Adding: (1 − (1−q)e^ε)·δ(ln(q e^ε/(1 − (1−q)e^ε))), 0 where that is not
    positive (Balle, Barthe & Gaboardi 2018, Theorem 2, and its mirror image).
    """
    if not adding:
        inner = math.log1p(math.expm1(epsilon) / rate) if epsilon < 700 else epsilon - math.log(rate)
        lower, _ = gaussian(inner * (1 + _SLACK) + _SLACK, mu)
        _, upper = gaussian(inner * (1 - _SLACK) - _SLACK, mu)
        return down(rate * lower), up(rate * upper)
    kept = -math.expm1(epsilon + math.log1p(-rate))
    error = 4 * 2.0**-52 * (1 + epsilon)
    if kept <= error:
        return 0.0, up(2 * error) if kept > -error else 0.0
    inner = epsilon + math.log(rate) - math.log(kept)
    wobble = 2 * error / kept + _SLACK * (1 + abs(inner))
    lower, _ = gaussian(inner + wobble, mu)
    _, upper = gaussian(inner - wobble, mu)
    return max(0.0, down((kept - error) * lower)), up((kept + error) * upper)


def solve(bounds: Bounds, delta: float) -> tuple[float, float]:
    """ε at which a falling profile passes `delta`: the last one surely above it, and the first one surely not."""
    lower = _last(lambda epsilon: bounds(epsilon)[0] >= delta)
    upper = _last(lambda epsilon: bounds(epsilon)[1] > delta, after=True)
    return lower, upper


def _last(holds: Callable[[float], bool], *, after: bool = False) -> float:
    """The end of the interval from 0 on which a condition holds, from inside, or from outside with `after`."""
    if not holds(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > 1e300:
            return math.inf
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high) or high - low <= 1e-15 * high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high if after else low
