"""One selection of bounded range by its formula, so that thousands of different ranges cost no more than Laplace noise.

With E = e^ε the largest profile of one selection is (√E − √y)²/(E − 1) at y in [1/E, E] (docs/proofs/bounded-range.md).
Its loss has the density e^{x/2}/(4 sinh(ε/2)) under P for −ε ≤ x ≤ ε, and no atoms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.loss import Cells

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RangeLoss:
    """The loss of the pair that dominates one selection of range ε."""

    epsilon: float

    infinite = 0.0
    unbounded = False

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        """None: the loss has a density."""
        return np.empty(0), np.empty(0), np.empty(0)

    def support(self, tail: float) -> tuple[float, float]:
        """All losses, whatever the tail."""
        return -self.epsilon, self.epsilon

    def cells(self, edges: Floats) -> Cells:
        """P and Q between the edges by their integrals, and the share that goes up, as a sum of two terms ≥ 0."""
        inside = np.clip(edges, -self.epsilon, self.epsilon)
        low, high = inside[:-1], inside[1:]
        scale = 2 * math.sinh(self.epsilon / 2)
        p = np.exp(low / 2) * np.expm1((high - low) / 2) / scale
        q = np.exp(-high / 2) * np.expm1((high - low) / 2) / scale
        # ∫(1 − e^{a−l})dP over [a′, b′] is (1 − e^{a−a′})P + e^{a−a′}·P·(1 − 1/r), with r = e^{(b′−a′)/2}.
        before = edges[:-1] - low
        above = p * (-np.expm1(before) - np.exp(before) * np.expm1((low - high) / 2))
        return Cells(p, q, np.minimum(p, above / -np.expm1(edges[:-1] - edges[1:])))
