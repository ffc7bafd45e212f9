"""δ(ε) by Fourier inversion along a tilted line, with a certificate for everything that is left out.

δ(ε) = (2πi)⁻¹ ∫ e^{K(z) − εz}/(z(z+1)) dz along Re z = τ > 0, with K = Σ ln E[e^{zL}] (Alghamdi et al. 2023). Summed at
spacing Δ, the integral becomes Σ_k e^{τkP} δ(ε + kP) with P = 2π/Δ (Poisson's formula). No term is negative, so this is
an upper bound, and Chernoff's bound on the terms k ≠ 0 gives the lower one. The contour's truncation, the quadrature of
E[e^{zL}] and round-off are bounded and added. Proof: docs/proofs/fourier-certificate.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.closed import LOG_MOMENT_ROUNDINGS, ClosedLoss
from discreet.accounting.methods.fourier import quadrature, saddle
from discreet.accounting.methods.fourier.decay import Decay, decay, log_envelope
from discreet.accounting.methods.fourier.quadrature import QuadratureRule, SampledGaussians
from discreet.numeric.rounding import UNIT
from discreet.numeric.search import least_integer

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

# −ln of the aliased terms, relative to δ: e^{−18} is 1.5e-8, far below the width at which an answer is taken.
_ALIAS = 18.0
# −ln of how far the integrand must have fallen where the contour ends: e^{−24} is 4e-11.
_FALLEN = 24.0
# Limits on time: nodes of the contour, and nodes of the contour times nodes of the quadrature (more of them where a
# quadrature is given). With more, a grid is faster.
_MOST_NODES = 1 << 15
_MOST_WORK, _MOST_GIVEN_WORK = 2e7, 6e7
# Sampled Gaussians that are evaluated together, to bound the memory of the matrix products.
_TOGETHER = 64

# Exponents are cut off here: e^709 is the largest float; 700 and 600 leave room for factors.
_LARGEST_EXPONENT, _LARGE_EXPONENT = 700.0, 600.0
# A factor e^x with x below the first is set to e^x with the second, which is 0.
_SMALLEST_EXPONENT, _ZERO_EXPONENT = -700, -800.0
# Added where 0 would be divided by, taken the logarithm of, or lost to underflow.
_TINY = 1e-300

# A tilt at which the curvature of K is that at 0.
_NEAR_ZERO = 1e-9
# Errors of K at a real point: of each closed form, and of their sum relative to 1 + |K|.
_CLOSED_ERROR, _SUM_ERROR = 1e-13, 1e-12
# Relative margin for the last few operations on K, which a relative error of δ takes in roundings.
_SCALE_ROUNDINGS = 64

# Roundings of one sample of the integrand, next to those of its phase.
_SAMPLE_ROUNDINGS = 16
# The last sixteenth of the contour shows how far the integrand has fallen.
_END = 16

# A contour starts with this many standard deviations of the loss in frequency, and at least this many nodes.
_FIRST_REACH, _FIRST_NODES = 7.5, 8
# Where the sum over the nodes left out exceeds this share of the whole, the inversion declines.
_MOST_LEFT_OUT = 1e-3
# Orders, in standard deviations above the tilt, that are tried for Chernoff's bound on the alias from above. Each is
# valid.
_ALIAS_ORDERS = (1.0, 2.0, 3.0, 4.5, 6.5, 9.0)
# And these where the period would be this many times longer than the alias from below needs: rare large losses rule.
_SMALL_ALIAS_ORDERS, _LONG = (0.3, 0.1, 0.03, 0.01), 4.0
# ln √(2π), of the saddle's estimate of δ; and ln of how much larger than δ the integrand may be: e^25 of 1e-16 is 1e-5.
_ROOT_LOG, _MOST_EXCESS = math.log(2 * math.pi) / 2, 25.0
# A forecast of the fall needs a fall of at least e² now and of e^0.05 at half the length; its power is no smaller than
# 0.05.
_FORECAST_FALL, _FORECAST_START, _LEAST_POWER = 2, 0.05, 0.05

# Newton's method in `solve`: rounds, the step of its difference quotient and its precision, both in units of 1/τ.
_NEWTON_ROUNDS, _DIFFERENCE, _NEWTON_ERROR = 20, 1e-4, 1e-12
# The search for a certified end: it starts 2% beyond the estimated gap, doubles at most 40 times, and gives up where
# ln δ has changed by 3.
_GAP_MARGIN, _EDGE_ROUNDS, _EDGE_REACH = 1.02, 40, 3
# The gap taken where a bound is 0, and the least gap relative to ε.
_UNKNOWN_GAP, _LEAST_GAP = 1e-3, 1e-13

# Beyond the contour: octaves of frequency with this many points each, down to a bound of e^{−60}; then whole octaves.
# Where no quadrature reaches that far, a geometric sequence of points, which also ends far beyond any decay.
_NEAR_OCTAVES, _POINTS, _FAR_OCTAVES = 24, 16, 40
_SMALL_ENOUGH = -60
_COARSE_RATIO, _COARSE_POINTS = 1.3, 120
# Cells of the decay bounds; with hundreds of events fewer are used, to save time.
_DECAY_CELLS, _FEW_DECAY_CELLS, _MANY_EVENTS = 256, 96, 100
# Errors of the quadrature beyond the contour, relative to 1/count: a characteristic function to the power `count` then
# changes by 1% at most, or by a factor e where outliers were set aside. The first numbers are their upper limits.
_FINE_WITHIN, _FINE_CHANGE = 1e-4, 1e-2
_CUT_WITHIN, _CUT_CHANGE = 1e-2, 1.0


@dataclass(frozen=True, eq=False)
class Smooth:
    """A composition that Fourier inversion can take: Gaussians (Σμ²), sampled Gaussians, and closed forms."""

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
            terms = loss.cumulants(tilt)
            k, slope, curvature = k + count * terms[0], slope + count * terms[1], curvature + count * terms[2]
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
            k += count * (loss.cumulants(tilt)[0] + loss.members * _CLOSED_ERROR)
        return k + _SUM_ERROR * (1 + abs(k))


@dataclass(frozen=True, eq=False)
class Inversion:
    """The integrand's samples on the contour, valid for every ε and tight near the one they were made for.

    Attributes:
        tilt: τ, where the contour crosses the real line.
        log_scale: K(τ).
        step: the spacing Δ of the nodes.
        values: the integrand over e^{K(τ) − ετ} at the nodes.
        error: a bound on the error of their sum, with what was left out.
        relative: a relative error of δ, from the error of K(τ).
        above_order, above: order and exponent of Chernoff's bound on the alias from above.
    """

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
        lower_alias = 1 / math.expm1(min(_LARGEST_EXPONENT, self.tilt * period))
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
        error = (self.error + _SAMPLE_ROUNDINGS * UNIT * size) * (1 + self.relative) + abs(center) * self.relative
        return center, error, math.exp(min(_LARGEST_EXPONENT, self.log_scale - self.tilt * epsilon))

    def solve(self, delta: float, start: float) -> tuple[float, float]:
        """Bounds on the ε at which δ(ε) = `delta`; (0, inf) where these samples do not decide."""
        epsilon = start
        slope = self.tilt
        for _ in range(_NEWTON_ROUNDS):
            value = self._log(epsilon)
            if value is None:
                return 0.0, math.inf
            nearby = self._log(epsilon + _DIFFERENCE / self.tilt)
            if nearby is not None and nearby < value:
                slope = (value - nearby) * self.tilt / _DIFFERENCE
            move = (value - math.log(delta)) / slope
            epsilon += move
            if abs(move) < _NEWTON_ERROR * (1 / self.tilt + abs(epsilon)):
                break
        return self._edge(delta, epsilon, slope, 0), self._edge(delta, epsilon, slope, 1)

    def _log(self, epsilon: float) -> float | None:
        """ln of the estimate of δ(ε); None where it is not positive."""
        center = self._center(epsilon)[0]
        return math.log(center) + self.log_scale - self.tilt * epsilon if center > 0 else None

    def _edge(self, delta: float, epsilon: float, slope: float, side: int) -> float:
        """The nearest ε on one side of the root at which the certificate decides."""
        bound = self.at(epsilon)[side]
        gap = abs(math.log(bound / delta)) if bound > 0 else _UNKNOWN_GAP
        pad = max(_GAP_MARGIN * gap / slope, _LEAST_GAP * max(abs(epsilon), _TINY))
        for _ in range(_EDGE_ROUNDS):
            moved = epsilon + pad if side == 1 else epsilon - pad
            value = self.at(moved)[side]
            if (side == 1 and value <= delta) or (side == 0 and value >= delta):
                return moved
            pad *= 2
            if pad * slope > _EDGE_REACH:
                break
        return math.inf if side == 1 else -math.inf


def locate(smooth: Smooth, *, epsilon: float | None = None, delta: float | None = None) -> saddle.Saddle:
    """The saddle of `epsilon` or of `delta`."""
    spread = math.sqrt(max(smooth.cumulants(_NEAR_ZERO)[2], _TINY))
    if epsilon is not None:
        return saddle.for_epsilon(smooth.cumulants, epsilon, 1 / spread)
    assert delta is not None
    return saddle.for_delta(smooth.cumulants, math.log(delta), 1 / spread)


def invert(smooth: Smooth, point: saddle.Saddle) -> Inversion | None:
    """Sample the contour through `point`; None where the integrand does not fall fast enough to be worth it."""
    tilt = point.tilt
    spread = math.sqrt(max(point.curvature, _TINY))
    order, above, period = _period(smooth, point, spread)
    if not 0 < period < math.inf:
        return None
    step = 2 * math.pi / period
    scale = 1 / (tilt * (tilt + 1))
    # Off the saddle the integrand is larger than δ, and must fall by that much more.
    excess = smooth.cumulants(tilt)[0] - tilt * point.epsilon + math.log(scale / spread) - _ROOT_LOG - point.log_delta
    if not excess < _MOST_EXCESS:
        return None
    enough = _FALLEN + max(0.0, excess)
    reach = _FIRST_REACH * math.sqrt(enough / _FALLEN)
    nodes = max(_FIRST_NODES, math.ceil(reach / spread / step))
    # From here on the Gaussian alone has fallen, whatever the other losses do.
    by_gaussian = math.inf if smooth.mu_squared <= 0 else math.sqrt(2 * enough / smooth.mu_squared) / step + 1
    if len(smooth.sampled.rate) == 0:
        # The Gaussian alone bounds what is left out, so the Gaussian must have fallen.
        nodes = max(nodes, math.ceil(math.sqrt(2 * _FALLEN / smooth.mu_squared) / step) + 1)
    if nodes > _MOST_NODES:
        return None
    most = _MOST_LEFT_OUT * scale / spread * math.exp(-max(0.0, excess))
    earlier = 0.0
    while True:
        built = sampled(smooth, tilt, step, nodes)
        if built is None:
            return None
        values, error, rule = built
        fallen = -math.log(float(np.max(np.abs(values[-max(2, nodes // _END) :]))) / scale + _TINY)
        if fallen > enough and (left_out := _beyond(smooth, tilt, rule, step, nodes)) <= most:
            break
        quadrature_nodes = 0 if rule is None else rule.losses.shape[1]
        if fallen > enough or _hopeless(nodes, fallen, earlier, enough, quadrature_nodes):
            # Losses with atoms fall and rise again, and do not bound what lies beyond: only the Gaussian may help.
            if not nodes < by_gaussian <= _MOST_NODES:
                return None
            nodes, earlier = math.ceil(by_gaussian), 0.0
            continue
        nodes, earlier = 2 * nodes, fallen
    log_scale, relative = log_scale_of(smooth, tilt, rule)
    return Inversion(tilt, log_scale, step, values, error + left_out, relative, order, above)


def _hopeless(nodes: int, fallen: float, earlier: float, enough: float, quadrature_nodes: int) -> bool:
    """Whether the contour would grow too long, if the integrand goes on falling like e^{−cω^p}; at best, p = 2."""
    if 2 * nodes > _MOST_NODES or nodes * math.sqrt(enough / max(fallen, _TINY)) > _MOST_NODES:
        return True
    if earlier <= _FORECAST_START or fallen < _FORECAST_FALL:
        return False
    power = max(math.log2(fallen / earlier), _LEAST_POWER)
    growth = (enough / fallen) ** (1 / power)
    return bool(growth * nodes > _MOST_NODES or growth**2 * nodes * quadrature_nodes > _MOST_WORK)


def _period(smooth: Smooth, point: saddle.Saddle, spread: float) -> tuple[float, float, float]:
    """Order and exponent of Chernoff's bound on what aliases from above, and a period that makes both aliases small."""
    goal = _ALIAS - point.log_delta
    best = (point.tilt + 1 / spread, math.inf)
    for scaled in (*_ALIAS_ORDERS, *_SMALL_ALIAS_ORDERS):
        if scaled < 1 and best[1] < _LONG * goal / point.tilt:
            break
        order = point.tilt + scaled / spread
        needed = (smooth.cumulants(order)[0] - order * point.epsilon + goal) / (order - point.tilt)
        if needed < best[1]:
            best = (order, needed)
    order = best[0]
    above = smooth.log_moment(order) + order * math.log(order) - (order + 1) * math.log1p(order)
    needed = (above - order * point.epsilon + goal) / (order - point.tilt)
    return order, above, max(needed, goal / point.tilt)


