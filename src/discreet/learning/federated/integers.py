"""Updates as integers modulo a power of two, so that they can be summed without anyone seeing them.

A client clips its update, rotates it by a random Hadamard matrix that all clients of the round share, scales it, rounds
it at random to integers, and adds discrete Gaussian noise (Kairouz, Liu & Steinke 2021, arXiv 2102.06387). The rotation
spreads an update evenly over its coordinates, so that sums rarely wrap around; rounding at random keeps sums unbiased.
Neither matters for privacy. What matters is the norm of the integers, and that is checked exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.learning.clipping import checked_norm
from discreet.mechanisms.sampling import entropy, samplers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Masks of the sum are 32-bit words.
MOST_BITS = 32
# √(2 ln(1/β)) for the paper's β = e^{−1/2}: a rounding is too long with a probability of at most about 0.6.
_LEEWAY = 1.0
# Roundings that are tried. All are too long with a probability of 1e-14; then the update is rounded toward zero.
_TRIES = 64


@dataclass(frozen=True)
class IntegerUpdates:
    """How updates become integers, and how their sum becomes an update.

    Attributes:
        clip_norm: the largest L2 norm of an update.
        dimension: the number of trained parameters.
        scale: integers in one unit of the update; 1/γ for the paper's granularity γ.
        bits: integers are summed modulo 2^bits.

    Guarantee:
        Whatever the update, the integers have a squared norm of at most `norm_squared`, exactly: it is computed in
        integers, and what does not fit is rounded toward zero, or is zero. So a client moves the sum by at most
        √norm_squared in L2, and reducing the sum modulo 2^bits is post-processing.
    """

    clip_norm: float
    dimension: int
    scale: float
    bits: int = MOST_BITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_norm", checked_norm("clip_norm", self.clip_norm))
        _check.settle_integers(self, "dimension", remedy="it is the number of trained parameters")
        remedy = "it is the number of integers in one unit of the update"
        object.__setattr__(self, "scale", float(_check.positive("scale", self.scale, remedy)))
        _check.settle_integers(self, "bits", remedy="sums are modulo 2^bits", at_least=2, at_most=MOST_BITS)
        if not 1 <= self.norm_squared < 1 << 60:
            remedy = "integers of an update must fit in 64 bits, and be more than zeros"
            raise _check.fail("scale", "give a norm between 1 and 2^30", self.scale, remedy)

    @property
    def size(self) -> int:
        """The number of integers: the dimension, padded to a power of two."""
        return 1 << (self.dimension - 1).bit_length()

    @property
    def norm_squared(self) -> int:
        """The largest squared norm of the integers of one client (Kairouz, Liu & Steinke 2021, Proposition 22).

        min((sC + √D)², s²C² + D/4 + √(2 ln(1/β))·(sC + √D/2)) with s the scale, C the clip norm and D the size.
        """
        norm, root = self.scale * self.clip_norm, math.sqrt(self.size)
        return math.floor(min((norm + root) ** 2, norm**2 + self.size / 4 + _LEEWAY * (norm + root / 2)))

    def encoded(self, update: Floats, rotation: bytes, bits: entropy.Bits = entropy.SYSTEM) -> Integers:
        """The integers of an update, without noise. What is not finite is zero.

        Args:
            update: the update, flat.
            rotation: the round's public seed of the rotation.
            bits: the randomness of the rounding.
        """
        if update.shape != (self.dimension,) or not np.isfinite(update).all():
            return np.zeros(self.size, np.int64)
        largest = float(np.max(np.abs(update), initial=0.0))
        unit = update / largest if largest > 0 else update
        norm = largest * float(np.linalg.norm(unit))
        if not math.isfinite(norm):
            return np.zeros(self.size, np.int64)
        shrink = 1.0 if norm <= self.clip_norm else self.clip_norm / norm
        padded = np.zeros(self.size)
        padded[: self.dimension] = unit * (largest * shrink) if math.isfinite(largest * shrink) else 0.0
        scaled = self.scale * hadamard(padded * signs(rotation, self.size))
        below = np.floor(scaled)
        # The share of 2^53 that rounds up; a multiple of 2^−53 off, which affects only the mean, and not the norm.
        threshold = ((scaled - below) * 2.0**53).astype(np.uint64)
        whole = below.astype(np.int64)
        for _ in range(_TRIES):
            rounded = whole + ((bits.words(self.size) >> np.uint64(11)) < threshold)
            if self._fits(rounded):
                return rounded
        truncated = np.trunc(scaled).astype(np.int64)
        return truncated if self._fits(truncated) else np.zeros(self.size, np.int64)

    def _fits(self, integers: Integers) -> bool:
        """Whether the squared norm is at most `norm_squared`, in exact arithmetic."""
        near = integers.astype(np.float64)
        if float(np.dot(near, near)) > 2 * self.norm_squared:
            return False  # an exact sum of larger squares could overflow
        return int(np.dot(integers, integers)) <= self.norm_squared

    def noisy(self, integers: Integers, variance: Fraction, bits: entropy.Bits = entropy.SYSTEM) -> Integers:
        """The integers with discrete Gaussian noise of parameter σ² = `variance`, modulo 2^bits.

        Guarantee: the noise is exact, and its bits are the operating system's. It hides an update only in the sum with
        that of the other clients, as `events.DistributedDiscreteGaussian` prices it.
        """
        return (integers + samplers.discrete_gaussian(variance, self.size, bits)) & ((1 << self.bits) - 1)

    def decoded(self, total: Integers, rotation: bytes) -> Floats:
        """The sum of updates of a sum of integers modulo 2^bits."""
        modulus = 1 << self.bits
        residues = total & (modulus - 1)
        centered = residues - modulus * (residues >= modulus // 2)
        return (hadamard(centered / self.scale) * signs(rotation, self.size))[: self.dimension]


def hadamard(values: Floats) -> Floats:
    """H·values/√D with Sylvester's matrix H, by the fast transform; it is its own inverse."""
    size, step = values.size, 1
    values = values.copy()
    while step < size:
        pairs = values.reshape(-1, 2, step)
        first = pairs[:, 0].copy()
        pairs[:, 0] += pairs[:, 1]
        np.subtract(first, pairs[:, 1], out=pairs[:, 1])
        step *= 2
    return values / math.sqrt(size)


def signs(rotation: bytes, size: int) -> Floats:
    """The random signs of a round's rotation. They are public, and the same for all clients."""
    drawn = entropy.keyed(rotation, "rotation").integers(0, 2, size=size)
    return 2 * drawn.astype(np.float64) - 1
