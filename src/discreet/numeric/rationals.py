"""Rational numbers for noise scales: as simple as possible, and rounded to the private side."""

from __future__ import annotations

import math
from fractions import Fraction


def simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """The fraction with the smallest denominator in [low, high], for 0 < low ≤ high: down the Stern–Brocot tree.

    >>> simplest_between(Fraction(333, 100), Fraction(334, 100))
    Fraction(10, 3)
    """
    whole = math.floor(low)
    if whole == low:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / simplest_between(1 / (high - whole), 1 / (low - whole))


def rounded_up(exact: Fraction) -> Fraction:
    """A simple fraction between `exact` and `exact`·(1 + 2⁻⁴⁰): 1/0.1 in floats becomes 10, never less noise.

    >>> rounded_up(1 / Fraction(0.1))
    Fraction(10, 1)
    """
    return simplest_between(exact, exact * (1 + Fraction(1, 1 << 40)))


def rounded_down(exact: Fraction) -> Fraction:
    """A simple fraction between `exact`·(1 − 2⁻⁴⁰) and `exact`: an ε of 0.1 in floats becomes 1/10, never more.

    >>> rounded_down(Fraction(0.1))
    Fraction(1, 10)
    """
    return simplest_between(exact * (1 - Fraction(1, 1 << 40)), exact)


def root_up(square: Fraction) -> Fraction:
    """A fraction at or above √square, and at most about 2⁻⁴⁰ of it too large."""
    scale = 1 << max(0, 200 - square.numerator.bit_length() + square.denominator.bit_length())
    root = Fraction(math.isqrt(math.ceil(square * scale * scale)) + 1, scale)
    return rounded_up(root)


def float_below_root(square: Fraction) -> float:
    """The largest float that is certainly at or below √square."""
    guess = math.sqrt(square)
    while Fraction(guess) ** 2 > square:
        guess = math.nextafter(guess, 0.0)
    return guess


def float_above(exact: Fraction) -> float:
    """The smallest float that is not below `exact`."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
