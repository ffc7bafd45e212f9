"""An accountant's answer: an interval that contains the truth, whose upper end is charged."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from discreet import _check

# Digits that are shown: 17 tell any two floats apart.
_LEAST_DIGITS, _MOST_DIGITS = 6, 17
# Numbers between these are written without an exponent.
_SMALL, _LARGE = 1e-4, 1e9


@dataclass(frozen=True)
class Interval:
    """Two certified ends: the truth is at least `lower` and at most `upper`, round-off included.

    >>> answer = Interval(lower=1.99994, upper=2.0)
    >>> answer, answer.contains(1.99997), answer.width < 1e-4
    (Interval(lower=1.99994, upper=2.00000), True, True)
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not self.lower <= self.upper:
            raise _check.fail("lower", "be ≤ upper", (self.lower, self.upper), "an interval contains the truth")

    @property
    def width(self) -> float:
        """The distance between the ends; 0 where both are infinite."""
        return 0.0 if self.lower == self.upper else self.upper - self.lower

    def contains(self, value: float) -> bool:
        """Whether `value` lies between the ends, both included."""
        return self.lower <= value <= self.upper

    def __repr__(self) -> str:
        return f"Interval(lower={_digits(self.lower, self)}, upper={_digits(self.upper, self)})"


def _digits(value: float, interval: Interval) -> str:
    """`value` with as many digits as it takes to tell the ends apart, and at least six."""
    largest = max(abs(interval.lower), abs(interval.upper))
    if value == 0 or not math.isfinite(value):
        return repr(value)
    digits = _LEAST_DIGITS
    if 0 < interval.width < math.inf and largest > 0:
        digits = min(_MOST_DIGITS, max(_LEAST_DIGITS, 1 - math.floor(math.log10(interval.width / largest))))
    if not _SMALL <= largest < _LARGE:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(largest)))}f}"


def largest(intervals: Iterable[Interval]) -> Interval:
    """The interval of the maximum of several truths; [0, 0] if there are none."""
    each = tuple(intervals)
    return Interval(max((i.lower for i in each), default=0.0), max((i.upper for i in each), default=0.0))
