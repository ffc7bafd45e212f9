"""An exact sampler for a finite table of integer weights, from about four random bytes a draw (Walker 1977, Vose 1991).

The weights of K = 2^k outcomes are redistributed over K columns of 2^32 units each. A column holds units of at most two
outcomes, its own below a cut and one other above it. A draw is a uniform column and a uniform unit in it, so outcome i
has probability weight[i]/(K·2^32) exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.mechanisms.sampling.entropy import SYSTEM, Bits

#: log₂ of the units in one column.
UNIT_BITS = 32
# A column is drawn from 16 random bits.
_LARGEST_TABLE = 1 << 16


@dataclass(frozen=True, eq=False)
class AliasTable:
    """The columns of a table.

    Attributes:
        cuts: the units of each column that belong to its own outcome.
        others: the outcome that the remaining units of each column belong to.
    """

    cuts: NDArray[np.uint32]
    others: NDArray[np.uint16]

    @classmethod
    def of(cls, weights: ArrayLike) -> AliasTable:
        """The table of 2^k integer weights with the sum 2^(k + 32), where k ≤ 16."""
        units = np.asarray(weights, dtype=np.int64).tolist()
        size, column = len(units), 1 << UNIT_BITS
        if size & (size - 1) or not 1 <= size <= _LARGEST_TABLE:
            raise _check.fail("weights", "number a power of two, at most 2^16", size, "add zeros")
        if min(units) < 0 or sum(units) != size * column:
            raise _check.fail("weights", "be ≥ 0 with the sum 2^32 for each", sum(units), "scale and round them")
        others = list(range(size))
        cuts = [column - 1] * size  # a full column: its last unit belongs to the other outcome, which is itself
        short = [i for i, held in enumerate(units) if held < column]
        long = [i for i, held in enumerate(units) if held >= column]
        while short:
            outcome, donor = short.pop(), long[-1]
            cuts[outcome], others[outcome] = units[outcome], donor
            units[donor] -= column - units[outcome]
            if units[donor] < column:
                short.append(long.pop())
        return cls(np.array(cuts, dtype=np.uint32), np.array(others, dtype=np.uint16))

    def draw(self, size: int, bits: Bits = SYSTEM) -> NDArray[np.uint16]:
        """`size` independent outcomes.

        The first 16 bits of the unit decide on which side of the cut it lies, unless they are equal to the cut's.
        """
        words = np.frombuffer(bits.read(4 * size), dtype=np.uint16)
        columns, units = words[:size] & np.uint16(len(self.cuts) - 1), words[size:]
        cuts = self._first_bits[columns]
        own = units < cuts
        for tie in np.flatnonzero(units == cuts):
            own[tie] = bits.integer(16) < int(self.cuts[columns[tie]]) & 0xFFFF
        return np.where(own, columns, self.others[columns])

    @cached_property
    def _first_bits(self) -> NDArray[np.uint16]:
        return (self.cuts >> np.uint32(16)).astype(np.uint16)
