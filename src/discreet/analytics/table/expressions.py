"""What may be computed from a row: a short list of expressions whose result depends on that row alone and never fails.

`people.age >= 18` builds one. Each is a small frozen tree that can become an Ibis expression. The semantics are ours
and the same on every engine:

- arithmetic is in 64-bit floats on operands clamped to ±1e150, where those below 1e-150 in size count as 0: nothing
  overflows or underflows, which some engines report as an error; x/0 is missing;
- NaN and NULL are the same: missing;
- a comparison with a missing value is False, and `~` of it is True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NoReturn

import ibis

from discreet import _check
from discreet.analytics.table.semantics import Literal, condition, cuts, exact, family, literal, number, present, tame
from discreet.errors import InvalidArgument

_NEAREST = {
    "cast": "declare the column's type in the table, before it is private",
    "apply": "compose +, -, *, /, abs(), clip(), fill_null(), comparisons and where()",
    "map": "use isin() or bin()",
    "str": "compare text with == or isin()",
    "contains": "list the values with isin()",
    "like": "list the values with isin()",
    "round": "use bin() with public edges",
    "floor": "use bin() with public edges",
    "fillna": "use fill_null()",
    "isna": "use is_null()",
    "isnull": "use is_null()",
    "notnull": "use ~column.is_null()",
    "dt": "compare the date with a datetime.date, or bin() a number",
    "sum": "ask the table: people.sum(name, bounds=…)",
    "mean": "ask the table: people.mean(name, bounds=…)",
    "count": "ask the table: people.count()",
    "unique": "group_by(name, keys=…) with public keys",
    "value_counts": "people.histogram(name, categories=…) with public categories",
    "max": "people.quantile(name, 0.99, bounds=…)",
    "min": "people.quantile(name, 0.01, bounds=…)",
}


@dataclass(frozen=True, eq=False)
class Expression:
    """A value for each row, computed from that row. Built from a private table's columns; abstract."""

    def to_ibis(self, table: Any) -> Any:
        """The expression on an engine's table."""
        raise NotImplementedError

    def to_filter(self, table: Any) -> Any:
        """The expression as a filter's condition: there missing acts as False, and engines can skip more rows."""
        return condition(self.to_ibis(table))

    def names(self) -> set[str]:
        """The columns that it is computed from."""
        inside = [part for field in fields(self) for part in _parts(getattr(self, field.name))]
        return {name for part in inside for name in part.names()}

    # numpy arrays must not broadcast over expressions
    __array_ufunc__ = None

    def __add__(self, other: object) -> Expression:
        return Arithmetic("+", self, wrap(other))

    def __radd__(self, other: object) -> Expression:
        return Arithmetic("+", wrap(other), self)

    def __sub__(self, other: object) -> Expression:
        return Arithmetic("-", self, wrap(other))

    def __rsub__(self, other: object) -> Expression:
        return Arithmetic("-", wrap(other), self)

    def __mul__(self, other: object) -> Expression:
        return Arithmetic("*", self, wrap(other))

    def __rmul__(self, other: object) -> Expression:
        return Arithmetic("*", wrap(other), self)

    def __truediv__(self, other: object) -> Expression:
        return Arithmetic("/", self, wrap(other))

    def __rtruediv__(self, other: object) -> Expression:
        return Arithmetic("/", wrap(other), self)

    def __neg__(self) -> Expression:
        return Arithmetic("-", Constant(0), self)

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

    def __abs__(self) -> Expression:
        return self.abs()

    def abs(self) -> Expression:
        """The absolute value."""
        return Clipped(self, None, None, absolute=True)

    def clip(self, lower: float, upper: float) -> Expression:
        """The value moved into [lower, upper]; missing stays missing."""
        low, high = _check.bounds((lower, upper))
        return Clipped(self, float(low), float(high))

    def isin(self, values: Iterable[Literal]) -> Expression:
        """Whether the value is one of a public list; False where it is missing."""
        return Logic("or", tuple(self == value for value in values))

    def between(self, lower: Literal, upper: Literal) -> Expression:
        """Whether lower ≤ value ≤ upper; False where it is missing."""
        return (self >= lower) & (self <= upper)

    def is_null(self) -> Expression:
        """Whether the value is missing."""
        return Missing(self)

    def fill_null(self, value: Literal) -> Expression:
        """The value, or a public value where it is missing."""
        return Filled(self, Constant(literal(value)))

    def bin(self, edges: Iterable[float]) -> Expression:
        """The left edge of the interval [eᵢ, eᵢ₊₁) that holds the value (the last one closed); missing outside."""
        return Binned(self, cuts(edges))

    def __bool__(self) -> NoReturn:
        raise InvalidArgument(
            "a condition must be joined with &, | and ~, got and, or, not or if: a row's answer is not known here"
        )

    def __iter__(self) -> NoReturn:
        raise InvalidArgument("a column must not be iterated over: its rows are private; ask for an aggregate")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(name, _NEAREST.get(name, _NEAREST["apply"]))

    def __mod__(self, other: object) -> NoReturn:
        raise Unsupported("%", "use bin() with public edges")

    def __floordiv__(self, other: object) -> NoReturn:
        raise Unsupported("//", "use / or bin() with public edges")

    def __pow__(self, other: object) -> NoReturn:
        raise Unsupported("**", "multiply, as in x * x")


class Unsupported(InvalidArgument, AttributeError):
    """An expression that is not on the list; the message says what to use instead."""

    def __init__(
        self, name: str, remedy: str, rule: str = "expressions must be on the list of those that cannot fail or leak"
    ) -> None:
        super().__init__(f"{rule}, got {name!r}: {remedy}")


