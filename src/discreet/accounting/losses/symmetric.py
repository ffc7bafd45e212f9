"""The privacy loss of a subset of fixed size, when one unit's data is exchanged for another's.

For sampling without replacement at rate γ = size/population under replace-one, Zhu, Dong & Wang 2022 (arXiv 2106.08567,
Theorem 11) bound the profile by that of ((1−γ)Q + γP, Q) at ε ≥ 0 and by its mirror image below 0. The two halves form
one pair: losses above 0 from the first, their mirror images below 0, and the remaining mass at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.continuous import DIFFERENCE_ERROR, ContinuousLoss, normal
from discreet.accounting.losses.loss import Cells

Floats = NDArray[np.float64]

# Cells of the plane for `triangle`: how many in each direction, and how far out, in standard deviations of the noise.
_CELLS_ALONG, _CELLS_ACROSS, _CELLS_REACH = 240, 480, 9.0
# Distinct losses on either side of 0 after merging. Cells with less mass are left out of the lower bound.
_MERGED, _SMALLEST_CELL = 3000, 1e-280
# The height of an equilateral triangle with sides of length 1.
_HEIGHT = math.sqrt(0.75)


@lru_cache(maxsize=64)
def triangle(rate: float, mu: float) -> AtomLoss:
    """From below: three values at the same distance Δ from each other, with Gaussian noise; μ = Δ/σ.

    The value of a sample is u with the unit, v with what replaces it, and 0 without: any two differ by Δ, so all are
    allowed. Many steps then cost more than with v = 0, where a sample with the replacement looks like one without. The
    plane is cut into cells, and cells with nearly the same loss are merged: an attack that sees less.
    """
    reach = _CELLS_REACH + mu
    across = np.concatenate(([-np.inf], np.linspace(-reach, reach, _CELLS_ACROSS + 1), [np.inf]))
    along = np.concatenate(([-np.inf], np.linspace(-_CELLS_REACH, reach, _CELLS_ALONG + 1), [np.inf]))
    middle, half = mu * _HEIGHT, mu / 2

    def masses(x: float, y: float) -> Floats:
        return np.outer(normal(along[:-1] - x, along[1:] - x), normal(across[:-1] - y, across[1:] - y)).ravel()

    without = (1 - rate) * masses(0.0, 0.0)
    p, q = without + rate * masses(middle, half), without + rate * masses(middle, -half)
    kept = (p > _SMALLEST_CELL) & (q > _SMALLEST_CELL)
    p, q = p[kept], q[kept]
    losses = np.log(p / q)
    merged = np.unique(np.round(losses * (_MERGED / float(np.max(losses)))), return_inverse=True)[1]
    p, q = (np.asarray(np.bincount(merged, mass), dtype=np.float64) for mass in (p, q))
    return AtomLoss(np.log(p / q), p, q)


def mirrored(loss: AtomLoss) -> AtomLoss:
    """The joined pair of a sampled loss with atoms alone."""
    positive = loss.losses > 0
    losses, p, q = loss.losses[positive], loss.p[positive], loss.q[positive]
    rest = 1 - float(np.sum(p)) - float(np.sum(q)) - loss.infinite
    return AtomLoss(
        np.concatenate((-losses[::-1], np.zeros(1), losses)),
        np.concatenate((q[::-1], np.array([max(rest, 0.0)]), p)),
        np.concatenate((p[::-1], np.array([max(rest, 0.0)]), q)),
        loss.infinite,
        loss.infinite,
    )


@dataclass(frozen=True)
class MirroredLoss:
    """The joined pair of a sampled loss that has a density; `forward` is the direction of removal."""

    forward: ContinuousLoss

    @property
    def infinite(self) -> float:
        return 0.0

    @property
    def unbounded(self) -> bool:
        return self.forward.unbounded

    def support(self, tail: float) -> tuple[float, float]:
        _, high = self.forward.support(tail)
        return -high, high

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        losses, p, q = self.forward.atoms()
        positive = losses > 0
        losses, p, q = losses[positive], p[positive], q[positive]
        p_above, q_above = self.forward.shift.above()
        rate = self.forward.rate
        rest = np.array([1 - (rate * p_above + (2 - rate) * q_above)])
        return (
            np.concatenate((-losses[::-1], np.zeros(1), losses)),
            np.concatenate((q[::-1], rest, p)),
            np.concatenate((p[::-1], rest, q)),
        )

    def cells(self, edges: Floats) -> Cells:
        p, q, share = (np.zeros(len(edges) - 1) for _ in range(3))
        zero = np.zeros(1)
        backward = ContinuousLoss(self.forward.shift, self.forward.rate, reverse=True)
        above, below = edges[edges > 0], edges[edges < 0]
        if len(above):
            cells, upper = self.forward.cells(np.concatenate((zero, above))), slice(len(p) - len(above), None)
            p[upper], q[upper], share[upper] = cells.p, cells.q, cells.upper_share
        if len(below):
            cells, lower = backward.cells(np.concatenate((below, zero))), slice(0, len(below))
            p[lower], q[lower], share[lower] = p[lower] + cells.p, q[lower] + cells.q, share[lower] + cells.upper_share
        if len(below) and len(above) and np.all(edges):
            # The cell around 0 holds parts of both halves: its share follows from its masses.
            k = len(below) - 1
            split = (p[k] * (1 + DIFFERENCE_ERROR) - q[k] * np.exp(edges[k])) / -np.expm1(edges[k] - edges[k + 1])
            share[k] = min(max(float(split), 0.0), float(p[k]))
        return Cells(p, q, share)
