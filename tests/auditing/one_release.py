"""The test of μ on a single noisy sum of each of two datasets, whose noise is measured on thousands of coordinates.

The difference of the two sums is d + z, where d is how far one unit moves the sum and each coordinate of z is normal
with twice the variance of the noise. d has a known direction u. Along u lies ‖d‖ plus noise; the other n − 1
coordinates hold noise alone. So Student's t, the length along u over the spread of the others, is a noncentral t with
noncentrality μ/√2, where μ = ‖d‖/σ is what the event claims. A sum that moves too far and noise that is too small both
make it larger; noise that is drawn twice alike makes it infinite.

It assumes that coordinates have independent normal noise of one size. `training.noisy_sum` does not assume this, and
needs hundreds of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

#: One false alarm in a million, for each sum that is tested.
ALPHA = 1e-6
#: The noise multiplier of all tests, and coordinates of the sums. Small noise makes one unit stand out by itself.
NOISE, COORDINATES = 0.002, 8192


@dataclass(frozen=True)
class OneRelease:
    """Student's t of one release on each dataset."""

    statistic: float
    freedom: int

    @classmethod
    def of(cls, without, with_unit, direction):
        """From the two sums, and the direction in which the unit moves them."""
        unit = np.ravel(direction) / np.linalg.norm(direction)
        difference = np.ravel(with_unit).astype(np.float64) - np.ravel(without)
        along = float(difference @ unit)
        others = difference - along * unit
        spread = math.sqrt(float(others @ others) / (len(unit) - 1))
        return cls(along / spread if spread > 0 else math.inf, len(unit) - 1)

    def p_value(self, mu):
        """P(t ≥ statistic) if the claim is true and reached, by Johnson & Welch's normal form of the noncentral t."""
        if math.isinf(self.statistic):
            return 0.0
        spread = math.sqrt(1 + self.statistic**2 / (2 * self.freedom))
        return float(special.ndtr((mu / math.sqrt(2) - self.statistic * (1 - 1 / (4 * self.freedom))) / spread))


def missed(share, *, mu=1 / NOISE, reached=1.0, freedom=COORDINATES - 1, alpha=ALPHA):
    """The probability that a test at level `alpha` misses noise of which only `share` is there.

    `reached` is how far the unit moves the sum, where the claim allows 1. The critical t solves p(t) = α; the t of the
    mutant is normal around its noncentrality with the spread of Johnson & Welch.
    """
    low, high = mu / math.sqrt(2), 10 * mu
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if OneRelease(middle, freedom).p_value(mu) <= alpha else (middle, high)
    mean = mu * reached / share / math.sqrt(2)
    return float(special.ndtr((high - mean) / math.sqrt(1 + mean**2 / (2 * freedom))))


def judged(found, mu=1 / NOISE):
    """Whether the claim is refuted."""
    return found.p_value(mu) <= ALPHA


def quieter(monkeypatch, share):
    """Every draw of Gaussian noise in training, and in federated rounds, becomes `share` times as large."""
    from discreet.learning.noise import GaussianNoise

    draw = GaussianNoise._standard

    def weak(noise, out, bits):
        draw(noise, out, bits)
        out *= share

    monkeypatch.setattr(GaussianNoise, "_standard", weak)
