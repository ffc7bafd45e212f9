"""Directed rounding: how a bound stays a bound when it is computed in floating point.

Prices are summed exactly, as rationals, and become floats at the end, rounded up. Formulas that call floating-point
functions add a margin above the error of those functions. Noise scales are simple rationals on the private side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: The unit round-off: one correctly rounded operation errs by at most this much of its result.
UNIT = 2.0**-53

#: A relative margin for formulas of a few operations. exp, log, erfcx and log_ndtr of libm and scipy are good to a few
#: units in the last place; this allows for 32 of them.
SLACK = 32 * 2.0**-52

# A guarantee holds finite numbers between these.
_SMALLEST_PRICE, _LARGEST_PRICE = 1e-150, 1e150

# How far a simple fraction may lie from the exact one: far less than any price shows, and far more than the rounding
# of a float that a person typed (2⁻⁵³), so that 0.1 becomes 1/10.
_SIMPLE = Fraction(1, 1 << 40)

# Bits of a square root before it is simplified: many more than the 40 that `_SIMPLE` keeps.
_ROOT_BITS = 200


# --- floats on the safe side of exact numbers -----------------------------------------------------------------------


def exact(value: object) -> Fraction:
    """A finite number of any real type (int, float, Fraction, numpy's) as the rational that it is."""
    return Fraction(value.item() if isinstance(value, np.generic) else value)  # type: ignore[arg-type]  # a Real


def infinite(value: object) -> bool:
    """Whether a noise multiplier is inf: infinite noise, which reveals nothing."""
    return isinstance(value, float) and math.isinf(value)


def float_up(value: Fraction) -> float:
    """The smallest float that is not below `value`; inf where `value` exceeds the largest float.

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


def float_root_up(square: Fraction) -> float:
    """√`square` as a float, rounded up; inf where it exceeds the largest float."""
    if square == 0:
        return 0.0
    # Scaled by a power of 4 the root is near 1, where no float overflows or underflows.
    half = (square.denominator.bit_length() - square.numerator.bit_length()) // 2
    try:
        root = math.ldexp(math.sqrt(square * Fraction(4) ** half), -half)
    except OverflowError:
        return math.inf
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def float_root_down(square: Fraction) -> float:
    """√`square` as a float, rounded down."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    return root


def reported(price: float) -> float:
    """A price as a guarantee takes it: raised to the smallest number that it holds, and inf beyond the largest.

    >>> [reported(price) for price in (0.0, 1e-200, 1.0, 1e200)]
    [0.0, 1e-150, 1.0, inf]
    """
    if 0 < price < _SMALLEST_PRICE:
        return _SMALLEST_PRICE
    return math.inf if price > _LARGEST_PRICE else price


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
    """`count`·`value`, exact and then rounded up; 0·inf is 0, because what never runs costs nothing."""
    if count == 0:
        return 0.0
    return math.inf if math.isinf(value) else float_up(count * Fraction(value))


def added(prices: Iterable[Fraction | None], times: int = 1) -> Fraction | None:
    """The sum of exact prices, `times` over. None stands for an infinite price; 0 times any price is 0."""
    each = list(prices)
    if times == 0:
        return Fraction(0)
    return None if None in each else times * sum((price for price in each if price is not None), Fraction(0))


def reciprocal_up(value: float) -> float:
    """1/`value` rounded up, for a noise multiplier that may be inf."""
    return 0.0 if infinite(value) else float_up(1 / exact(value))


# --- simple rationals, for noise scales ------------------------------------------------------------------------------


def simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """The fraction with the smallest denominator in [low, high], for 0 < low ≤ high, by the Stern-Brocot tree.

    >>> simplest_between(Fraction(333, 100), Fraction(334, 100))
    Fraction(10, 3)
    """
    floor = math.floor(low)
    if floor == low:
        return Fraction(floor)
    if floor + 1 <= high:
        return Fraction(floor + 1)
    return floor + 1 / simplest_between(1 / (high - floor), 1 / (low - floor))


def rounded_up(value: Fraction) -> Fraction:
    """A simple fraction between `value` and `value`·(1 + 2⁻⁴⁰): 1/0.1 in floats becomes 10, never less noise.

    >>> rounded_up(1 / Fraction(0.1))
    Fraction(10, 1)
    """
    return simplest_between(value, value * (1 + _SIMPLE))


def rounded_down(value: Fraction) -> Fraction:
    """A simple fraction between `value`·(1 − 2⁻⁴⁰) and `value`: an ε of 0.1 in floats becomes 1/10, never more.

    >>> rounded_down(Fraction(0.1))
    Fraction(1, 10)
    """
    return simplest_between(value * (1 - _SIMPLE), value)


def root_up(square: Fraction) -> Fraction:
    """A simple fraction at or above √`square`, too large by at most about 2⁻⁴⁰ of it."""
    scale = 1 << max(0, _ROOT_BITS - square.numerator.bit_length() + square.denominator.bit_length())
    root = Fraction(math.isqrt(math.ceil(square * scale * scale)) + 1, scale)
    return rounded_up(root)


# --- formulas with a margin ------------------------------------------------------------------------------------------


def up(value: float) -> float:
    """The result of a short floating-point formula, moved up by more than its relative error (`SLACK`)."""
    return math.nextafter(value * (1 + SLACK) if value > 0 else value * (1 - SLACK), math.inf)


def down(value: float) -> float:
    """The result of a short floating-point formula, moved down by more than its relative error (`SLACK`)."""
    return -up(-value)


def raised(values: Floats, roundings: float = 64.0) -> Floats:
    """Non-negative `values`, each moved up by the error of this many roundings and one float more, so above 0."""
    return np.nextafter(values * (1 + roundings * UNIT), np.inf)


def exp_minus_linear(x: Floats | float) -> Floats:
    """e^x − 1 − x ≥ 0 with a relative error below 64 units in the last place, at any x.

    Near 0, where the plain difference loses its digits, by the power series: up to x^18/18!, which at |x| < 1/2 leaves
    out less than 2⁻⁷⁰ of the sum.
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
    largest = float(np.max(values))
    return largest if math.isinf(largest) else largest + math.log(float(np.sum(np.exp(values - largest))))
