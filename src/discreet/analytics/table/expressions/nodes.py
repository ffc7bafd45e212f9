"""What may be computed from a row: a list of expressions whose result depends on that row alone and never fails.

`people.age >= 18` builds one. Each is a small frozen tree that can become an Ibis expression. The semantics are ours
and the same on every engine (docs/topics/total-functions.md):

- arithmetic is in 64-bit floats on numbers clamped to ±1e60, where those below 1e-60 in size count as 0: nothing
  overflows or underflows, which some engines report as an error; x/0 is missing;
- NaN and NULL are the same: missing;
- a comparison with a missing value is False, and `~` of it is True.

The functions of numbers, text and dates are in files of their own.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NoReturn

import ibis

from discreet import _check
from discreet.analytics.table.expressions.calls import Range, RowFunction
from discreet.analytics.table.expressions.casts import CASTS
from discreet.analytics.table.expressions.dates import DateMethods, known
from discreet.analytics.table.expressions.numbers import ADD, DIVIDE, MODULO, MULTIPLY, SUBTRACT, NumberMethods, hull
from discreet.analytics.table.expressions.text import TextMethods
from discreet.analytics.table.expressions.unsupported import NEAREST, Unsupported
from discreet.analytics.table.semantics import (
    Literal,
    clamped,
    condition,
    cuts,
    double,
    family,
    literal,
    number,
    present,
    remedy_of,
)
from discreet.errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class Expression(NumberMethods, TextMethods, DateMethods):
    """A value for each row, computed from that row. Built from a private table's columns; abstract."""

    def to_ibis(self, table: Any) -> Any:
        """The expression on an engine's table."""
        raise NotImplementedError

    def to_filter(self, table: Any) -> Any:
        """The expression as a filter's condition: there missing acts as False, and engines can skip more rows."""
        return condition(self.to_ibis(table))

    def names(self) -> set[str]:
        """The columns that it is computed from."""
        return {name for operand in self.parts_inside() for name in operand.names()}

    def exact_columns(self) -> set[str]:
        """The columns that text functions compare with public texts: different texts must never be equal there."""
        return {name for operand in self.parts_inside() for name in operand.exact_columns()}

    def parts_inside(self) -> list[Expression]:
        """The expressions that it is made of."""
        return [operand for field in fields(self) for operand in _parts(getattr(self, field.name))]

    def domain(self) -> tuple[Any, ...] | None:
        """All values that it can have, where these are few and follow from the expression itself; None otherwise."""
        return None

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        """The least and the largest number, as they follow from public bounds of columns; None if they do not."""
        return None

    def _call(self, function: RowFunction, *others: object, options: tuple[Any, ...] = ()) -> Expression:
        return FunctionCall(function, (self, *(wrap(other) for other in others)), options)

    # numpy arrays must not broadcast over expressions
    __array_ufunc__ = None

    def __radd__(self, other: object) -> Expression:
        return wrap(other)._call(ADD, self)

    def __rsub__(self, other: object) -> Expression:
        return wrap(other)._call(SUBTRACT, self)

    def __rmul__(self, other: object) -> Expression:
        return wrap(other)._call(MULTIPLY, self)

    def __rtruediv__(self, other: object) -> Expression:
        return wrap(other)._call(DIVIDE, self)

    def __rmod__(self, other: object) -> Expression:
        return wrap(other)._call(MODULO, self)

    def __neg__(self) -> Expression:
        return Constant(0)._call(SUBTRACT, self)

    def __lt__(self, other: object) -> Expression:
        return Compared("<", self, wrap(other))

    def __le__(self, other: object) -> Expression:
        return Compared("<=", self, wrap(other))

    def __gt__(self, other: object) -> Expression:
        return Compared(">", self, wrap(other))

    def __ge__(self, other: object) -> Expression:
        return Compared(">=", self, wrap(other))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # builds an expression
        return Compared("==", self, wrap(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # builds an expression
        return Compared("!=", self, wrap(other))

    __hash__ = None  # type: ignore[assignment]  # == builds an expression, so no dictionary may hold one

    def __and__(self, other: object) -> Expression:
        return _chained("and", self, wrap(other))

    def __or__(self, other: object) -> Expression:
        return _chained("or", self, wrap(other))

    def __invert__(self) -> Expression:
        return Logic("not", (self,))

    def clip(self, lower: float, upper: float) -> Expression:
        """The value moved into [lower, upper]; missing stays missing."""
        low, high = _check.bounds((lower, upper))
        return Clipped(self, float(low), float(high))

    def isin(self, values: Iterable[Literal]) -> Expression:
        """Whether the value is one of a public list; False where it is missing."""
        return Logic("or", tuple(self == value for value in values))

    def between(self, lower: object, upper: object) -> Expression:
        """Whether lower ≤ value ≤ upper; False where one of them is missing."""
        return (self >= lower) & (self <= upper)

    def is_null(self) -> Expression:
        """Whether the value is missing."""
        return Missing(self)

    def fill_null(self, value: Literal) -> Expression:
        """The value, or a public value where it is missing."""
        return Filled(self, Constant(literal(value)))

    def bin(self, edges: Iterable[Any]) -> Expression:
        """The left edge of the interval [eᵢ, eᵢ₊₁) that holds the value (the last one closed); missing outside."""
        return Binned(self, cuts(edges))

    def cast(self, kind: str) -> Expression:
        """The value as a "number", an "integer", "text", a "date" or a "boolean"; missing where it is none."""
        if not isinstance(kind, str) or kind not in CASTS:
            raise _check.fail("kind", f"be one of {', '.join(CASTS)}", kind, 'such as cast("number")')
        return self._call(CASTS[kind])

    def __bool__(self) -> NoReturn:
        raise InvalidArgument(
            "a condition must be joined with &, | and ~, got and, or, not or if: a row's answer is not known here"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidArgument("a column must not be iterated over: its rows are private; ask for an aggregate")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(name, NEAREST.get(name, NEAREST["apply"]))


@dataclass(frozen=True, eq=False)
class Column(Expression):
    """A column of the table."""

    name: str

    def to_ibis(self, table: Any) -> Any:
        return present(table[self.name])

    def names(self) -> set[str]:
        return {self.name}

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        return bounds.get(self.name)


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """A public value."""

    value: Literal

    def to_ibis(self, table: Any) -> Any:
        return double(self.value) if isinstance(self.value, float) else ibis.literal(self.value)

    def domain(self) -> tuple[Any, ...] | None:
        return (self.value,)

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        return (float(self.value), float(self.value)) if isinstance(self.value, int | float) else None


@dataclass(frozen=True, eq=False)
class FunctionCall(Expression):
    """A function of values of the row, and of public options."""

    function: RowFunction
    arguments: tuple[Expression, ...]
    options: tuple[Any, ...] = ()

    def to_ibis(self, table: Any) -> Any:
        return self.function.build(*(argument.to_ibis(table) for argument in self.arguments), *self.options)

    def exact_columns(self) -> set[str]:
        inside = super().exact_columns()
        return inside | self.names() if self.function.exact else inside

    def domain(self) -> tuple[Any, ...] | None:
        return self.function.domain

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        if self.function.span is None:
            few = self.domain()
            return None if few is None else (float(few[0]), float(few[-1]))
        try:
            ends = self.function.span([argument.span(bounds) for argument in self.arguments])
        except (OverflowError, ValueError):  # bounds beyond the floats
            return None
        return ends if ends is not None and all(math.isfinite(end) for end in ends) else None


@dataclass(frozen=True, eq=False)
class Condition(Expression):
    """Something that is True or False for each row and never missing. Abstract."""

    def domain(self) -> tuple[Any, ...] | None:
        return (False, True)

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        return 0.0, 1.0


@dataclass(frozen=True, eq=False)
class Compared(Condition):
    """Whether two values compare; False where one of them is missing."""

    operator: str
    one: Expression
    other: Expression

    def to_ibis(self, table: Any) -> Any:
        return self.to_filter(table).fill_null(False)

    def to_filter(self, table: Any) -> Any:
        a, b = self.one.to_ibis(table), self.other.to_ibis(table)
        a, b = alike("comparison", [_dated(self.one, a, b), _dated(self.other, b, a)], self.operator)
        compare: dict[str, Callable[[], Any]] = {
            "<": lambda: a < b,
            "<=": lambda: a <= b,
            ">": lambda: a > b,
            ">=": lambda: a >= b,
            "==": lambda: a == b,
            "!=": lambda: a != b,
        }
        return compare[self.operator]()


@dataclass(frozen=True, eq=False)
class Logic(Condition):
    """and, or, not of conditions, which are True or False and never missing."""

    operator: str
    parts: tuple[Expression, ...]

    def to_ibis(self, table: Any) -> Any:
        operands = [condition(operand.to_ibis(table)) for operand in self.parts]
        return ~operands[0] if self.operator == "not" else self._joined(operands)

    def to_filter(self, table: Any) -> Any:
        # Without a "not" above it, a missing part has the same effect on the filter as False.
        if self.operator == "not":
            return self.to_ibis(table)
        return self._joined([operand.to_filter(table) for operand in self.parts])

    def _joined(self, conditions: list[Any]) -> Any:
        if not conditions:
            return ibis.literal(self.operator == "and")
        while len(conditions) > 1:  # a balanced tree: a chain of thousands would be nested too deeply for engines
            pairs = [conditions[i : i + 2] for i in range(0, len(conditions), 2)]
            conditions = [pair[0] if len(pair) == 1 else self._both(*pair) for pair in pairs]
        return conditions[0]

    def _both(self, left: Any, right: Any) -> Any:
        return (left & right) if self.operator == "and" else (left | right)


@dataclass(frozen=True, eq=False)
class Missing(Condition):
    """Whether a value is missing."""

    inner: Expression

    def to_ibis(self, table: Any) -> Any:
        return self.inner.to_ibis(table).isnull()


@dataclass(frozen=True, eq=False)
class Present(Condition):
    """Whether a value is not missing."""

    inner: Expression

    def to_ibis(self, table: Any) -> Any:
        return self.inner.to_ibis(table).notnull()


@dataclass(frozen=True, eq=False)
class Clipped(Expression):
    """A number moved into an interval."""

    inner: Expression
    low: float
    high: float

    def to_ibis(self, table: Any) -> Any:
        return clamped(number(self.inner.to_ibis(table), "clip"), self.low, self.high)

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        return self.low, self.high


@dataclass(frozen=True, eq=False)
class Filled(Expression):
    """A value, or a public value where it is missing."""

    inner: Expression
    value: Constant

    def to_ibis(self, table: Any) -> Any:
        value, substitute = self.inner.to_ibis(table), self.value.to_ibis(table)
        if family(value) != family(substitute):
            raise _check.fail("fill_null", "get a value of the column's kind", self.value.value, "fill like with like")
        if family(value) == "number":
            value, substitute = number(value, "fill_null"), number(substitute, "fill_null")
        return value.fill_null(substitute)

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        return hull([self.inner.span(bounds), self.value.span(bounds)])


@dataclass(frozen=True, eq=False)
class Binned(Expression):
    """The left edge of the public interval that holds a number, a date or a time."""

    inner: Expression
    edges: tuple[Any, ...]

    def to_ibis(self, table: Any) -> Any:
        numeric = isinstance(self.edges[0], float)
        value = self.inner.to_ibis(table)
        edges = [double(edge) if numeric else ibis.literal(edge) for edge in self.edges]
        if numeric:
            value = number(value, "bin")
        elif family(value) != family(edges[0]):
            raise _check.fail("bin", f"get edges of the column's kind ({family(value)})", family(edges[0]), "see edges")
        inside = [((value >= a) & (value < b), a) for a, b in pairwise(edges)]
        inside.append((value == edges[-1], edges[-2]))
        return ibis.cases(*inside, else_=ibis.null(edges[0].type()))

    def domain(self) -> tuple[Any, ...] | None:
        return self.edges[:-1]

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        return (self.edges[0], self.edges[-2]) if isinstance(self.edges[0], float) else None


@dataclass(frozen=True, eq=False)
class Cases(Expression):
    """The value of the first condition that holds; `otherwise` where none does, and missing without it."""

    conditions: tuple[Expression, ...]
    values: tuple[Expression, ...]
    otherwise: Expression | None = None

    def to_ibis(self, table: Any) -> Any:
        given = [*self.values] if self.otherwise is None else [*self.values, self.otherwise]
        results = alike("case", [value.to_ibis(table) for value in given], "case")
        held = [condition(case.to_ibis(table)) for case in self.conditions]
        last = ibis.null(results[0].type()) if self.otherwise is None else results[-1]
        return ibis.cases(*zip(held, results[: len(held)], strict=True), else_=last)

    def domain(self) -> tuple[Any, ...] | None:
        given = [value.domain() for value in (*self.values, *([] if self.otherwise is None else [self.otherwise]))]
        if any(few is None or len(few) != 1 for few in given):
            return None
        return tuple(dict.fromkeys(few[0] for few in given if few is not None))

    def span(self, bounds: Mapping[str, Range]) -> Range | None:
        given = (*self.values, *([] if self.otherwise is None else [self.otherwise]))
        return hull([value.span(bounds) for value in given])


def alike(name: str, values: Sequence[Any], wanted_by: str) -> list[Any]:
    """Engine values of one family, numbers as 64-bit floats; values of different families are refused."""
    families = list(dict.fromkeys(family(value) for value in values))
    if set(families) == {"date", "timestamp"}:  # a date is the time at which it starts
        return [known(value, name).cast("timestamp") if family(value) == "date" else value for value in values]
    if len(families) > 1:
        remedy = "compare numbers with numbers, text with text, dates with dates (in SQL: DATE '2024-12-31')"
        raise _check.fail(name, "be between values of one kind", " and ".join(families), remedy_of(families, remedy))
    return [number(value, wanted_by) if families == ["number"] else value for value in values]


def _dated(expression: Expression, value: Any, other: Any) -> Any:
    """An engine's value; text that stands in the query as a date or time, where it is compared with one."""
    if not isinstance(expression, Constant) or not isinstance(expression.value, str):
        return value
    read = {"date": dt.date.fromisoformat, "timestamp": dt.datetime.fromisoformat}.get(family(other))
    try:
        return value if read is None else ibis.literal(literal(read(expression.value)))
    except ValueError:
        return value  # which is refused: text is compared with text


def _parts(value: object) -> tuple[Expression, ...]:
    if isinstance(value, Expression):
        return (value,)
    return tuple(item for item in value if isinstance(item, Expression)) if isinstance(value, tuple) else ()


def _chained(operator: str, *sides: Expression) -> Expression:
    """Conditions joined by one operator. Nested ones of the same operator are flattened: a & b & c has three parts."""
    same = (side.parts if isinstance(side, Logic) and side.operator == operator else (side,) for side in sides)
    return Logic(operator, tuple(operand for operands in same for operand in operands))


def wrap(value: object) -> Expression:
    """An expression as it is, or a public literal as one."""
    return value if isinstance(value, Expression) else Constant(literal(value))
