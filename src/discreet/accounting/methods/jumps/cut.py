"""A composition of Poisson-sampled Gaussians, cut into its rare large losses and the rest.

One loss beyond a cut C decides a whole composition, however small the others are. With A = some loss lies beyond C,

    removing: δ(ε) = P(A) − e^ε Q(A) + E[(1 − e^{ε−S})₊; not A] + rest
    adding:   δ(ε) =                   E[(1 − e^{ε−S})₊; not A] + rest

where "beyond" is above C when a unit is removed and below −C when one is added. The rest is ≥ 0: that the other losses
make up for a jump. It is 0 for a large C, and Chernoff's bound makes it small for a moderate one. What is not in A has
bounded losses, which fit on a short and therefore fine grid. Proof: docs/proofs/rare-jumps.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift
from discreet.accounting.losses.loss import Cells
from discreet.accounting.methods.fourier import quadrature
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.accounting.methods.grid.discretize import MASS_ERROR

Floats = NDArray[np.float64]
#: (rate, μ, count) of each Poisson-sampled Gaussian.
Sampled = Sequence[tuple[float, float, int]]

# Relative round-off of sums of losses, for which an exact split at the cut needs room.
_ROOM = 1e-12
# Relative margin for a bound by Chernoff: its exponent has a certified error, this is for the operations around it.
_CHERNOFF_ERROR = 1e-9
_LARGEST_EXPONENT = 700.0
# The largest float below 1, so that ln(1 − p) is finite; the change is far below MASS_ERROR.
_BELOW_ONE = math.nextafter(1.0, 0.0)


def least_total(sampled: Sampled) -> float:
    """f = −Σ ln(1 − q): no sum of losses is below −f (removing) or above f (adding)."""
    return -math.fsum(count * math.log1p(-rate) for rate, _, count in sampled)


@dataclass(frozen=True)
class CutLoss:
    """The losses of a sampled Gaussian up to a cut C (removing), or from −C on (adding). Masses beyond are left out."""

    rate: float
    mu: float
    adding: bool
    cut: float

    infinite = 0.0
    unbounded = False

    @property
    def _whole(self) -> ContinuousLoss:
        return ContinuousLoss(GaussianShift(self.mu), self.rate, self.adding)

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        """None: a Gaussian has a density."""
        return np.empty(0), np.empty(0), np.empty(0)

    def support(self, tail: float) -> tuple[float, float]:
        """From the least loss to the cut, or from the cut to the largest; no tail is left out."""
        end = -math.log1p(-self.rate)
        return (-self.cut, end) if self.adding else (-end, self.cut)

    def cells(self, edges: Floats) -> Cells:
        """The cells on the near side of the cut, which must be an edge; the others are empty."""
        inside = edges >= -self.cut if self.adding else edges <= self.cut
        kept = self._whole.cells(edges[inside])
        before = int(np.argmax(inside))
        pad = (before, len(edges) - before - len(kept.p) - 1)
        return Cells(np.pad(kept.p, pad), np.pad(kept.q, pad), np.pad(kept.upper_share, pad))

    @property
    def end(self) -> float:
        """The u of the cut."""
        return float(self._whole.shift.coordinate(self._whole.unsampled(np.array([self.cut])))[0])

    def beyond(self) -> tuple[float, float]:
        """P and Q of a loss beyond the cut."""
        u = self.end
        base, shifted = float(special.ndtr(-u)), float(special.ndtr(self.mu - u))
        mixed = (1 - self.rate) * base + self.rate * shifted
        base, mixed = min(base, _BELOW_ONE), min(mixed, _BELOW_ONE)
        return (base, mixed) if self.adding else (mixed, base)


@dataclass(frozen=True)
class Far:
    """What the losses beyond the cut contribute.

    Attributes:
        p, q: P(A) and Q(A).
        total: Σ P(L_i beyond) when adding, Σ Q(L_i beyond) when removing.
        adding: the direction.
        cut: C.
        floor: f, see `least_total`.
        order, log_moment: s and a bound on Σ ln E_Q[e^{−sL}], for Chernoff's bound on the rest.
    """

    p: float
    q: float
    total: float
    adding: bool
    cut: float
    floor: float
    order: float
    log_moment: float

    def at(self, epsilon: float) -> tuple[float, float]:
        """The part of δ(ε) that these losses make, from below and from above."""
        if self.adding:
            return 0.0, min(self.p * (1 + MASS_ERROR), self.rest(epsilon))
        growth = math.exp(min(epsilon, _LARGEST_EXPONENT))
        lower = self.p * (1 - MASS_ERROR) - growth * self.q * (1 + MASS_ERROR)
        taken = growth * (self.q * (1 - MASS_ERROR) - self.rest(epsilon))
        return max(0.0, lower), max(0.0, self.p * (1 + MASS_ERROR) - max(0.0, taken))

    def rest(self, epsilon: float) -> float:
        """A bound on the probability that a loss lies beyond the cut and the others make up for it."""
        room = self.cut + epsilon if self.adding else self.cut - epsilon
        if room >= self.floor + _ROOM * (self.floor + self.cut):
            return 0.0
        exponent = min(0.0, self.log_moment - self.order * room)
        return self.total * math.exp(exponent) * (1 + _CHERNOFF_ERROR)


def far(losses: Sequence[tuple[CutLoss, int]], order: float) -> Far:
    """What lies beyond the cut that all `losses` share."""
    beyond = [(loss.beyond(), count) for loss, count in losses]
    p, q = (-math.expm1(math.fsum(n * math.log1p(-each[side]) for each, n in beyond)) for side in (0, 1))
    adding, cut = losses[0][0].adding, losses[0][0].cut
    total = math.fsum(n * each[0 if adding else 1] for each, n in beyond)
    sampled = [(loss.rate, loss.mu, count) for loss, count in losses]
    return Far(p, q, total, adding, cut, least_total(sampled), order, _log_moment(sampled, order))


def _log_moment(sampled: Sampled, order: float) -> float:
    """An upper bound on Σ ln E_Q[e^{−sL}]."""
    if order <= 0:
        return 0.0
    terms = np.array(sampled, dtype=np.float64).reshape(-1, 3)
    events = SampledGaussians(terms[:, 0].copy(), terms[:, 1].copy(), terms[:, 2].copy(), reverse=True)
    rule = quadrature.certified(events, order, 0.0)
    if rule is None:
        return order * least_total(sampled)
    bound = float(events.count @ (rule.log_moment + rule.error))
    return bound + _CHERNOFF_ERROR * (1 + abs(bound))
