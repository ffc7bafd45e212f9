"""Composition of discretized privacy losses by FFT, tilted so that tiny δ keep their digits.

Each loss is reweighted by e^{τl} before the transform and back after it. Masses near ε, which decide δ(ε), are then the
largest of the vector, and the FFT's round-off, which is relative to the largest, is relative to δ. What wraps around
the window, and every round-off, is bounded and added to the upper end, or taken off the lower one. Proof:
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

from discreet.accounting.methods.fourier import saddle
from discreet.accounting.methods.grid.discretize import GridLoss

Floats = NDArray[np.float64]
Side = Literal["upper", "lower"]

_UNIT = 2.0**-53
_COARSE = 4096
_ESCAPE = 23.0  # ln of the share of tilted mass that may leave the window, with the sign turned


@dataclass(frozen=True, eq=False)
class ComposedLoss:
    """A composition's loss around one ε: δ there, from above or from below.

    With d = e^{−τ·step}, `tail[k]` = Σ_{j≥k} d^{j−k} y[j] and `excess[k]` = Σ_{j≥k} d^{j−k} (1 − e^{−(j−k)·step}) y[j]
    for the tilted masses y; δ at the k-th grid point is e^{K(τ) − τ l_k}·excess[k]. `error` is in the unit of the
    bracketed sums, `relative` is a relative error of them.
    """

    side: Side
    tilt: float
    log_scale: float
    losses: Floats
    tail: Floats
    excess: Floats
    error: float
    relative: float
    infinite: float
    location: float

    def from_below(self, off_grid: int, tail: float) -> ComposedLoss:
        """Of a pessimistic composition, the same bound from below: for what its own splitting has added to the truth.

        `off_grid` is how many of the composed losses were split, `tail` all that was added to them.
        """
        grown = 4e-12 * off_grid
        return replace(
            self,
            side="lower",
            losses=self.losses - 2 * self.location,
            relative=self.relative + grown,
            infinite=max(0.0, self.infinite * (1 - grown - 1e-11) - tail),
        )

    def at(self, epsilon: float) -> float:
        """The bound on δ(ε)."""
        place = int(np.searchsorted(self.losses, epsilon, side="right"))
        if place >= len(self.losses):
            return self._bounded(0.0, epsilon)
        if place == 0:
            # Below the window nothing is known but that δ ≤ 1 and that δ falls.
            return 1.0 if self.side == "upper" else self.at(float(self.losses[0]))
        # 1 − e^{ε−l} = (1 − e^{−gap}) + e^{−gap}(1 − e^{−(l−l_k)}): no cancellation between the two sums.
        gap = float(self.losses[place]) - epsilon
        inside = -math.expm1(-gap) * float(self.tail[place]) + math.exp(-gap) * float(self.excess[place])
        return self._bounded(math.exp(-self.tilt * gap) * inside, epsilon)

    def _on_grid(self) -> Floats:
        """`at` every grid point."""
        factor = np.exp(np.minimum(600.0, self.log_scale - self.tilt * self.losses))
        spread = self.relative * np.abs(self.excess) + self.error
        with np.errstate(over="ignore"):
            return self.infinite + factor * (self.excess + (spread if self.side == "upper" else -spread))

    def _near_a_point(self, delta: float) -> float | None:
        if len(self.losses) > 4096:
            return None
        gaps = float(self.losses[1] - self.losses[0]) * np.array([1e-9, 1e-7, 1e-5, 1e-3, 1e-2, 0.1, 0.5])
        places = [float(loss - gap) for loss in self.losses for gap in gaps]
        return max((place for place in places if self.at(place) >= delta), default=None)

    def _bounded(self, inside: float, epsilon: float) -> float:
        factor = math.exp(min(700.0, self.log_scale - self.tilt * epsilon))
        spread = self.relative * abs(inside) + self.error
        if self.side == "upper":
            return min(1.0, self.infinite + factor * (inside + spread))
        return max(0.0, min(1.0, self.infinite + factor * (inside - spread)))

    def solve(self, delta: float) -> float | None:
        """An ε with bound(ε) ≤ δ (upper) or ≥ δ (lower); None where the window does not hold one."""
        if self.side == "upper" and delta <= self.infinite:
            return math.inf
        if self.side == "lower" and delta < self.infinite * (1 - 1e-9):
            return math.inf
        over = np.flatnonzero(self._on_grid() > delta)
        if self.side == "lower" and len(over) == 0:
            # A coarse grid: the certificate may hold only close to a grid point from below.
            return self._near_a_point(delta)
        if self.side == "upper" and len(over) and over[-1] == len(self.losses) - 1:
            return None
        if len(over) == 0:
            return float(self.losses[0])
        a = int(over[-1])
        if a == len(self.losses) - 1:
            return float(self.losses[a])
        b = a + 1
        left, right = float(self.losses[a]), float(self.losses[b])
        for _ in range(60):
            middle_loss = 0.5 * (left + right)
            if middle_loss in (left, right):
                break
            if self.at(middle_loss) > delta:
                left = middle_loss
            else:
                right = middle_loss
        return right if self.side == "upper" else left


def compose(
    parts: Sequence[tuple[GridLoss, int]],
    step: float,
    side: Side,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    most: int = 1 << 22,
) -> ComposedLoss | None:
    """Compose each part as often as its count, tilted for `epsilon` or for `delta`; None where the window is too long.

    With both known, if only roughly, the tilt is the least that keeps the round-off small against δ: a larger one would
    only blow up rare large losses, and with them the window.
    """
    alive = math.prod((1 - min(part.infinite, 1.0)) ** count for part, count in parts)
    infinite = _some(parts, side)
    parts = [(part, count) for part, count in parts if len(part.mass) and part.mass.any()]
    if not parts or alive <= 0:
        nothing = np.zeros(2)
        return ComposedLoss(side, 1.0, 0.0, np.array([0.0, 1e-300]), nothing, nothing, 0.0, 0.0, infinite, 0.0)
    coarse = [(*_merged(part, step), count) for part, count in parts]

    def rough(tilt: float) -> tuple[float, float, float]:
        return _cumulants(coarse, tilt)

    spread = math.sqrt(max(rough(0.0)[2], 1e-300))
    limit = min(60.0 / spread, 20.0 / step)
    if epsilon is not None and delta is not None and delta > infinite:
        tilt = _relaxed(rough, epsilon, math.log(delta - infinite), 0.05 / spread, limit)
    elif epsilon is not None:
        tilt = saddle.for_epsilon(rough, epsilon, 1 / spread, limit=limit).tilt
    else:
        assert delta is not None
        wanted = max(delta - infinite, 1e-3 * delta, 1e-320)
        tilt = saddle.for_delta(rough, math.log(wanted), 1 / spread, limit=limit).tilt
    fine = [(part.losses(step), part.mass, count) for part, count in parts]
    log_scale = _cumulants(fine, tilt)[0]
    origin = sum(count * part.origin for part, count in parts)
    window = _window(coarse, fine, tilt, log_scale, step, origin)
    size = fft.next_fast_len(window.size, real=True)
    if size > most:
        return None
    transform = np.zeros(size // 2 + 1, dtype=np.complex128)
    modulus = np.zeros(size // 2 + 1)
    raised = np.zeros(size // 2 + 1)
    largest = square = 0.0
    shift = sum(count * part.start for part, count in parts)
    for support, mass, count in fine:
        log_moment = _cumulants([(support, mass, 1)], tilt)[0]
        log_mass = np.log(np.maximum(mass, 1e-320))
        tilted = np.exp(np.where(mass > 0, log_mass + (tilt * support - log_moment), -800.0))
        folded = _fold(tilted, size)
        single = fft.rfft(folded)
        rounded = 4 * _UNIT * tilted * (8 + np.abs(tilt * support) + np.abs(log_mass) + abs(log_moment))
        error = math.sqrt(size) * _fft_error(folded) + float(np.sum(rounded))
        largest += count * error
        square += count * (_fft_error(folded) + float(np.linalg.norm(rounded)))
        size_of = np.abs(single)
        with np.errstate(divide="ignore"):
            transform += count * np.log(np.where(size_of > 0, single, 1.0))
            modulus += count * np.log(size_of)
            raised += count * np.log(size_of + error)
    transform = np.where(modulus > -745, np.exp(np.where(modulus > -745, transform, 0.0)), 0.0)
    powers = 8 * _UNIT * (1 + sum(count for _, count in parts))
    gap = np.exp(np.minimum(raised, 600.0)) - np.exp(modulus) + powers * np.abs(transform)
    gap[1:] *= 2
    tilted = fft.irfft(transform, n=size)
    error = float(np.sum(gap)) / size + _fft_error(tilted)
    # The same error in the 2-norm, by Parseval: T·|e|·(1 + largest)^T for each frequency, and the transforms' own.
    square = square * math.exp(min(largest, 600.0)) + powers * float(np.linalg.norm(tilted)) + _fft_error(tilted)
    # Index k of the window stands for the one multiple of the step that lies in it.
    base = window.first
    tilted = np.roll(tilted, -((base - shift) % size))
    places = np.asarray(origin + step * np.arange(base, base + size), dtype=np.float64)
    location = (
        8 * _UNIT * sum(count * (abs(part.origin) + step * (abs(part.start) + len(part.mass))) for part, count in parts)
    )
    losses = places + location if side == "upper" else places - location
    decay = math.exp(-tilt * step)
    tail = _discounted(tilted, decay)
    later = np.append(tail[1:], 0.0) * (decay * -math.expm1(-step))
    excess = _discounted(later, decay * math.exp(-step))
    exponents = abs(log_scale) + tilt * float(np.max(np.abs(losses)))
    relative = 8 * _UNIT * (size + sum(count for _, count in parts) + exponents)
    # Weights d^j on the tail add up to 1/(1 − d), and their squares to 1/(1 − d²).
    summed = min(error / -math.expm1(-tilt * step), square / math.sqrt(-math.expm1(-2 * tilt * step)))
    total_error = summed + window.escaped
    return ComposedLoss(side, tilt, log_scale, losses, tail, excess, total_error, relative, infinite, location)


def _relaxed(cumulants: saddle.Cumulants, epsilon: float, log_delta: float, start: float, limit: float) -> float:
    """The least tilt at which e^{K − τε} is within e^9 of δ, or else the one at which it is least."""
    tilt, best, best_tilt = start, math.inf, start
    while tilt < limit:
        excess = cumulants(tilt)[0] - tilt * epsilon - log_delta
        if excess < 9.0:
            return tilt
        if excess < best:
            best, best_tilt = excess, tilt
        tilt *= 1.3
    return best_tilt


def _some(parts: Sequence[tuple[GridLoss, int]], side: Side) -> float:
    """P that at least one loss is infinite."""
    log_alive = sum(count * math.log1p(-min(part.infinite, 1 - 1e-16)) for part, count in parts)
    if any(part.infinite >= 1.0 for part, count in parts):
        return 1.0
    return -math.expm1(log_alive) * (1 + 1e-12 if side == "upper" else 1 - 1e-12)


def _merged(part: GridLoss, step: float) -> tuple[Floats, Floats]:
    """The same loss in at most a few thousand atoms: good enough to choose a tilt and a window with."""
    losses, mass = part.losses(step), part.mass
    width = -(-len(mass) // _COARSE)
    if width == 1:
        return losses, mass
    starts = np.arange(0, len(mass), width)
    sums = np.add.reduceat(mass, starts)
    means = np.add.reduceat(mass * losses, starts)
    kept = sums > 0
    return means[kept] / sums[kept], sums[kept]


def _cumulants(parts: Sequence[tuple[Floats, Floats, int]], tilt: float) -> tuple[float, float, float]:
    """K, K′ and K″ at a real point."""
    k = slope = curvature = 0.0
    for losses, mass, count in parts:
        with np.errstate(divide="ignore"):
            exponent = np.log(mass) + tilt * losses
        top = float(np.max(exponent))
        weight = np.exp(exponent - top)
        total = float(np.sum(weight))
        mean = float(weight @ losses) / total
        k += count * (top + math.log(total))
        slope += count * mean
        curvature += count * float(weight @ (losses - mean) ** 2) / total
    return k, slope, curvature


@dataclass(frozen=True)
class _Window:
    first: int
    size: int
    escaped: float


def _window(
    coarse: Sequence[tuple[Floats, Floats, int]],
    fine: Sequence[tuple[Floats, Floats, int]],
    tilt: float,
    log_scale: float,
    step: float,
    origin: float,
) -> _Window:
    """Where all but e^{−_ESCAPE} of the tilted mass lies, with what may lie outside bounded by Chernoff."""
    k, _, curvature = _cumulants(coarse, tilt)
    spread = math.sqrt(max(curvature, step * step))
    upward, downward = math.inf, -math.inf
    s_up = s_down = 1.0
    for s in (0.125 / spread) * 2.0 ** np.arange(10):
        reach = (_cumulants(coarse, tilt + s)[0] - k + _ESCAPE) / s
        if reach < upward:
            upward, s_up = reach, float(s)
        reach = -(_cumulants(coarse, tilt - s)[0] - k + _ESCAPE) / s
        if reach > downward:
            downward, s_down = reach, float(s)
    low, high = downward - 2 * step, upward + 2 * step
    above = _cumulants(fine, tilt + s_up)[0] - log_scale - s_up * high
    under = _cumulants(fine, tilt - s_down)[0] - log_scale + s_down * low
    # The merged losses have smaller moments: widen by what the full ones ask for.
    wider_up, wider_down = max(0.0, (above + _ESCAPE) / s_up), max(0.0, (under + _ESCAPE) / s_down)
    low, high = low - wider_down, high + wider_up
    above, under = above - s_up * wider_up, under - s_down * wider_down
    first = math.floor((low - origin) / step)
    return _Window(
        first,
        math.ceil((high - origin) / step) - first + 1,
        (math.exp(min(above, 700.0)) + math.exp(min(under, 700.0))) * (1 + 1e-6),
    )


def _fold(values: Floats, size: int) -> Floats:
    """`values` wrapped around a circle of `size` places."""
    rows = -(-len(values) // size)
    padded = np.zeros(rows * size)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(rows, size).sum(axis=0))


def _fft_error(values: Floats) -> float:
    """A bound on the 2-norm, so on any entry, of the error of `values` as the result of a unitary transform.

    Higham 2002, Theorem 24.2: the 2-norm of the error is at most log2(n) times 7.5 roundings of the result's 2-norm,
    with the twiddle factors good to one rounding. Allowed here: 16 roundings.
    """
    return 16 * _UNIT * (math.log2(len(values)) + 1) * float(np.linalg.norm(values))


def _discounted(values: Floats, decay: float) -> Floats:
    """r[k] = Σ_{j ≥ k} decay^{j−k} values[j], in blocks so that no power under- or overflows."""
    if decay < 1e-300:
        return values.copy()
    result = np.empty_like(values)
    block = len(values) if decay == 1 else max(1, min(len(values), int(300 / -math.log(decay))))
    carry = 0.0
    for end in range(len(values), 0, -block):
        begin = max(0, end - block)
        powers = decay ** np.arange(end - begin)
        sums = np.cumsum((values[begin:end] * powers)[::-1])[::-1]
        result[begin:end] = sums / powers + carry * decay ** np.arange(end - begin, 0, -1)
        carry = float(result[begin])
    return result


def log_moment(part: GridLoss, step: float, order: float) -> float:
    """ln Σ mass·e^{order·loss}."""
    return _cumulants([(part.losses(step), part.mass, 1)], order)[0] if part.mass.any() else -math.inf
