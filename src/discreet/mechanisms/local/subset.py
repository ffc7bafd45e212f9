"""Subset selection: report a random set of categories that usually holds the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.local.frequencies import FrequencyProtocol, Influence
from discreet.mechanisms.local.protocol import bounded_share
from discreet.mechanisms.local.reports import Payloads, bits_to_bytes, bytes_to_bits
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import coins, logistic

# Reports that are encoded or decoded at once: it bounds the memory.
_ROWS = 1 << 13


@dataclass(frozen=True)
class SubsetSelection(FrequencyProtocol):
    """A set of ω categories, with the person's own in it with probability ωe^ε/(ωe^ε + d − ω).

    Ye & Barg 2018; ω ≈ d/(e^ε + 1) is optimal, and for n → ∞ no ε-DP protocol has a smaller worst-case variance. ε-DP:
    each set of ω categories has one of two probabilities, with the ratio e^ε.
    """

    @property
    def chosen(self) -> int:
        """ω: the number of categories in a report."""
        return max(1, min(len(self.categories) - 1, round(len(self.categories) / (math.exp(self.epsilon) + 1))))

    @property
    def truth(self) -> float:
        return 1 / (1 + (len(self.categories) - self.chosen) / self.chosen * math.exp(-self.epsilon))

    @property
    def noise(self) -> float:
        return (self.chosen - self.truth) / (len(self.categories) - 1)

    @property
    def bits(self) -> float:
        return math.log2(math.comb(len(self.categories), self.chosen))

    @property
    def size(self) -> int:
        return math.ceil(len(self.categories) / 8)

    @property
    def informative(self) -> float:
        # A set tells two values apart if it holds one of them: of the sets with ω of d, 2ω(d − ω)/(d(d − 1)) do.
        count, chosen, less = len(self.categories), self.chosen, math.exp(-self.epsilon)
        apart = chosen * (count - chosen) * (1 + less) / ((count - 1) * (chosen + (count - chosen) * less))
        return bounded_share(apart)

    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        count, chosen = len(self.categories), self.chosen
        out = np.empty((held.size, self.size), dtype=np.uint8)
        inside = coins(logistic(self.epsilon, Fraction(count - chosen, chosen)), held.size, bits)
        for own in (True, False):
            persons = np.flatnonzero(inside == own)
            for start in range(0, persons.size, _ROWS):
                rows = persons[start : start + _ROWS]
                members = _random_sets(held[rows], chosen - own, count, bits)
                members[np.arange(rows.size), held[rows]] = own
                out[rows] = bits_to_bytes(members)
        return out

    def _members(self, payloads: Payloads) -> NDArray[np.uint8]:
        return bytes_to_bits(payloads)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        members = self._members(payloads)
        padding = members[:, len(self.categories) :].any(axis=1)
        return np.asarray(~padding & (members.sum(axis=1, dtype=np.int64) == self.chosen))

    def support(self, payloads: Payloads) -> NDArray[np.int64]:
        total = np.zeros(len(self.categories), dtype=np.int64)
        for start in range(0, len(payloads), _ROWS):
            members = self._members(payloads[start : start + _ROWS])
            total += members[:, : len(self.categories)].sum(axis=0, dtype=np.int64)
        return total

    def probability(self, payload: bytes, held: int) -> float:
        row = np.frombuffer(payload, dtype=np.uint8)[None]
        if not self.valid(row)[0]:
            return 0.0
        count, chosen = len(self.categories), self.chosen
        if self._members(row)[0, held]:
            return self.truth / math.comb(count - 1, chosen - 1)
        return (1 - self.truth) / math.comb(count - 1, chosen)

    def influence(self) -> Influence:
        apart = self.truth - self.noise
        of_one, of_zero = (1 - self.noise) / apart, self.noise / apart
        return Influence(of_one, self.chosen * of_one + (len(self.categories) - self.chosen) * of_zero)


def _random_sets(held: NDArray[np.int64], size: int, count: int, bits: entropy.Bits) -> NDArray[np.bool_]:
    """Uniformly random sets of `size` categories without the person's own, one for each person.

    Floyd's algorithm (Bentley & Floyd 1987), for all persons at once: for j from d − 1 − size to d − 2, a uniform
    number in [0, j] joins the set, or j itself if that number is in it already. Numbers count the categories after the
    person's own.
    """
    members = np.zeros(held.size * count, dtype=np.bool_)
    start = np.arange(held.size, dtype=np.int64) * count
    for last in range(count - 1 - size, count - 1):
        drawn = _place(start, held, samplers.uniform(last + 1, held.size, bits), count)
        members[np.where(members[drawn], _place(start, held, last, count), drawn)] = True
    return members.reshape(held.size, count)


def _place(
    start: NDArray[np.int64], held: NDArray[np.int64], number: NDArray[np.int64] | int, count: int
) -> NDArray[np.int64]:
    """The position of the category with a given number, counted from the one after the person's own."""
    category = held + 1 + number
    return start + np.where(category >= count, category - count, category)