def sampled(
    smooth: Smooth, tilt: float, step: float, nodes: int, rule: QuadratureRule | None = None
) -> tuple[Complexes, float, QuadratureRule | None] | None:
    """The integrand over e^{K(τ) − ετ} at 0, Δ, 2Δ, …, the error of its sum, and the quadrature behind it.

    A `rule` that is given stands for the sampled Gaussians, of which it may keep a part only.
    """
    omega = np.asarray(step * np.arange(nodes), dtype=np.float64)
    log_value = smooth.mu_squared / 2 * (1j * omega * (2 * tilt + 1) - omega * omega)
    log_size = log_value.real.copy()
    log_raised = log_size.copy()
    wound = np.abs(log_value)  # sizes of the logarithms, in whose roundings the phases err
    events = smooth.sampled
    if len(events.rate):
        most = _MOST_WORK * max(1, len(events.rate) // 4) if rule is None else _MOST_GIVEN_WORK
        rule = rule or quadrature.certified(events, tilt, float(omega[-1]))
        if rule is None or rule.losses.size * nodes > most:
            return None
        for begin in range(0, len(events.rate), _TOGETHER):
            rows = slice(begin, begin + _TOGETHER)
            piece = rule.rows(rows)
            log_ratio, spoiled = _log_one_plus(piece.on_contour(step, nodes))
            error = piece.contour_error(omega)
            with np.errstate(divide="ignore", over="ignore"):
                log_value += events.count[rows] @ log_ratio
                log_size += events.count[rows] @ log_ratio.real
                log_raised += events.count[rows] @ np.logaddexp(log_ratio.real, np.log(error))
                wound += events.count[rows] @ (np.abs(np.where(np.isfinite(log_ratio), log_ratio, 0.0)) + spoiled)
    for loss, count in smooth.closed:
        ratio, error = loss.ratio(tilt, omega)
        with np.errstate(divide="ignore"):
            log_ratio = np.log(ratio)
            log_value += count * log_ratio
            log_size += count * log_ratio.real
            log_raised += count * np.log(np.abs(ratio) + error)
            wound += count * np.abs(np.where(ratio != 0, log_ratio, 0.0))
    poles = (tilt + 1j * omega) * (tilt + 1 + 1j * omega)
    kept = np.where(log_size > _SMALLEST_EXPONENT, log_value, _ZERO_EXPONENT)
    values = np.asarray(np.exp(kept) / poles, dtype=np.complex128)
    gap = np.exp(np.minimum(log_raised, _LARGE_EXPONENT)) - np.exp(log_size)
    gap += np.exp(log_size) * UNIT * (_SAMPLE_ROUNDINGS + 4 * wound) + _TINY
    gap /= np.abs(poles)
    return values, step / math.pi * float(np.sum(gap)), rule


def _log_one_plus(small: Complexes) -> tuple[Complexes, Floats]:
    """ln(1 + z), with digits where z is tiny, and how many roundings its real part errs by beside those of its size."""
    x, y = small.real, small.imag
    above = x * (2 + x) + y * y  # |1 + z|² − 1
    with np.errstate(divide="ignore"):
        size = np.where(above > -0.5, np.log1p(above) / 2, np.log(np.hypot(1 + x, y)))
    return np.asarray(size + 1j * np.arctan2(y, 1 + x)), np.asarray(2 * np.abs(x) + x * x + y * y)


def log_scale_of(smooth: Smooth, tilt: float, rule: QuadratureRule | None) -> tuple[float, float]:
    """K(τ) and a bound on its error, which is a relative error of δ."""
    k = smooth.mu_squared * tilt * (tilt + 1) / 2
    error = UNIT * 8 * k
    if rule is not None:
        k += float(smooth.sampled.count @ rule.log_moment)
        error += float(smooth.sampled.count @ (rule.error + 4 * UNIT * np.abs(rule.log_moment)))
    for loss, count in smooth.closed:
        term = loss.cumulants(tilt)[0]
        k += count * term
        error += count * UNIT * LOG_MOMENT_ROUNDINGS * (loss.members + abs(term))
    return k, math.expm1(min(_LARGE_EXPONENT, error + 8 * UNIT * abs(k))) + _SCALE_ROUNDINGS * UNIT


def _beyond(smooth: Smooth, tilt: float, rule: QuadratureRule | None, step: float, nodes: int) -> float:
    """A bound on the sum over the contour's nodes that were left out, in the unit of the samples."""
    start = step * nodes
    events = smooth.sampled
    if len(events.rate) == 0 or rule is None:
        # |φ| ≤ e^{−μ²ω²/2}, which falls: the sum is at most the first term and the integral.
        fall = smooth.mu_squared
        if fall == 0:
            return math.inf
        return math.exp(-fall * start * start / 2) * (step / start**2 + 1 / start) / math.pi
    cuts = decay(events, tilt, rule.log_moment, _DECAY_CELLS if len(events.rate) < _MANY_EVENTS else _FEW_DECAY_CELLS)
    omega = (start * 2.0 ** np.arange(_NEAR_OCTAVES)[:, None] * (1 + np.arange(_POINTS) / _POINTS)).ravel()

    def is_small(index: int) -> bool:  # and stays so: the bound falls in ω
        return float(events.count @ np.log(cuts.bound(float(omega[index])))) <= _SMALL_ENOUGH

    near = omega[: least_integer(is_small, 0, len(omega) - 1) + 1]
    finer = _finer(events, tilt, float(near[-1]), cuts)
    if finer is not None:
        looked_at = finer.octaves(start, -(-len(near) // _POINTS), _POINTS)[:, : len(near)]
        far = near[-1] * 2.0 ** np.arange(1, _FAR_OCTAVES)
        omega = np.concatenate((near, far))
        log_bound = log_envelope(events, cuts, omega, looked_at, finer.error)
    else:
        omega = np.asarray(start * _COARSE_RATIO ** np.arange(_COARSE_POINTS), dtype=np.float64)
        log_bound = log_envelope(events, cuts, omega, None, 0.0)
    log_bound -= smooth.mu_squared * omega[:-1] ** 2 / 2
    widths = np.diff(omega) + step
    total = float(np.sum(np.exp(log_bound) * widths / omega[:-1] ** 2))
    total += math.exp(log_bound[-1]) * (1 / omega[-1] + step / omega[-1] ** 2)
    return float(total / math.pi)


def _finer(events: SampledGaussians, tilt: float, reach: float, cuts: Decay) -> QuadratureRule | None:
    """A rule for frequencies up to `reach`; where outliers would need too many nodes, one that sets them aside."""
    most_often = float(np.max(events.count))
    rule = quadrature.certified(events, tilt, reach, within=min(_FINE_WITHIN, _FINE_CHANGE / most_often))
    if rule is not None:
        return rule
    rows = np.arange(len(events.rate))
    most = np.sum(cuts.set_aside * events.count[:, None] < 1.0, axis=1) - 1
    cut = cuts.threshold[rows, most], cuts.set_aside[rows, most]
    return quadrature.certified(events, tilt, reach, within=min(_CUT_WITHIN, _CUT_CHANGE / most_often), cut=cut)
