"""Events, budgets and neighbors as text, so that a ledger read years later means what was run.

Every kind of event has a tag in a fixed table, and every field a kind of number. Decoding looks tags up in that table
and imports nothing that the text names. Each value has exactly one text: canonical JSON with sorted keys, where a real
number that a float holds is written by `float.hex` and every other rational as "n/d". Equal events have equal texts,
and no digit is lost.

>>> from fractions import Fraction
>>> encode(ev.Repeated(ev.Gaussian(2.0), 3))
'{"count":3,"event":{"noise_multiplier":"0x1.0000000000000p+1","tag":"gaussian"},"tag":"repeated"}'
>>> decode(encode(ev.Exponential(Fraction(1, 3))))
Exponential(epsilon=Fraction(1, 3))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from discreet import _check
from discreet import events as ev
from discreet.errors import InvalidArgument, NotALedger
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import Client, Neighbors, Person, Relation, Rows, Unit
from discreet.numeric.texts import (
    ratio_value,
    rational_text,
    real_text,
    real_value,
    signed_text,
    signed_value,
    unreadable,
    whole_value,
)

# How deep events may nest. Real plans have a few levels; the limit keeps a hostile text from exhausting the stack.
_DEEPEST = 60
# How many events keep their text. Accounts charge the same few events again and again; without this, verifying their
# history takes about a fifth longer.
_TEXTS_KEPT = 4096


def canonical(value: object) -> str:
    """JSON with one text for one value: sorted keys, no spaces, ASCII, no floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


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
            raise unreadable("a list", value)
        return tuple(field.read(item, depth) for item in value)

    return _Field(lambda value, depth: [field.write(item, depth) for item in value], read)


