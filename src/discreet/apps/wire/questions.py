"""A question as JSON: in SQL, or as calls of the methods of a private table; and what may be spent on it.

`{"sql": "SELECT sex, COUNT(*) FROM people GROUP BY sex", "keys": {"sex": ["Female", "Male"]}, "epsilon": 0.1}`, or
`{"calls": [["group_by", ["sex"], {"keys": ["Female", "Male"]}], ["count"]], "epsilon": 0.1}`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from discreet import _check
from discreet.analytics import Answer, Groups, Private, Public
from discreet.apps.wire.values import MOST_NESTED, MOST_VALUES, read
from discreet.codec import canonical
from discreet.errors import InvalidArgument

#: Methods of a private table that give another one.
STEPS = ("where", "select", "mutate", "bin", "per_person", "where_person")
#: Methods of a table, or of its groups, that ask for numbers.
ASKS = (
    "aggregate", "count", "count_distinct", "count_values", "sum", "mean", "variance", "std", "covariance",
    "correlation", "quantile", "median", "min", "max", "top_k", "find_bounds", "histogram", "marginal",
    "rows_per_person",
)  # fmt: skip
#: The most calls of one question.
_MOST_CALLS = 100
#: The most parts of a question's expressions: functions, compared values, and words of SQL. Compiling takes time for
#: each, which cannot be interrupted.
MOST_PARTS = 2000
#: The most aggregates of one question: the time of planning grows with their square, and cannot be interrupted.
MOST_AGGREGATES = 100
#: The most numbers that the engine may return for one question: groups times levels of a quantile.
MOST_CELLS = 2_000_000


@dataclass(frozen=True)
class Spending:
    """What may be spent on a question, as `Answer.release` takes it."""

    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    noise: str = "auto"
    nonnegative: bool = False
    integer: bool = False
    total: bool | float = False

    def planned(self) -> dict[str, Any]:
        """The arguments that `Answer.preview` and `Answer.event` take as well."""
        return {name: getattr(self, name) for name in ("epsilon", "delta", "rho", "noise", "total")}


@dataclass(frozen=True)
class Asked:
    """A question from outside: its checked JSON, what is asked, and what may be spent."""

    body: Mapping[str, Any]
    spending: Spending
    purpose: str | None
    error_target: Any = None
    rows: int = 1000

    @classmethod
    def of(cls, body: Any) -> Asked:
        """The question of parsed JSON; a name that is not known is refused, because it may be a slip of the pen."""
        if not isinstance(body, dict):
            raise _check.fail("body", "be a JSON object", type(body).__name__, 'such as {"sql": "…", "epsilon": 0.1}')
        spending = tuple(field.name for field in fields(Spending))
        accepted = ("sql", "keys", "calls", *spending, "purpose", "error_target", "rows")
        if unknown := [name for name in body if name not in accepted]:
            raise _check.fail("body", f"have the names {', '.join(accepted)}", unknown[:5], "leave the others out")
        _check.exactly_one(sql=body.get("sql"), calls=body.get("calls"))
        for name, kinds, words in _KINDS:
            value = body.get(name)
            if value is not None and (not isinstance(value, kinds) or isinstance(value, bool) > (bool in kinds)):
                raise _check.fail(name, f"be {words}", type(value).__name__, "see the page of the server's calls")
        _check_parts(body)
        given = {name: body[name] for name in spending if body.get(name) is not None}
        return cls(
            body,
            Spending(**given),
            body.get("purpose"),
            body.get("error_target"),
            _check.integer("rows", body.get("rows", 1000), "it is a guess of how many rows a group has"),
        )

    def digest_text(self) -> str:
        """A text that is the same for the same question with the same spending, and no other."""
        asked = {name: value for name, value in self.body.items() if value is not None}
        return canonical(_exact(asked))

    def answer(self, table: Private, tables: Mapping[str, Private | Public]) -> Answer:
        """The answer to preview or to release. Looks at no row.

        `tables` are those that SQL may read by name. If the table itself is one of them, FROM refuses any other name.
        """
        keys = read(self.body.get("keys"))
        _check_combinations(keys)
        if "sql" in self.body and self.body["sql"] is not None:
            answer = table.plan(self.body["sql"], keys=keys, tables=tables)
        else:
            if keys is not None:
                raise _check.fail("keys", "be given in group_by", "keys beside calls", "move them into the call")
            answer = _called(table, self.body["calls"])
        _check_size(answer)
        return answer


_NUMBER = (int, float)
_KINDS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("sql", (str,), "a text"),
    ("calls", (list,), "a list of calls"),
    ("epsilon", _NUMBER, "a number"),
    ("delta", _NUMBER, "a number"),
    ("rho", _NUMBER, "a number"),
    ("noise", (str,), "a text"),
    ("nonnegative", (bool,), "true or false"),
    ("integer", (bool,), "true or false"),
    ("total", (bool, int, float), "true, false or a share"),
    ("purpose", (str,), "a text"),
    ("error_target", (int, float, dict), "a number, or numbers by column"),
    ("rows", (int,), "a whole number"),
)


def _called(table: Private, calls: list[Any]) -> Answer:
    """Apply the calls to a table, one after another; the last one asks."""
    if not 0 < len(calls) <= _MOST_CALLS:
        raise _check.fail("calls", f"be between 1 and {_MOST_CALLS}", len(calls), 'such as [["count"]]')
    state: Private | Groups | Answer = table
    for call in calls:
        name, arguments, options = _parsed(call)
        allowed = (*STEPS, "group_by", *ASKS) if isinstance(state, Private) else ASKS
        if isinstance(state, Answer) or name not in allowed:
            remedy = "the last call asks" if isinstance(state, Answer) else f"one of {', '.join(allowed)}"
            raise _check.fail("calls", "name methods that follow each other", name, remedy)
        _check_combinations(options.get("keys"))
        _check_combinations(options.get("categories"))
        try:
            state = getattr(state, name)(*arguments, **options)
        except (TypeError, AttributeError, OverflowError):
            wrong = True  # the message of Python's own error is not kept: it may quote more than the call
        else:
            continue
        if wrong:
            raise _check.fail("calls", "have the arguments that the method takes", name, "see the reference")
    if not isinstance(state, Answer):
        raise _check.fail("calls", "end with a question", calls[-1][:1], f"one of {', '.join(ASKS)}")
    return state


def _parsed(call: Any) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    match call:
        case [str(name)]:
            return name, (), {}
        case [str(name), list(arguments)]:
            return name, read(arguments), {}
        case [str(name), list(arguments), dict(options)]:
            return name, read(arguments), {str(key): read(value) for key, value in options.items()}
    remedy = 'such as ["mean", ["hours"], {"bounds": [0, 100]}]'
    raise _check.fail("calls", "be lists of a name, arguments and options", type(call).__name__, remedy)


def _check_parts(body: Mapping[str, Any]) -> None:
    """Refuse expressions that take long to compile."""
    parts = len(re.findall(r"\w+|[^\w\s]", body.get("sql") or ""))
    waiting: list[tuple[Any, bool]] = [(body.get("calls"), False)]
    aggregates = 0
    while waiting:  # keys and categories are outside of expressions, and may be many
        value, inside = waiting.pop()
        if isinstance(value, dict):
            inside = inside or "$call" in value
            aggregates += "$aggregate" in value
            waiting += [(item, inside) for item in value.values()]
        elif isinstance(value, list):
            waiting += [(item, inside) for item in value]
        parts += inside
    _check_aggregates(aggregates)
    if parts > MOST_PARTS:
        remedy = "ask about fewer values at a time, or group by them"
        raise _check.fail("question", f"have expressions of at most {MOST_PARTS} parts", parts, remedy)


def _check_aggregates(count: int) -> None:
    """Refuse more aggregates than can be planned in a short time."""
    if count > MOST_AGGREGATES:
        raise _check.fail("question", f"have at most {MOST_AGGREGATES} aggregates", count, "ask in several parts")


def _check_combinations(keys: Any) -> None:
    """Refuse more groups than a server may be asked for, before their combinations take memory."""
    if isinstance(keys, Mapping):
        sizes = [len(values) if isinstance(values, tuple) else 1 for values in keys.values()]
        if math.prod(sizes) > MOST_VALUES:
            raise _check.fail("keys", f"make at most {MOST_VALUES} groups", math.prod(sizes), "ask about fewer columns")


def _check_size(answer: Answer) -> None:
    """Refuse a question whose answer takes more memory than a server may be asked for."""
    _check_aggregates(answer.aggregates)
    groups, levels = answer.size
    if groups * levels > MOST_CELLS:
        remedy = "ask for fewer groups, or a quantile with fewer levels"
        raise _check.fail("question", f"need at most {MOST_CELLS} numbers of the engine", groups * levels, remedy)


def _exact(value: Any) -> Any:
    """JSON with its floats as texts: the canonical form has none, because they have several spellings."""
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, dict):
        return {name: _exact(item) for name, item in value.items()}
    return [_exact(item) for item in value] if isinstance(value, list) else value


def _check_parsed(value: Any) -> None:
    """Refuse half of a surrogate pair, which no store can keep, and what others would have to follow too deeply."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        for text in (
            item for container in level for item in (container if isinstance(container, dict) else (container,))
        ):
            if isinstance(text, str):
                text.encode()
        inside = [item for item in level if isinstance(item, dict | list)]
        level = [
            item for container in inside for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return
    raise InvalidArgument(f"body must be nested at most {MOST_NESTED} levels deep: use isin() for long lists")


def checked_json(text: bytes) -> Any:
    """JSON from outside: valid UTF-8, no repeated names, no NaN, no infinities, not nested too deeply."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise InvalidArgument("body must have each name once in an object: two values of one name contradict")
        return dict(pairs)

    def refuse(constant: str) -> Any:
        raise InvalidArgument(f"body must have finite numbers, got {constant}: JSON has no others")

    def finite(number: str) -> float:
        value = float(number)
        return value if math.isfinite(value) else refuse(number[:20])

    try:
        value = json.loads(text.decode(), object_pairs_hook=once, parse_constant=refuse, parse_float=finite)
        _check_parsed(value)
        return value
    except InvalidArgument:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"body must be JSON in UTF-8, got text that is not ({type(error).__name__})") from None