@dataclass(frozen=True, eq=False)
class Column(Expression):
    """A column of the table."""

    name: str

    def to_ibis(self, table: Any) -> Any:
        return present(table[self.name])

    def names(self) -> set[str]:
        return {self.name}


@dataclass(frozen=True, eq=False)
class Constant(Expression):
    """A public value."""

    value: Literal

    def to_ibis(self, table: Any) -> Any:
        return exact(self.value) if isinstance(self.value, float) else ibis.literal(self.value)


@dataclass(frozen=True, eq=False)
class Arithmetic(Expression):
    """+, −, × or ÷ in 64-bit floats."""

    operator: str
    left: Expression
    right: Expression

    def to_ibis(self, table: Any) -> Any:
        a, b = (tame(number(side.to_ibis(table), self.operator)) for side in (self.left, self.right))
        if self.operator == "/":
            # Engines disagree on x / 0: some raise, which would reveal a row. Here it is a missing value.
            nonzero = ibis.cases((b == 0, ibis.null("float64")), else_=b)
            return a / nonzero
        return {"+": a + b, "-": a - b, "*": a * b}[self.operator]


@dataclass(frozen=True, eq=False)
class Compared(Expression):
    """Whether two values compare; False where one of them is missing."""

    operator: str
    left: Expression
    right: Expression

    def to_ibis(self, table: Any) -> Any:
        return self.to_filter(table).fill_null(False)

    def to_filter(self, table: Any) -> Any:
        a, b = self.left.to_ibis(table), self.right.to_ibis(table)
        if family(a) != family(b):
            remedy = "compare numbers with numbers, text with text, dates with dates (in SQL: DATE '2024-12-31')"
            raise _check.fail("comparison", "be between values of one kind", f"{family(a)} and {family(b)}", remedy)
        if family(a) == "number":
            a, b = number(a, self.operator), number(b, self.operator)
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
class Logic(Expression):
    """and, or, not of conditions, which are True or False and never missing."""

    operator: str
    parts: tuple[Expression, ...]

    def to_ibis(self, table: Any) -> Any:
        parts = [condition(part.to_ibis(table)) for part in self.parts]
        return ~parts[0] if self.operator == "not" else self._joined(parts)

    def to_filter(self, table: Any) -> Any:
        # Without a "not" above it, a missing part has the same effect on the filter as False.
        if self.operator == "not":
            return self.to_ibis(table)
        return self._joined([part.to_filter(table) for part in self.parts])

    def _joined(self, parts: list[Any]) -> Any:
        if not parts:
            return ibis.literal(self.operator == "and")
        while len(parts) > 1:  # a balanced tree: a chain of thousands would be nested too deeply for engines
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [pair[0] if len(pair) == 1 else self._both(*pair) for pair in pairs]
        return parts[0]

    def _both(self, one: Any, two: Any) -> Any:
        return (one & two) if self.operator == "and" else (one | two)


@dataclass(frozen=True, eq=False)
class Clipped(Expression):
    """A number moved into an interval, or its absolute value."""

    inner: Expression
    lower: float | None
    upper: float | None
    absolute: bool = False

    def to_ibis(self, table: Any) -> Any:
        value = number(self.inner.to_ibis(table), "abs" if self.absolute else "clip")
        return value.abs() if self.absolute else value.clip(self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Missing(Expression):
    """Whether a value is missing."""

    inner: Expression

    def to_ibis(self, table: Any) -> Any:
        return self.inner.to_ibis(table).isnull()


@dataclass(frozen=True, eq=False)
class Present(Expression):
    """Whether a value is not missing."""

    inner: Expression

    def to_ibis(self, table: Any) -> Any:
        return self.inner.to_ibis(table).notnull()


@dataclass(frozen=True, eq=False)
class Filled(Expression):
    """A value, or a public value where it is missing."""

    inner: Expression
    value: Constant

    def to_ibis(self, table: Any) -> Any:
        value, other = self.inner.to_ibis(table), self.value.to_ibis(table)
        if family(value) != family(other):
            raise _check.fail("fill_null", "get a value of the column's kind", self.value.value, "fill like with like")
        if family(value) == "number":
            value, other = number(value, "fill_null"), number(other, "fill_null")
        return value.fill_null(other)


@dataclass(frozen=True, eq=False)
class Binned(Expression):
    """The left edge of the public interval that holds a number."""

    inner: Expression
    edges: tuple[float, ...]

    def to_ibis(self, table: Any) -> Any:
        value = number(self.inner.to_ibis(table), "bin")
        inside = [((value >= a) & (value < b), a) for a, b in pairwise(exact(edge) for edge in self.edges)]
        inside.append((value == exact(self.edges[-1]), exact(self.edges[-2])))
        return ibis.cases(*inside, else_=ibis.null("float64"))


@contextmanager
def within_the_stack() -> Iterator[None]:
    """Refuse expressions that are nested more deeply than Python's stack, before anything is charged."""
    try:
        yield
    except RecursionError:
        remedy = "list values with isin(), join conditions side by side, or store the result of a part first"
        raise _check.fail("expression", "be nested less deeply", "one beyond Python's stack", remedy) from None


def _parts(value: object) -> tuple[Expression, ...]:
    if isinstance(value, Expression):
        return (value,)
    return tuple(part for part in value if isinstance(part, Expression)) if isinstance(value, tuple) else ()


def _chained(operator: str, *sides: Expression) -> Expression:
    """Conditions joined by one operator, those of the same operator side by side: a & b & c has three parts."""
    same = (side.parts if isinstance(side, Logic) and side.operator == operator else (side,) for side in sides)
    return Logic(operator, tuple(part for parts in same for part in parts))


def wrap(value: object) -> Expression:
    """An expression as it is, or a public literal as one."""
    return value if isinstance(value, Expression) else Constant(literal(value))
