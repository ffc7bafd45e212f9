"""Public marks over a range at two scales, for quantiles that are found in two passes.

The coarse marks lie at equal distances, and twice as close with each step toward the point nearest to 0, so data whose
size varies by orders of magnitude is told apart. The fine marks divide each interval between coarse ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check

#: At least half as many as this, and at most this many, intervals of equal width over the bounds.
_EQUAL = 32
#: How often the intervals next to the anchor are halved: down to a millionth of their width.
_HALVINGS = 20
#: Numbers that are nearer to a coarse mark than this part of the narrowest width count as the mark itself.
_ON_MARK = 2.0**-60
#: How many intervals beside the cell that the first pass chose the second pass divides, on each side.
_BESIDE = 1


@dataclass(frozen=True)
class Marks:
    """Ascending coarse marks from one bound to the other, and the width of the parts between each two of them.

    All distances are powers of two from the anchor, so integers are marks wherever parts are no wider than 1. The
    last part before a mark may be narrower than the others.
    """

    coarse: tuple[float, ...]
    widths: tuple[float, ...]

    @classmethod
    def over(cls, bounds: tuple[float, float], parts: int) -> Marks:
        """Marks over `bounds`, with at most `parts` parts between two coarse ones."""
        low, high = (float(end) for end in bounds)
        width = Fraction(high) - Fraction(low)
        anchor = Fraction(min(max(0.0, low), high))
        step = _power_at_least(width / _EQUAL)
        offsets = {sign * step * i for i in range(_EQUAL + 1) for sign in (-1, 1)}
        offsets |= {sign * step / 2**j for j in range(1, _HALVINGS + 1) for sign in (-1, 1)}
        inner = {float(anchor + offset) for offset in offsets}
        coarse = tuple(sorted({low, high} | {mark for mark in inner if low < mark < high}))
        widths = [float(_power_at_least((Fraction(b) - Fraction(a)) / parts)) for a, b in pairwise(coarse)]
        if any(a + wide == a or b - wide == b for (a, b), wide in zip(pairwise(coarse), widths, strict=True)):
            remedy = "subtract a public offset from the column first"
            raise _check.fail("bounds", "be wider, for numbers this large", bounds, remedy)
        return cls(coarse, tuple(widths))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """How many parts each interval between coarse marks has."""
        pairs = zip(pairwise(self.coarse), self.widths, strict=True)
        return tuple(math.ceil((Fraction(b) - Fraction(a)) / Fraction(wide)) for (a, b), wide in pairs)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The place of each coarse mark among all marks."""
        return tuple(int(position) for position in np.cumsum([0, *self.parts]))

    @cached_property
    def points(self) -> tuple[float, ...]:
        """All marks, ascending."""
        intervals = zip(self.coarse[:-1], self.widths, self.parts, strict=True)
        inner = [start + j * wide for start, wide, parts in intervals for j in range(parts)]
        return (*inner, self.coarse[-1])

    @cached_property
    def no_distance(self) -> float:
        """Shorter distances from a coarse mark count as none, so no quotient of a distance and a width underflows."""
        return min(self.widths) * _ON_MARK

    @property
    def size(self) -> int:
        """How many cells all marks make: on each of them, between two, and one beyond either end."""
        return 2 * len(self.points) + 1

    def cells(self, values: ArrayLike) -> NDArray[np.int64]:
        """The cell of each number, as an engine computes it: 2i + 1 on mark i, 2i + 2 between the marks i and i + 1.

        Rounding may move a number that is as good as a mark onto it, or off it into the interval beside it.

        Guarantee: each number has one cell, which depends on that number alone.
        """
        own = np.clip(np.asarray(values, dtype=np.float64), self.coarse[0], self.coarse[-1])
        at = np.array([bisect_right(self.coarse, value) - 1 for value in own.tolist()], dtype=np.int64)
        starts, places = np.array(self.coarse), np.array(self.places)
        per_length = np.array([*(1 / wide for wide in self.widths), 1.0])
        gaps = own - starts[at]
        along = np.where(gaps < self.no_distance, 0.0, gaps) * per_length[at]
        whole = np.floor(along).astype(np.int64)
        return np.asarray(2 * (places[at] + whole) + 1 + (along != whole))

    @cached_property
    def widest(self) -> int:
        """The coarse cell around which a second pass has the most marks."""
        return max(range(2 * len(self.coarse) + 1), key=lambda cell: len(self.around(cell)))

    def around(self, cell: int) -> tuple[int, ...]:
        """The places of the marks of a second pass: the coarse ones, and all near a chosen coarse cell."""
        mark, last = (cell - 1) // 2, len(self.coarse) - 1
        left = min(max(mark - _BESIDE, 0), last)
        right = min(max(mark + _BESIDE + (cell % 2 == 0), 0), last)
        return tuple(sorted({*self.places, *range(self.places[left], self.places[right] + 1)}))


@lru_cache(maxsize=64)
def marks(bounds: tuple[float, float], parts: int) -> Marks:
    """The marks over bounds; kept, since every release asks for them again."""
    return Marks.over(bounds, parts)


def merged(counts: NDArray[np.int64], kept: tuple[int, ...]) -> NDArray[np.int64]:
    """The counts of the cells that some of the marks make, out of those of the cells of all marks."""
    ends = np.array([cell for index in kept for cell in (2 * index + 1, 2 * index + 2)])
    upto = np.concatenate([[0], np.cumsum(counts)])
    return np.asarray(np.diff(upto[np.concatenate([[0], ends, [counts.size]])]))


def _power_at_least(number: Fraction) -> Fraction:
    """The least power of two that is at least as large."""
    power = Fraction(2) ** (number.numerator.bit_length() - number.denominator.bit_length() - 1)
    while power < number:
        power *= 2
    return power
