"""δ(ε) by Fourier inversion along a tilted line, with a certificate for everything that is left out.

δ(ε) = (2πi)⁻¹ ∫ e^{K(z) − εz}/(z(z+1)) dz along Re z = τ > 0, with K = Σ ln E[e^{zL}] (Alghamdi et al. 2023). Summed at
spacing Δ, the integral becomes Σ_k e^{τkP} δ(ε + kP) with P = 2π/Δ (Poisson's formula): no term is negative, so that
this is an upper bound, and Chernoff's bound on the terms k ≠ 0 gives the lower one. The contour's truncation, the
quadrature of E[e^{zL}] and round-off are bounded and added. Proof: docs/proofs/fourier-certificate.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.closed import ClosedLoss
from discreet.accounting.methods.fourier import quadrature, saddle
from discreet.accounting.methods.fourier.decay import Decay, decay, log_envelope
from discreet.accounting.methods.fourier.quadrature import Rule, SampledGaussians

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_UNIT = 2.0**-53
_ALIAS = 18.0  # ln of how small the aliased terms shall be, relative to δ, with the sign turned
_FALLEN = 24.0  # ln of how far the integrand shall have fallen where the contour ends
_MOST_NODES = 1 << 15
_MOST_WORK = 2e8


@dataclass(frozen=True, eq=False)
class Smooth:
    """A composition that Fourier inversion understands: Gaussians (Σμ²), sampled Gaussians, and closed forms."""

    mu_squared: float
    sampled: SampledGaussians
    closed: tuple[tuple[ClosedLoss, int], ...] = field(default=())

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """K, K′, K″ at a real point, to a few digits."""
        k = self.mu_squared * tilt * (tilt + 1) / 2
        slope = self.mu_squared * (tilt + 0.5)
        curvature = self.mu_squared
        if len(self.sampled.rate):
            rule = quadrature.rough(self.sampled, tilt)
            sign = -1.0 if self.sampled.reverse else 1.0
            k += float(self.sampled.count @ rule.log_moment)
            slope += sign * float(self.sampled.count @ rule.mean())
            curvature += float(self.sampled.count @ rule.variance())
        for loss, count in self.closed:
            own = loss.cumulants(tilt)
            k, slope, curvature = k + count * own[0], slope + count * own[1], curvature + count * own[2]
        return k, slope, curvature

    def log_moment(self, tilt: float) -> float:
        """An upper bound on K at a real point."""
        k = self.mu_squared * tilt * (tilt + 1) / 2
        if len(self.sampled.rate):
            rule = quadrature.certified(self.sampled, tilt, 0.0)
            if rule is None:
                return math.inf
            k += float(self.sampled.count @ (rule.log_moment + rule.error))
        for loss, count in self.closed:
            k += count * (loss.cumulants(tilt)[0] + 1e-13)
        return k + 1e-12 * (1 + abs(k))


@dataclass(frozen=True, eq=False)
class Inversion:
    """The samples on the contour, good for every ε near the one it was made for."""

    tilt: float
    log_scale: float
    step: float
    values: Complexes
    error: float
    relative: float
    above_order: float
    above: float

    def at(self, epsilon: float) -> tuple[float, float]:
        """Bounds on δ(ε), lower and upper."""
        center, error, factor = self._center(epsilon)
        period = 2 * math.pi / self.step
        lower_alias = 1 / math.expm1(min(700.0, self.tilt * period))
        exponent = self.above - self.above_order * epsilon - (self.above_order - self.tilt) * period
        decays = -math.expm1(-(self.above_order - self.tilt) * period)
        upper_alias = math.exp(min(0.0, exponent)) / decays if exponent < 0 else math.inf
        lower = factor * (center - error) - lower_alias - upper_alias
        return max(0.0, lower), min(1.0, factor * (center + error))

    def _center(self, epsilon: float) -> tuple[float, float, float]:
        index = np.arange(len(self.values))
        turned = self.values * np.exp((-1j * epsilon * self.step) * index)
        center = self.step / (2 * math.pi) * float(turned[0].real + 2 * np.sum(turned[1:].real))
        size = self.step / math.pi * float(np.sum(np.abs(self.values) * (1 + abs(epsilon) * self.step * index)))
        error = (self.error + 16 * _UNIT * size) * (1 + self.relative) + abs(center) * self.relative
        return center, error, math.exp(min(700.0, self.log_scale - self.tilt * epsilon))

    def solve(self, delta: float, start: float) -> tuple[float, float]:
        """Bounds on the ε at which δ(ε) = `delta`; (0, inf) where these samples do not decide."""
        epsilon = start
        slope = self.tilt
        for _ in range(20):
            value = self._log(epsilon)
            if value is None:
                return 0.0, math.inf
            nearby = self._log(epsilon + 1e-4 / self.tilt)
            if nearby is not None and nearby < value:
                slope = (value - nearby) * self.tilt / 1e-4
            move = (value - math.log(delta)) / slope
            epsilon += move
            if abs(move) < 1e-12 * (1 / self.tilt + abs(epsilon)):
                break
        return self._edge(delta, epsilon, slope, 0), self._edge(delta, epsilon, slope, 1)

    def _log(self, epsilon: float) -> float | None:
        center = self._center(epsilon)[0]
        return math.log(center) + self.log_scale - self.tilt * epsilon if center > 0 else None

    def _edge(self, delta: float, epsilon: float, slope: float, side: int) -> float:
        """The nearest ε on one side of the root at which the certificate decides."""
        bound = self.at(epsilon)[side]
        gap = abs(math.log(bound / delta)) if bound > 0 else 1e-3
        pad = max(1.02 * gap / slope, 1e-13 * max(abs(epsilon), 1e-300))
        for _ in range(40):
            moved = epsilon + pad if side == 1 else epsilon - pad
            value = self.at(moved)[side]
            if (side == 1 and value <= delta) or (side == 0 and value >= delta):
                return moved
            pad *= 2
            if pad * slope > 3:
                break
        return math.inf if side == 1 else -math.inf


def locate(smooth: Smooth, *, epsilon: float | None = None, delta: float | None = None) -> saddle.Saddle:
    """The saddle of `epsilon` or of `delta`."""
    spread = math.sqrt(max(smooth.cumulants(1e-9)[2], 1e-300))
    if epsilon is not None:
        return saddle.for_epsilon(smooth.cumulants, epsilon, 1 / spread)
    assert delta is not None
    return saddle.for_delta(smooth.cumulants, math.log(delta), 1 / spread)


def invert(smooth: Smooth, point: saddle.Saddle) -> Inversion | None:
    """Sample the contour through `point`; None where the integrand does not fall fast enough to be worth it."""
    tilt = point.tilt
    spread = math.sqrt(max(point.curvature, 1e-300))
    order, above, period = _period(smooth, point, spread)
    if not 0 < period < math.inf:
        return None
    step = 2 * math.pi / period
    scale = 1 / (tilt * (tilt + 1))
    nodes = max(8, math.ceil(7.5 / spread / step))
    if len(smooth.sampled.rate) == 0:
        # The Gaussian alone bounds what is left out, so it alone must have fallen.
        nodes = max(nodes, math.ceil(math.sqrt(2 * _FALLEN / smooth.mu_squared) / step) + 1)
    if nodes > _MOST_NODES:
        return None
    earlier = 0.0
    while True:
        built = _samples(smooth, tilt, step, nodes)
        if built is None:
            return None
        values, error, rule = built
        fallen = -math.log(float(np.max(np.abs(values[-max(2, nodes // 16) :]))) / scale + 1e-300)
        if fallen > _FALLEN:
            break
        if _hopeless(nodes, fallen, earlier, 0 if rule is None else rule.losses.shape[1]):
            return None
        nodes, earlier = 2 * nodes, fallen
    left_out = _beyond(smooth, tilt, rule, step, nodes)
    log_scale, relative = _scale(smooth, tilt, rule)
    if left_out > 1e-3 * scale / spread:
        return None
    return Inversion(tilt, log_scale, step, values, error + left_out, relative, order, above)


def _hopeless(nodes: int, fallen: float, earlier: float, quadrature_nodes: int) -> bool:
    """Whether the contour would grow too long, if the integrand goes on falling like e^{−cω^p}."""
    if 2 * nodes > _MOST_NODES:
        return True
    if earlier <= 0.05 or fallen < 2:
        return False
    power = max(math.log2(fallen / earlier), 0.05)
    growth = (_FALLEN / fallen) ** (1 / power)
    return bool(growth * nodes > _MOST_NODES or growth**2 * nodes * quadrature_nodes > _MOST_WORK)


def _period(smooth: Smooth, point: saddle.Saddle, spread: float) -> tuple[float, float, float]:
    """Order and exponent of Chernoff's bound on what aliases from above, and a period that makes both aliases small."""
    goal = _ALIAS - point.log_delta
    best = (point.tilt + 1 / spread, math.inf)
    for scaled in (1.0, 2.0, 3.0, 4.5, 6.5, 9.0):
        order = point.tilt + scaled / spread
        needed = (smooth.cumulants(order)[0] - order * point.epsilon + goal) / (order - point.tilt)
        if needed < best[1]:
            best = (order, needed)
    order = best[0]
    above = smooth.log_moment(order) + order * math.log(order) - (order + 1) * math.log1p(order)
    needed = (above - order * point.epsilon + goal) / (order - point.tilt)
    return order, above, max(needed, goal / point.tilt)


