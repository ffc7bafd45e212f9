"""Events, budgets and neighbors as text, so that a ledger read years later means what was run.

Every kind has a tag in a fixed table, and every field a kind of number. Decoding looks names up in that table alone and
imports nothing that the text names. One value has one text: canonical JSON with sorted keys, real numbers that a float
holds as `float.hex`, all other rationals as "n/d", so that equal events have equal codes and none loses a digit.

>>> encode(ev.Repeated(ev.Gaussian(2.0), 3))
'{"count":3,"event":{"noise_multiplier":"0x1.0000000000000p+1","tag":"gaussian"},"tag":"repeated"}'
>>> decode(encode(ev.Exponential(Fraction(1, 3))))
Exponential(epsilon=Fraction(1, 3))
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from discreet import _check
from discreet import events as ev
from discreet.errors import InvalidArgument, NotALedger
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import Neighbors, Person, Relation, Rows, Unit

_DEEPEST = 60
_RATIO = re.compile(r"(0|-?[1-9][0-9]*)/([1-9][0-9]*)")
_DYADIC = re.compile(r"(-?[1-9a-f][0-9a-f]*)/2\^([1-9][0-9]{0,5})")
_LONGEST = 20_000
_HEX = re.compile(r"0x[01]\.[0-9a-f]{13}p[+-](0|[1-9][0-9]*)|0x0\.0p\+0|inf")


def canonical(value: object) -> str:
    """JSON with one text for one value: sorted keys, no spaces, ASCII, no floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


# --- numbers


def ratio_text(value: Fraction) -> str:
    """An exact rational as "n/d" in lowest terms."""
    return f"{value.numerator}/{value.denominator}"


def ratio_value(text: object) -> Fraction:
    """The rational of its text; anything but the canonical text is refused."""
    found = _RATIO.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise _bad("a rational number", text)
    value = Fraction(int(found[1]), int(found[2]))
    if ratio_text(value) != text:
        raise _bad("a rational number in lowest terms", text)
    return value


def sum_text(value: Fraction) -> str:
    """A price or a total: as `ratio_text`, but short where the denominator is a power of two, as sums of floats have.

    >>> sum_text(Fraction(-5, 8)), sum_text(Fraction(1, 3))
    ('-5/2^3', '1/3')
    """
    n, d = value.as_integer_ratio()
    if d == 1 or d & (d - 1):
        return f"{n}/{d}"
    return f"{n:x}/2^{d.bit_length() - 1}"


def sum_value(text: object) -> Fraction:
    """The number of its `sum_text`; anything but that text is refused."""
    found = _DYADIC.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        value = ratio_value(text)
    elif int(found[2]) > _LONGEST:
        raise _bad("a price of sensible length", text)
    else:
        value = Fraction(int(found[1], 16), 1 << int(found[2]))
    if sum_text(value) != text:
        raise _bad("a price in its one form", text)
    return value


def _real_text(value: Any) -> str:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and math.isinf(number) and number > 0:
        return "inf"
    exact = Fraction(number)
    try:
        near = float(exact)
    except OverflowError:
        return ratio_text(exact)
    return (near + 0.0).hex() if Fraction(near) == exact else ratio_text(exact)


def _real_value(text: object) -> float | Fraction:
    if isinstance(text, str) and _HEX.fullmatch(text):
        return float.fromhex(text)
    return ratio_value(text)


def _rational_text(value: Any) -> str:
    return ratio_text(Fraction(value))


