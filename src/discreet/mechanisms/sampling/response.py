"""Randomized response among a few values, exactly, from one 16-bit word each.

The unit interval is cut into e^ε/(e^ε + m − 1) for outcome 0 and m − 1 equal parts for the others. The first 16 bits of
a uniform real say in which part it lies, except for the words at the cuts, which get as many further bits as they need.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.sampling.entropy import SYSTEM, Bits
from discreet.mechanisms.sampling.fixed_point import logistic

_WIDTH = 16
_OPEN = -1  # the word lies at a cut


@dataclass(frozen=True)
class Response:
    """Outcome 0 with probability e^ε/(e^ε + count − 1), else one of 1, …, count − 1, for 2 ≤ count ≤ 128."""

    epsilon: Fraction
    count: int

    def cuts(self, precision: int) -> list[tuple[int, int]]:
        """Integers lo ≤ 2^precision · c ≤ hi for the end c of each outcome but the last: p + (1 − p)j/(count − 1)."""
        others, fixed_one = self.count - 1, 1 << precision
        low, high = logistic(self.epsilon, Fraction(others))(precision)
        return [
            ((low * (others - j) + fixed_one * j) // others, -((high * (j - others) - fixed_one * j) // others))
            for j in range(others)
        ]

    @cached_property
    def _outcomes(self) -> NDArray[np.int8]:
        """The outcome of each first word."""
        table = np.full(1 << _WIDTH, _OPEN, dtype=np.int8)
        start = 0
        for outcome, (low, high) in enumerate([*self.cuts(_WIDTH), (1 << _WIDTH, 1 << _WIDTH)]):
            table[start:low] = outcome
            start = max(start, high)
        return table

    def draw(self, size: int, bits: Bits = SYSTEM) -> NDArray[np.int8]:
        """`size` independent outcomes."""
        words = np.frombuffer(bits.read(2 * size), dtype=np.uint16)
        outcomes = self._outcomes[words]
        for undecided in np.flatnonzero(outcomes == _OPEN):
            outcomes[undecided] = self._decided(int(words[undecided]), bits)
        return outcomes

    def _decided(self, prefix: int, bits: Bits) -> int:
        """The outcome of a uniform real whose first bits are given."""
        width, cuts = _WIDTH + 64, self._further
        while True:
            prefix = (prefix << 64) | bits.integer(64)
            passed = bisect.bisect_right(cuts, prefix, key=lambda ends: ends[1])  # cuts that lie below for certain
            if passed == len(cuts) or prefix + 1 <= cuts[passed][0]:
                return passed
            width += 64
            cuts = self.cuts(width)

    @cached_property
    def _further(self) -> list[tuple[int, int]]:
        return self.cuts(_WIDTH + 64)


@lru_cache(maxsize=128)
def response(epsilon: Fraction, count: int) -> Response:
    """The sampler of one ε and number of values. It is cached."""
    return Response(epsilon, count)
