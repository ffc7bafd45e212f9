"""Privacy losses with finitely many values: reports, discrete noise, claims.

An `AtomLoss` holds P and Q of each class of outcomes, the mass of outcomes that only P can give (`infinite`) and of
those that only Q can give (`only_q`). Sampling and reversing the direction are arithmetic on these masses.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.loss import Cells

Floats = NDArray[np.float64]

# Masses below this are not summed one by one. It is e^{−690}, just above the smallest normal float.
_NEGLIGIBLE, _LOG_NEGLIGIBLE = 1e-300, -690

# Relative errors: of a loss as a float, and of a mass together with the sum that it enters.
_PLACE_ERROR, _SUM_ERROR = 1e-15, 2e-12


@dataclass(frozen=True, eq=False)
class AtomLoss:
    """Atoms in increasing order of the loss; `p` and `q` are their masses, with losses = ln(p/q) up to round-off."""

    losses: Floats
    p: Floats
    q: Floats
    infinite: float = 0.0
    only_q: float = 0.0
    #: Whether `infinite` is the exact probability, without round-off.
    infinite_is_exact: bool = False

    @property
    def unbounded(self) -> bool:
        return False  # there are finitely many atoms

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        return self.losses, self.p, self.q

    def support(self, tail: float) -> tuple[float, float]:
        if len(self.losses) == 0:
            return 0.0, 0.0
        return float(self.losses[0]), float(self.losses[-1])

    def cells(self, edges: Floats) -> Cells:
        nothing = np.zeros(len(edges) - 1)
        return Cells(nothing, nothing.copy(), nothing.copy())

    def profile(self, epsilon: float) -> tuple[float, float]:
        """δ(ε) of this loss alone, from below and from above: the sum of P·(1 − e^{ε−l}) over losses beyond ε."""
        if len(self.losses) == 0:
            return self.infinite, self.infinite
        moved = _PLACE_ERROR * (abs(epsilon) + float(np.max(np.abs(self.losses))))
        excess = [
            float(np.sum(self.p * -np.expm1(np.minimum(epsilon + side - self.losses, 0.0)))) for side in (moved, -moved)
        ]
        lower, upper = excess[0] * (1 - _SUM_ERROR), excess[1] * (1 + _SUM_ERROR)
        error = 0.0 if self.infinite_is_exact else _SUM_ERROR
        return lower + self.infinite * (1 - error), min(1.0, upper + self.infinite * (1 + error))

    def sampled(self, rate: float) -> AtomLoss:
        """The pair ((1−q)Q + qP, Q) (Zhu, Dong & Wang 2022, Theorem 11)."""
        if rate >= 1:
            return self
        losses = np.log1p(rate * np.expm1(self.losses))
        p, q = (1 - rate) * self.q + rate * self.p, self.q
        if self.only_q > 0:
            losses = np.append(losses, math.log1p(-rate))
            p, q = np.append(p, (1 - rate) * self.only_q), np.append(q, self.only_q)
        order = np.argsort(losses)
        return AtomLoss(losses[order], p[order], q[order], rate * self.infinite, 0.0)

    def reversed(self) -> AtomLoss:
        """The same pair in the other order."""
        return AtomLoss(-self.losses[::-1], self.q[::-1], self.p[::-1], self.only_q, self.infinite)


def randomized_response(epsilon: float, categories: int = 2) -> AtomLoss:
    """A k-ary report: the loss is ε, 0 or −ε; with two categories it dominates every ε-DP mechanism.

    That domination is Kairouz, Oh & Viswanath 2015, Theorem 3.4 (binary reports simulate any pure mechanism).
    """
    norm = 1 + (categories - 1) * math.exp(-epsilon)
    truth, lie = 1 / norm, math.exp(-epsilon) / norm
    if categories == 2:
        return AtomLoss(np.array([-epsilon, epsilon]), np.array([lie, truth]), np.array([truth, lie]))
    neither = (categories - 2) * lie
    return AtomLoss(
        np.array([-epsilon, 0.0, epsilon]), np.array([lie, neither, truth]), np.array([truth, neither, lie])
    )


def two_points(low: float, high: float) -> AtomLoss:
    """The pair whose loss takes the two values low < 0 < high."""
    p_high = -math.expm1(-low) / (math.exp(-high) - math.exp(-low))
    q_high = p_high * math.exp(-high)
    return AtomLoss(np.array([low, high]), np.array([1 - p_high, p_high]), np.array([1 - q_high, q_high]))


def claimed(epsilon: float, delta: float) -> AtomLoss:
    """The pair that dominates every (ε, δ)-DP mechanism (Kairouz, Oh & Viswanath 2015, Theorem 3.4)."""
    if delta >= 1.0:
        return nothing_hidden()
    honest = randomized_response(epsilon)
    losses, p, q = honest.losses, (1 - delta) * honest.p, (1 - delta) * honest.q
    if epsilon <= 0:
        losses, p, q = np.zeros(1), np.array([1 - delta]), np.array([1 - delta])
    return AtomLoss(losses, p, q, delta, delta, infinite_is_exact=True)


def nothing_hidden() -> AtomLoss:
    """Two disjoint outputs: no protection at all."""
    return AtomLoss(np.empty(0), np.empty(0), np.empty(0), 1.0, 1.0)


def discrete_laplace(sensitivity: int, scale: Fraction | float) -> AtomLoss:
    """P(x) ∝ e^{−|x|/b} against itself moved by Δ: losses (Δ − 2j)/b for j = 0…Δ, each end holds a whole tail."""
    b = float(scale)
    j = np.arange(sensitivity + 1, dtype=np.float64)
    ratio = math.exp(-1 / b)
    norm = -math.expm1(-1 / b) / (1 + ratio)
    p = norm * np.exp(-j / b)
    tail = 1 / (1 + ratio)
    p[0], p[-1] = tail, tail * math.exp(-sensitivity / b)
    losses = (sensitivity - 2 * j) / b
    return AtomLoss(losses[::-1].copy(), p[::-1].copy(), p)


class ListedLoss(ABC):
    """A loss by its numbers, whose atoms are made where they are asked for. Abstract."""

    infinite = 0.0
    unbounded = False  # there are finitely many atoms

    @cached_property
    def listed(self) -> AtomLoss:
        """The same loss with all of its atoms."""
        return self._list()

    @abstractmethod
    def _list(self) -> AtomLoss:
        """All atoms."""

    @abstractmethod
    def support(self, tail: float) -> tuple[float, float]:
        """The smallest and the largest loss, without listing the others."""

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        return self.listed.atoms()

    def cells(self, edges: Floats) -> Cells:
        return self.listed.cells(edges)


@dataclass(frozen=True)
class DiscreteLaplaceLoss(ListedLoss):
    """The loss of `discrete_laplace` by its two numbers.

    Attributes:
        sensitivity: Δ.
        scale: b.
    """

    sensitivity: int
    scale: float

    def _list(self) -> AtomLoss:
        return discrete_laplace(self.sensitivity, self.scale)

    def support(self, tail: float) -> tuple[float, float]:
        largest = self.sensitivity / self.scale
        return -largest, largest


def _far(shift: int, variance: float) -> int:
    """How far from the center masses are summed: those beyond are below 1e-300."""
    return math.ceil(math.sqrt(2 * variance * -_LOG_NEGLIGIBLE)) + shift + 1


def discrete_gaussian(shift: int, variance: Fraction | float) -> AtomLoss:
    """P(x) ∝ e^{−x²/2σ²} against itself moved by a: the loss at x is (a² − 2ax)/2σ² (Canonne et al. 2020).

    Summed directly out to masses below 1e-300. The tails beyond are far below the round-off of any sum that they could
    enter, but not below a δ that small, so what P has there counts as an infinite loss.
    """
    sigma2 = float(variance)
    far = _far(shift, sigma2)
    x = np.arange(-far, far + 1, dtype=np.float64)
    weights = np.exp(-x * x / (2 * sigma2))
    total = float(np.sum(np.sort(weights)))
    p = weights / total
    q = np.exp(-((x - shift) ** 2) / (2 * sigma2)) / total
    losses = (shift * shift - 2 * shift * x) / (2 * sigma2)
    return AtomLoss(losses[::-1].copy(), p[::-1].copy(), q[::-1].copy(), _NEGLIGIBLE, _NEGLIGIBLE)


@dataclass(frozen=True)
class DiscreteGaussianLoss(ListedLoss):
    """The loss of `discrete_gaussian` by its two numbers.

    Attributes:
        shift: a, how far one unit moves the value.
        variance: σ².
    """

    shift: int
    variance: float

    infinite = _NEGLIGIBLE

    def _list(self) -> AtomLoss:
        return discrete_gaussian(self.shift, self.variance)

    def support(self, tail: float) -> tuple[float, float]:
        far = _far(self.shift, self.variance)
        unit = self.shift / (2 * self.variance)
        return unit * (self.shift - 2 * far), unit * (self.shift + 2 * far)
