"""What can be audited, as something to draw outputs from: mechanisms, local randomizers, pipelines, any callable.

White-box access runs a pipeline once on each dataset, keeps what arrives at every mechanism, and draws each mechanism's
noise as often as wanted: it tests the values that reach the noise and the noise itself, not what happens afterwards,
which is post-processing. Black-box access runs the whole target once for each output.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.auditing._replay import Pair
from discreet.auditing.outputs import Encoder
from discreet.bounded import Bounded, Scaled, Scores
from discreet.errors import InvalidArgument
from discreet.events import Composed, Event
from discreet.ledger import Account, Ledger
from discreet.mechanisms import RandomizedResponse, TopK, observation
from discreet.mechanisms.additive import Additive
from discreet.mechanisms.local import FrequencyProtocol, MeanProtocol, UnitVectors
from discreet.mechanisms.observation import Arrival, Lazy
from discreet.mechanisms.selection import Selection
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation

Floats = NDArray[np.float64]
AttackerAccess = Literal["black_box", "white_box"]
#: From a dataset and a number of runs to that many outputs.
Drawing = Callable[[Any, int], Any]


@dataclass(frozen=True, eq=False)
class PairOutputs:
    """Independent outputs on the two datasets of a pair."""

    pair: Pair
    draw: Drawing
    encoder: Encoder
    read: Callable[[Any, Pair], Any]

    def rows(self, side: int, count: int) -> Floats:
        """Outputs on the first (0) or second (1) dataset."""
        outputs = self.draw(self.pair.second if side else self.pair.first, count)
        return self.encoder.rows(self.read(outputs, self.pair))


@dataclass(frozen=True, eq=False)
class AuditTarget:
    """A target that knows how to draw, and what it claims if nobody says."""

    draw: Drawing
    event: Callable[[Any], Event] | None
    relation: Relation = ADD_REMOVE
    #: What is read from outputs; any function of them may be tested, as post-processing.
    read: Callable[[Any, Pair], Any] = lambda outputs, pair: outputs

    def on(self, pair: Pair) -> PairOutputs:
        """The outputs for a pair of datasets."""
        return PairOutputs(pair, self.draw, Encoder(), self.read)


def opened(target: Any, access: AttackerAccess, *, vectorized: bool) -> AuditTarget:
    """The target as something to draw from.

    Args:
        target: a mechanism, a local randomizer, or a callable on a dataset.
        access: "black_box" or "white_box".
        vectorized: the callable takes a dataset and a number, and gives that many outputs.
    """
    refuse_private("target", target)
    _check.one_of("access", access, ("black_box", "white_box"), "white_box records what arrives at mechanisms")
    if isinstance(target, Additive):
        mechanism = target
        return AuditTarget(lambda bounded, count: additive(mechanism, bounded, count), mechanism.event)
    if isinstance(target, Selection):
        selection = target
        return AuditTarget(
            lambda scores, count: [selection.release(scores).value for _ in range(count)],
            lambda scores: selection.event(),
        )
    if isinstance(target, RandomizedResponse):
        response = target
        return AuditTarget(
            lambda answer, count: response.release([answer] * count).value, lambda answer: response.event(), REPLACE_ONE
        )
    if isinstance(target, FrequencyProtocol | MeanProtocol | UnitVectors):
        protocol: _Protocol = target
        return AuditTarget(
            lambda value, count: _reports(protocol, value, count),
            lambda value: protocol.event,
            REPLACE_ONE,
            lambda payloads, pair: _likelihood_ratios(protocol, payloads, pair),
        )
    if not callable(target):
        remedy = "give a mechanism, a local randomizer, a function of a dataset, or an array of scores"
        raise _check.fail("target", "be something that can be run", type(target).__name__, remedy)
    if access == "white_box":
        return _recorded(target)
    if vectorized:
        return AuditTarget(target, None)
    return AuditTarget(lambda data, count: [target(data) for _ in range(count)], None)


class _Protocol(Protocol):
    """A local randomizer."""

    @property
    def event(self) -> Event: ...

    def simulate(self, values: Any) -> Any: ...


def _reports(protocol: _Protocol, value: Any, count: int) -> NDArray[np.uint8]:
    held = np.tile(np.asarray(value), (count, 1)) if np.ndim(value) else [value] * count
    payloads: NDArray[np.uint8] = protocol.simulate(held).payloads
    return payloads


def _likelihood_ratios(protocol: Any, payloads: NDArray[np.uint8], pair: Pair) -> Any:
    """ln of how much likelier each report is from the second value, by the protocol's own formula.

    Reports with a random seed have too many values to count. The formula orders them best if it is right; if it is
    wrong, the event that it names is still an event.
    """
    match protocol:
        case FrequencyProtocol():
            held = [protocol.categories.index(value) for value in (pair.first, pair.second)]
        case MeanProtocol():
            held = [int(protocol.levels([value])[0]) for value in (pair.first, pair.second)]
        case _:
            return payloads
    distinct, inverse = np.unique(payloads, axis=0, return_inverse=True)
    chances = np.array([[protocol.probability(row.tobytes(), index) for index in held] for row in distinct])
    return np.log(np.maximum(chances[:, 1], 1e-300) / np.maximum(chances[:, 0], 1e-300)).round(9)[inverse.ravel()]


def additive(mechanism: Additive, bounded: Bounded, count: int) -> NDArray[Any]:
    """Many releases of one value at once: noise is independent across coordinates, so copies are releases."""
    copies = replace(
        bounded, values=np.tile(np.atleast_1d(bounded.values), count), labels=None, finish=Scaled(bounded.granularity)
    )
    return np.asarray(mechanism.release(copies).value).reshape(count, -1)


class _Arrivals:
    """A watcher that keeps what arrives at mechanisms and lets them release as always."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []

    def through(self, arrival: Arrival, draw: Callable[[], Any]) -> Any:
        self.arrivals.append(arrival)
        return draw()

    def secret(self, draw: Callable[[], int]) -> int:
        return draw()

    def statement(self, text: str) -> None:
        """Nothing: `replay` compares statements."""

    def charge(self, event: Event) -> None:
        """Nothing: `replay` compares charges."""


