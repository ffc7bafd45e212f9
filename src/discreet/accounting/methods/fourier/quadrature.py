"""Moments of the sampled Gaussian's privacy loss, by a trapezoidal rule whose error is bounded, not estimated.

With L(u) = ln(1 − q + q e^{μu − μ²/2}) and u ~ N(0, 1), the loss has E[e^{zL}] = G(z + 1) when a unit is removed and
G(−z), for the loss −L, when one is added, where G(s) = E[e^{sL(u)}]. The integrand is analytic while |Im u| < π/μ, so
the rule converges geometrically. The bound (docs/proofs/fourier-certificate.md) moves the contour up by an amount that
may change from cell to cell, because the loss of a far outlier oscillates fast but has next to no weight.

Everything is vectorized over the events: shapes are (events, nodes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses.continuous import mixture_loss
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_ROOT = math.sqrt(2 * math.pi)
# ln of the share of an integral that may be left out on either side: e^{−41} is 1.6e-18, below one rounding.
_NEGLIGIBLE = -41.0
# Numbers of nodes that are tried, about 1.3 apart. With more than the last, other methods are faster.
_SIZES = (48, 64, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)


# Losses that `octaves` works on at a time: their powers stay in the processor's cache.
_CACHED = 4096
# Roundings of a point of the first octave: 16 multiplications of a complex number, four roundings each.
_OCTAVE_ROUNDINGS = 64
# Roundings of one node's term, next to those of its exponent and of the sum.
_NODE_ROUNDINGS = 16
# `span` widens the right end until the tail is small: by 5% and a quarter each time, far enough for any μ.
_WIDENINGS, _WIDER, _WIDER_BY = 400, 1.05, 0.25
# A right end that was widened by more than this is looked for again, among the edges of this many cells: the bound that
# it was found by is crude at large orders. The last edge had met the same limit, but for round-off.
_MUCH_WIDER, _TAIL_CELLS, _ROUNDING_ROOM = 3.0, 256, 0.05
# Nodes for each unit of max(1, μ)·u to begin with; fewer never converge.
_LEAST_DENSITY = 2.5
# Nodes at least and at most where no certificate is needed.
_LEAST_ROUGH, _MOST_ROUGH = 64, 1024
# With more events than this, the number of nodes is found on a few extreme ones first.
_MANY_EVENTS = 64
# The error of a rule that is aimed at: a few roundings.
_WITHIN = 1e-15
# A rule that misses the wanted precision is still taken, as the best there is, below this error.
_GOOD_ENOUGH = 1e-12
# Leaving out a mass m changes the normalized sum by at most 3m: m itself, and the normalization of what stays.
_LEFT_OUT = 3
# (1 + √2)/2, the largest |arg g| over w·θ (docs/proofs/fourier-certificate.md), and room for the round-off of w(1 − w).
_TURN, _SWING_ERROR = 1.2072, 1 + 1e-12
# The largest w(1 − w), at w = 1/2.
_MOST_SWING = 0.25
# −ln of the error of one cell that is aimed at: e^{−60} is 1e-26.
_ENOUGH_FALL = 60.0
# Exponents are cut off here: a bound of e^300 decides nothing, and e^709 is the largest float.
_USELESS_EXPONENT, _LARGEST_EXPONENT = 300.0, 700.0


@dataclass(frozen=True, eq=False)
class SampledGaussians:
    """Poisson-sampled Gaussians as arrays: rate q, μ = 1/σ, how often each runs; `reverse` if a unit is added."""

    rate: Floats
    mu: Floats
    count: Floats
    reverse: bool

    def order(self, tilt: float) -> float:
        """The s of G(s) at a real tilt."""
        return -tilt if self.reverse else tilt + 1.0

    def loss(self, u: Floats) -> Floats:
        """L(u) of each event at its row of u."""
        return mixture_loss(self.mu[:, None] * (u - self.mu[:, None] / 2), self.rate[:, None])


@dataclass(frozen=True, eq=False)
class QuadratureRule:
    """The losses at the nodes, their weights under the tilt (they add up to 1), ln G(s), and the certificate.

    `error` bounds the error of each Σ weight·e^{iωL} for |ω| ≤ `reach`, and that of ln G(s), for each event. `moved` is
    the part of it that no round-off explains; `roundings` are the means of each node's relative error, of the same
    times |L|, and of what a rounding of u moves L by.
    """

    losses: Floats
    weights: Floats
    log_moment: Floats
    error: Floats
    reach: float
    moved: Floats
    roundings: tuple[Floats, Floats, Floats]

    def rows(self, rows: slice) -> QuadratureRule:
        """The rule of some of the events."""
        return QuadratureRule(
            self.losses[rows],
            self.weights[rows],
            self.log_moment[rows],
            self.error[rows],
            self.reach,
            self.moved[rows],
            (self.roundings[0][rows], self.roundings[1][rows], self.roundings[2][rows]),
        )

    def mean(self) -> Floats:
        return np.asarray(np.sum(self.weights * self.losses, axis=1))

    def variance(self) -> Floats:
        centered = self.losses - self.mean()[:, None]
        return np.asarray(np.sum(self.weights * centered * centered, axis=1))

    def on_contour(self, step: float, count: int) -> Complexes:
        """E[e^{ikΔL}] − 1 for k = 0…count−1, as one matrix product.

        With o = e^{iaBΔL} − 1 and i = e^{ibΔL} − 1 it is the mean of oi + o + i at k = aB + b: losses that are tiny, as
        at small sampling rates, then keep their digits.
        """
        block = max(1, math.isqrt(count))
        rows = -(-count // block)
        turn = self.losses[:, None, :] * step
        inner = _turned(turn * np.arange(block)[:, None])
        outer = _turned(turn * (block * np.arange(rows))[:, None]) * self.weights[:, None, :]
        product = outer @ inner.transpose(0, 2, 1) + np.sum(outer, axis=2)[:, :, None]
        product += (inner @ self.weights[:, :, None])[:, None, :, 0]
        return np.asarray(product.reshape(len(self.losses), rows * block)[:, :count])

    def contour_error(self, omega: Floats) -> Floats:
        """Bounds on the errors of `on_contour`, for each event and frequency.

        Next to the quadrature's own, each node's term errs relative to itself, and |oi + o + i| ≤ min(8, 2ω|L|) counts
        what is added up in it; and its phase errs by roundings of ωL.
        """
        relative, weighted, phase = self.roundings
        terms = np.minimum(8 * relative[:, None], 2 * weighted[:, None] * omega)
        return np.asarray(self.moved[:, None] + terms + 8 * UNIT * phase[:, None] * omega)

    def octaves(self, start: float, count: int, per_octave: int) -> Floats:
        """|E[e^{iωL}]| at start·2^j·(1 + k/per_octave): the first octave by products, the next ones by squaring."""
        moduli = np.empty((len(self.losses), count * per_octave))
        rows = max(1, _CACHED // self.losses.shape[1])
        for begin in range(0, len(self.losses), rows):
            losses = self.losses[begin : begin + rows, None, :]
            weights = self.weights[begin : begin + rows, :, None].astype(np.complex128)
            turn = np.exp((1j * start / per_octave) * losses[:, 0, :])
            points = np.empty((len(losses), per_octave, losses.shape[2]), dtype=np.complex128)
            np.exp((1j * start) * losses[:, 0, :], out=points[:, 0])
            for k in range(1, per_octave):
                np.multiply(points[:, k - 1], turn, out=points[:, k])
            for octave in range(count):
                moduli[begin : begin + rows, octave * per_octave : (octave + 1) * per_octave] = np.abs(
                    (points @ weights)[:, :, 0]
                )
                if octave < count - 1:
                    np.multiply(points, points, out=points)
        # Every squaring doubles a relative error that began with a few dozen roundings.
        return moduli + _OCTAVE_ROUNDINGS * UNIT * np.repeat(2.0 ** np.arange(1, count + 1), per_octave)


def span(events: SampledGaussians, tilt: float) -> tuple[Floats, Floats]:
    """Ends of u beyond which the tilted integrand has a share below e^{_NEGLIGIBLE} on either side."""
    s, mu, q = events.order(tilt), events.mu, events.rate
    if events.reverse:
        lowest = -tilt * np.log1p(-q)  # ln of the largest value of e^{sL}
        return -np.sqrt(2 * (-_NEGLIGIBLE + lowest)), np.full_like(mu, math.sqrt(-2 * _NEGLIGIBLE))
    bump = s * (s - 1) * mu * mu / 2
    allowed = _NEGLIGIBLE + np.maximum(0.0, s * np.log(q) + bump)
    first = np.full_like(mu, math.sqrt(-2 * _NEGLIGIBLE))
    high = first
    for _ in range(_WIDENINGS):
        too_heavy = _right_tail(events, s, high) > allowed
        if not too_heavy.any():
            break
        high = np.where(too_heavy, high * _WIDER + _WIDER_BY, high)
    if float(np.max(high - first)) > _MUCH_WIDER:
        high = _narrowed(events, s, first, high, allowed)
    return np.full_like(mu, -math.sqrt(-2 * _NEGLIGIBLE)), high


def _narrowed(events: SampledGaussians, s: float, first: Floats, last: Floats, allowed: Floats) -> Floats:
    """A smaller right end between `first` and `last`, by a bound on the mass of each of some cells between them."""
    edges = first[:, None] + (last - first)[:, None] * np.linspace(0.0, 1.0, _TAIL_CELLS + 1)
    log_mass = s * events.loss(edges[:, 1:]) + special.log_ndtr(-edges[:, :-1])
    total = np.logaddexp.accumulate(
        np.concatenate((_right_tail(events, s, last)[:, None], log_mass[:, ::-1]), axis=1), axis=1
    )[:, ::-1]  # the k-th entry bounds what lies above the k-th edge
    enough = np.argmax(total <= allowed[:, None] + _ROUNDING_ROOM, axis=1)
    return np.asarray(edges[np.arange(len(edges)), enough])


def _right_tail(events: SampledGaussians, s: float, high: Floats) -> Floats:
    """ln of a bound on ∫_high^∞ φ e^{sL} for s > 0: there e^L ≤ r·(q + (1−q)/r(high)), r = e^{μu − μ²/2}."""
    mu, q = events.mu, events.rate
    base = mu * (high - mu / 2)
    excess = np.log(q + (1 - q) * np.exp(-base))
    return np.asarray(s * excess + s * (s - 1) * mu * mu / 2 + special.log_ndtr(mu * s - high))


def rough(events: SampledGaussians, tilt: float, nodes: int = _LEAST_ROUGH) -> QuadratureRule:
    """The rule without its certificate: for choosing a tilt."""
    low, high = span(events, tilt)
    needed = min(float(np.max((high - low) * np.maximum(1.0, events.mu))) * _LEAST_DENSITY, _MOST_ROUGH)
    return _rule(events, tilt, low, high, max(nodes, int(needed)), math.inf)[0]


def certified(
    events: SampledGaussians,
    tilt: float,
    reach: float,
    *,
    within: float = _WITHIN,
    cut: tuple[Floats, Floats] | None = None,
) -> QuadratureRule | None:
    """A rule that is good to `within` and round-off for |ω| ≤ `reach`; None where that takes more than 16384 nodes.

    `cut` gives thresholds of u, and bounds on the mass above them, to leave out; the error covers what that changes.
    """
    low, high = span(events, tilt)
    left_out = np.zeros_like(high)
    if cut is not None:
        left_out = np.where(cut[0] < high, _LEFT_OUT * cut[1], 0.0)
        high = np.minimum(high, cut[0])
    start = int(np.max((high - low) * np.maximum(1.0, events.mu) * _LEAST_DENSITY))
    if len(events.rate) > _MANY_EVENTS:
        # Find the number of nodes on a few extreme events; all events are checked below.
        few = np.unique(np.concatenate([np.argsort(key)[[0, 1, -2, -1]] for key in _extremes(events, low, high)]))
        some = SampledGaussians(events.rate[few], events.mu[few], events.count[few], events.reverse)
        start = _enough_nodes(some, tilt, low[few], high[few], reach, within, start)
    best: QuadratureRule | None = None
    for nodes in _SIZES:
        if nodes < start and nodes < _SIZES[-1]:
            continue
        rule, moved = _rule(events, tilt, low, high, nodes, reach)
        rule = replace(rule, error=rule.error + left_out, moved=rule.moved + left_out)
        if float(np.max(moved)) < within:
            return rule
        if float(np.max(moved)) < _GOOD_ENOUGH:
            best = rule
    return best


def _extremes(events: SampledGaussians, low: Floats, high: Floats) -> tuple[Floats, ...]:
    return events.rate, events.mu, events.rate * events.mu, (high - low) * events.mu


def _enough_nodes(
    events: SampledGaussians, tilt: float, low: Floats, high: Floats, reach: float, within: float, start: int
) -> int:
    """The first number of nodes that is enough for these events; `start` if none is."""
    for nodes in _SIZES:
        if nodes >= start and float(np.max(_rule(events, tilt, low, high, nodes, reach)[1])) < within:
            return nodes
    return start


def _rule(
    events: SampledGaussians, tilt: float, low: Floats, high: Floats, nodes: int, reach: float
) -> tuple[QuadratureRule, Floats]:
    """The rule with this many nodes, and the part of its error that more nodes would reduce."""
    s = events.order(tilt)
    step = (high - low) / nodes
    u = low[:, None] + step[:, None] * (np.arange(nodes) + 0.5)
    losses = events.loss(u)
    exponent = s * losses - u * u / 2
    top = np.max(exponent, axis=1)
    weights = np.exp(exponent - top[:, None])
    total = np.sum(weights, axis=1)
    weights /= total[:, None]
    log_moment = top + np.log(total * step / _ROOT)
    if math.isinf(reach):
        none = np.zeros(len(low))
        return QuadratureRule(losses, weights, log_moment, none, 0.0, none, (none, none, none)), none
    moved = _contour_error(events, s, low, step, nodes, reach, log_moment)
    # Round-off: the exponents (relative to their size), the losses (their own and that of u), and the sum itself.
    sensitivity = np.abs(losses) + _slope(events, u)
    each = np.abs(s * losses) + u * u + np.abs(top)[:, None] + abs(s) * sensitivity
    phase = np.sum(weights * sensitivity, axis=1)
    size = np.sum(weights * each, axis=1) + reach * phase
    error = moved + UNIT * (2 * nodes + _NODE_ROUNDINGS + 8 * size)
    each = weights * (UNIT * (2 * nodes + _NODE_ROUNDINGS + 8 * each))
    roundings = (np.sum(each, axis=1), np.sum(each * np.abs(losses), axis=1), phase)
    sign = -1.0 if events.reverse else 1.0
    return QuadratureRule(sign * losses, weights, log_moment, error, reach, moved, roundings), moved


def _turned(angle: Floats) -> Complexes:
    """e^{ix} − 1 without cancellation."""
    half = np.sin(angle / 2)
    return np.asarray(-2 * half * half + 1j * np.sin(angle))


def _slope(events: SampledGaussians, u: Floats) -> Floats:
    """How far a rounding of μu − μ²/2 moves the loss, in units of the rounding."""
    mu = events.mu[:, None]
    base = mu * (u - mu / 2)
    share = special.expit(base + special.logit(events.rate)[:, None])
    return np.asarray(share * (np.abs(mu * u) + mu * mu))


def _contour_error(
    events: SampledGaussians, s: float, low: Floats, step: Floats, nodes: int, reach: float, log_moment: Floats
) -> Floats:
    """Bound on |trapezoid − integral| / G(Re s) for every |ω| ≤ `reach`: the staircase contour of the proof."""
    mu, h = events.mu[:, None], step[:, None]
    edges = low[:, None] + h * np.arange(nodes + 1)
    base = mu * (edges - mu / 2)
    share = special.expit(base + special.logit(events.rate)[:, None])
    # The largest w(1 − w) of each cell, which falls on either side of w = 1/2.
    swing = np.maximum(share[:, :-1] * (1 - share[:, :-1]), share[:, 1:] * (1 - share[:, 1:]))
    swing = np.where((share[:, :-1] < 0.5) & (share[:, 1:] > 0.5), _MOST_SWING, swing) * _SWING_ERROR
    share = share[:, 1:]
    # |Im L| at height y is at most 1.2072·share·μy while μy ≤ π/2, and −ln |g| about w(1 − w)(μy)²/2 at negative
    # orders. So the exponent is about bend·y²/2 − fall·y. It need not be below −60, and a lower contour costs less.
    turn = _TURN * reach * mu * share
    bend = 1 + max(-s, 0.0) * swing * mu * mu
    fall = np.maximum(2 * math.pi / h - turn, h / (2 * math.pi))
    height = (fall - np.sqrt(np.maximum(fall * fall - 2 * _ENOUGH_FALL * bend, 0.0))) / bend
    height = np.minimum(math.pi / 2 / mu, height)
    nearest = np.where(edges[:, :-1] > 0, edges[:, :-1], np.minimum(edges[:, 1:], 0.0))
    loss = events.loss(edges)
    if s >= 0:
        modulus = s * loss[:, 1:]
    else:
        # |1 − q + q r e^{iθ}|² is (1 − q + q r)² times 1 − 2w(1 − w)(1 − cos θ), where 1 − cos θ = 2sin²(θ/2).
        modulus = s * (loss[:, :-1] + np.log1p(-4 * swing * np.sin(mu * height / 2) ** 2) / 2)
    real = modulus - nearest * nearest / 2 - log_moment[:, None]
    risen = real + height * height / 2 + turn * height
    risen = np.minimum(risen, _USELESS_EXPONENT)
    kernel = 1 / np.expm1(np.minimum(2 * math.pi * height / h, _LARGEST_EXPONENT))
    flat = np.sum(h / _ROOT * np.exp(risen) * kernel, axis=1)

    def upright(level: Floats, turn: Floats, height: Floats) -> Floats:
        # The exponent along a vertical segment is convex in the height, so largest at one of its ends.
        return (
            np.exp(np.minimum(level + height * height / 2 + (turn - 2 * math.pi / h) * height, _USELESS_EXPONENT))
            / _ROOT
        )

    level, most = np.maximum(real[:, :-1], real[:, 1:]), np.maximum(turn[:, :-1], turn[:, 1:])
    top = np.maximum(upright(level, most, height[:, :-1]), upright(level, most, height[:, 1:]))
    steep = np.sum(np.abs(np.diff(height, axis=1)) * top, axis=1)
    ends = np.zeros_like(log_moment)
    for side in (slice(0, 1), slice(-1, None)):
        level, end_turn, end_height = real[:, side], turn[:, side], height[:, side]
        most = np.maximum(upright(level, end_turn, end_height), upright(level, end_turn, np.zeros_like(level)))
        ends += (end_height * most)[:, 0]
    outside = 4 * math.exp(_NEGLIGIBLE)
    return np.asarray(2 * (flat + steep + ends) + outside)
