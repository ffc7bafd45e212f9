"""Hadamard response: report one column of a Hadamard matrix, usually one where the person's row is positive."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.local.frequencies import FrequencyProtocol, Influence
from discreet.mechanisms.local.reports import Payloads, bytes_to_integers, integers_to_bytes
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import coins, logistic


@dataclass(frozen=True)
class HadamardResponse(FrequencyProtocol):
    """A column of Sylvester's matrix of order K > d: with probability e^ε/(e^ε + 1) one that is positive in one's row.

    Acharya, Sun & Zhang 2019, the form for small ε. Row v + 1 belongs to category v. Every row has K/2 positive
    entries, and two rows share half of them, so a report supports another category with probability 1/2. Reports have
    log₂K bits and are decoded by a fast transform in K·log K steps. Its variance (e^ε + 1)²/(n(e^ε − 1)²) is near the
    best for ε ≤ 1.
    """

    @property
    def order(self) -> int:
        """K: the order of the matrix, the least power of two above the number of categories."""
        return 1 << len(self.categories).bit_length()

    @property
    def truth(self) -> float:
        return 1 / (1 + math.exp(-self.epsilon))

    @property
    def noise(self) -> float:
        return 0.5

    @property
    def bits(self) -> float:
        return math.log2(self.order)

    @property
    def size(self) -> int:
        return math.ceil((self.order - 1).bit_length() / 8)

    @property
    def informative(self) -> float:
        return 0.5  # two rows differ in half of the columns, half of these positive in each

    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        positive = coins(logistic(self.epsilon), held.size, bits)
        # A uniform column whose sign in the person's row is the wanted one: where it is not, flip the lowest bit that
        # the row has. That maps columns of one sign onto those of the other, one to one.
        row = held + 1
        column = samplers.uniform(self.order, held.size, bits)
        wrong = _positive(row, column) != positive
        return integers_to_bytes(column ^ ((row & -row) * wrong), self.size)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return bytes_to_integers(payloads) < self.order

    def support(self, payloads: Payloads) -> NDArray[np.int64]:
        signed = np.bincount(bytes_to_integers(payloads), minlength=self.order).astype(np.int64)
        step = 1
        while step < self.order:  # the fast Walsh–Hadamard transform
            pairs = signed.reshape(-1, 2, step)
            signed = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
            step *= 2
        # Reports with a positive entry minus those with a negative one, for each row.
        supporting: NDArray[np.int64] = (len(payloads) + signed[1 : len(self.categories) + 1]) // 2
        return supporting

    def probability(self, payload: bytes, held: int) -> float:
        column = int.from_bytes(payload, "little")
        if column >= self.order:
            return 0.0
        sign = bool(_positive(np.array([held + 1]), np.array([column]))[0])
        return (self.truth if sign else 1 - self.truth) / (self.order / 2)

    def influence(self) -> Influence:
        apart = self.truth - self.noise
        return Influence(self.noise / apart, len(self.categories) * self.noise / apart)


def _positive(row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether Sylvester's matrix is +1 at a row and a column: they share an even number of one-bits."""
    shared = row & column
    for shift in (32, 16, 8, 4, 2, 1):
        shared = shared ^ (shared >> shift)
    return np.asarray((shared & 1) == 0)
