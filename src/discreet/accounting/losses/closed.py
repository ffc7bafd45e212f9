"""Privacy losses whose moments have a formula, for Fourier inversions that a smoother loss makes converge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.continuous import ContinuousLoss, LaplaceShift
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

# A sum over more atoms than this, at each node of a contour, costs more time than the grid does.
_MOST_ATOMS = 1 << 14
# Complex numbers that are made at a time: 8 MiB.
_CHUNK = 1 << 19
# From this many equally spaced frequencies on, powers of e^{iωl} are multiplied instead of computed one by one.
_EQUALLY_SPACED = 64


# Bound on the error of ln E[e^{τL}], in roundings of 1 + |its value|.
LOG_MOMENT_ROUNDINGS = 64


class ClosedLoss(Protocol):
    """A loss with a formula for E[e^{zL}]."""

    @property
    def members(self) -> float:
        """How many losses it stands for."""

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """ln E[e^{τL}], good to `LOG_MOMENT_ROUNDINGS` for each member, and its two derivatives, to a few digits."""

    def ratio(self, tilt: float, omega: Floats) -> tuple[Complexes, Floats]:
        """E[e^{(τ+iω)L}]/E[e^{τL}] and a bound on its error."""


@dataclass(frozen=True, eq=False)
class ClosedAtoms:
    """Finitely many losses."""

    losses: Floats
    p: Floats

    @property
    def members(self) -> float:
        return 1.0

    def _weights(self, tilt: float) -> tuple[Floats, float]:
        with np.errstate(divide="ignore"):
            exponent = np.log(self.p) + tilt * self.losses
        top = float(np.max(exponent))
        weights = np.exp(exponent - top)
        total = float(np.sum(weights))
        return weights / total, top + math.log(total)

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        weights, k = self._weights(tilt)
        mean = float(weights @ self.losses)
        return k, mean, float(weights @ (self.losses - mean) ** 2)

    def ratio(self, tilt: float, omega: Floats) -> tuple[Complexes, Floats]:
        weights, _ = self._weights(tilt)
        value = np.zeros(len(omega), dtype=np.complex128)
        rows = max(1, _CHUNK // max(1, math.isqrt(len(omega))))
        for begin in range(0, len(weights), rows):
            chunk = slice(begin, begin + rows)
            value += _turned_sum(omega, self.losses[chunk], weights[chunk])
        size = float(weights @ np.abs(self.losses))
        # Each term errs by its exponent's size in roundings, the sum by its number of terms.
        return value, UNIT * (16 + 4 * len(weights) + 8 * (tilt + omega) * size)


def _turned_sum(omega: Floats, losses: Floats, weights: Floats) -> Complexes:
    """Σ w·e^{iωl} at each frequency.

    On equally spaced frequencies e^{i(aB+b)Δl} = e^{iaBΔl}·e^{ibΔl}, so the sums are a product of two matrices, with
    twice the square root of as many exponentials. The phase errs by at most four roundings of its size.
    """
    count = len(omega)
    if count < _EQUALLY_SPACED or not np.array_equal(omega, omega[1] * np.arange(count)):
        return np.asarray(np.exp(1j * omega[:, None] * losses) @ weights)
    block = math.isqrt(count)
    inner, outer = np.exp(1j * omega[:block, None] * losses), np.exp(1j * omega[::block, None] * losses)
    return np.asarray(((outer * weights) @ inner.T).reshape(-1)[:count])


@dataclass(frozen=True)
class ClosedLaplace:
    """Laplace noise at ε₀: E[e^{zL}] = ((z+1)e^{zε₀} + z e^{−(z+1)ε₀})/(2z+1)."""

    epsilon: float

    @property
    def members(self) -> float:
        return 1.0

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        e = self.epsilon
        shrink = math.exp(-(2 * tilt + 1) * e)
        inside = (tilt + 1) + tilt * shrink
        # d/dτ of the inner sum, then the quotient rule on its logarithm.
        first = 1 + shrink * (1 - 2 * e * tilt)
        second = shrink * (-4 * e + 4 * e * e * tilt)
        slope = e + first / inside - 2 / (2 * tilt + 1)
        bend = second / inside - (first / inside) ** 2 + 4 / (2 * tilt + 1) ** 2
        return tilt * e + math.log(inside) - math.log(2 * tilt + 1), slope, max(bend, 0.0)

    def ratio(self, tilt: float, omega: Floats) -> tuple[Complexes, Floats]:
        z = tilt + 1j * omega
        scale = (tilt + 1 + tilt * math.exp(-(2 * tilt + 1) * self.epsilon)) / (2 * tilt + 1)
        value = (z + 1) * np.exp(1j * omega * self.epsilon)
        value += z * np.exp(-(2 * tilt + 1 + 1j * omega) * self.epsilon)
        value /= (2 * z + 1) * scale
        # Some twenty operations, and the exponents' errors of at most twice their size in roundings.
        return value, UNIT * (64 + 8 * (tilt + omega) * self.epsilon)


def closed_form(loss: PrivacyLoss) -> ClosedLoss | None:
    """The same loss for a Fourier inversion; None where its moments have no cheap formula."""
    if isinstance(loss, AtomLoss) and 0 < len(loss.losses) <= _MOST_ATOMS:
        return ClosedAtoms(loss.losses, loss.p)
    if isinstance(loss, ContinuousLoss) and isinstance(loss.shift, LaplaceShift) and loss.rate >= 1:
        return ClosedLaplace(loss.shift.epsilon)
    return None
