"""Privacy losses whose moments have a formula: they join a Fourier inversion that something smoother makes converge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_UNIT = 2.0**-53


class ClosedLoss(Protocol):
    """A loss with a formula for E[e^{zL}]."""

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """ln E[e^{τL}] (good to 64 roundings), and its two derivatives (to a few digits)."""

    def ratio(self, tilt: float, omega: Floats) -> tuple[Complexes, Floats]:
        """E[e^{(τ+iω)L}]/E[e^{τL}] and a bound on its error."""


@dataclass(frozen=True, eq=False)
class ClosedAtoms:
    """Finitely many losses."""

    losses: Floats
    p: Floats

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
        value = np.exp(1j * omega[:, None] * self.losses) @ weights
        size = float(weights @ np.abs(self.losses))
        return value, _UNIT * (16 + 2 * len(weights) + 4 * (tilt + omega) * size)


@dataclass(frozen=True)
class ClosedLaplace:
    """Laplace noise at ε₀: E[e^{zL}] = ((z+1)e^{zε₀} + z e^{−(z+1)ε₀})/(2z+1)."""

    epsilon: float

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
        return value, _UNIT * (64 + 8 * (tilt + omega) * self.epsilon)
