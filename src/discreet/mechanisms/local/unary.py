"""Unary encoding: one randomized bit for each category."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from discreet.mechanisms.local.frequencies import FrequencyProtocol, Influence
from discreet.mechanisms.local.reports import Payloads, bits_to_bytes, bytes_to_bits
from discreet.mechanisms.sampling import entropy
from discreet.mechanisms.sampling.fixed_point import coins, complement, logistic

# A report with more ones than an honest device sends with this probability is rejected: it limits what a dishonest
# device can do, and the bias that it causes is smaller still.
_UNLIKELY = 1e-9
# Reports that are encoded at once: it bounds the memory for random bytes.
_ROWS = 1 << 14


@dataclass(frozen=True)
class UnaryEncoding(FrequencyProtocol):
    """A bit for each category: the person's own is 1 with probability 1/2, the others with 1/(e^ε + 1).

    Optimized unary encoding (Wang, Blocki, Li & Jha 2017, §4.3). ε-DP: two values differ in two bits, whose odds
    ratios multiply to ((1/2)/(1 − 1/2))·((1 − q)/q) = e^ε. Its variance 4e^ε/(n(e^ε − 1)²) for rare categories does
    not depend on their number; its reports are long.
    """

    @property
    def truth(self) -> float:
        return 0.5

    @property
    def noise(self) -> float:
        return math.exp(-self.epsilon) / (1 + math.exp(-self.epsilon))

    @property
    def bits(self) -> float:
        return float(len(self.categories))

    @property
    def size(self) -> int:
        return math.ceil(len(self.categories) / 8)

    @property
    def informative(self) -> float:
        return 0.5  # only (1, 0) and (0, 1) at the two values' bits tell them apart: 1/2·(1 − q) + 1/2·q

    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        out = np.empty((held.size, self.size), dtype=np.uint8)
        false_one, count = complement(logistic(self.epsilon)), len(self.categories)
        for start in range(0, held.size, _ROWS):
            rows = held[start : start + _ROWS]
            ones = coins(false_one, rows.size * count, bits).reshape(rows.size, count)
            fair = np.frombuffer(bits.read(rows.size), dtype=np.uint8) & 1
            ones[np.arange(rows.size), rows] = fair.astype(bool)
            out[start : start + _ROWS] = bits_to_bytes(ones)
        return out

    @property
    def _most_ones(self) -> int:
        return 1 + int(stats.binom.isf(_UNLIKELY, len(self.categories) - 1, self.noise))

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        unpacked = bytes_to_bits(payloads)
        padding = unpacked[:, len(self.categories) :].any(axis=1)
        return np.asarray(~padding & (unpacked.sum(axis=1, dtype=np.int64) <= self._most_ones))

    def support(self, payloads: Payloads) -> NDArray[np.int64]:
        total = np.zeros(len(self.categories), dtype=np.int64)
        for start in range(0, len(payloads), _ROWS):
            ones = bytes_to_bits(payloads[start : start + _ROWS])
            total += ones[:, : len(self.categories)].sum(axis=0, dtype=np.int64)
        return total

    def probability(self, payload: bytes, held: int) -> float:
        row = np.frombuffer(payload, dtype=np.uint8)[None]
        ones = bytes_to_bits(row)[0].astype(bool)
        if ones[len(self.categories) :].any():
            return 0.0
        others = np.delete(ones[: len(self.categories)], held)
        return 0.5 * float(np.prod(np.where(others, self.noise, 1 - self.noise)))

    def influence(self) -> Influence:
        apart, most = self.truth - self.noise, min(self._most_ones, len(self.categories))
        of_one, of_zero = (1 - self.noise) / apart, self.noise / apart
        return Influence(of_one, most * of_one + (len(self.categories) - most) * of_zero)
