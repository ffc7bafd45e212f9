"""From any numbers that a caller has to integers on a public grid, one row at a time and without ever failing.

A row's integer depends on that row and on public parameters alone, so a neighbor cannot change another row's. Nothing
here raises because of what a row holds: an error would be an output that was not charged.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check

#: The largest integer of one row, and the most rows of a query: no sum exceeds 2^60.
MAX_LEVEL = 1 << 28
MAX_ROWS = 1 << 32
#: The fewest levels that a grid keeps on each side for units of many rows.
MIN_LEVELS = 1 << 10


def column(values: ArrayLike, name: str = "values") -> NDArray[Any]:
    """A one-dimensional array; its shape and, for numpy arrays, its declared type are public facts."""
    if isinstance(values, np.ndarray):
        array = values
    elif hasattr(values, "to_numpy"):
        array = np.asarray(values.to_numpy())
    elif isinstance(values, list | tuple):
        array = np.fromiter(values, dtype=object, count=len(values))
    else:
        raise _check.fail(name, "be an array, a list or a column", type(values).__name__, "pass one value for each row")
    if isinstance(array, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(array)
        array = np.ma.getdata(array).astype(object)
        array[hidden] = None
    if array.ndim != 1:
        raise _check.fail(name, "have one dimension", f"{array.ndim} dimensions", "pass one value for each row")
    if array.size > MAX_ROWS:
        raise _check.fail(name, f"have at most {MAX_ROWS} rows", "more", "sum the parts and add the releases")
    return array


def numbers(values: ArrayLike, name: str = "values") -> NDArray[np.float64]:
    """A column as 64-bit floats; missing values and non-numbers become NaN, numbers that are too large ±inf."""
    array = column(values, name)
    if array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):
            return array.astype(np.float64)
    if array.dtype.kind == "O":
        return np.fromiter((_number(value) for value in array), dtype=np.float64, count=array.size)
    raise _check.fail(name, "hold numbers", f"dtype {array.dtype}", "cast the column before the query")


# A row may hold any object, and converting, comparing or hashing it would run its own code, which could raise, warn or
# lie. So only objects of these types are used; every other object counts as missing.
_NUMBERS = (bool, int, float, Fraction, Decimal)
_PLAIN = (str, bytes, *_NUMBERS, dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID)


def _unwrapped(value: object) -> object:
    """The Python value of a numpy scalar, except for extended precision, which has none and becomes a float."""
    if isinstance(value, np.longdouble):
        with np.errstate(all="ignore"):
            return float(value)
    if isinstance(value, np.generic) and type(value).__module__ == "numpy":
        return value.item()
    return value


def _number(value: object) -> float:
    value = _unwrapped(value)
    if type(value) not in _NUMBERS:
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]  # one of _NUMBERS
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # an integer or fraction beyond floats
    except ValueError:  # a signalling Decimal
        return math.nan


def plain(value: object) -> Any:
    """A row's value if it is present and plain (text, number, date, id, or a tuple of these), else None.

    Plain values can be compared and hashed without running anyone's code, and each equals itself.
    """
    value = _unwrapped(value)
    if type(value) is tuple:
        items = tuple(plain(item) for item in value)
        return None if any(item is None for item in items) else items
    if type(value) not in _PLAIN or (type(value) in (float, Decimal) and math.isnan(_number(value))):
        return None
    return value


def is_missing(value: object) -> bool:
    """Whether a row holds no value: None, NaN, NaT, pandas' NA. Other objects count as values."""
    value = _unwrapped(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return type(value) in (float, Decimal) and math.isnan(_number(value))


def selected(where: ArrayLike | None, rows: int) -> NDArray[np.bool_]:
    """A mask of rows; None selects all. A missing answer selects nothing."""
    if where is None:
        return np.ones(rows, dtype=bool)
    mask = column(where, "where")
    if mask.size != rows:
        raise _check.fail("where", "have one answer for each row", "another length", "derive it from the same table")
    if mask.dtype.kind == "b":
        return mask.astype(bool)
    if mask.dtype.kind == "O":
        return np.fromiter((v is True or v is np.True_ for v in mask), dtype=bool, count=rows)
    raise _check.fail("where", "hold booleans", f"dtype {mask.dtype}", "compare the column with something")


@dataclass(frozen=True)
class Grid:
    """A public interval cut into steps of 2^exponent around `center`: levels `lower` … `upper`."""

    center: Fraction
    exponent: int
    lower: int
    upper: int

    @classmethod
    def over(cls, bounds: object, *, center: bool = False, levels: int = MAX_LEVEL, rows: int = 1) -> Grid:
        """The finest grid over `bounds` whose levels stay within ±`levels`, around 0 or around the middle.

        A unit with many `rows` gets a coarser grid: its sensitivity in grid units, and with it the noise, stays as
        small as for one row. The noise is still larger than the coarser step.
        """
        low, high = _check.bounds(bounds)
        levels = coarser(levels, rows)
        middle = Fraction(float((low + high) / 2)) if center else Fraction(0)
        largest = max(abs(low - middle), abs(high - middle))
        exponent = _ceil_log2(largest / levels)
        step = Fraction(2) ** exponent
        lower, upper = round((low - middle) / step), round((high - middle) / step)
        if lower >= upper:
            raise _check.fail(
                "bounds",
                "be wider, for numbers this large",
                bounds,
                "subtract a public offset from the column first",
            )
        return cls(middle, exponent, lower, upper)

    @classmethod
    def multiples(cls, bounds: object, levels: int) -> Grid:
        """The multiples of a power of two within `bounds`: the finest ones of which there are about `levels` or fewer.

        So integers are levels wherever the step is no wider than 1. Levels are counted from the first one.
        """
        low, high = _check.bounds(bounds)
        exponent = _ceil_log2((high - low) / levels)
        if (high - low) < 2 * Fraction(2) ** exponent:  # two levels at least, wherever the bounds lie
            exponent -= 1
        step = Fraction(2) ** exponent
        if max(abs(low), abs(high)) > step * 2**52:  # levels would be the same floats
            remedy = "subtract a public offset from the column first"
            raise _check.fail("bounds", "be wider, for numbers this large", bounds, remedy)
        first, last = math.ceil(low / step), math.floor(high / step)
        return cls(Fraction(float(first * step)), exponent, 0, last - first)

    @cached_property
    def step(self) -> Fraction:
        """The grid's granularity."""
        return Fraction(2) ** self.exponent

    @property
    def reach(self) -> int:
        """The largest absolute level."""
        return max(-self.lower, self.upper)

    @property
    def nearest_zero(self) -> int:
        """The level that a missing value counts as in a sum: the one nearest to 0."""
        return min(max(0, self.lower), self.upper)

    def levels(self, values: NDArray[np.float64], missing: int) -> NDArray[np.int64]:
        """Each value's level, clamped to the grid; NaN becomes `missing`."""
        center = float(self.center)
        edge = float((self.reach + 1) * self.step)
        with np.errstate(all="ignore"):
            offset = np.clip(values - center, -edge, edge)
            near = np.rint(np.ldexp(offset, -self.exponent))
        absent = np.isnan(near)
        near[absent] = 0.0
        levels = np.clip(near.astype(np.int64), self.lower, self.upper)
        levels[absent] = missing
        return levels


def coarser(levels: int, rows: int) -> int:
    """The levels of a grid for a unit of many rows: divided by the rows, but at least `MIN_LEVELS`."""
    return max(levels // rows, MIN_LEVELS) if rows > 1 else levels


def _ceil_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length() - 1
    while Fraction(2) ** guess < x:
        guess += 1
    return guess