def _recorded(pipeline: Callable[[Any], Any]) -> AuditTarget:
    """A pipeline that is run once on each dataset; its mechanisms then release again and again."""
    by_dataset: dict[int, tuple[Any, list[Arrival]]] = {}  # with the dataset, so that its id stays its own

    def arrivals(data: Any) -> list[Arrival]:
        if id(data) not in by_dataset:
            watcher = _Arrivals()
            with observation.watched_by(watcher):
                pipeline(data)
            by_dataset[id(data)] = data, [_supported(arrival) for arrival in watcher.arrivals]
        return by_dataset[id(data)][1]

    def draw(data: Any, count: int) -> Any:
        columns = [_again(arrival, count) for arrival in arrivals(data)]
        return np.concatenate(columns, axis=1)

    def event(data: Any) -> Event:
        stated = [arrival.event for arrival in arrivals(data)]
        return stated[0] if len(stated) == 1 else Composed(tuple(stated))

    return AuditTarget(draw, event)


def _supported(arrival: Arrival) -> Arrival:
    supported = isinstance(arrival.mechanism, Additive | Selection) and not isinstance(arrival.value, Lazy)
    if not supported or not isinstance(arrival.value, Bounded | Scores):
        raise _check.fail(
            "target",
            "reach only mechanisms that add noise or choose, for white-box access",
            type(arrival.mechanism).__name__,
            "use access='black_box' or replay",
        )
    return arrival


def _again(arrival: Arrival, count: int) -> Floats:
    if isinstance(arrival.mechanism, Additive):
        return additive(arrival.mechanism, arrival.value, count).astype(np.float64)
    index_of = {name: i for i, name in enumerate(arrival.value.candidates)}
    chosen = [arrival.mechanism.release(arrival.value).value for _ in range(count)]
    if not isinstance(arrival.mechanism, TopK):  # a candidate can be a tuple itself, such as an interval
        chosen = [(pick,) for pick in chosen]
    return np.array([[index_of[name] for name in picks] for picks in chosen], dtype=np.float64)


def refuse_private(name: str, value: Any) -> None:
    """Refuse what is behind an account: an audit runs its target thousands of times and quotes what it saw."""
    if any(_guarded(item) for item in _held(value, _DEPTH)):
        raise InvalidArgument(
            f"{name} must not be behind an account, got {type(value).__name__}: an audit is a release without noise; "
            f"give a function that builds the question on generated data, with an account in a temporary ledger"
        )


#: How deeply containers and bound functions are looked into.
_DEPTH = 3


def _guarded(value: Any) -> bool:
    guarded = any(kind.__module__.startswith("discreet.analytics") for kind in type(value).__mro__)
    return guarded or isinstance(value, Account | Ledger) or isinstance(getattr(value, "account", None), Account)


def _held(value: Any, levels: int) -> Iterator[Any]:
    """The value, and what it visibly holds: elements, and what a function is bound to.

    What else it reaches, such as in a closure, is refused when it is charged (`observation.on_generated_data`).
    """
    yield value
    if not levels:
        return
    inner: list[Any] = [getattr(value, "__self__", None), getattr(value, "func", None)]
    if isinstance(value, dict):
        inner += value.values()
    elif isinstance(value, list | tuple | set):
        inner += value
    elif isinstance(value, functools.partial):
        inner += [*value.args, *value.keywords.values()]
    for item in inner:
        if item is not None and not inspect.ismodule(item):
            yield from _held(item, levels - 1)
