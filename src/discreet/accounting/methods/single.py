"""Profiles that have a formula, from both sides: Gaussian or Laplace noise, on all data or on one Poisson sample."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

from discreet.accounting.closed_forms import ARGUMENT_ERROR, ERFCX_LIMIT, gaussian_delta
from discreet.numeric.rounding import SLACK, UNIT, down, up
from discreet.numeric.search import Bracket, bisect

BoundsAt = Callable[[float], tuple[float, float]]

# math.exp overflows above 709; 700 leaves room for a factor.
_LARGEST_EXPONENT = 700
# Round-off of 1 − (1−q)e^ε, in units of 1 + ε: four operations of two roundings each.
_KEPT_ERROR = 8 * UNIT
# An ε beyond this is as good as infinite, and doubling it again could overflow.
_LARGEST_EPSILON = 1e300
# Where `solve` stops: a few units in the last place, or after this many halvings if ε is tiny.
_TOLERANCE, _HALVINGS = 1e-15, 200


def gaussian(epsilon: float, mu: float) -> tuple[float, float]:
    """δ(ε) of Gaussian noise with μ = Δ₂/σ, for any real ε, from below and from above (Balle & Wang 2018)."""
    upper = gaussian_delta(epsilon, mu)
    wide = epsilon / mu + mu / 2
    # The subtraction may cancel, so it is taken at the end of its error that gives the smaller δ.
    near, far = epsilon / mu - mu / 2 + ARGUMENT_ERROR * abs(wide), wide * (1 - ARGUMENT_ERROR)
    if near < ERFCX_LIMIT:
        missing = float(special.ndtr(near)) + math.exp(min(epsilon + float(special.log_ndtr(-far)), 0.0))
        return max(0.0, down(1.0 - up(missing))), upper
    first, second = float(special.erfcx(near / math.sqrt(2))), float(special.erfcx(far / math.sqrt(2)))
    difference = first - second - SLACK * (first * (2 + max(0.0, -near)) + second)
    exponent = -near * near / 2
    return max(0.0, down(0.5 * math.exp(exponent - abs(exponent) * SLACK) * difference)), upper


def laplace(epsilon: float, loss: float) -> tuple[float, float]:
    """δ(ε) of Laplace noise with the largest loss ε₀ = Δ₁/b, for any real ε, from below and from above.

    It is 1 − e^{(ε−ε₀)/2} within ±ε₀; beyond, 0 and 1 − e^ε.
    """
    error = SLACK * (abs(epsilon) + loss)
    if epsilon - loss > error:
        return 0.0, 0.0
    exponent = min((epsilon - loss) / 2, 0.0) if epsilon >= -loss else epsilon
    return max(0.0, down(-math.expm1(min(exponent + error, 0.0)))), up(-math.expm1(exponent - error))


def sampled(profile: BoundsAt, epsilon: float, rate: float, *, adding: bool) -> tuple[float, float]:
    """δ(ε), ε ≥ 0, of a release with this profile on one Poisson sample: the hockey-stick divergence of a mixture.

    Removing: q·δ(ln(1 + (e^ε − 1)/q)). Adding: (1 − (1−q)e^ε)·δ(ln(q e^ε/(1 − (1−q)e^ε))), 0 where that is not
    positive (Balle, Barthe & Gaboardi 2018, Theorem 2, and its mirror image). The profile is that of removing a unit,
    which must be that of adding one too.
    """
    if rate >= 1:
        return profile(epsilon)
    if not adding:
        inner = math.log1p(math.expm1(epsilon) / rate) if epsilon < _LARGEST_EXPONENT else epsilon - math.log(rate)
        lower, _ = profile(inner * (1 + SLACK) + SLACK)
        _, upper = profile(inner * (1 - SLACK) - SLACK)
        return down(rate * lower), up(rate * upper)
    kept = -math.expm1(epsilon + math.log1p(-rate))
    error = _KEPT_ERROR * (1 + epsilon)
    if kept <= error:
        return 0.0, up(2 * error) if kept > -error else 0.0
    inner = epsilon + math.log(rate) - math.log(kept)
    wobble = 2 * error / kept + SLACK * (1 + abs(inner))
    lower, _ = profile(inner + wobble)
    _, upper = profile(inner - wobble)
    return max(0.0, down((kept - error) * lower)), up((kept + error) * upper)


def solve(bounds: BoundsAt, delta: float) -> tuple[float, float]:
    """The ε at which a falling profile reaches `delta`: the last one surely above it, and the first one surely not."""
    lower = _end(lambda epsilon: bounds(epsilon)[0] >= delta).low
    upper = _end(lambda epsilon: bounds(epsilon)[1] > delta).high
    return lower, upper


def _end(holds: Callable[[float], bool]) -> Bracket:
    """The end of the interval from 0 on which a condition holds: it holds at `low`, and not at `high`."""
    if not holds(0.0):
        return Bracket(0.0, 0.0)
    low, high = 0.0, 1.0
    while holds(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return Bracket(math.inf, math.inf)
    return bisect(lambda epsilon: not holds(epsilon), low, high, relative=_TOLERANCE, rounds=_HALVINGS)
