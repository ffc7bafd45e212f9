"""Many selections of different ranges, from above: like ranges are steered together, and the groups multiply.

Selections may run in any order, also one that depends on outcomes. The product of the pairs of several groups dominates
all of them (docs/proofs/bounded-range.md, "Groups of ranges"). Within a group, ranges are rounded up to the largest.
Larger groups are tighter, as a pair for a whole group wastes less than one for each selection, but round up more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from discreet.accounting.losses import ranges
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.losses.one_range import RangeLoss

# Selections of one group at most, grid cells within its range, and pairs that are remembered.
_LARGEST, _CELLS, _REMEMBERED = 48, 16, 512
# About how much more variance the pair of k selections has than the best attack: this over k, and no more than the
# second, which one selection has. It only guides the choice of groups.
_EXCESS, _EXCESS_OF_ONE = 0.54, 1 / 3
# More ranges than this, with what remains of each, are not put into groups one by one.
_MOST_LISTED = 4096


def above(chosen: ranges.Ranges) -> Losses | None:
    """Selections of several ranges, each chosen after the outcomes before it; None where they are too many."""
    total, rest = Losses(), list[float]()
    for epsilon, count in chosen:
        size = _largest(epsilon)
        if size < 1:
            return None
        if count >= size:
            total += Losses.of(_pair(epsilon, size)).times(count // size)
        rest += [epsilon] * (count % size)
    if len(rest) > _MOST_LISTED:
        return None
    for first, size in groups(sorted(rest, reverse=True)):
        total += Losses.of(_pair(first, size))
    return total


def groups(listed: Sequence[float]) -> list[tuple[float, int]]:
    """The largest range and the size of each group, for ranges in falling order: the least variance in total.

    >>> groups([1.0, 1.0, 1.0, 0.1])
    [(1.0, 3), (0.1, 1)]
    """
    squares = np.array(listed) ** 2
    sizes = np.arange(1, _LARGEST + 1)
    waste = sizes * (1 + np.minimum(_EXCESS_OF_ONE, _EXCESS / sizes))
    best, chosen = np.zeros(len(listed) + 1), [0] * (len(listed) + 1)
    for end in range(1, len(listed) + 1):
        most = min(end, _LARGEST)
        starts = end - sizes[:most]
        costs = best[starts] + squares[starts] * waste[:most]
        chosen[end] = 1 + int(np.argmin(costs))
        best[end] = costs[chosen[end] - 1]
    grouped, end = [], len(listed)
    while end > 0:
        size = min(chosen[end], _largest(listed[end - chosen[end]]))
        end -= size
        grouped.append((float(listed[end]), size))
    return grouped[::-1]


def _largest(epsilon: float) -> int:
    return min(_LARGEST, ranges.largest_block(epsilon))


@lru_cache(maxsize=_REMEMBERED)
def _pair(epsilon: float, size: int) -> PrivacyLoss:
    """A pair that dominates `size` selections of range ε; one by its formula."""
    return RangeLoss(epsilon) if size == 1 else ranges.steered_above(epsilon, size, _CELLS)
