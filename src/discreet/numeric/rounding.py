"""Directed rounding: how a bound stays a bound when it is computed in floating point.

Sums of prices are exact (rationals), and become a float again at the end, upwards. Formulas carry a margin above the
error of the functions they call, which is stated where it is added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNIT = 2.0**-53


def exact(value: object) -> Fraction:
    """A finite number of any real type (int, float, Fraction, numpy's) as the rational that it is."""
    return Fraction(value.item() if isinstance(value, np.generic) else value)  # type: ignore[arg-type]  # a Real


def infinite(value: object) -> bool:
    """Whether a noise multiplier is inf, which is the one way to say that nothing is told at all."""
    return isinstance(value, float) and math.isinf(value)


def float_up(value: Fraction) -> float:
    """The smallest float that is not below `value`; inf where it exceeds the largest.

    >>> float_up(Fraction(1, 10)) == 0.1, Fraction(float_up(Fraction(1, 3))) >= Fraction(1, 3)
    (True, True)
    """
    try:
        near = value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return near if math.isinf(near) or Fraction(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """The largest float that is not above `value`."""
    return -float_up(-value)


def reported(price: float) -> float:
    """A price as a guarantee takes it: up to the smallest number that it holds, and inf beyond the largest.

    >>> [reported(price) for price in (0.0, 1e-200, 1.0, 1e200)]
    [0.0, 1e-150, 1.0, inf]
    """
    if 0 < price < 1e-150:
        return 1e-150
    return math.inf if price > 1e150 else price


def total_up(values: Iterable[float]) -> float:
    """The sum of floats, exact and then rounded up; inf as soon as one of them is.

    >>> total_up([0.1] * 10) >= 10 * Fraction(0.1)
    True
    """
    total = Fraction(0)
    for value in values:
        if math.isinf(value):
            return math.inf
        total += Fraction(value)
    return float_up(total)


def times_up(count: int, value: float) -> float:
    """`count`·`value`, exact and then rounded up; 0·inf is 0, because what is never run costs nothing."""
    if count == 0:
        return 0.0
    return math.inf if math.isinf(value) else float_up(count * Fraction(value))


def added(prices: Iterable[Fraction | None], times: int = 1) -> Fraction | None:
    """The sum of exact prices, `times` over; None, which is infinite, where one of them is and it is run at all."""
    each = list(prices)
    if times == 0:
        return Fraction(0)
    return None if None in each else times * sum((price for price in each if price is not None), Fraction(0))


def reciprocal_up(value: float) -> float:
    """1/`value` rounded up, for a noise multiplier that may be inf (infinite noise tells nothing)."""
    return 0.0 if infinite(value) else float_up(1 / exact(value))


def exp_minus_linear(x: Floats | float) -> Floats:
    """e^x − 1 − x ≥ 0 with a relative error below 64 units in the last place, at any x.

    The power series serves near 0, where the plain difference has lost its digits.
    """
    x = np.asarray(x, dtype=np.float64)
    small = np.abs(x) < 0.5
    near = np.where(small, x, 0.0)
    series = np.ones_like(near)
    for k in range(18, 2, -1):
        series = 1.0 + series * near / k
    series *= near * near / 2
    with np.errstate(over="ignore"):
        plain = np.expm1(np.where(small, 1.0, x)) - np.where(small, 1.0, x)
    return np.where(small, series, plain)


def log_expm1(x: Floats) -> Floats:
    """ln(e^x − 1) for x ≥ 0 without overflow; −inf at 0, inf at inf."""
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.isinf(x), np.inf, x + np.log(-np.expm1(-x)))


def log_sum(values: Floats) -> float:
    """ln Σ e^v; −inf for an empty sum."""
    if values.size == 0:
        return -math.inf
    top = float(np.max(values))
    return top if math.isinf(top) else top + math.log(float(np.sum(np.exp(values - top))))