def _whole_value(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad("an integer", value)
    return value


def _bad(expected: str, found: object) -> NotALedger:
    shown = repr(found)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return NotALedger(f"a stored code must hold {expected}, found {shown}: the ledger was edited, or is from elsewhere")


# --- fields


class _Field:
    """How one field is written and read."""

    def __init__(self, write: Callable[[Any, int], Any], read: Callable[[Any, int], Any]) -> None:
        self.write = write
        self.read = read


def _optional(field: _Field) -> _Field:
    return _Field(
        lambda value, depth: None if value is None else field.write(value, depth),
        lambda value, depth: None if value is None else field.read(value, depth),
    )


def _several(field: _Field) -> _Field:
    def read(value: Any, depth: int) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _bad("a list", value)
        return tuple(field.read(part, depth) for part in value)

    return _Field(lambda value, depth: [field.write(part, depth) for part in value], read)


def _write_event(event: Event, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise _check.fail("event", f"be nested at most {_DEEPEST} deep", "a deeper one", "compose it in fewer levels")
    tag = _TAG_OF.get(type(event))
    if tag is None:
        raise InvalidArgument(f"event must be one of discreet.events, got {type(event)!r}: the codec has no tag for it")
    return {"tag": tag, **{name: f.write(getattr(event, name), depth + 1) for name, f in _EVENTS[tag][1].items()}}


def _read_event(value: Any, depth: int) -> Event:
    if depth > _DEEPEST:
        raise _bad("an event of fewer levels", "a deeper one")
    kind, fields = _EVENTS[_tag(value, _EVENTS, "an event")]
    made: Event = kind(**_fields(value, fields, depth))
    return made


def _tag(value: Any, table: dict[str, Any], what: str) -> str:
    tag = value.get("tag") if isinstance(value, dict) else None
    if not isinstance(tag, str) or tag not in table:
        raise _bad(f"the tag of {what}", tag)
    return tag


def _fields(value: dict[str, Any], fields: dict[str, _Field], depth: int) -> dict[str, Any]:
    if set(value) != {"tag", *fields}:
        raise _bad(f"the fields {sorted(fields)}", sorted(value))
    return {name: field.read(value[name], depth + 1) for name, field in fields.items()}


_REAL = _Field(lambda value, _: _real_text(value), lambda value, _: _real_value(value))
_RATIONAL = _Field(lambda value, _: _rational_text(value), lambda value, _: ratio_value(value))
_WHOLE = _Field(lambda value, _: int(value), lambda value, _: _whole_value(value))
_EVENT = _Field(_write_event, _read_event)
_PARTS = _several(_EVENT)

# A tag never changes its meaning and is never used again: a new meaning is a new event with a new tag.
_EVENTS: dict[str, tuple[type[Event], dict[str, _Field]]] = {
    "gaussian": (ev.Gaussian, {"noise_multiplier": _REAL}),
    "laplace": (ev.Laplace, {"noise_multiplier": _REAL}),
    "l2-laplace": (
        ev.L2Laplace,
        {
            "noise_multiplier": _REAL,
            "l1_noise_multiplier": _optional(_REAL),
            "shift": _optional(_several(_REAL)),
        },
    ),
    "discrete-gaussian": (
        ev.DiscreteGaussian,
        {"sensitivity_squared": _WHOLE, "variance": _RATIONAL, "coordinates": _WHOLE},
    ),
    "discrete-laplace": (ev.DiscreteLaplace, {"sensitivity": _WHOLE, "scale": _RATIONAL}),
    "exponential": (ev.Exponential, {"epsilon": _RATIONAL}),
    "noisy-max": (ev.NoisyMax, {"epsilon": _RATIONAL}),
    "sparse-vector": (ev.SparseVector, {"epsilon": _RATIONAL, "answers": _WHOLE}),
    "randomized-response": (ev.RandomizedResponse, {"epsilon": _RATIONAL, "categories": _WHOLE}),
    "claimed": (ev.Claimed, {"epsilon": _REAL, "delta": _REAL}),
    "non-private": (ev.NonPrivate, {}),
    "insecure": (ev.Insecure, {"event": _EVENT}),
    "poisson-sampled": (ev.PoissonSampled, {"rate": _REAL, "event": _EVENT}),
    "sampled-without-replacement": (
        ev.SampledWithoutReplacement,
        {"size": _WHOLE, "population": _WHOLE, "event": _EVENT},
    ),
    "shuffled": (ev.Shuffled, {"reports": _WHOLE, "event": _EVENT}),
    "shuffled-epoch": (ev.ShuffledEpoch, {"batch_size": _WHOLE, "examples": _WHOLE, "event": _EVENT}),
    "repeated": (ev.Repeated, {"event": _EVENT, "count": _WHOLE}),
    "composed": (ev.Composed, {"events": _PARTS}),
    "parallel": (ev.Parallel, {"events": _PARTS}),
    "group": (ev.Group, {"event": _EVENT, "people": _WHOLE}),
}
_TAG_OF: dict[type[Event], str] = {kind: tag for tag, (kind, _) in _EVENTS.items()}

_GUARANTEES: dict[str, tuple[type[Guarantee], dict[str, _Field]]] = {
    "pure": (PureDP, {"epsilon": _REAL}),
    "approximate": (ApproxDP, {"epsilon": _REAL, "delta": _REAL}),
    "zcdp": (ZCDP, {"rho": _REAL}),
    "rdp": (RDP, {"orders": _several(_REAL), "epsilons": _several(_REAL)}),
    "gdp": (GDP, {"mu": _REAL}),
}
_TAG_OF_GUARANTEE: dict[type[Guarantee], str] = {kind: tag for tag, (kind, _) in _GUARANTEES.items()}


# --- events


def encode_tree(event: Event) -> dict[str, Any]:
    """`event` as plain JSON values."""
    if not isinstance(event, Event):
        raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
    return _write_event(event, 0)


def decode_tree(value: object) -> Event:
    """The event of plain JSON values; what no table lists is refused."""
    try:
        event = _read_event(value, 0)
    except InvalidArgument as error:
        raise NotALedger(f"a stored event breaks a rule of its own kind: {error}") from error
    if encode_tree(event) != value:
        raise _bad("an event in its one canonical form", value)
    return event


@lru_cache(maxsize=4096)
def encode(event: Event) -> str:
    """`event` as canonical text. Equal events have equal texts, so it may be remembered."""
    try:
        return canonical(encode_tree(event))
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"event must hold numbers of at most 4300 digits: {error}") from error


def decode(text: str) -> Event:
    """The event of its canonical text; any other text is refused with `NotALedger`."""
    event = decode_tree(parse(text))
    if encode(event) != text:
        raise _bad("canonical JSON", text)
    return event


def parse(text: str) -> Any:
    """JSON without floats, repeated names or anything that is not JSON."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise _bad("each name once", [name for name, _ in pairs])
        return found

    try:
        return json.loads(text, object_pairs_hook=once, parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError) as error:
        raise _bad("JSON", text) from error


def _no_float(text: str) -> object:
    raise _bad("no floating-point numbers", text)


# --- budgets and neighbors


def encode_budget(budget: Guarantee) -> dict[str, Any]:
    """A budget as plain JSON values, without the neighbors that it protects."""
    tag = _TAG_OF_GUARANTEE.get(type(budget))
    if tag is None:
        raise _check.fail("budget", "be a guarantee", budget, "use PureDP, ApproxDP, ZCDP, RDP or GDP")
    return {"tag": tag, **{name: f.write(getattr(budget, name), 0) for name, f in _GUARANTEES[tag][1].items()}}


def decode_budget(value: Any) -> Guarantee:
    """The budget of plain JSON values."""
    kind, fields = _GUARANTEES[_tag(value, _GUARANTEES, "a budget")]
    try:
        made: Guarantee = kind(**_fields(value, fields, 0))
    except InvalidArgument as error:
        raise NotALedger(f"a stored budget breaks a rule of its own kind: {error}") from error
    return made


def encode_neighbors(neighbors: Neighbors) -> dict[str, Any]:
    """A unit and a relation as plain JSON values."""
    unit = neighbors.unit
    if isinstance(unit, Person):
        shown: dict[str, Any] = {
            "tag": "person",
            "column": unit.column,
            "max_rows": unit.max_rows,
            "max_groups": unit.max_groups,
        }
    else:
        shown = {"tag": "rows"}
    return {"relation": neighbors.relation.value, "unit": shown}


def neighbors_text(neighbors: Neighbors) -> str:
    """A unit and a relation as canonical text."""
    return canonical(encode_neighbors(neighbors))


def decode_neighbors(value: Any) -> Neighbors:
    """The unit and the relation of plain JSON values."""
    unit: Unit
    match value:
        case {"relation": str(relation), "unit": {"tag": "rows", **nothing}, **more} if not nothing and not more:
            unit = Rows()
        case {
            "relation": str(relation),
            "unit": {"tag": "person", "column": column, "max_rows": rows, "max_groups": groups, **nothing},
            **more,
        } if not nothing and not more:
            unit = Person(column, rows, groups)
        case _:
            raise _bad("a unit and a relation", value)
    if relation not in {known.value for known in Relation}:
        raise _bad("a relation", relation)
    return Neighbors(Relation(relation), unit)
