"""Bisection: where a monotone condition becomes true.

Each search keeps a bracket: the condition holds at its `high` end and does not hold at its `low` end. The caller takes
the end that is safe. To search for the end of a condition that holds from below, pass its negation and take `low`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

# Halving the distance between the largest float and 0 reaches the smallest one after 2098 rounds, and no interval of
# floats takes longer.
_ALL_ROUNDS = 2098


class Bracket(NamedTuple):
    """Two ends that enclose the point at which a condition becomes true: it holds at `high`, and not at `low`."""

    low: float
    high: float


def bisect(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    relative: float = 0.0,
    absolute: float = 0.0,
    rounds: int = _ALL_ROUNDS,
) -> Bracket:
    """Halve [low, high] until it is no wider than `relative`·high + `absolute`, or until its ends are neighbors.

    `holds` must be false below some point and true above it. The ends given are trusted, not tried. At most `rounds`
    halvings are made.

    >>> bisect(lambda x: x * x >= 2, 1.0, 2.0, relative=1e-3)
    Bracket(low=1.4140625, high=1.4150390625)
    """
    for _ in range(rounds):
        if high - low <= relative * high + absolute:
            break
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Bracket(low, high)


def bisect_ratio(holds: Callable[[float], bool], low: float, high: float, *, ratio: float) -> Bracket:
    """The same between positive numbers on a logarithmic scale, until high/low is at most `ratio` > 1.

    >>> bracket = bisect_ratio(lambda x: x >= 3, 1e-6, 1e6, ratio=1.01)
    >>> bracket.low < 3 <= bracket.high <= 1.01 * bracket.low
    True
    """
    while high / low > ratio:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return Bracket(low, high)


def least_integer(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest integer in (low, high] for which a monotone `holds` is true; `high` is trusted, not tried.

    >>> least_integer(lambda n: n * n >= 50, 0, 100)
    8
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_positive(holds: Callable[[float], bool], *, start: float = 1.0, relative: float) -> float:
    """The smallest x > 0 for which a monotone `holds` is true, from the side where it is; inf where no finite x does.

    The bracket is found from `start` by doubling or halving, and then halved to a width of `relative`·x.

    >>> least_positive(lambda x: x >= 1000, relative=1e-12) - 1000 < 1e-9
    True
    """
    high = start if math.isfinite(start) else 1.0
    while not holds(high):
        high *= 2
        if math.isinf(high):
            return math.inf
    low = high / 2
    while low > 0 and holds(low):
        high, low = low, low / 2
    return bisect(holds, low, high, relative=relative).high
