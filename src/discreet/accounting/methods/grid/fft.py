"""Composition of discretized privacy losses by FFT, tilted so that tiny δ keep their digits.

Each loss is reweighted by e^{τl} before the transform and back after it. Masses near ε, which decide δ(ε), are then the
largest of the vector, so the FFT's round-off, which is relative to the largest mass, is relative to δ. The mass that
wraps around the window and all round-off are bounded, and added to the upper end or taken off the lower one. Proof:
docs/proofs/pld-discretization.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from discreet.accounting.methods.chernoff import log_constant
from discreet.accounting.methods.fourier import saddle
from discreet.accounting.methods.grid.discretize import MASS_ERROR, GridLoss
from discreet.accounting.methods.grid.window import ESCAPE_ERROR, cumulants, merged, window
from discreet.numeric.rounding import UNIT
from discreet.numeric.search import bisect

Floats = NDArray[np.float64]
Side = Literal["upper", "lower"]

# Exponents are cut off here: e^709 is the largest float, 600 leaves room for factors.
_LARGEST_EXPONENT, _LARGE_EXPONENT = 700.0, 600.0
# ln of what a frequency may have fallen to and still be used: e^{−60} is 1e-26, far below the round-off of the others.
_DEAD_EXPONENT = -60.0
# The smallest positive numbers that are used: below the first only subnormal floats remain, the second is one of them.
_TINY, _TINIEST = 1e-300, 1e-320
# Tilts beyond these many standard deviations of the loss, or e^20 between neighboring grid points, keep no digits.
_MOST_DEVIATIONS, _MOST_PER_STEP = 60.0, 20.0
# The least tilt with e^{K − τε} within e^9 of δ is taken: the FFT's round-off of 1e-16·e^9 is then still 1e-12. Above
# `_FEW` compositions it is less, down to e^3.
_NEAR_DELTA, _LEAST_NEAR_DELTA, _FEW = 9.0, 3.0, 1e6
# The first tilt that is tried, in standard deviations of the loss. Any tilt is valid.
_FIRST_DEVIATIONS = 0.05
# Where infinite losses use up almost all of a δ, the tilt is chosen for this share of it.
_LEAST_SHARE = 1e-3
# Relative errors: of the P of an infinite loss, of the same turned into a lower bound, and of a δ compared with it.
_INFINITE_ERROR, _INFINITE_LOWERED, _COMPARE_ERROR = 1e-12, 1e-11, 1e-9
# How many halvings find ε between two grid points: 2⁻⁶⁰ of a step is below the last place of its ends.
_HALVINGS = 60
# Where the lower bound is looked for below each point of a short grid, in steps; longer grids are fine enough.
_BELOW_POINT, _SHORT = np.array([1e-9, 1e-7, 1e-5, 1e-3, 1e-2, 0.1, 0.5]), 4096
# The largest float below 1, so that ln(1 − p) is finite.
_BELOW_ONE = math.nextafter(1.0, 0.0)
# The powers within one block of a discounted sum span at most e^300.
_BLOCK_EXPONENT = 300
# Roundings allowed for each stage of an FFT, see `_fft_error`.
_FFT_ROUNDINGS = 16
# Large masses are transformed by formula from this number of compositions on (fewer do not magnify the error), at most
# this many of them, while one makes up this share of what is left of the squared 2-norm. Roundings of such a term: the
# phase (up to 2π, in three operations), its sine and cosine, the product and the sums.
_EXTRACT_FROM, _MOST_EXTRACTED, _WORTH = 1000, 4, 0.2
_PHASE_ROUNDINGS, _SUM_ROUNDINGS = 32, 4
# Roundings allowed for each factor of a power, each term of a sum and each unit of an exponent: a few operations each.
_TERM_ROUNDINGS = 8
# Points of the longest grid: one array of them takes 32 MiB.
_MOST_POINTS = 1 << 22


@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """A composition's loss around one ε: δ there, from above or from below.

    With d = e^{−τ·step}, `tail[k]` = Σ_{j≥k} d^{j−k} y[j] and `excess[k]` = Σ_{j≥k} d^{j−k} (1 − e^{−(j−k)·step}) y[j]
    for the tilted masses y; δ at the k-th grid point is e^{K(τ) − τ l_k}·excess[k]. `error` is in the unit of the
    bracketed sums, `relative` is a relative error of them. `masses` are the y, each good to `entry`; `escaped` bounds
    what lies outside of the window, in the same unit.
    """

    side: Side
    tilt: float
    log_scale: float
    losses: Floats
    masses: Floats
    tail: Floats
    excess: Floats
    error: float
    entry: float
    escaped: float
    relative: float
    infinite: float
    location: float

    def from_below(self, off_grid: int, tail: float) -> ComposedLoss:
        """The lower bound that a pessimistic composition implies, less what the discretization added to the truth.

        `off_grid` is how many of the composed losses were split, `tail` all the mass that was added to them.
        """
        grown = 4 * MASS_ERROR * off_grid
        return replace(
            self,
            side="lower",
            losses=self.losses - 2 * self.location,
            relative=self.relative + grown,
            infinite=max(0.0, self.infinite * (1 - grown - _INFINITE_LOWERED) - tail),
        )

    def at(self, epsilon: float) -> float:
        """The bound on δ(ε)."""
        next_point = int(np.searchsorted(self.losses, epsilon, side="right"))
        if next_point >= len(self.losses):
            return self._bounded(0.0, epsilon)
        if next_point == 0:
            # Below the window we know only that δ ≤ 1 and that δ falls.
            return 1.0 if self.side == "upper" else self.at(float(self.losses[0]))
        # 1 − e^{ε−l} = (1 − e^{−gap}) + e^{−gap}(1 − e^{−(l−l_k)}): no cancellation between the two sums.
        gap = float(self.losses[next_point]) - epsilon
        inside = -math.expm1(-gap) * float(self.tail[next_point]) + math.exp(-gap) * float(self.excess[next_point])
        return self._bounded(math.exp(-self.tilt * gap) * inside, epsilon)

    def exceeds(self, epsilon: float) -> float:
        """About P(loss > ε), no smaller than it (from above)."""
        next_point = min(int(np.searchsorted(self.losses, epsilon, side="right")), len(self.losses) - 1)
        gap = max(0.0, float(self.losses[next_point]) - epsilon)
        inside = math.exp(-self.tilt * gap) * float(self.tail[next_point]) * (1 + self.relative)
        step = float(self.losses[1] - self.losses[0])
        error = self.entry / -math.expm1(-self.tilt * step) + self.escaped
        factor = math.exp(min(_LARGEST_EXPONENT, self.log_scale - self.tilt * epsilon))
        return min(1.0, self.infinite + factor * (inside + error))

    def _on_grid(self) -> Floats:
        """`at` every grid point."""
        factor = np.exp(np.minimum(_LARGE_EXPONENT, self.log_scale - self.tilt * self.losses))
        spread = self.relative * np.abs(self.excess) + self.error
        with np.errstate(over="ignore"):
            return self.infinite + factor * (self.excess + (spread if self.side == "upper" else -spread))

    def _near_a_point(self, delta: float) -> float | None:
        """The largest ε a little below a grid point at which the lower bound is at least `delta`."""
        if not 1 < len(self.losses) <= _SHORT:
            return None
        gaps = float(self.losses[1] - self.losses[0]) * _BELOW_POINT
        candidates = [float(loss - gap) for loss in self.losses for gap in gaps]
        return max((epsilon for epsilon in candidates if self.at(epsilon) >= delta), default=None)

    def _bounded(self, inside: float, epsilon: float) -> float:
        factor = math.exp(min(_LARGEST_EXPONENT, self.log_scale - self.tilt * epsilon))
        spread = self.relative * abs(inside) + self.error
        if self.side == "upper":
            return min(1.0, self.infinite + factor * (inside + spread))
        return max(0.0, min(1.0, self.infinite + factor * (inside - spread)))

    def solve(self, delta: float) -> float | None:
        """An ε with bound(ε) ≤ δ (upper) or ≥ δ (lower); None where the window does not hold one."""
        if self.side == "upper" and delta <= self.infinite:
            return math.inf
        if self.side == "lower" and delta < self.infinite * (1 - _COMPARE_ERROR):
            return math.inf
        over = np.flatnonzero(self._on_grid() > delta)
        if self.side == "lower" and len(over) == 0:
            # On a coarse grid the certificate may hold only a little below a grid point.
            return self._near_a_point(delta)
        if self.side == "upper" and len(over) and over[-1] == len(self.losses) - 1:
            return None
        if len(over) == 0:
            return float(self.losses[0])
        last = int(over[-1])
        if last == len(self.losses) - 1:
            return float(self.losses[last])
        left, right = float(self.losses[last]), float(self.losses[last + 1])
        bracket = bisect(lambda epsilon: self.at(epsilon) <= delta, left, right, rounds=_HALVINGS)
        return bracket.high if self.side == "upper" else bracket.low


def compose(
    repeated: Sequence[tuple[GridLoss, int]],
    step: float,
    side: Side,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    most: int = _MOST_POINTS,
) -> ComposedLoss | None:
    """Compose each loss `count` times, tilted for `epsilon` or for `delta`; None where the window is too long.

    With both known, if only roughly, the tilt is the smallest that keeps the round-off small against δ: a larger one
    would only inflate rare large losses, and the window with them.
    """
    alive = math.prod((1 - min(loss.infinite, 1.0)) ** count for loss, count in repeated)
    infinite = _any_infinite(repeated, side)
    repeated = [(loss, count) for loss, count in repeated if len(loss.mass) and loss.mass.any()]
    if not repeated or alive <= 0:
        nothing = np.zeros(2)
        return ComposedLoss(
            side, 1.0, 0.0, np.array([0.0, _TINY]), nothing, nothing, nothing, 0.0, 0.0, 0.0, 0.0, infinite, 0.0
        )
    coarse = [(*merged(loss, step), count) for loss, count in repeated]

    def rough(tilt: float) -> tuple[float, float, float]:
        return cumulants(coarse, tilt)

    spread = math.sqrt(max(rough(0.0)[2], _TINY))
    limit = min(_MOST_DEVIATIONS / spread, _MOST_PER_STEP / step)
    if epsilon is not None and delta is not None and delta > infinite:
        first = _FIRST_DEVIATIONS / max(spread, abs(epsilon))
        # The round-off grows with the number of compositions; then less of it can be spared.
        total = sum(count for _, count in repeated)
        near = max(_LEAST_NEAR_DELTA, _NEAR_DELTA - math.log(max(1.0, total / _FEW)))
        tilt = saddle.relaxed(rough, epsilon, math.log(delta - infinite), first, limit, near)
    elif epsilon is not None:
        tilt = saddle.for_epsilon(rough, epsilon, 1 / spread, limit=limit).tilt
    else:
        assert delta is not None
        wanted = max(delta - infinite, _LEAST_SHARE * delta, _TINIEST)
        tilt = saddle.for_delta(rough, math.log(wanted), 1 / spread, limit=limit).tilt
    fine = [(loss.losses(step), loss.mass, count) for loss, count in repeated]
    log_scale = cumulants(fine, tilt)[0]
    origin = sum(count * loss.origin for loss, count in repeated)
    covered = window(coarse, fine, tilt, log_scale, step, origin)
    if covered.size < 1:
        return None  # so far from the origin, in steps, that grid points are not distinct floats
    size = fft.next_fast_len(covered.size, real=True)
    if size > most:
        return None
    singles: list[tuple[NDArray[np.complex128], int]] = []
    modulus = np.zeros(size // 2 + 1)
    raised = np.zeros(size // 2 + 1)
    largest = square = 0.0
    shift = sum(count * loss.start for loss, count in repeated)
    for support, mass, count in fine:
        log_moment = cumulants([(support, mass, 1)], tilt)[0]
        log_mass = np.log(np.maximum(mass, _TINIEST))
        tilted = np.exp(np.where(mass > 0, log_mass + (tilt * support - log_moment), -np.inf))
        folded = _fold(tilted, size)
        top = int(np.argmax(folded))  # moved to index 0, where its transform is exact
        shift += count * top
        single, transform_error = _transformed(np.roll(folded, -top), count)
        rounded = 2 * UNIT * tilted * (4 + np.abs(tilt * support) + np.abs(log_mass) + abs(log_moment))
        error = math.sqrt(size) * transform_error + float(np.sum(rounded))
        largest += count * error
        square += count * (transform_error + float(np.linalg.norm(rounded)))
        amplitude = np.abs(single)
        with np.errstate(divide="ignore"):
            modulus += count * np.log(amplitude)
            raised += count * np.log(amplitude + error)
        singles.append((single, count))
    # At many steps most frequencies have died out: they are left out, and count as errors.
    kept = modulus > _DEAD_EXPONENT
    powered = sum((count * np.log(single[kept]) for single, count in singles), np.zeros(1, dtype=np.complex128))
    transform = np.zeros(size // 2 + 1, dtype=np.complex128)
    transform[kept] = np.exp(powered)
    powers = _TERM_ROUNDINGS * UNIT * (1 + sum(count for _, count in repeated))
    gap = np.exp(np.minimum(raised, _LARGE_EXPONENT))
    gap[kept] -= np.exp(modulus[kept]) * (1 - powers)
    left_out = math.sqrt(2 * float(np.sum(np.exp(2 * np.minimum(raised[~kept], 0.0)))) / size)
    gap[1:] *= 2
    tilted = fft.irfft(transform, n=size)
    error = float(np.sum(gap)) / size + _fft_error(tilted)
    # The same error in the 2-norm, by Parseval: T·|e|·(1 + largest)^T for each frequency, and the transforms' own.
    square = (
        square * math.exp(min(largest, _LARGE_EXPONENT))
        + powers * float(np.linalg.norm(tilted))
        + _fft_error(tilted)
        + left_out
    )
    # Index k stands for the one multiple of the step, modulo the size, that lies in the window.
    base = covered.first
    tilted = np.roll(tilted, -((base - shift) % size))
    points = np.asarray(origin + step * np.arange(base, base + size), dtype=np.float64)
    location = (
        _TERM_ROUNDINGS
        * UNIT
        * sum(count * (abs(loss.origin) + step * (abs(loss.start) + len(loss.mass))) for loss, count in repeated)
    )
    losses = points + location if side == "upper" else points - location
    decay = math.exp(-tilt * step)
    tail = _discounted(tilted, decay)
    later = np.append(tail[1:], 0.0) * (decay * -math.expm1(-step))
    excess = _discounted(later, decay * math.exp(-step))
    exponents = abs(log_scale) + tilt * float(np.max(np.abs(losses)))
    # Moving the points by `location` also moves their factors e^{−τl}.
    relative = _TERM_ROUNDINGS * UNIT * (size + sum(count for _, count in repeated) + exponents) + 2 * tilt * location
    # A loss j points above ε has the weight d^j·(1 − e^{−x}) with x ≤ (j + 1)·step; these are the sums of such weights,
    # and of their squares. No weight e^{−τx}(1 − e^{−x}) exceeds τ^τ/(1+τ)^{1+τ}.
    once, twice = -math.expm1(-tilt * step), -math.expm1(-2 * tilt * step)
    weights = min(1.0, step / once) / once
    norm = min(1.0, step * math.sqrt((2 - twice) / twice**2)) / math.sqrt(twice)
    most_weight = math.exp(log_constant(tilt)) * (1 + ESCAPE_ERROR)
    total_error = min(error * weights, square * norm) + covered.escaped * most_weight
    return ComposedLoss(
        side,
        tilt,
        log_scale,
        losses,
        tilted,
        tail,
        excess,
        total_error,
        min(error, square),
        covered.escaped,
        relative,
        infinite,
        location,
    )


def _any_infinite(repeated: Sequence[tuple[GridLoss, int]], side: Side) -> float:
    """P that at least one loss is infinite."""
    log_alive = sum(count * math.log1p(-min(loss.infinite, _BELOW_ONE)) for loss, count in repeated)
    if any(loss.infinite >= 1.0 for loss, count in repeated):
        return 1.0
    return -math.expm1(log_alive) * (1 + _INFINITE_ERROR if side == "upper" else 1 - _INFINITE_ERROR)


def _transformed(folded: Floats, count: int) -> tuple[NDArray[np.complex128], float]:
    """The transform of masses, and a bound on the 2-norm of its error as that of a unitary transform.

    The error is relative to the 2-norm. Where a few masses make up most of it, as the many tiny losses at a small
    sampling rate do, those are transformed by their formula, in which every frequency errs by a few roundings.
    """
    if count < _EXTRACT_FROM:
        return fft.rfft(folded), _fft_error(folded)
    size = len(folded)
    rest = folded.copy()
    frequencies = np.arange(size // 2 + 1)
    alone = np.zeros(size // 2 + 1, dtype=np.complex128)
    extracted = 0.0
    for _ in range(_MOST_EXTRACTED):
        index = int(np.argmax(rest))
        mass = float(rest[index])
        if mass * mass < _WORTH * float(rest @ rest):
            break
        rest[index] = 0.0
        if index == 0:
            alone += mass
            continue
        extracted += mass
        alone += mass * np.exp((-2j * math.pi / size) * ((index * frequencies) % size))
    error = _fft_error(rest) + _PHASE_ROUNDINGS * UNIT * extracted + _SUM_ROUNDINGS * UNIT * float(np.sum(folded))
    return np.asarray(fft.rfft(rest) + alone), error


def _fold(values: Floats, size: int) -> Floats:
    """`values` wrapped around a circle of `size` points."""
    rows = -(-len(values) // size)
    padded = np.zeros(rows * size)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(rows, size).sum(axis=0))


def _fft_error(values: Floats) -> float:
    """A bound on the 2-norm, so on any entry, of the error of `values` as the result of a unitary transform.

    Higham 2002, Theorem 24.2: the 2-norm of the error is at most log2(n) times 7.5 roundings of the result's 2-norm,
    with the twiddle factors good to one rounding. Here 16 roundings are allowed.
    """
    return _FFT_ROUNDINGS * UNIT * (math.log2(len(values)) + 1) * float(np.linalg.norm(values))


def _discounted(values: Floats, decay: float) -> Floats:
    """r[k] = Σ_{j ≥ k} decay^{j−k} values[j], in blocks so that no power under- or overflows."""
    if decay < _TINY:
        return values.copy()
    result = np.empty_like(values)
    block = len(values) if decay == 1 else max(1, min(len(values), int(_BLOCK_EXPONENT / -math.log(decay))))
    carry = 0.0
    powers = decay ** np.arange(block + 1)
    for end in range(len(values), 0, -block):
        begin = max(0, end - block)
        weights = powers[: end - begin]
        sums = np.cumsum((values[begin:end] * weights)[::-1])[::-1]
        result[begin:end] = sums / weights + carry * powers[end - begin : 0 : -1]
        carry = float(result[begin])
    return result