def _samples(smooth: Smooth, tilt: float, step: float, nodes: int) -> tuple[Complexes, float, Rule | None] | None:
    """The integrand over e^{K(τ) − ετ} at 0, Δ, 2Δ, …, the error of its sum, and the quadrature behind it."""
    omega = np.asarray(step * np.arange(nodes), dtype=np.float64)
    log_value = smooth.mu_squared / 2 * (1j * omega * (2 * tilt + 1) - omega * omega)
    log_size = log_value.real.copy()
    log_raised = log_size.copy()
    wound = np.abs(log_value)
    rule: Rule | None = None
    events = smooth.sampled
    if len(events.rate):
        rule = quadrature.certified(events, tilt, float(omega[-1]))
        if rule is None or rule.losses.size * nodes > _MOST_WORK * max(1, len(events.rate) // 4):
            return None
        for begin in range(0, len(events.rate), 64):
            part = slice(begin, begin + 64)
            piece = Rule(rule.losses[part], rule.weights[part], rule.log_moment[part], rule.error[part], rule.reach)
            own = piece.on_contour(step, nodes)
            size = np.abs(own)
            with np.errstate(divide="ignore"):
                log_own = np.log(own)
                log_value += events.count[part] @ log_own
                log_size += events.count[part] @ log_own.real
                log_raised += events.count[part] @ np.log(size + rule.error[part, None])
                wound += events.count[part] @ np.abs(np.where(size > 0, log_own, 0.0))
    for loss, count in smooth.closed:
        own, error = loss.ratio(tilt, omega)
        with np.errstate(divide="ignore"):
            log_own = np.log(own)
            log_value += count * log_own
            log_size += count * log_own.real
            log_raised += count * np.log(np.abs(own) + error)
            wound += count * np.abs(np.where(own != 0, log_own, 0.0))
    poles = (tilt + 1j * omega) * (tilt + 1 + 1j * omega)
    kept = np.where(log_size > -700, log_value, -800.0)
    values = np.asarray(np.exp(kept) / poles, dtype=np.complex128)
    gap = np.exp(np.minimum(log_raised, 600.0)) - np.exp(log_size)
    gap += np.exp(log_size) * _UNIT * (16 + 4 * wound) + 1e-300
    gap /= np.abs(poles)
    return values, step / math.pi * float(np.sum(gap)), rule


def _scale(smooth: Smooth, tilt: float, rule: Rule | None) -> tuple[float, float]:
    """K(τ) and a bound on its error, which is a relative error of δ."""
    k = smooth.mu_squared * tilt * (tilt + 1) / 2
    error = _UNIT * 8 * k
    if rule is not None:
        k += float(smooth.sampled.count @ rule.log_moment)
        error += float(smooth.sampled.count @ (rule.error + 4 * _UNIT * np.abs(rule.log_moment)))
    for loss, count in smooth.closed:
        own = loss.cumulants(tilt)[0]
        k, error = k + count * own, error + count * _UNIT * 64 * (1 + abs(own))
    return k, math.expm1(error + 8 * _UNIT * abs(k)) + 64 * _UNIT


def _beyond(smooth: Smooth, tilt: float, rule: Rule | None, step: float, nodes: int) -> float:
    """Bound on the sum over the contour's nodes that were left out, in the unit of the samples."""
    start = step * nodes
    events = smooth.sampled
    if len(events.rate) == 0 or rule is None:
        # |φ| ≤ e^{−μ²ω²/2}, which falls: the sum is at most the first term and the integral.
        fall = smooth.mu_squared
        if fall == 0:
            return math.inf
        return math.exp(-fall * start * start / 2) * (step / start**2 + 1 / start) / math.pi
    cuts = decay(events, tilt, rule.log_moment, 256 if len(events.rate) < 100 else 96)
    parts = 16
    omega = (start * 2.0 ** np.arange(24)[:, None] * (1 + np.arange(parts) / parts)).ravel()
    few, enough = 1, len(omega) - 1  # the bound falls in ω: find the first point where it is small enough
    while few < enough:
        middle = (few + enough) // 2
        if float(events.count @ np.log(cuts.bound(float(omega[middle])))) > -60:
            few = middle + 1
        else:
            enough = middle
    near = omega[: enough + 1]
    finer = _finer(events, tilt, float(near[-1]), cuts)
    if finer is not None:
        looked_at = finer.octaves(start, -(-len(near) // parts), parts)[:, : len(near)]
        far = near[-1] * 2.0 ** np.arange(1, 40)
        omega = np.concatenate((near, far))
        log_bound = log_envelope(events, cuts, omega, looked_at, finer.error)
    else:
        omega = np.asarray(start * 1.3 ** np.arange(120), dtype=np.float64)
        log_bound = log_envelope(events, cuts, omega, None, 0.0)
    log_bound -= smooth.mu_squared * omega[:-1] ** 2 / 2
    widths = np.diff(omega) + step
    total = float(np.sum(np.exp(log_bound) * widths / omega[:-1] ** 2))
    total += math.exp(log_bound[-1]) * (1 / omega[-1] + step / omega[-1] ** 2)
    return float(total / math.pi)


def _finer(events: SampledGaussians, tilt: float, reach: float, cuts: Decay) -> Rule | None:
    """A rule for the frequencies between; where outliers would need too many nodes, one that leaves them out."""
    often = float(np.max(events.count))
    whole = quadrature.certified(events, tilt, reach, within=min(1e-4, 1e-2 / often))
    if whole is not None:
        return whole
    rows = np.arange(len(events.rate))
    most = np.sum(cuts.set_aside * events.count[:, None] < 1.0, axis=1) - 1
    cut = cuts.threshold[rows, most], cuts.set_aside[rows, most]
    return quadrature.certified(events, tilt, reach, within=min(1e-2, 1.0 / often), cut=cut)
