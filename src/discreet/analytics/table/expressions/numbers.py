"""Functions of numbers that never fail: arithmetic, rounding, roots and logarithms.

All compute in 64-bit floats on operands of bounded size (`semantics.tame`). Where mathematics has no result, it is
missing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ibis

from discreet import _check
from discreet.analytics.table.expressions.calls import Methods, Range, RowFunction
from discreet.analytics.table.expressions.dates import DIFFERENCE
from discreet.analytics.table.semantics import clamped, double, family, number, tame
from discreet.analytics.table.sizes import of_size, size_of

if TYPE_CHECKING:
    from discreet.analytics.table.expressions.nodes import Expression

#: From this size on every float is a whole number.
_WHOLE = 2.0**52
_WHOLE_SIZE = (1.0, _WHOLE)
#: Numbers of at most this size, which doubled ones keep to, fit 64-bit integers.
_FITS = 2.0**60
#: Beyond this size the exponential, or its inverse, is no float.
_LARGEST_EXPONENT = 700.0
#: The most digits before or after the point that a number can be rounded to.
_MOST_DIGITS = 15
#: The largest power by multiplication.
_MOST_FACTORS = 16


def _operand(value: Any, name: str) -> Any:
    """A number that is known to be finite and not tiny: it is clamped unless it is a result of arithmetic."""
    checked = number(value, name)
    return checked if size_of(checked) is not None else tame(checked)


def _missing_unless(condition: Any, value: Any) -> Any:
    return ibis.cases((condition, value), else_=ibis.null("float64"))


def _corners(combine: Callable[[float, float], float]) -> Callable[[Sequence[Range | None]], Range | None]:
    """The range of an operation that is monotone in each operand: it is attained in the corners."""

    def span(spans: Sequence[Range | None]) -> Range | None:
        left, right = spans
        if left is None or right is None:
            return None
        corners = [combine(a, b) for a in left for b in right]
        return min(corners), max(corners)

    return span


def _quotients(spans: Sequence[Range | None]) -> Range | None:
    divisor = spans[1]
    if divisor is None or divisor[0] <= 0 <= divisor[1]:
        return None
    return _corners(lambda a, b: a / b)(spans)


def _tamed(a: Any, b: Any, name: str, combine: Callable[[Any, Any], Any]) -> Any:
    """The result of an operation; operands are tamed where it could overflow or underflow without."""
    left, right = _operand(a, name), _operand(b, name)
    plain = combine(left, right)
    size = size_of(plain)
    return combine(tame(left), tame(right)) if size is None else of_size(plain, size)


def _add(a: Any, b: Any) -> Any:
    return _tamed(a, b, "+", operator.add)


def _subtract(a: Any, b: Any) -> Any:
    if family(a) == family(b) == "date":
        return DIFFERENCE.build(a, b)
    return _tamed(a, b, "-", operator.sub)


def _multiply(a: Any, b: Any) -> Any:
    return _tamed(a, b, "*", operator.mul)


def _quotient(a: Any, b: Any) -> Any:
    # Engines disagree on x / 0: some raise, which would reveal a row. Here it is a missing value.
    return a / b.nullif(double(0.0))


def _divide(a: Any, b: Any, name: str = "/") -> Any:
    return _tamed(a, b, name, _quotient)


def _floored(value: Any, limit: float = _WHOLE) -> Any:
    """⌊x⌋ as a float, of x moved to ±2^52: beyond, floats have no fractions, and engines' integers end soon."""
    size = size_of(value)
    if size is None or size[1] > limit:
        value = clamped(value, -limit, limit)
    return of_size(value.floor().cast("float64"), (1.0, limit))


def _truncated(value: Any) -> Any:
    return of_size(ibis.cases((value < 0, -_floored(-value)), else_=_floored(value)), _WHOLE_SIZE)


