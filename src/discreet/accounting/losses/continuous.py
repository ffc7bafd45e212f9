"""Privacy losses with a density: Gaussian and Laplace noise, on all data or on a Poisson sample, in either direction.

A *shift* is the pair (P, Q) of the noise around its two centers, on a coordinate u along which the loss ln(dP/dQ)
grows. `ContinuousLoss` mixes it: under sampling at rate q the dominating pairs are ((1−q)Q + qP, Q) for removing a
unit and (Q, (1−q)Q + qP) for adding one (Zhu, Dong & Wang 2022, Theorem 11; arXiv 2106.08567).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses.loss import Cells

Floats = NDArray[np.float64]

# Gauss's rule with four points: its error is of order eight in the width of a cell, below 1e-12 of the cell's mass for
# cells in which no exponent changes by more than `NARROW`.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
NARROW = 0.25

# From this loss on, e^l is so large (1e13) that ln(1 − q + q e^l) is computed with e^l factored out. Both forms keep
# their digits around here, so the exact place does not matter.
_LARGE = 30.0

# Relative round-off of a difference of two masses: more than the roundings of the few operations that make it.
DIFFERENCE_ERROR = 1e-14


class Shift(Protocol):
    """A noise around two centers, on the coordinate along which its loss grows."""

    def loss(self, u: Floats) -> Floats:
        """The loss at u."""

    def coordinate(self, loss: Floats) -> Floats:
        """The u of a loss."""

    def densities(self, u: Floats) -> tuple[Floats, Floats]:
        """The densities of P and of Q at u."""

    def masses(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """P and Q of each interval (a, b)."""

    def narrow(self, a: Floats, b: Floats) -> NDArray[np.bool_]:
        """Which intervals are narrow enough for Gauss's rule."""

    def reach(self, tail: float) -> tuple[float, float]:
        """Ends beyond which P has at most `tail` on either side."""

    def ends(self) -> tuple[Floats, Floats, Floats]:
        """Losses, P masses and Q masses of the atoms at the ends."""

    def above(self) -> tuple[float, float]:
        """P and Q of a loss above 0."""


def mixture_loss(loss: Floats, rate: Floats | float) -> Floats:
    """ln(1 − q + q e^l): the loss of a mixture that takes P with probability q, at a loss l of P against Q."""
    if float(np.max(loss, initial=-math.inf)) < _LARGE:
        return np.asarray(np.log1p(rate * np.expm1(loss)))
    small = np.log1p(rate * np.expm1(np.minimum(loss, _LARGE)))
    with np.errstate(over="ignore"):
        large = loss + np.log(rate + (1 - rate) * np.exp(-np.maximum(loss, 0.0)))
    return np.where(loss < _LARGE, small, large)


