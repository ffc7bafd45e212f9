"""How fast a sampled Gaussian's characteristic function falls: bounds that hold at every frequency.

Under the tilt, the loss has a density f. If f is cut at a point, the part on one side has a characteristic function of
modulus at most its mass, the other part at most (its jump + its total variation)/|ω|. The best cut gives a bound for
each ω, which needs no quadrature and holds out to infinity. Between sampled frequencies |φ|² cannot rise by more than
its second derivative allows, which is at most 2·variance; a few large losses that would inflate the variance are set
aside. Proof: docs/proofs/fourier-certificate.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.methods.fourier.quadrature import SampledGaussians

Floats = NDArray[np.float64]

_ROOT = math.sqrt(2 * math.pi)
# Shares of the mass that may be set aside. Each gives a valid bound; the best one is used at each frequency.
_ASIDE = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 2e-3, 4e-3, 1.5e-2, 5e-2)
# How far the cells reach beyond the centers of the tilted normals: P(N > 9) is 1e-19. And cells for each unit of u.
_REACH, _DENSITY = 9.0, 4
# Exponents are cut off here. A mass above 1 decides nothing, and neither does one of e^50; e^709 is the largest float.
_USELESS_EXPONENT, _LARGEST_EXPONENT = 50.0, 700.0
# The bound by cuts costs time and falls in ω, so it is computed at every fourth frequency and used for the next ones.
_REUSED = 4


@dataclass(frozen=True, eq=False)
class Decay:
    """For each event and each cut: the mass before it, and 4 times the largest density after it.

    `set_aside` and `spread`, for each event and each of a few thresholds of u: a bound on the mass above the threshold,
    and on the second moment of the loss below it around a fixed point.
    """

    mass: Floats
    variation: Floats
    set_aside: Floats
    spread: Floats
    threshold: Floats

    def bound(self, omega: float) -> Floats:
        """An upper bound on |E[e^{iωL}]| for each event, non-increasing in ω."""
        return np.asarray(np.minimum(1.0, np.min(self.mass + self.variation / omega, axis=1)))


def decay(events: SampledGaussians, tilt: float, log_moment: Floats, cells: int = 256) -> Decay:
    """The cut bounds of every event under `tilt`.

    The density of the loss, as a function of u, is φ(u + μ) e^{μ²} g^{s+1}/(q μ G(s)) with g = e^L. Its logarithm has
    slope −(u + μ) + (s+1)μ·(a sigmoid in u), which has at most three zeros: f has at most two maxima, so that jump
    and variation after any cut add up to at most 4 times the largest value there.
    """
    s, mu = events.order(tilt), events.mu[:, None]
    low = np.minimum(-_REACH, -mu - _REACH)
    high = np.maximum(0.0, max(s, 0.0) * mu) + _REACH + 2 * mu
    cells = max(cells, int(_DENSITY * float(np.max(high - low))))
    width = (high - low) / cells
    edges = low + width * np.arange(cells + 1)
    loss = events.loss(edges)

    def largest(power: float, center: Floats | float) -> Floats:
        away = np.maximum(0.0, np.maximum(edges[:, :-1] - center, center - edges[:, 1:]))
        return power * (loss[:, 1:] if power >= 0 else loss[:, :-1]) - away * away / 2

    log_mass = largest(s, 0.0) - log_moment[:, None]
    before = np.cumsum(width / _ROOT * np.exp(np.minimum(log_mass, _USELESS_EXPONENT)), axis=1)
    floor = max(0.0, -s) * -np.log1p(-events.rate)
    left = np.exp(np.minimum(special.log_ndtr(low[:, 0]) + floor - log_moment, _USELESS_EXPONENT))[:, None]
    before = np.concatenate((left, left + before), axis=1)[:, :-1]
    log_density = largest(s + 1, -mu) + mu * mu - log_moment[:, None] - np.log(_ROOT * events.rate[:, None] * mu)
    density = np.exp(np.minimum(log_density, _LARGEST_EXPONENT))
    after = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    return Decay(before, 4 * after, *_set_aside(loss, log_mass, width, edges))


def _set_aside(loss: Floats, log_mass: Floats, width: Floats, edges: Floats) -> tuple[Floats, Floats, Floats]:
    """Cut off the upper losses at a few thresholds: what is cut off, and the second moment of what stays.

    Beyond the last edge the integrand falls by more than e^{−5} for each unit of u, so its integral is below the last
    cell's supremum.
    """
    mass = width / _ROOT * np.exp(np.minimum(log_mass, _USELESS_EXPONENT))
    mass[:, -1] += np.exp(log_mass[:, -1]) / _ROOT
    middle = (loss[:, 1:] + loss[:, :-1]) / 2
    center = np.sum(mass * middle, axis=1, keepdims=True) / np.sum(mass, axis=1, keepdims=True)
    distance = np.maximum((loss[:, 1:] - center) ** 2, (loss[:, :-1] - center) ** 2)
    moments = np.cumsum(mass * distance, axis=1)
    above = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
    above = np.concatenate((above[:, 1:], np.zeros_like(above[:, :1])), axis=1)
    rows = np.arange(len(loss))
    cuts = [np.argmax(above <= allowed, axis=1) for allowed in _ASIDE]
    return (
        np.stack([above[rows, k] for k in cuts], axis=1),
        np.stack([moments[rows, k] for k in cuts], axis=1),
        np.stack([edges[rows, k + 1] for k in cuts], axis=1),
    )


def log_envelope(
    events: SampledGaussians, cuts: Decay, omega: Floats, looked_at: Floats | None, error: Floats | float
) -> Floats:
    """ln of a bound on Π|φ_j(ω)|^{count_j} on each [ω_k, ω_{k+1}]; the first columns of `looked_at` are |φ_j(ω_k)|."""
    result = np.empty(len(omega) - 1)
    sampled = 0 if looked_at is None else looked_at.shape[1] - 1
    raised_samples = None if looked_at is None else looked_at + np.reshape(error, (-1, 1))
    by_cut = np.ones(len(events.rate))
    for k in range(len(omega) - 1):
        if raised_samples is None or k >= sampled or k % _REUSED == 0:
            by_cut = cuts.bound(float(omega[k]))
        bound = by_cut
        if raised_samples is not None and k < sampled:
            rise = cuts.spread * (omega[k + 1] - omega[k]) ** 2 / 4
            peak = np.maximum(raised_samples[:, k], raised_samples[:, k + 1])[:, None] + cuts.set_aside
            bound = np.minimum(bound, np.min(np.sqrt(peak * peak + rise) + cuts.set_aside, axis=1))
        with np.errstate(divide="ignore"):
            result[k] = float(events.count @ np.log(bound))
    return result
