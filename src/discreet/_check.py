"""Argument checks in one place, so that every bad argument gets the same kind of message.

Each check returns the argument in its canonical type, or raises `InvalidArgument` with the rule, the name, the value
and the remedy. They are for public facts only: never call one on a value taken from data.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from discreet.errors import InvalidArgument

T = TypeVar("T")

#: The types that an event or a guarantee stores a number in. Arithmetic on them never has less precision than a float.
Number = int | float | Fraction
#: A check such as `positive`: from the name, the value and the remedy to the exact rational.
Check = Callable[[str, object, str], Fraction]

# Types that are registered as numbers, or as integers, but mean something else.
_NOT_NUMBERS = (bool, np.bool_, np.timedelta64)

# Between these sizes, squares and quotients of parameters neither overflow nor underflow in 64-bit floats.
_SMALLEST, _LARGEST = Fraction(1, 10**150), Fraction(10**150)


def fail(name: str, rule: str, value: object, remedy: str) -> InvalidArgument:
    """An argument error in the one form that all have: `name must rule, got value: remedy`."""
    shown = repr(value)
    if len(shown) > 120:  # keep the message on a line or two
        shown = shown[:117] + "..."
    return InvalidArgument(f"{name} must {rule}, got {shown}: {remedy}")


def number(name: str, value: object, remedy: str) -> Number:
    """A real number as the `int`, `float` or `Fraction` that equals it, so that no formula runs in another precision.

    numpy's numbers keep their exact value: `np.float32(0.7)` becomes 0.699999988079071. A number that none of the three
    types holds, such as most of `np.longdouble`, is refused, as are a bool, a `Decimal`, a string and an array.
    """
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, _NOT_NUMBERS) or not isinstance(value, numbers.Real):
        raise fail(name, "be a real number", value, remedy)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))  # a Fraction may hold numpy's integers
    near = float(value)
    if near != value and not math.isnan(near):
        raise fail(name, "be a 64-bit float, an integer or a Fraction", value, "it would be rounded; convert it first")
    return near


def real(name: str, value: object, remedy: str) -> Fraction:
    """A finite real number as an exact rational; a bool, a string, NaN and ±inf are refused."""
    settled = number(name, value, remedy)
    if isinstance(settled, float) and not math.isfinite(settled):
        raise fail(name, "be finite", value, remedy)
    exact = Fraction(settled)
    if exact and not _SMALLEST <= abs(exact) <= _LARGEST:
        raise fail(name, "be 0 or between 1e-150 and 1e150 in size", value, remedy)
    return exact


def positive(name: str, value: object, remedy: str) -> Fraction:
    """A finite real number > 0."""
    exact = real(name, value, remedy)
    if exact <= 0:
        raise fail(name, "be > 0", value, remedy)
    return exact


def nonnegative(name: str, value: object, remedy: str) -> Fraction:
    """A finite real number ≥ 0."""
    exact = real(name, value, remedy)
    if exact < 0:
        raise fail(name, "be ≥ 0", value, remedy)
    return exact


def epsilon(value: object, name: str = "epsilon") -> Fraction:
    """A privacy loss ε > 0."""
    return positive(name, value, "it bounds the factor e^ε by which one record may change the odds")


def delta(value: object, name: str = "delta") -> Fraction:
    """The δ of (ε, δ)-DP, with 0 < δ < 1."""
    remedy = "a record may be revealed with this probability; choose much less than 1 / number of people"
    exact = positive(name, value, remedy)
    if float(exact) >= 1:  # also a number that rounds to 1 as a float
        raise fail(name, "be < 1", value, remedy)
    return exact


def probability(name: str, value: object, remedy: str) -> Fraction:
    """A real number with 0 ≤ p ≤ 1."""
    exact = nonnegative(name, value, remedy)
    if exact > 1:
        raise fail(name, "be ≤ 1", value, remedy)
    return exact


def integer(name: str, value: object, remedy: str, *, at_least: int = 1, at_most: int | None = None) -> int:
    """An integer in [at_least, at_most]. numpy's integers are accepted; floats such as 3.0 are refused."""
    if isinstance(value, _NOT_NUMBERS) or not isinstance(value, numbers.Integral):
        raise fail(name, "be an integer", value, remedy)
    whole = int(value)
    if whole < at_least:
        raise fail(name, f"be ≥ {at_least}", value, remedy)
    if at_most is not None and whole > at_most:
        raise fail(name, f"be ≤ {at_most}", value, remedy)
    return whole


def settle_integers(instance: object, *names: str, remedy: str, at_least: int = 1, at_most: int | None = None) -> None:
    """Replace fields of a frozen dataclass by checked Python integers, which cannot overflow as numpy's can."""
    for name in names:
        checked = integer(name, getattr(instance, name), remedy, at_least=at_least, at_most=at_most)
        object.__setattr__(instance, name, checked)


def settled(check: Check, name: str, value: object, remedy: str, *, infinite: bool = False) -> Any:
    """`value` as `number` gives it, after `check`; with `infinite`, +inf is allowed too."""
    plain = number(name, value, remedy)
    if not (infinite and isinstance(plain, float) and math.isinf(plain) and plain > 0):
        check(name, plain, remedy)
    return plain


def settle(instance: object, name: str, check: Check, remedy: str, *, infinite: bool = False) -> None:
    """Replace a field of a frozen dataclass by its `settled` value."""
    object.__setattr__(instance, name, settled(check, name, getattr(instance, name), remedy, infinite=infinite))


def settle_each(instance: object, name: str, check: Check, remedy: str, *, infinite: bool = False) -> None:
    """Replace a field of a frozen dataclass by the tuple of its settled items."""
    value = getattr(instance, name)
    try:
        items = tuple(value)
    except TypeError:
        raise fail(name, "be a tuple of numbers", value, remedy) from None
    checked = tuple(settled(check, name, item, remedy, infinite=infinite) for item in items)
    object.__setattr__(instance, name, checked)


def one_of(name: str, value: T, allowed: Iterable[T], remedy: str) -> T:
    """One of a few public choices."""
    choices = tuple(allowed)
    try:
        is_choice = value in choices
    except (TypeError, ValueError):
        is_choice = False  # it cannot even be compared with them, such as an array
    if not is_choice:
        raise fail(name, "be one of " + ", ".join(repr(choice) for choice in choices), value, remedy)
    return value


def bounds(value: object, name: str = "bounds") -> tuple[Fraction, Fraction]:
    """A pair (lower, upper) of finite reals with lower < upper."""
    remedy = "give (lower, upper) from what is known without looking at the data"
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise fail(name, "be a pair (lower, upper)", value, remedy)
    low, high = real(f"{name}[0]", value[0], remedy), real(f"{name}[1]", value[1], remedy)
    if low >= high:
        raise fail(name, "have lower < upper", value, remedy)
    return low, high


def exactly_one(**given: object) -> None:
    """Refuse none, or more than one, of some arguments that exclude each other."""
    present = [name for name, value in given.items() if value is not None]
    if len(present) != 1:
        raise InvalidArgument(f"Give exactly one of {_listed(list(given))}; got {_listed(present) or 'none'}.")


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