@dataclass(frozen=True)
class GaussianShift:
    """N(μ, 1) against N(0, 1): the loss at u is μu − μ²/2."""

    mu: float

    def loss(self, u: Floats) -> Floats:
        return self.mu * (u - self.mu / 2)

    def coordinate(self, loss: Floats) -> Floats:
        return loss / self.mu + self.mu / 2

    def densities(self, u: Floats) -> tuple[Floats, Floats]:
        scale = 1 / math.sqrt(2 * math.pi)
        return scale * np.exp(-0.5 * (u - self.mu) ** 2), scale * np.exp(-0.5 * u * u)

    def masses(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        return normal(a - self.mu, b - self.mu), normal(a, b)

    def narrow(self, a: Floats, b: Floats) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            size = 1 + 2 * self.mu + np.maximum(np.abs(a), np.abs(b))
            return np.asarray((b - a) * size < NARROW)

    def reach(self, tail: float) -> tuple[float, float]:
        z = -float(special.ndtri(tail))
        return -z, self.mu + z

    def ends(self) -> tuple[Floats, Floats, Floats]:
        return np.empty(0), np.empty(0), np.empty(0)

    def above(self) -> tuple[float, float]:
        return float(special.ndtr(self.mu / 2)), float(special.ndtr(-self.mu / 2))


@dataclass(frozen=True)
class LaplaceShift:
    """Laplace noise at distance ε₀ scales: the loss is u on (−ε₀, ε₀), with an atom at either end."""

    epsilon: float

    def loss(self, u: Floats) -> Floats:
        return u

    def coordinate(self, loss: Floats) -> Floats:
        return np.clip(loss, -self.epsilon, self.epsilon)

    def densities(self, u: Floats) -> tuple[Floats, Floats]:
        return 0.25 * np.exp((u - self.epsilon) / 2), 0.25 * np.exp((-u - self.epsilon) / 2)

    def masses(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        high, low = (a - self.epsilon) / 2, (-b - self.epsilon) / 2
        growth = np.expm1((b - a) / 2)
        return 0.5 * np.exp(high) * growth, 0.5 * np.exp(low) * growth

    def narrow(self, a: Floats, b: Floats) -> NDArray[np.bool_]:
        return np.asarray(b - a < NARROW)

    def reach(self, tail: float) -> tuple[float, float]:
        return -self.epsilon, self.epsilon

    def ends(self) -> tuple[Floats, Floats, Floats]:
        half, rest = 0.5, 0.5 * math.exp(-self.epsilon)
        return (
            np.array([-self.epsilon, self.epsilon]),
            np.array([rest, half]),
            np.array([half, rest]),
        )

    def above(self) -> tuple[float, float]:
        lower = 0.5 * math.exp(-self.epsilon / 2)
        return 1 - lower, lower


@dataclass(frozen=True)
class ContinuousLoss:
    """The loss of a shift on a Poisson sample of rate q; `reverse` is the direction in which a unit is added."""

    shift: Shift
    rate: float = 1.0
    reverse: bool = False

    @property
    def infinite(self) -> float:
        return 0.0

    @property
    def unbounded(self) -> bool:
        return not isinstance(self.shift, LaplaceShift)

    def _sampled(self, loss: Floats) -> Floats:
        """ln(1 − q + q e^l)."""
        return loss if self.rate >= 1 else mixture_loss(loss, self.rate)

    def unsampled(self, loss: Floats) -> Floats:
        """The inverse of `_sampled`; −inf for losses below its smallest value ln(1 − q)."""
        if self.rate >= 1:
            return loss
        with np.errstate(divide="ignore", invalid="ignore"):
            small = np.log1p(np.maximum(np.expm1(np.minimum(loss, _LARGE)) / self.rate, -1.0))
            large = loss + np.log((1 - (1 - self.rate) * np.exp(-np.maximum(loss, 0.0))) / self.rate)
        return np.where(loss < _LARGE, small, large)

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        losses, p, q = self.shift.ends()
        p, losses = self._mix(p, q), self._sampled(losses)
        return (-losses[::-1], q[::-1], p[::-1]) if self.reverse else (losses, p, q)

    def _mix(self, p: Floats, q: Floats) -> Floats:
        return (1 - self.rate) * q + self.rate * p

    def support(self, tail: float) -> tuple[float, float]:
        low, high = self._sampled(self.shift.loss(np.array(self.shift.reach(tail))))
        return (-float(high), -float(low)) if self.reverse else (float(low), float(high))

    def cells(self, edges: Floats) -> Cells:
        """The part with a density, in the cells between `edges`; relative error below 1e-12 in each cell."""
        forward = -edges[::-1] if self.reverse else edges
        u = self.shift.coordinate(self.unsampled(forward))
        a, b = u[:-1], np.maximum(u[1:], u[:-1])
        base_p, q = self.shift.masses(a, b)
        p = self._mix(base_p, q)
        low, high = edges[:-1], edges[1:]
        if self.reverse:
            p, q = q[::-1], p[::-1]
        shrink = -np.expm1(low - high)
        with np.errstate(divide="ignore", over="ignore"):
            # A difference of nearly equal numbers, moved up by more than its round-off.
            share = np.clip((p * (1 + DIFFERENCE_ERROR) - np.exp(np.log(q) + low)) / shrink, 0.0, p)
        narrow = self.shift.narrow(a, b) & (b > a)
        if narrow.any():
            p_near, q_near, share_near = self._integrated(a[narrow], b[narrow], forward, narrow)
            where = narrow[::-1] if self.reverse else narrow
            ordered = slice(None, None, -1) if self.reverse else slice(None)
            p[where], q[where] = p_near[ordered], q_near[ordered]
            share[where] = np.minimum(share_near[ordered] / shrink[where], p[where])
        return Cells(p, q, share)

    def _integrated(
        self, a: Floats, b: Floats, forward: Floats, narrow: NDArray[np.bool_]
    ) -> tuple[Floats, Floats, Floats]:
        """The same three integrals by Gauss's rule with four points, which has no cancellation in a narrow cell."""
        half = (b - a)[:, None] / 2
        u = (a + b)[:, None] / 2 + half * _NODES
        weight = half * _WEIGHTS
        p, q = self.shift.densities(u)
        p, q = self._mix(p, q) * weight, q * weight
        loss = self._sampled(self.shift.loss(u))
        if self.reverse:
            p, q = q, p
            above = -np.expm1(np.minimum(loss - forward[1:][narrow][:, None], 0.0))
        else:
            above = -np.expm1(np.minimum(forward[:-1][narrow][:, None] - loss, 0.0))
        return p.sum(axis=1), q.sum(axis=1), (p * above).sum(axis=1)


def normal(a: Floats, b: Floats) -> Floats:
    """Φ(b) − Φ(a) without loss of digits in either tail."""
    right = a + b > 0  # there, mirror the interval into the left tail
    low, high = np.where(right, -b, a), np.where(right, -a, b)
    return np.asarray(np.maximum(special.ndtr(high) - special.ndtr(low), 0.0))