def _rounded(value: Any) -> Any:
    """The nearest whole number, halves away from zero; every step is exact, so no half is missed."""
    away = ibis.cases((value < 0, -_half_up(-value)), else_=_half_up(value))
    return of_size(away, _WHOLE_SIZE)


def _half_up(value: Any) -> Any:
    """⌊(⌊2x⌋ + 1) / 2⌋, the nearest whole number of x ≥ 0, halves upwards."""
    twice = _floored(clamped(value, 0.0, _WHOLE) * double(2.0), _FITS)
    return _floored((twice + double(1.0)) * double(0.5), _FITS)


def _round(value: Any, digits: int) -> Any:
    if not digits:
        return _rounded(_operand(value, "round"))
    scale = double(10.0 ** abs(digits))
    if digits > 0:
        return _rounded(_multiply(value, scale)) / scale
    return _rounded(_divide(value, scale)) * scale


def _remainder(quotient: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def build(a: Any, b: Any) -> Any:
        """x − y·q with the whole quotient q of x / y; missing for y = 0, and if q is 2^52 or more."""
        ratio = _divide(a, b, "%")
        whole = _missing_unless((ratio < double(_WHOLE)) & (ratio > double(-_WHOLE)), quotient(ratio))
        return _operand(a, "%") - _operand(b, "%") * whole

    return build


def _sqrt(value: Any) -> Any:
    tamed = _operand(value, "sqrt")
    return _missing_unless(tamed >= 0, tamed).sqrt()


def _exp(value: Any) -> Any:
    tamed = _operand(value, "exp")
    most = double(_LARGEST_EXPONENT)
    return _missing_unless((tamed <= most) & (tamed >= -most), tamed).exp()


def _ln(value: Any) -> Any:
    tamed = _operand(value, "ln")
    return _missing_unless(tamed > 0, tamed).ln()


def _log10(value: Any) -> Any:
    return _ln(value) / double(math.log(10.0))


def _sign(value: Any) -> Any:
    checked = number(value, "sign")
    return ibis.cases((checked > 0, double(1.0)), (checked < 0, double(-1.0)), (checked == 0, double(0.0)))


def _absolute_span(spans: Sequence[Range | None]) -> Range | None:
    if spans[0] is None:
        return None
    low, high = spans[0]
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _monotone(function: Callable[[float], float]) -> Callable[[Sequence[Range | None]], Range | None]:
    def span(spans: Sequence[Range | None]) -> Range | None:
        return None if spans[0] is None else (function(spans[0][0]), function(spans[0][1]))

    return span


def _root_span(spans: Sequence[Range | None]) -> Range | None:
    if spans[0] is None or spans[0][1] < 0:
        return None
    low, high = spans[0]
    return math.sqrt(max(low, 0.0)), math.sqrt(high)


def _outward(spans: Sequence[Range | None]) -> Range | None:
    return None if spans[0] is None else (float(math.floor(spans[0][0])), float(math.ceil(spans[0][1])))


def _extreme(larger: bool) -> Callable[..., Any]:
    def build(*values: Any) -> Any:
        """The larger or smaller of several numbers; a missing one is left out."""
        best, *rest = (number(value, "greatest" if larger else "least") for value in values)
        for value in rest:
            better = value > best if larger else value < best
            best = ibis.cases((best.isnull(), value), (better, value), else_=best)
        return best

    return build


def hull(spans: Sequence[Range | None]) -> Range | None:
    """The least range that holds all of some ranges; None if one is not known."""
    known_spans = [span for span in spans if span is not None]
    return (
        (min(a for a, _ in known_spans), max(b for _, b in known_spans))
        if known_spans and len(known_spans) == len(spans)
        else None
    )


ADD = RowFunction("+", _add, _corners(lambda a, b: a + b))
SUBTRACT = RowFunction("-", _subtract, _corners(lambda a, b: a - b))
MULTIPLY = RowFunction("*", _multiply, _corners(lambda a, b: a * b))
DIVIDE = RowFunction("/", _divide, _quotients)
#: The remainder as in Python (its sign is the divisor's) and as in SQL (its sign is the dividend's).
MODULO = RowFunction("%", _remainder(_floored))
REMAINDER = RowFunction("MOD", _remainder(_truncated))
FLOOR_DIVIDE = RowFunction("//", lambda a, b: _floored(_divide(a, b, "//")))
WHOLE_DIVIDE = RowFunction("//", lambda a, b: _truncated(_divide(a, b, "//")))
ABS = RowFunction("abs", lambda value: number(value, "abs").abs(), _absolute_span)
FLOOR = RowFunction("floor", lambda value: _floored(_operand(value, "floor")), _monotone(math.floor))
CEIL = RowFunction("ceil", lambda value: -_floored(-_operand(value, "ceil")), _monotone(math.ceil))
TRUNC = RowFunction("trunc", lambda value: _truncated(_operand(value, "trunc")), _outward)
ROUND = RowFunction("round", _round, _outward)
SIGN = RowFunction("sign", _sign, domain=(-1, 0, 1))
SQRT = RowFunction("sqrt", _sqrt, _root_span)
EXP = RowFunction("exp", _exp, _monotone(math.exp))
LN = RowFunction("ln", _ln, _monotone(math.log))
LOG10 = RowFunction("log10", _log10, _monotone(math.log10))
GREATEST = RowFunction("greatest", _extreme(larger=True), hull)
LEAST = RowFunction("least", _extreme(larger=False), hull)


class NumberMethods(Methods):
    """The arithmetic of expressions. Abstract."""

    def __add__(self, other: object) -> Expression:
        return self._call(ADD, other)

    def __sub__(self, other: object) -> Expression:
        return self._call(SUBTRACT, other)

    def __mul__(self, other: object) -> Expression:
        return self._call(MULTIPLY, other)

    def __truediv__(self, other: object) -> Expression:
        return self._call(DIVIDE, other)

    def __mod__(self, other: object) -> Expression:
        return self._call(MODULO, other)

    def __floordiv__(self, other: object) -> Expression:
        return self._call(FLOOR_DIVIDE, other)

    def __pow__(self, exponent: object) -> Expression:
        power = _check.integer("exponent", exponent, "multiply or divide, or use sqrt()", at_most=_MOST_FACTORS)
        result = self._call(MULTIPLY, 1)
        for _ in range(power - 1):
            result = result * self
        return result

    def __abs__(self) -> Expression:
        return self.abs()

    def abs(self) -> Expression:
        """The absolute value."""
        return self._call(ABS)

    def floor(self) -> Expression:
        """The largest whole number that is not larger."""
        return self._call(FLOOR)

    def ceil(self) -> Expression:
        """The smallest whole number that is not smaller."""
        return self._call(CEIL)

    def trunc(self) -> Expression:
        """The whole part: the number without what follows the point."""
        return self._call(TRUNC)

    def round(self, digits: int = 0) -> Expression:
        """The number rounded to this many digits after the point, halves away from zero."""
        if type(digits) is not int or abs(digits) > _MOST_DIGITS:
            raise _check.fail("digits", f"be a whole number within ±{_MOST_DIGITS}", digits, "such as round(2)")
        return self._call(ROUND, options=(digits,))

    def sign(self) -> Expression:
        """−1, 0 or 1."""
        return self._call(SIGN)

    def sqrt(self) -> Expression:
        """The square root; missing for a negative number."""
        return self._call(SQRT)

    def exp(self) -> Expression:
        """e to this power; missing beyond ±700."""
        return self._call(EXP)

    def ln(self) -> Expression:
        """The natural logarithm; missing unless the number is positive."""
        return self._call(LN)

    def log10(self) -> Expression:
        """The decimal logarithm; missing unless the number is positive."""
        return self._call(LOG10)
