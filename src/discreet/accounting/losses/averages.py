"""The privacy loss of an average of laws, in each of which another one of `count` steps is the one that counts.

Let Y be the likelihood ratio dP₁/dQ₁ of one step under Q₁, so E[Y] = 1. If one of `count` steps, chosen at random, has
the law P₁ and the others Q₁, then the ratio of the whole is Z = (Y₁ + … + Y_count)/count with independent Yᵢ under Q. A
pair is determined by the law of its ratio under Q, and one pair dominates another, in both directions and after any
composition, if and only if its ratio is larger in the convex order (Blackwell 1953; docs/proofs/random-allocation.md).

The convex order survives sums of independent variables. So the sum is built by doubling, on grids of a few hundred
values. From above, each value is split between its neighbors on the grid, which keeps the mean. From below, the values
of a cell are merged into their mean. Both err in second order of the width of a cell. All sums have terms ≥ 0, so
round-off is a small *relative* error of each mass, at any δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]

# The grid of a sum, in units of its mean, is 1 + scale·sinh(k·_STEP) above the mean and exp(scale·sinh(k·_STEP)) below,
# where the scale is the relative standard deviation: even within a standard deviation, ever wider in the tails. A split
# then adds about _STEP²/3 to the variance, relatively.
_STEP = 0.0125
# The scale stays within these: below, round-off of the values would show; above, the middle of the law would be missed.
_LEAST_SCALE, _MOST_SCALE = 1e-9, 1.0
# A grid has at most about this many nodes: if ratios span many orders of magnitude, a coarser one is fine enough.
_MOST_NODES = 1500
# The first value of a grid lies below the smallest sum by this part of it, so that no cell is empty.
_FIRST_BELOW = 1e-6

# The step's loss is cut off where P₁ exceeds it with less than the first probability, or falls short of it with less
# than the second. The lower end reaches far, because Rényi divergences of high order look there.
_HIGH_TAIL, _LOW_TAIL = 1e-30, 1e-300
# Sums are trimmed where P has less than the first probability above, or Q less than the second below.
_TRIM_HIGH, _TRIM_LOW = 1e-32, 1e-80
# Pairs of values with less probability than this are not summed, but count as lost: mostly two large values at once.
_RARE_PAIR = 1e-45
# What products of masses lose to underflow, in all doublings together.
_UNDERFLOW = 1e-290

# Losses stay within ± this: e^709 is the largest float, and the rest is room for sums of ratios.
_LARGEST_LOSS = 690
# Cells of the estimate of the variance, which only chooses the scale of the grid.
_VARIANCE_CELLS = 4000

# Tails above this are asked for only to see where the bulk of a loss lies.
_BULK = 1e-6

# Relative error of the masses of a cell (`discretize.MASS_ERROR`), and of a mean of a cell, which divides two of them.
_CELL_ERROR, _MEAN_ERROR = 1e-12, 3e-12
# Relative error of a value at each sum: a few roundings, and those of asinh that may put it into the next cell.
_VALUE_ERROR = 1e-13
# Roundings of one product of masses and its two shares.
_SHARE_ROUNDINGS = 8
# So many sums are formed at once, such that the arrays stay in the cache of a core.
_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class AverageLoss(AtomLoss):
    """Many atoms that stand for a smooth loss. Its bulk decides how fine a grid must be, and is far from its ends."""

    def support(self, tail: float) -> tuple[float, float]:
        if tail < _BULK:
            return super().support(tail)
        total = np.cumsum(self.p)
        low, high = np.searchsorted(total, (tail, total[-1] - tail))
        return float(self.losses[max(low - 1, 0)]), float(self.losses[min(high + 1, len(self.losses) - 1)])


@dataclass(frozen=True, eq=False)
class RatioLaw:
    """Values and Q-masses of a sum of likelihood ratios. What is missing counts as revealed.

    Attributes:
        values: the values, increasing, all > 0.
        masses: their probabilities under Q.
        count: the number of ratios in the sum, which is also its mean.
        lost_p: a bound on what P has outside.
        lost_q: a bound on what Q has outside.
        mass_error: a bound on |ln| of what round-off multiplied each mass by.
        value_error: the same for each value.
    """

    values: Floats
    masses: Floats
    count: int
    lost_p: float
    lost_q: float
    mass_error: float
    value_error: float

    def __post_init__(self) -> None:
        if len(self.values) == 0:
            raise OverflowError("the probabilities of a sum of likelihood ratios left the range of floats")

    @property
    def variance(self) -> float:
        """The variance of the sum, to a few digits."""
        return float(self.masses @ (self.values - self.count) ** 2)

    def loss(self, *, adding: bool, upper: bool) -> AverageLoss:
        """The privacy loss ±ln Z of the average Z, moved up or down by more than its round-off."""
        ratio = self.values / self.count
        p, q, infinite, only_q = self.masses * ratio, self.masses, self.lost_p, self.lost_q
        losses = np.log(ratio)
        if adding:
            losses, p, q, infinite, only_q = -losses[::-1], q[::-1], p[::-1], only_q, infinite
        sign = 1 if upper else -1
        q = q * math.exp(sign * (self.mass_error + self.value_error))
        p = p * math.exp(sign * (self.mass_error + 2 * self.value_error))
        return AverageLoss(losses + sign * self.value_error, p, q, infinite, only_q)


def average(loss: PrivacyLoss, count: int, *, upper: bool) -> RatioLaw:
    """The law of a sum of `count` ratios of the step with loss `loss`: larger in the convex order, or smaller."""
    fine = _one(loss, _STEP, upper=upper)
    total = fine
    for bit in f"{count:b}"[1:]:
        total = _added(total, total, upper=upper)
        if bit == "1":
            # One ratio has a small part of the variance of many, so its grid may be coarser.
            coarse = min(8, math.isqrt(total.count))
            single = fine if coarse <= 1 else _one(loss, coarse * _STEP, upper=upper)
            total = _added(total, single, upper=upper)
    return total


@dataclass(frozen=True, eq=False)
class _Grid:
    """Increasing nodes: one below all values, and those of the places first, first + 1, …"""

    mean: float
    scale: float
    step: float
    first: int
    nodes: Floats

    @classmethod
    def over(cls, low: float, high: float, mean: float, deviation: float, step: float) -> _Grid:
        scale = min(max(deviation / mean, _LEAST_SCALE), _MOST_SCALE)
        ends = _places(np.array([low, high]), mean, scale, step)
        coarser = max(1.0, float(ends[1] - ends[0]) / _MOST_NODES)
        step, ends = step * coarser, np.floor(ends / coarser)
        first = int(ends[0]) + 1
        away = scale * np.sinh(step * np.arange(first, max(first, int(ends[1]) + 1) + 2))
        inner = mean * np.where(away > 0, 1 + away, np.exp(np.minimum(away, 0.0)))
        return cls(mean, scale, step, first, np.concatenate((np.array([low * (1 - _FIRST_BELOW)]), inner)))

    def cell(self, values: Floats) -> NDArray[np.int64]:
        """Which cell each value lies in; round-off may name the neighbor of the right one."""
        index = np.floor(_places(values, self.mean, self.scale, self.step)).astype(np.int64)
        return np.clip(index - (self.first - 1), 0, len(self.nodes) - 2)


def _places(values: Floats, mean: float, scale: float, step: float) -> Floats:
    """Where values lie on a grid, in steps from the mean."""
    ratio = values / mean
    away = np.where(ratio > 1, ratio - 1, np.log(ratio)) / scale
    size = np.abs(away)
    # asinh by its logarithm, which numpy computes several times faster.
    return np.asarray(np.copysign(np.log(size + np.sqrt(size * size + 1)), away) / step)


def _one(loss: PrivacyLoss, step: float, *, upper: bool) -> RatioLaw:
    """The ratio of one step, on a grid."""
    low, high = loss.support(_LOW_TAIL)[0], loss.support(_HIGH_TAIL)[1]
    if not -_LARGEST_LOSS < low <= high < _LARGEST_LOSS:
        raise OverflowError("a likelihood ratio left the range of floats")
    deviation = math.sqrt(_second_moment(loss, low, high))
    grid = _Grid.over(math.exp(low), math.exp(high), 1.0, deviation, step)
    edges = np.log(grid.nodes)
    cells = loss.cells(edges)
    atom_losses, atom_p, atom_q = loss.atoms()
    values = np.exp(atom_losses)
    at = grid.cell(values)
    size = len(grid.nodes)
    tail = _HIGH_TAIL if loss.unbounded else 0.0
    if not upper:
        q = cells.q + np.bincount(at, atom_q, size - 1)
        p = cells.p + np.bincount(at, atom_p, size - 1)
        kept = (q > _UNDERFLOW) & (p > _UNDERFLOW)
        return RatioLaw((p / np.where(kept, q, 1.0))[kept], q[kept], 1, 0.0, 0.0, 2 * _CELL_ERROR, _MEAN_ERROR)
    # Two bounds on what stays at the lower node: by P, which is accurate for narrow cells, and by Q, for wide ones.
    by_p = (np.maximum(cells.p - cells.upper_share, 0.0) + _CELL_ERROR * cells.p) / grid.nodes[:-1]
    by_q = np.maximum(cells.q - cells.upper_share / grid.nodes[1:], 0.0) + 2 * _CELL_ERROR * cells.q
    masses = np.zeros(size)
    masses[:-1] += np.minimum(by_p, by_q)
    masses[1:] += (cells.upper_share + _CELL_ERROR * cells.p) / grid.nodes[1:]
    share = np.clip((values - grid.nodes[at]) / (grid.nodes[at + 1] - grid.nodes[at]), 0.0, 1.0)
    masses += np.bincount(at, atom_q * (1 - share), size) + np.bincount(at + 1, atom_q * share, size)
    masses[-1] += tail / grid.nodes[-1]
    lost = (_LOW_TAIL if loss.unbounded else 0.0) + _UNDERFLOW
    law = RatioLaw(grid.nodes, masses, 1, loss.infinite + tail + lost, lost, _CELL_ERROR, _VALUE_ERROR)
    return _trimmed(law, upper=True)


def _second_moment(loss: PrivacyLoss, low: float, high: float) -> float:
    """E[(Y − 1)²] to a digit or two: it only chooses the grid."""
    edges = np.linspace(low, high, _VARIANCE_CELLS + 1)
    cells = loss.cells(edges)
    middle = np.exp((edges[:-1] + edges[1:]) / 2)
    atom_losses, _, atom_q = loss.atoms()
    return float(cells.q @ (middle - 1) ** 2 + atom_q @ np.expm1(atom_losses) ** 2)


def _added(left: RatioLaw, right: RatioLaw, *, upper: bool) -> RatioLaw:
    """The law of the sum of two independent sums."""
    count = left.count + right.count
    deviation = math.sqrt(left.variance + right.variance)
    low, high = left.values[0] + right.values[0], left.values[-1] + right.values[-1]
    grid = _Grid.over(float(low), float(high), float(count), deviation, _STEP)
    size = len(grid.nodes)
    first, second = np.zeros(size), np.zeros(size)
    terms = np.zeros(size, dtype=np.int64)
    widths = np.diff(grid.nodes)
    rows = max(1, _BLOCK // len(right.values))
    dropped_p = dropped_q = 0.0
    for start in range(0, len(left.values), rows):
        values, masses = left.values[start : start + rows], left.masses[start : start + rows]
        columns, times = right.values, right.masses
        if left is right:  # pairs outside of the block on the diagonal come in two orders, of which one is summed
            columns, times = columns[start:], times[start:].copy()
            times[rows:] *= 2
        kept = float(masses.max()) * times * (values[-1] + columns) > _RARE_PAIR * count
        each, rare = float(masses.sum()), times[~kept]
        dropped_q += each * float(rare.sum())
        dropped_p += each * float(rare @ (values[-1] + columns[~kept])) / count
        columns, times = columns[kept], times[kept]
        sums = (values[:, None] + columns[None, :]).ravel()
        weights = (masses[:, None] * times[None, :]).ravel()
        at = grid.cell(sums)
        terms += np.bincount(at, minlength=size)
        if upper:
            share = np.clip((sums - grid.nodes[at]) / widths[at], 0.0, 1.0)
            first += np.bincount(at, weights * (1 - share), size)
            second += np.bincount(at, weights * share, size)
        else:
            first += np.bincount(at, weights, size)
            second += np.bincount(at, weights * sums, size)
    roundings = 2 * int(terms.max()) + _SHARE_ROUNDINGS
    mass_error = left.mass_error + right.mass_error + roundings * UNIT
    value_error = max(left.value_error, right.value_error) + _VALUE_ERROR
    if not upper:
        kept = first > _UNDERFLOW
        means, masses = second[kept] / first[kept], first[kept]
        # A mean of many terms errs by their number in roundings.
        law = RatioLaw(means, masses, count, 0.0, 0.0, mass_error, value_error + 2 * roundings * UNIT)
        return _trimmed(law, upper=False)
    first[1:] += second[:-1]
    share_left, share_right = left.count / count, right.count / count
    lost_p = share_left * (left.lost_p + right.lost_q) + share_right * (right.lost_p + left.lost_q)
    lost_p, lost_q = lost_p + dropped_p + _UNDERFLOW, left.lost_q + right.lost_q + dropped_q + _UNDERFLOW
    law = RatioLaw(grid.nodes, first, count, lost_p, lost_q, mass_error, value_error)
    return _trimmed(law, upper=True)


def _trimmed(law: RatioLaw, *, upper: bool) -> RatioLaw:
    """Without the ends of negligible probability: from above they count as revealed, from below they are left out."""
    p = law.masses * law.values / law.count
    above = np.cumsum(p[::-1])[::-1]
    below = np.cumsum(law.masses)
    kept = (above > _TRIM_HIGH) & (below > _TRIM_LOW)
    low, high = int(np.argmax(kept)), len(kept) - int(np.argmax(kept[::-1]))
    values, masses = law.values[low:high], law.masses[low:high].copy()
    if upper:
        masses[-1] += float(np.sum(law.masses[high:]))
    occupied = masses > 0
    trimmed = replace(law, values=values[occupied], masses=masses[occupied])
    if not upper:
        return trimmed
    lost_low = float(below[low - 1]) if low > 0 else 0.0
    lost_p = law.lost_p + float(np.sum(p[high:])) + float(np.sum(p[:low]))
    return replace(trimmed, lost_p=lost_p, lost_q=law.lost_q + lost_low)
