"""Values that are chosen among others, row by row: by conditions, by what is present, by size."""

from __future__ import annotations

from discreet import _check
from discreet.analytics.table.expressions.calls import RowFunction
from discreet.analytics.table.expressions.nodes import Cases, Expression, FunctionCall, Present, wrap
from discreet.analytics.table.expressions.numbers import GREATEST, LEAST


def case(*branches: tuple[Expression, object], otherwise: object = None) -> Expression:
    """The value of the first condition that holds: `case((t.age < 18, "young"), otherwise="old")`.

    Args:
        branches: pairs of a condition and a value, which is public or an expression. All values are of one kind.
        otherwise: the value where no condition holds; missing without it.
    """
    if not branches or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in branches):
        raise _check.fail("case", "get pairs of a condition and a value", branches, "case((t.age < 18, 'young'))")
    for held, _ in branches:
        if not isinstance(held, Expression):
            raise _check.fail("case", "get conditions", type(held).__name__, "such as people.age < 18")
    last = None if otherwise is None else wrap(otherwise)
    return Cases(tuple(held for held, _ in branches), tuple(wrap(value) for _, value in branches), last)


def coalesce(*values: object) -> Expression:
    """The first of some values that is not missing."""
    several = _several("coalesce", values)
    return Cases(tuple(Present(value) for value in several), several)


def greatest(*values: object) -> Expression:
    """The largest of some numbers; missing ones are left out."""
    return _extreme(GREATEST, values)


def least(*values: object) -> Expression:
    """The smallest of some numbers; missing ones are left out."""
    return _extreme(LEAST, values)


def _extreme(function: RowFunction, values: tuple[object, ...]) -> Expression:
    return FunctionCall(function, _several(function.name, values))


def _several(name: str, values: tuple[object, ...]) -> tuple[Expression, ...]:
    if not values:
        raise _check.fail(name, "get a value", values, f"such as {name}(people.pay, 0)")
    return tuple(wrap(value) for value in values)
