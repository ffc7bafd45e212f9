"""Losses of Poisson samples beyond one added or removed unit: groups, and a unit that is replaced.

A group of k units, a removed and b added: with Gaussian noise, the pair Σ Bin(a, q)(i)·N(iμ, 1)
against Σ Bin(b, q)(j)·N(−jμ, 1) dominates, and is attained (docs/proofs/gaussian-mixtures.md). A replaced unit: with
probability q it is in the sample, and the loss is that of the event; otherwise nothing about it is released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses.continuous import NARROW, ContinuousLoss, normal
from discreet.accounting.losses.loss import Cells, PrivacyLoss

Floats = NDArray[np.float64]

# A loss is inverted in a table of this many points, and then by this many steps of Newton's method. Each step squares
# the error of 1e-5 that linear interpolation leaves.
_TABLE, _NEWTON = 8193, 3
# Where the table ends, in standard deviations beyond the outermost mean: Φ(−39) is below the smallest float.
_BEYOND = 39.0

# Relative error of a tail of a mixture: a hundred times that of Φ.
_PROFILE_ERROR = 1e-13


@dataclass(frozen=True)
class MixtureShift:
    """Two mixtures of normals with unit variance: `means_p` ≥ 0 for P, `means_q` ≤ 0 for Q, so that the loss grows."""

    weights_p: tuple[float, ...]
    means_p: tuple[float, ...]
    weights_q: tuple[float, ...]
    means_q: tuple[float, ...]

    @classmethod
    def of_group(cls, rate: float, mu: float, removed: int, added: int) -> MixtureShift:
        """A group on a Poisson sample: `removed` of its units are in the first dataset, `added` in the second one."""

        def binomial(count: int) -> tuple[float, ...]:
            return tuple(math.comb(count, i) * rate**i * (1 - rate) ** (count - i) for i in range(count + 1))

        return cls(
            binomial(removed),
            tuple(i * mu for i in range(removed + 1)),
            binomial(added),
            tuple(-j * mu for j in range(added + 1)),
        )

    def loss(self, u: Floats) -> Floats:
        return self._loss_and_slope(u)[0]

    def _loss_and_slope(self, u: Floats) -> tuple[Floats, Floats]:
        p, p_slope = _log_density(u, self.weights_p, self.means_p)
        q, q_slope = _log_density(u, self.weights_q, self.means_q)
        return np.asarray(p - q), np.asarray(p_slope - q_slope)

    @cached_property
    def _table(self) -> tuple[Floats, Floats]:
        u = np.linspace(min(self.means_q) - _BEYOND, max(self.means_p) + _BEYOND, _TABLE)
        # Where the loss is nearly flat, round-off must not make it fall.
        return u, np.maximum.accumulate(self.loss(u))

    def coordinate(self, loss: Floats) -> Floats:
        u, table = self._table
        cell = np.clip(np.searchsorted(table, loss) - 1, 0, len(u) - 2)
        low, high = u[cell], u[cell + 1]
        at = np.interp(loss, table, u)
        for _ in range(_NEWTON):
            value, slope = self._loss_and_slope(at)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = at - (value - loss) / slope
            at = np.clip(np.where(np.isfinite(step), step, at), low, high)
        return np.where(loss <= table[0], -np.inf, np.where(loss >= table[-1], np.inf, at))

    def densities(self, u: Floats) -> tuple[Floats, Floats]:
        scale = 1 / math.sqrt(2 * math.pi)

        def density(weights: tuple[float, ...], means: tuple[float, ...]) -> Floats:
            components = (w * np.exp(-0.5 * (u - m) ** 2) for w, m in zip(weights, means, strict=True))
            return np.asarray(scale * sum(components))

        return density(self.weights_p, self.means_p), density(self.weights_q, self.means_q)

    def masses(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        def mass(weights: tuple[float, ...], means: tuple[float, ...]) -> Floats:
            return np.asarray(sum(w * normal(a - m, b - m) for w, m in zip(weights, means, strict=True)))

        return mass(self.weights_p, self.means_p), mass(self.weights_q, self.means_q)

    def narrow(self, a: Floats, b: Floats) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            size = 1 + 2 * (max(self.means_p) - min(self.means_q)) + np.maximum(np.abs(a), np.abs(b))
            return np.asarray((b - a) * size < NARROW)

    def reach(self, tail: float) -> tuple[float, float]:
        z = -float(special.ndtri(tail))
        return min(self.means_q) - z, max(self.means_p) + z

    def ends(self) -> tuple[Floats, Floats, Floats]:
        return np.empty(0), np.empty(0), np.empty(0)

    def above(self) -> tuple[float, float]:
        p, q = self.masses(self.coordinate(np.zeros(1)), np.array([np.inf]))
        return float(p[0]), float(q[0])


def _log_density(u: Floats, weights: tuple[float, ...], means: tuple[float, ...]) -> tuple[Floats, Floats]:
    """ln of a mixture over the standard normal density at u, and its slope: the mean of the component u came from."""
    kept = [(w, m) for w, m in zip(weights, means, strict=True) if w > 0]
    if len(kept) == 1 and kept[0][1] == 0:
        return np.zeros_like(u), np.zeros_like(u)
    terms = [math.log(w) + m * (u - m / 2) for w, m in kept]
    top = np.maximum.reduce(terms)
    total, moment = np.zeros_like(u), np.zeros_like(u)
    for (_, mean), term in zip(kept, terms, strict=True):
        share = np.exp(term - top)
        total += share
        moment += mean * share
    return top + np.log(total), moment / total


@dataclass(frozen=True)
class GroupLoss(ContinuousLoss):
    """The loss of a group of units that change together, on a Poisson sample with Gaussian noise."""

    def profile(self, epsilon: float) -> tuple[float, float]:
        """δ(ε) of one such loss, from below and from above: P − e^ε Q of the losses beyond ε.

        Any other threshold gives less, and one that is off by round-off gives less by a multiple of its square.
        """
        start = self.shift.coordinate(np.array([epsilon]))
        p, q = (float(mass[0]) for mass in self.shift.masses(start, np.array([np.inf])))
        with_q = math.exp(epsilon) * q if q > 0 else 0.0
        lower = p * (1 - _PROFILE_ERROR) - with_q * (1 + _PROFILE_ERROR)
        return max(0.0, lower), min(1.0, p * (1 + _PROFILE_ERROR) - with_q * (1 - _PROFILE_ERROR))


def group_loss(rate: float, mu: float, removed: int, added: int) -> GroupLoss:
    """The loss of a group with some units removed and some added."""
    return GroupLoss(MixtureShift.of_group(rate, mu, removed, added))


@dataclass(frozen=True, eq=False)
class RareLoss:
    """`inner` with probability `rate`, else no loss at all."""

    inner: PrivacyLoss
    rate: float

    @property
    def infinite(self) -> float:
        return self.rate * self.inner.infinite

    @property
    def unbounded(self) -> bool:
        return self.inner.unbounded

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        losses, p, q = self.inner.atoms()
        losses = np.append(losses, 0.0)
        order = np.argsort(losses, kind="stable")
        rest = 1 - self.rate
        return losses[order], np.append(self.rate * p, rest)[order], np.append(self.rate * q, rest)[order]

    def support(self, tail: float) -> tuple[float, float]:
        low, high = self.inner.support(min(0.5, tail / self.rate))
        return min(low, 0.0), max(high, 0.0)

    def cells(self, edges: Floats) -> Cells:
        cells = self.inner.cells(edges)
        return Cells(self.rate * cells.p, self.rate * cells.q, self.rate * cells.upper_share)