def _write_event(event: Event, depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise _check.fail("event", f"be nested at most {_DEEPEST} deep", "a deeper one", "compose it in fewer levels")
    tag = _TAG_OF.get(type(event))
    if tag is None:
        raise InvalidArgument(f"event must be one of discreet.events, got {type(event)!r}: the codec has no tag for it")
    return {"tag": tag, **{name: f.write(getattr(event, name), depth + 1) for name, f in _EVENTS[tag][1].items()}}


def _read_event(value: Any, depth: int) -> Event:
    if depth > _DEEPEST:
        raise unreadable("an event of fewer levels", "a deeper one")
    kind, fields = _EVENTS[_tag(value, _EVENTS, "an event")]
    event: Event = kind(**_fields(value, fields, depth))
    return event


def _tag(value: Any, table: dict[str, Any], what: str) -> str:
    tag = value.get("tag") if isinstance(value, dict) else None
    if not isinstance(tag, str) or tag not in table:
        raise unreadable(f"the tag of {what}", tag)
    return tag


def _fields(value: dict[str, Any], fields: dict[str, _Field], depth: int) -> dict[str, Any]:
    if set(value) != {"tag", *fields}:
        raise unreadable(f"the fields {sorted(fields)}", sorted(value))
    return {name: field.read(value[name], depth + 1) for name, field in fields.items()}


_REAL = _Field(lambda value, _: real_text(value), lambda value, _: real_value(value))
_SIGNED = _Field(lambda value, _: signed_text(value), lambda value, _: signed_value(value))
_RATIONAL = _Field(lambda value, _: rational_text(value), lambda value, _: ratio_value(value))
_WHOLE = _Field(lambda value, _: int(value), lambda value, _: whole_value(value))
_EVENT = _Field(_write_event, _read_event)
_PARTS = _several(_EVENT)

# Laws of a number of trials. Their tags never change either.
_TRIALS: dict[str, tuple[type[Any], dict[str, _Field]]] = {
    "negative-binomial": (ev.NegativeBinomialTrials, {"shape": _SIGNED, "stop": _REAL}),
    "poisson": (ev.PoissonTrials, {"mean": _REAL}),
    "binomial": (ev.BinomialTrials, {"most": _WHOLE, "probability": _REAL}),
}
_TAG_OF_TRIALS: dict[type[Any], str] = {kind: tag for tag, (kind, _) in _TRIALS.items()}


def _write_trials(trials: ev.Trials, depth: int) -> dict[str, Any]:
    tag = _TAG_OF_TRIALS[type(trials)]
    return {"tag": tag, **{name: f.write(getattr(trials, name), depth) for name, f in _TRIALS[tag][1].items()}}


def _read_trials(value: Any, depth: int) -> Any:
    kind, fields = _TRIALS[_tag(value, _TRIALS, "a law of trials")]
    return kind(**_fields(value, fields, depth))


_LAW = _Field(_write_trials, _read_trials)

_SHARED_NOISE = {"sensitivity_squared": _WHOLE, "variance": _RATIONAL}
_SHARED_NOISE |= {"parties": _WHOLE, "dropouts": _WHOLE, "coordinates": _WHOLE}

# A tag never changes its meaning and is never reused: a new meaning is a new event with a new tag.
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
    "distributed-discrete-gaussian": (ev.DistributedDiscreteGaussian, _SHARED_NOISE),
    "skellam": (ev.Skellam, _SHARED_NOISE),
    "exponential": (ev.Exponential, {"epsilon": _RATIONAL}),
    "declared-exponentials": (ev.DeclaredExponentials, {"epsilon": _RATIONAL, "count": _WHOLE}),
    "noisy-max": (ev.NoisyMax, {"epsilon": _RATIONAL}),
    "sparse-vector": (ev.SparseVector, {"epsilon": _RATIONAL, "answers": _WHOLE}),
    "randomized-response": (ev.RandomizedResponse, {"epsilon": _RATIONAL, "categories": _WHOLE}),
    "local-report": (ev.LocalReport, {"epsilon": _RATIONAL, "informative": _REAL}),
    "gaussian-votes": (ev.GaussianVotes, {"noise": _REAL}),
    "gaussian-vote-check": (ev.GaussianVoteCheck, {"noise": _REAL}),
    "laplace-votes": (ev.LaplaceVotes, {"noise": _REAL}),
    "perturbed-objective": (ev.PerturbedObjective, {"noise_multiplier": _REAL, "curvature": _REAL}),
    "claimed": (ev.Claimed, {"epsilon": _REAL, "delta": _REAL}),
    "may-fail": (ev.MayFail, {"probability": _REAL, "event": _EVENT}),
    "non-private": (ev.NonPrivate, {}),
    "insecure": (ev.Insecure, {"event": _EVENT}),
    "poisson-sampled": (ev.PoissonSampled, {"rate": _REAL, "event": _EVENT}),
    "sampled-without-replacement": (
        ev.SampledWithoutReplacement,
        {"size": _WHOLE, "population": _WHOLE, "event": _EVENT},
    ),
    "shuffled": (ev.Shuffled, {"reports": _WHOLE, "event": _EVENT}),
    "shuffled-epoch": (ev.ShuffledEpoch, {"batch_size": _WHOLE, "examples": _WHOLE, "event": _EVENT}),
    "selected-from-repeats": (ev.SelectedFromRepeats, {"event": _EVENT, "trials": _LAW}),
    "truncated-poisson-sampled": (
        ev.TruncatedPoissonSampled,
        {"rate": _REAL, "largest": _WHOLE, "units": _WHOLE, "event": _EVENT},
    ),
    "randomly-allocated": (ev.RandomlyAllocated, {"steps": _WHOLE, "selected": _WHOLE, "event": _EVENT}),
    "repeated": (ev.Repeated, {"event": _EVENT, "count": _WHOLE}),
    "composed": (ev.Composed, {"events": _PARTS}),
    "parallel": (ev.Parallel, {"events": _PARTS}),
    "group": (ev.Group, {"event": _EVENT, "people": _WHOLE}),
}
_PATTERN = {"steps": _WHOLE, "participations": _WHOLE, "separation": _WHOLE}
_EVENTS |= {
    "toeplitz-noise": (
        ev.ToeplitzNoise,
        {"noise_multiplier": _REAL, "coefficients": _several(_SIGNED), **_PATTERN},
    ),
    "square-root-noise": (ev.SquareRootNoise, {"noise_multiplier": _REAL, "bands": _WHOLE, **_PATTERN}),
    "buffered-noise": (
        ev.BufferedNoise,
        {"noise_multiplier": _REAL, "scales": _several(_REAL), "decays": _several(_REAL), **_PATTERN},
    ),
    "tree-noise": (ev.TreeNoise, {"noise_multiplier": _REAL, "branching": _WHOLE, **_PATTERN}),
    "cyclic-sampled": (ev.CyclicSampled, {"rate": _REAL, "groups": _WHOLE, "event": _EVENT}),
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
    """The event of plain JSON values; anything that the table does not list is refused."""
    try:
        event = _read_event(value, 0)
    except InvalidArgument as error:
        raise NotALedger(f"a stored event breaks a rule of its own kind: {error}") from error
    if encode_tree(event) != value:
        raise unreadable("an event in canonical form", value)
    return event


@lru_cache(maxsize=_TEXTS_KEPT)
def encode(event: Event) -> str:
    """`event` as canonical text. Equal events have equal texts, so it can be cached."""
    try:
        return canonical(encode_tree(event))
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        # Python refuses to write integers beyond its own limit (sys.set_int_max_str_digits).
        raise InvalidArgument(f"event must hold numbers of at most 4300 digits: {error}") from error


def decode(text: str) -> Event:
    """The event of its canonical text; any other text is refused with `NotALedger`."""
    event = decode_tree(parse(text))
    if encode(event) != text:
        raise unreadable("canonical JSON", text)
    return event


def from_numbers(value: Any, name: str = "event") -> Any:
    """An event's JSON in which people wrote plain numbers, in the form that `decode_tree` reads.

    `name` is what an error calls the event.

    >>> decode_tree(from_numbers({"tag": "gaussian", "noise_multiplier": 2}))
    Gaussian(noise_multiplier=2.0)
    """
    if not isinstance(value, dict):
        return value
    tag = value.get("tag")
    tables = {**_EVENTS, **_TRIALS}
    fields = tables[tag][1] if isinstance(tag, str) and tag in tables else {}
    return {key: _from_number(item, fields.get(key), name) for key, item in value.items()}


def _from_number(item: Any, field: _Field | None, name: str) -> Any:
    if isinstance(item, dict):
        return from_numbers(item, name)
    if isinstance(item, list):
        return [from_numbers(each, name) for each in item]
    if field in (_REAL, _RATIONAL) and isinstance(item, int | float) and not isinstance(item, bool):
        _check.real(name, item, "events hold finite numbers")
        return field.write(item, 0)
    return item


def parse(text: str) -> Any:
    """JSON without floats, repeated names or anything that is not JSON."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise unreadable("JSON", text) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise unreadable("each name once", [name for name, _ in pairs])
    return members


def _no_float(text: str) -> object:
    raise unreadable("no floating-point numbers", text)


# One for all texts: making a decoder takes longer than reading a row with it.
_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_float=_no_float, parse_constant=_no_float)


# --- budgets and neighbors


def encode_budget(budget: Guarantee) -> dict[str, Any]:
    """A budget as plain JSON values, without the neighbors that it protects."""
    tag = _TAG_OF_GUARANTEE.get(type(budget))
    if tag is None:
        *names, last = (kind.__name__ for kind in _TAG_OF_GUARANTEE)
        raise _check.fail("budget", "be a guarantee", budget, f"use {', '.join(names)} or {last}")
    return {"tag": tag, **{name: f.write(getattr(budget, name), 0) for name, f in _GUARANTEES[tag][1].items()}}


def decode_budget(value: Any) -> Guarantee:
    """The budget of plain JSON values."""
    kind, fields = _GUARANTEES[_tag(value, _GUARANTEES, "a budget")]
    try:
        budget: Guarantee = kind(**_fields(value, fields, 0))
    except InvalidArgument as error:
        raise NotALedger(f"a stored budget breaks a rule of its own kind: {error}") from error
    return budget


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
    elif isinstance(unit, Client):
        shown = {"tag": "client", "per_person": unit.per_person} | ({"shared": True} if unit.shared else {})
    else:
        shown = {"tag": "rows"}
    return {"relation": neighbors.relation.value, "unit": shown}


def neighbors_text(neighbors: Neighbors) -> str:
    """A unit and a relation as canonical text."""
    return canonical(encode_neighbors(neighbors))


def decode_neighbors(value: Any) -> Neighbors:
    """The unit and the relation of plain JSON values."""
    unit: Unit | Client
    match value:
        case {"relation": str(relation), "unit": {"tag": "rows", **nothing}, **more} if not nothing and not more:
            unit = Rows()
        case {
            "relation": str(relation),
            "unit": {"tag": "person", "column": column, "max_rows": rows, "max_groups": groups, **nothing},
            **more,
        } if not nothing and not more:
            unit = Person(column, rows, groups)
        case {
            "relation": str(relation),
            "unit": {"tag": "client", "per_person": per_person, **shared},
            **more,
        } if shared in ({}, {"shared": True}) and not more:
            unit = Client(per_person, bool(shared))
        case _:
            raise unreadable("a unit and a relation", value)
    if relation not in {member.value for member in Relation}:
        raise unreadable("a relation", relation)
    return Neighbors(Relation(relation), unit)
