"""Exact numbers as text: each number has one text, and any other text is refused."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from discreet.errors import NotALedger

_RATIO = re.compile(r"(0|-?[1-9][0-9]*)/([1-9][0-9]*)")
_DYADIC = re.compile(r"(-?[1-9a-f][0-9a-f]*)/2\^([1-9][0-9]{0,5})")
_HEX = re.compile(r"0x[01]\.[0-9a-f]{13}p[+-](0|[1-9][0-9]*)|0x0\.0p\+0|inf")
# The largest exponent of a stored price. Ledgers round sums to 2^-1200, and this bounds the work for a hostile text.
_LARGEST_EXPONENT = 20_000
# How much of an unreadable text an error quotes.
_QUOTED = 80


def ratio_text(value: Fraction) -> str:
    """An exact rational as "n/d" in lowest terms."""
    return f"{value.numerator}/{value.denominator}"


def ratio_value(text: object) -> Fraction:
    """The rational of its text; anything but the canonical text is refused."""
    match = _RATIO.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise unreadable("a rational number", text)
    value = Fraction(int(match[1]), int(match[2]))
    if ratio_text(value) != text:
        raise unreadable("a rational number in lowest terms", text)
    return value


def sum_text(value: Fraction) -> str:
    """A price or a total: as `ratio_text`, but shorter if the denominator is a power of two, as in sums of floats.

    >>> sum_text(Fraction(-5, 8)), sum_text(Fraction(1, 3))
    ('-5/2^3', '1/3')
    """
    n, d = value.as_integer_ratio()
    if d == 1 or d & (d - 1):
        return f"{n}/{d}"
    return f"{n:x}/2^{d.bit_length() - 1}"


def sum_value(text: object) -> Fraction:
    """The number of its `sum_text`; anything but that text is refused."""
    match = _DYADIC.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        value = ratio_value(text)
    elif int(match[2]) > _LARGEST_EXPONENT:
        raise unreadable("a price of sensible length", text)
    else:
        value = Fraction(int(match[1], 16), 1 << int(match[2]))
    if sum_text(value) != text:
        raise unreadable("a price in canonical form", text)
    return value


def real_text(value: Any) -> str:
    """A real number: a float by its hexadecimal digits, any other rational as "n/d"."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and math.isinf(number) and number > 0:
        return "inf"
    exact = Fraction(number)
    try:
        near = float(exact)
    except OverflowError:
        return ratio_text(exact)
    return (near + 0.0).hex() if Fraction(near) == exact else ratio_text(exact)


def real_value(text: object) -> float | Fraction:
    """The number of its `real_text`; anything but that text is refused."""
    if isinstance(text, str) and _HEX.fullmatch(text):
        return float.fromhex(text)
    return ratio_value(text)


def signed_text(value: Any) -> str:
    """As `real_text`, for a number that may be negative."""
    return f"-{real_text(-value)}" if value < 0 else real_text(value)


def signed_value(text: object) -> float | Fraction:
    """The number of its `signed_text`."""
    if isinstance(text, str) and text.startswith("-"):
        return -real_value(text[1:])
    return real_value(text)


def rational_text(value: Any) -> str:
    """A rational as `ratio_text`, in whatever type it came."""
    return ratio_text(Fraction(value))


def whole_value(value: object) -> int:
    """An integer; anything else is refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise unreadable("an integer", value)
    return value


def unreadable(expected: str, given: object) -> NotALedger:
    """The error for a text that no ledger wrote, with the beginning of the text."""
    shown = repr(given)
    shown = shown if len(shown) <= _QUOTED else shown[: _QUOTED - 3] + "..."
    return NotALedger(f"a stored code must hold {expected}, found {shown}: the ledger was edited, or is from elsewhere")
