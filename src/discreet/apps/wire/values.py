"""Values, expressions and aggregates as JSON, in both directions.

Plain JSON stands for itself. What JSON lacks is an object with one name that starts with `$`:

- `{"$column": "age"}`, `{"$call": [">=", {"$column": "age"}, 18]}`: an expression;
- `{"$aggregate": ["mean", {"column": "hours", "bounds": [0, 100]}]}`: an aggregate;
- `{"$date": "2024-12-31"}`, `{"$time": "2024-12-31T08:00:00"}`: a date and a time;
- `{"$discover": {"least": 5}}`: keys to discover.

Reading them calls the public functions of `discreet.analytics` by names from a fixed list, so that a question from
outside passes the same checks as one from Python. Nothing that a client sends is imported, evaluated or unpickled.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import reduce
from typing import Any

from discreet import _check, analytics
from discreet.analytics.aggregates.marginal import Marginal
from discreet.analytics.aggregates.registry import FUNCTIONS
from discreet.analytics.table.expressions import (
    Cases,
    Clipped,
    Column,
    Compared,
    Constant,
    Expression,
    Filled,
    FunctionCall,
    Logic,
    Missing,
    Present,
    dates,
    numbers,
    text,
    wrap,
)
from discreet.analytics.table.expressions.calls import RowFunction
from discreet.analytics.table.expressions.casts import CASTS
from discreet.analytics.table.expressions.nodes import Binned
from discreet.errors import InvalidArgument

#: How deeply a question may be nested: far more than people write, and far less than Python's stack holds.
MOST_NESTED = 100
#: How many values one list may have, and how many combinations several lists together.
MOST_VALUES = 100_000

# --- expressions

#: Methods of an expression that a call may name; their arguments follow the expression.
_METHODS = (
    "abs", "floor", "ceil", "trunc", "round", "sign", "sqrt", "exp", "ln", "log10",
    "lower", "upper", "strip", "length", "substring", "right", "concat", "startswith", "endswith", "contains",
    "replace", "year", "quarter", "month", "week", "day", "weekday", "hour", "minute", "date", "truncate",
    "days_since", "in_zone", "strftime", "clip", "isin", "between", "is_null", "fill_null", "bin", "cast",
)  # fmt: skip

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _method(name: str) -> Callable[..., Expression]:
    return lambda first, *others: getattr(wrap(first), name)(*others)


def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., Expression]:
    return lambda left, right: function(wrap(left), right)


def _case(branches: Any, otherwise: Any = None) -> Expression:
    return analytics.case(*branches, otherwise=otherwise)


#: What each name in `$call` means.
_CALLS: dict[str, Callable[..., Expression]] = {
    **{name: _method(name) for name in _METHODS},
    **{name: _binary(function) for name, function in _OPERATORS.items()},
    "&": lambda *conditions: reduce(operator.and_, map(wrap, conditions)),
    "|": lambda *conditions: reduce(operator.or_, map(wrap, conditions)),
    "~": lambda operand: ~wrap(operand),
    "like": lambda value, pattern, ignore_case=False: wrap(value).like(pattern, ignore_case=bool(ignore_case)),
    "case": _case,
    "coalesce": analytics.coalesce,
    "greatest": analytics.greatest,
    "least": analytics.least,
}

#: The name of each function that a method of an expression makes; its options are the method's arguments.
_NAMES: dict[RowFunction, str] = {
    numbers.ADD: "+",
    numbers.SUBTRACT: "-",
    numbers.MULTIPLY: "*",
    numbers.DIVIDE: "/",
    numbers.MODULO: "%",
    numbers.FLOOR_DIVIDE: "//",
    dates.DIFFERENCE: "days_since",
    dates.FORMAT: "strftime",
    **{
        function: function.name
        for function in (
            numbers.ABS, numbers.FLOOR, numbers.CEIL, numbers.TRUNC, numbers.ROUND, numbers.SIGN, numbers.SQRT,
            numbers.EXP, numbers.LN, numbers.LOG10, numbers.GREATEST, numbers.LEAST,
            text.LOWER, text.UPPER, text.STRIP, text.LENGTH, text.SUBSTRING, text.RIGHT, text.CONCAT, text.LIKE,
            text.STARTS_WITH, text.ENDS_WITH, text.CONTAINS, text.REPLACE,
            dates.YEAR, dates.QUARTER, dates.MONTH, dates.WEEK, dates.DAY, dates.WEEKDAY, dates.HOUR, dates.MINUTE,
            dates.DATE, dates.TRUNCATE, dates.IN_ZONE,
        )
    },
}  # fmt: skip
_CAST_KINDS: dict[RowFunction, str] = {function: kind for kind, function in CASTS.items()}


def _written_expression(value: Expression) -> Any:
    match value:
        case Column():
            return {"$column": value.name}
        case Constant():
            return written(value.value)
        case FunctionCall() if value.function in _CAST_KINDS:
            return _call("cast", *value.arguments, _CAST_KINDS[value.function])
        case FunctionCall() if value.function in _NAMES:
            return _call(_NAMES[value.function], *value.arguments, *value.options)
        case Compared():
            return _call(value.operator, value.one, value.other)
        case Logic() if not value.parts:  # as isin([]) makes it: a comparison says the same
            return _call("==", 0, int(value.operator == "or"))
        case Logic():
            return _call({"and": "&", "or": "|", "not": "~"}[value.operator], *value.parts)
        case Missing():
            return _call("is_null", value.inner)
        case Present():
            return _call("~", value.inner.is_null())
        case Clipped():
            return _call("clip", value.inner, value.low, value.high)
        case Filled():
            return _call("fill_null", value.inner, value.value)
        case Binned():
            return _call("bin", value.inner, value.edges)
        case Cases():
            branches = list(zip(value.conditions, value.values, strict=True))
            return _call("case", branches, value.otherwise)
    raise _check.fail("expression", "be one that can be sent", type(value).__name__, "use the methods of columns")


def _call(name: str, *arguments: object) -> dict[str, Any]:
    return {"$call": [name, *(written(argument) for argument in arguments)]}


# --- aggregates


def _marginal(categories: Any, **options: Any) -> analytics.Aggregate:
    return analytics.marginal(*categories, categories=categories, **options)


#: Each aggregate that a question may name, and its function. That of a marginal takes its categories alone.
_AGGREGATES = FUNCTIONS | {"marginal": (Marginal, _marginal)}
_AGGREGATE_NAMES = {kind: name for name, (kind, _) in _AGGREGATES.items()}
_PARAMETERS = {"rank": "quantile"}


def _written_aggregate(value: analytics.Aggregate) -> Any:
    name = _AGGREGATE_NAMES.get(type(value))
    if name is None:
        raise _check.fail("aggregate", f"be one of {', '.join(_AGGREGATES)}", type(value).__name__, "ask in SQL")
    given = {_PARAMETERS.get(field.name, field.name): getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Marginal):
        given["categories"] = dict(value.categories)
    return {"$aggregate": [name, {name: written(argument) for name, argument in given.items()}]}


# --- both directions


def written(value: Any) -> Any:
    """A value of the Python interface as JSON holds it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise _check.fail("value", "be finite", value, "JSON has no infinities")
            return value
        case dt.datetime():
            return {"$time": value.isoformat()}
        case dt.date():
            return {"$date": value.isoformat()}
        case Expression():
            return _written_expression(value)
        case analytics.Aggregate():
            return _written_aggregate(value)
        case analytics.Discover():
            return {"$discover": {"share": value.share, "least": value.least}}
        case Mapping():
            if any(not isinstance(name, str) or name.startswith("$") for name in value):
                raise _check.fail("names", "be texts that do not start with $", list(value), "rename the column")
            return {name: written(item) for name, item in value.items()}
        case list() | tuple():
            return [written(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        return written(value.tolist())
    raise _check.fail("value", "be one that can be sent", type(value).__name__, "use text, numbers, dates and lists")


def read(value: Any, depth: int = 0) -> Any:
    """The value of the Python interface that JSON stands for; lists become tuples."""
    if depth > MOST_NESTED:
        raise InvalidArgument(f"a question must be nested at most {MOST_NESTED} levels deep: use isin() for long lists")
    if isinstance(value, list):
        if len(value) > MOST_VALUES:
            raise _check.fail("list", f"have at most {MOST_VALUES} values", len(value), "ask about fewer at a time")
        return tuple(read(item, depth + 1) for item in value)
    if not isinstance(value, dict):
        return value
    tags = [name for name in value if name.startswith("$")]
    if not tags:
        return {name: read(item, depth + 1) for name, item in value.items()}
    if len(value) != 1 or tags[0] not in _READERS:
        rule = f"have one name that starts with $, of {', '.join(_READERS)}"
        raise _check.fail("object", rule, sorted(value)[:5], "other names must not start with $")
    return _READERS[tags[0]](value[tags[0]], depth + 1)


def _read_column(name: Any, depth: int) -> Expression:
    return Column(_text("$column", name))


def _read_call(value: Any, depth: int) -> Expression:
    name, *arguments = _listed("$call", value)
    function = _CALLS.get(_text("$call", name))
    if function is None:
        raise _check.fail("$call", "name a function on the list", name, ", ".join(_CALLS))
    expression: Expression = _called("$call", name, function, *(read(argument, depth) for argument in arguments))
    return expression


def _read_aggregate(value: Any, depth: int) -> analytics.Aggregate:
    name, *options = _listed("$aggregate", value)
    listed = _AGGREGATES.get(_text("$aggregate", name))
    if listed is None:
        raise _check.fail("$aggregate", f"be one of {', '.join(_AGGREGATES)}", name, "or ask in SQL")
    given = read(options[0], depth) if options else {}
    if len(options) > 1 or not isinstance(given, dict):
        raise _check.fail("$aggregate", "be a name and an object", name, 'such as ["mean", {"column": "hours"}]')
    aggregate: analytics.Aggregate = _called("$aggregate", name, listed[1], **given)
    return aggregate


def _read_discover(value: Any, depth: int) -> analytics.Discover:
    if not isinstance(value, dict):
        raise _check.fail("$discover", "be an object", type(value).__name__, 'such as {"least": 5}')
    discover: analytics.Discover = _called("$discover", "discover", analytics.discover, **value)
    return discover


def _read_date(value: Any, depth: int) -> dt.date:
    try:
        return dt.date.fromisoformat(_text("$date", value))
    except ValueError:
        raise _check.fail("$date", "be a date", value, "such as 2024-12-31") from None


def _read_time(value: Any, depth: int) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(_text("$time", value))
    except ValueError:
        raise _check.fail("$time", "be a time", value, "such as 2024-12-31T08:00:00") from None


_READERS: dict[str, Callable[[Any, int], Any]] = {
    "$column": _read_column,
    "$call": _read_call,
    "$aggregate": _read_aggregate,
    "$date": _read_date,
    "$time": _read_time,
    "$discover": _read_discover,
}


def _called(tag: str, name: Any, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function of the list. A wrong number or kind of arguments is the client's mistake."""
    try:
        return function(*arguments, **options)
    except (TypeError, AttributeError, OverflowError):
        problem = str(name)
    raise _check.fail(tag, "have the arguments that the function takes", problem, "see the reference of analytics")


def _text(tag: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _check.fail(tag, "hold a text", type(value).__name__, "see the typed form of questions")
    return value


def _listed(tag: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _check.fail(tag, "hold a list that starts with a name", type(value).__name__, "see the typed form")
    return value
