"""Fourier inversion of losses with atoms, after adding the loss of a Gaussian so small that it changes little.

The characteristic function of atoms does not fall, so the integral of `fourier` never ends. With the loss G of Gaussian
noise of a small μ added, it falls like e^{−μ²ω²/2}, and (docs/proofs/smoothing.md)

    δ_{L+G}(ε) − c·p_{L+G}(ε)  ≤  δ_L(ε)  ≤  δ_{L+G}(ε),   c = √(2π) μ e^{μ²/8} erf(μ/√8) ≈ μ²,

where p is the density of L + G. Both are sums over the same samples of the contour. Thousands of different scales need
no grid that is fine enough for the smallest and long enough for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np

from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier import saddle
from discreet.accounting.methods.target import Target
from discreet.numeric.rounding import UNIT

# The relative width that smoothing may cause: a third of the width at which an answer is taken, or far less where that
# takes little time, that is for up to this many losses.
_WIDTH, _NARROW, _FEW = 1e-4, 2e-5, 5000
# Where the contour would be too long, the answer may be wider, by this factor each time, up to this many times.
_WIDER, _TRIES = 8.0, 3
# The most that μ² may grow: c has a factor e^{μ²/8}, which must stay a float. Such an answer would be useless anyway.
_MOST_ADDED = 4096.0
# An ε below this, in units of 1/τ, is not resolved any further.
_LEAST_EPSILON = 1e-2
# Relative margin for the round-off of c, and roundings of one sample of the density.
_FACTOR_ERROR, _SAMPLE_ROUNDINGS = 1e-12, 32
# Exponents are cut off here: e^709 is the largest float.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, eq=False)
class Smoothed(fourier.Inversion):
    """Samples of L + G. The upper end is that of L + G; the lower one is less by what G may have added.

    Attributes:
        added: the μ² of G.
        fall: the μ² of all Gaussians, G included: the integrand falls at least like e^{−μ²ω²/2}.
        beyond: what the sum for the density has where that is not known to hold.
    """

    added: float = 0.0
    fall: float = 0.0
    beyond: float = 0.0

    def at(self, epsilon: float) -> tuple[float, float]:
        """Bounds on δ(ε) of L, lower and upper."""
        lower, upper = fourier.Inversion.at(self, epsilon)
        return max(0.0, lower - _removed(self.added) * self._density(epsilon)), upper

    def _density(self, epsilon: float) -> float:
        """An upper bound on the density of L + G at ε: Poisson's sum of terms that are not negative, as for δ."""
        omega = self.step * np.arange(len(self.values))
        poles = (self.tilt + 1j * omega) * (self.tilt + 1 + 1j * omega)
        integrand = self.values * poles
        turned = integrand * np.exp(-1j * epsilon * omega)
        center = self.step / (2 * math.pi) * float(turned[0].real + 2 * np.sum(turned[1:].real))
        size = self.step / math.pi * float(np.sum(np.abs(integrand) * (1 + abs(epsilon) * omega)))
        # `error` has 1/|poles| in it, and what lies beyond the contour; without it the sum falls like the Gaussian.
        end = self.step * len(self.values)
        beyond = math.exp(-self.fall * end * end / 2) * (self.step + 1 / (self.fall * end)) / math.pi
        error = self.error * float(np.abs(poles[-1])) + _SAMPLE_ROUNDINGS * UNIT * size + beyond + self.beyond
        factor = math.exp(min(_LARGEST_EXPONENT, self.log_scale - self.tilt * epsilon))
        return factor * max(0.0, center + error) * (1 + self.relative)


def _removed(mu_squared: float) -> float:
    """The c of the module's docstring, rounded up."""
    mu = math.sqrt(mu_squared)
    return math.sqrt(2 * math.pi) * mu * math.exp(mu_squared / 8) * math.erf(mu / math.sqrt(8)) * (1 + _FACTOR_ERROR)


def invert(
    smooth: fourier.Smooth, point: saddle.Saddle, target: Target, *, width: float | None = None
) -> Smoothed | None:
    """Sample the contour of L + G through `point`; None where even a rough answer takes too long a contour.

    `width` is the relative width that smoothing may cause; None is that of an answer.
    """
    tilt = point.tilt
    if width is None:
        few = sum(loss.members * count for loss, count in smooth.closed) <= _FEW
        width = _NARROW if few else _WIDTH
    # δ changes by about μ²τ(τ+1)δ, and ε by that over τ.
    wanted = width / (tilt * (tilt + 1))
    if target.epsilon is None:
        wanted = width * max(point.epsilon, _LEAST_EPSILON / tilt) / (tilt + 1)
    for _ in range(_TRIES):
        added = max(wanted - smooth.mu_squared, 0.0)
        if added > _MOST_ADDED:
            return None
        fall = smooth.mu_squared + added
        moved = replace(point, curvature=point.curvature + added)
        samples = fourier.invert(replace(smooth, mu_squared=fall), moved)
        if samples is not None:
            values = {field.name: getattr(samples, field.name) for field in fields(samples)}
            return Smoothed(**values, added=added, fall=fall)
        wanted *= _WIDER
    return None
