"""How small and how large an engine's number can be, whatever the rows hold: it follows from types and literals.

Arithmetic needs no test where its result can neither overflow nor underflow. Each test repeats its operand in the SQL,
so without this, nested arithmetic would grow exponentially.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import ibis.expr.operations as ops

#: The least size of a number that is not 0, and the largest size.
Size = tuple[float, float]

#: Where floats neither overflow nor underflow, with room for rounding.
SAFE: Size = (1e-290, 1e300)
#: Unsigned integers reach this far, and hugeints, which are reported as decimals, twice as far as 38 digits.
_INTEGER: Size = (1.0, 2.0**64)
#: Two different floats of size at least x are at least this times x apart.
_APART = 2.0**-54
#: What was computed within known sizes, by tests that the engine runs.
_known: WeakKeyDictionary[Any, Size] = WeakKeyDictionary()


def of_size(value: Any, size: Size) -> Any:
    """The same value, whose size is known from now on."""
    _known[value.op()] = size
    return value


def size_of(value: Any) -> Size | None:
    """The size of an engine's number, None where it is not known. Infinity and NaN have no size."""
    return _size(value.op())


def within(size: Size | None, limits: Size) -> bool:
    """Whether all numbers of a size lie within limits (or are 0)."""
    return size is not None and size[0] >= limits[0] and size[1] <= limits[1]


def _size(op: Any) -> Size | None:
    if op in _known:
        return _known[op]
    match op:
        case ops.Literal():
            return _of_literal(op)
        case ops.Cast() if op.to.is_float64():
            return _size(op.arg) or _of_type(op.arg.dtype)
        case ops.Negate() | ops.Abs():
            return _size(op.arg)
        case ops.NullIf():
            return _size(op.arg)
        case ops.Add() | ops.Subtract() | ops.Multiply() | ops.Divide():
            left, right = _size(op.left), _size(op.right)
            return None if left is None or right is None else _combined(op, left, right)
    return _of_type(op.dtype)


def _of_literal(op: Any) -> Size | None:
    if not op.dtype.is_numeric() or op.value is None:
        return None
    size = abs(float(op.value))
    return (size or 1.0, size) if math.isfinite(size) else None


def _of_type(kind: Any) -> Size | None:
    if kind.is_boolean():
        return 1.0, 1.0
    if kind.is_integer():
        return _INTEGER
    if kind.is_decimal() and kind.precision is not None and kind.scale is not None:
        return 10.0**-kind.scale, 2.0 * 10.0 ** (kind.precision - kind.scale)
    return None


def _combined(op: Any, left: Size, right: Size) -> Size | None:
    """The size of a result, rounded outwards; None where it may overflow or underflow."""
    least, most = left[0] * right[0], left[1] * right[1]
    if isinstance(op, ops.Divide):
        least, most = left[0] / right[1] if right[1] else 0.0, left[1] / right[0]
    if isinstance(op, ops.Add | ops.Subtract):
        # If both are not 0, their difference is 0 or not much smaller than the larger of the two.
        apart = _APART * max(left[0], right[0])
        alone = [side[0] for side, other in ((left, op.right), (right, op.left)) if not _never_zero(other)]
        least, most = min([apart, *alone]), left[1] + right[1]
    widened = least / 2, most * 2
    return widened if within(widened, SAFE) else None


def _never_zero(op: Any) -> bool:
    return isinstance(op, ops.Literal) and op.value not in (None, 0)
