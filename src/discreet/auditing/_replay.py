"""Record and replay: does a pipeline pass neighboring data to its mechanisms as close together as it declares?

A mechanism protects what it is given if two neighboring datasets give it values within the declared sensitivity. The
proof of a mechanism cannot see whether the code before it keeps that promise, and this code is where most faults of
libraries were found (arXiv 2602.17454). `replay` runs the pipeline on one dataset and records every mechanism's output.
It then runs the pipeline on a neighbor, where each mechanism receives the neighbor's value and returns the recorded
output. Two things must hold:

- each value differs from the recorded one by at most the declared sensitivity, in every norm;
- everything else is equal: the order of mechanisms, their scales and events, shapes and labels, statements to engines,
  charges, errors, warnings, printed text, log messages, and the result itself, since all randomness was replayed.

By induction over the mechanisms, a pipeline for which both hold on all neighbors is as private as the composition of
the events it states. A replay looks at some pairs only: it can refute, never prove.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet import _check
from discreet.auditing.foreign import ForeignNoise
from discreet.auditing.numpy_noise import NumpyNoise, joint_share
from discreet.auditing.visible import visible
from discreet.bounded import Bounded, Scores, Sensitivity
from discreet.events import Event
from discreet.mechanisms import KeySelection, RandomizedResponse, observation
from discreet.mechanisms.observation import Arrival, Lazy
from discreet.neighbors import ADD_REMOVE

# Names that Ibis draws at random for tables in memory, whatever they hold.
_GENERATED = re.compile(r"ibis_[a-z]+_memtable_[a-z0-9]+")
# How much of two texts a violation quotes around the first place where they differ.
_QUOTED = 120


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring datasets. `grows` says that `second` is `first` and one unit more."""

    first: Any
    second: Any
    grows: bool = False


@dataclass(frozen=True)
class Violation:
    """Something that two neighbors do not share, though they must.

    Attributes:
        pair: the number of the pair.
        where: the mechanism (with its place in the run), or what differs: "result", "error", "statement", …
        what: what was declared and what was seen. It may quote the data.
    """

    pair: int
    where: str
    what: str

    def __str__(self) -> str:
        return f"pair {self.pair}, {self.where}: {self.what}"


@dataclass(frozen=True)
class Replay:
    """What a replay saw.

    Attributes:
        pairs: how many pairs were tried.
        arrivals: how many values reached a mechanism, over all pairs.
        failed: how many pairs raised an error, the same one on both sides. They tell little: look at `errors`.
        errors: the distinct errors of these pairs.
        tightest: the largest share of a declared bound that a pair used; 1 means that some bound was reached.
        violations: what was found.
    """

    pairs: int
    arrivals: int
    failed: int
    errors: tuple[str, ...]
    tightest: float
    violations: tuple[Violation, ...]

    @property
    def passed(self) -> bool:
        """Whether no violation was found. It does not mean that there is none."""
        return not self.violations

    def __str__(self) -> str:
        pairs = "1 pair" if self.pairs == 1 else f"{self.pairs} pairs"
        tried = f"{pairs}, {self.arrivals} {'value' if self.arrivals == 1 else 'values'} at mechanisms"
        if self.failed:
            tried += f" ({self.failed} pairs raised an error, the same on both sides: {'; '.join(self.errors)})"
        if self.passed:
            return f"no violation found: {tried}, at most {self.tightest:.0%} of a declared bound used"
        counted = "1 violation" if len(self.violations) == 1 else f"{len(self.violations)} violations"
        return "\n".join([f"{counted} in {tried}:", *map(str, self.violations)])


@observation.on_generated_data()
def replay(
    pipeline: Callable[[Any], Any], pairs: Iterable[Pair | tuple[Any, Any]], *, noise: NumpyNoise | None = None
) -> Replay:
    """Run `pipeline` on neighboring datasets and compare everything that reaches a mechanism or an observer.

    Args:
        pipeline: a function of a dataset, made of this library's queries, tables and mechanisms, or of other code whose
            noise comes from numpy (`noise`) or is marked with `declared`. It must open a fresh account in each call
            (in a temporary ledger), since what remains of a budget is visible. An account that was there before is
            refused.
        pairs: neighboring datasets, under the relation that the pipeline claims.
        noise: what the pipeline claims of noise that it draws from numpy; other noise is marked with `declared`.

    Guarantee: none, and the result quotes data: it is for public or generated data. It refutes a claim with a witness;
    that it finds nothing says only that these pairs are no witness.
    """
    violations: list[Violation] = []
    errors: list[str] = []
    arrivals, tightest, tried = 0, 0.0, 0
    for number, given in enumerate(pairs):
        pair = given if isinstance(given, Pair) else Pair(*given)
        recorded = _Recorder()
        first = _run(pipeline, pair.first, recorded, noise)
        replayed = _Recorder(recorded)
        second = _run(pipeline, pair.second, replayed, noise)
        arrivals += len(replayed.arrivals)
        differences, share = _compared(number, pair, recorded, replayed, noise is not None and noise.together)
        violations += differences
        tightest = max(tightest, share)
        violations += _differences(number, {**first, **recorded.public()}, {**second, **replayed.public()})
        errors += [first["error"]] if first["error"] and first["error"] == second["error"] else []
        tried += 1
    if tried == 0:
        raise _check.fail("pairs", "hold a pair of datasets", 0, "nothing can be compared without one")
    return Replay(tried, arrivals, len(errors), tuple(dict.fromkeys(errors)), tightest, tuple(violations))


class _Stray(Exception):
    """The second run reached a mechanism that the first run did not."""


class _Recorder:
    """Keeps what arrives and what is released; answers as another run did, if it is given one."""

    def __init__(self, like: _Recorder | None = None) -> None:
        self.arrivals: list[Arrival] = []
        self.releases: list[Any] = []
        self.secrets: list[int] = []
        self.statements: list[str] = []
        self.charges: list[Event] = []
        self._like = like

    def through(self, arrival: Arrival, draw: Callable[[], Any]) -> Any:
        if isinstance(arrival.value, Lazy):
            arrival = Arrival(**{**vars(arrival), "value": arrival.value.compute()})
        self.arrivals.append(arrival)
        index = len(self.arrivals) - 1
        if self._like is None:
            self.releases.append(draw())
        elif index < len(self._like.releases):
            self.releases.append(self._like.releases[index])
        else:
            raise _Stray(f"mechanism {index} runs on one neighbor only")
        return self.releases[-1]

    def secret(self, draw: Callable[[], int]) -> int:
        index = len(self.secrets)
        repeats = self._like is not None and index < len(self._like.secrets)
        self.secrets.append(self._like.secrets[index] if self._like is not None and repeats else draw())
        return self.secrets[-1]

    def statement(self, text: str) -> None:
        self.statements.append(_GENERATED.sub("a table in memory", text))

    def charge(self, event: Event) -> None:
        self.charges.append(event)

    def public(self) -> dict[str, Any]:
        """What must be equal for neighbors."""
        return {"statement": tuple(self.statements), "charge": tuple(map(repr, self.charges))}


def _run(pipeline: Callable[[Any], Any], data: Any, recorder: _Recorder, noise: NumpyNoise | None) -> dict[str, Any]:
    """What one can see of a run, beside its mechanisms."""
    printed, logged = io.StringIO(), _Log()
    outcome: Any = None
    error = ""
    root = logging.getLogger()
    root.addHandler(logged)
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            observation.watched_by(recorder),
            contextlib.nullcontext() if noise is None else noise.watched(),
        ):
            warnings.simplefilter("always")
            try:
                outcome = visible(pipeline(data))
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
    finally:
        root.removeHandler(logged)
    return {
        "result": outcome,
        "error": error,
        # When a connection is collected has to do with memory, not with data.
        "warning": tuple(
            f"{each.category.__name__}: {each.message}"
            for each in warned
            if not issubclass(each.category, ResourceWarning)
        ),
        "printed text": printed.getvalue(),
        "log message": tuple(logged.lines),
    }


class _Log(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


def _differences(number: int, first: dict[str, Any], second: dict[str, Any]) -> list[Violation]:
    """What differs in the public parts of two runs."""
    return [
        Violation(number, name, f"differs between neighbors: {_contrasted(first[name], second[name])}")
        for name in first
        if first[name] != second[name]
    ]


def _contrasted(first: Any, second: Any) -> str:
    """Two values as text, from a little before the first place where they differ."""
    texts = repr(first), repr(second)
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, same - _QUOTED // 4)
    return " and ".join(("…" if start else "") + text[start : start + _QUOTED] for text in texts)


def _compared(
    number: int, pair: Pair, recorded: _Recorder, replayed: _Recorder, together: bool
) -> tuple[list[Violation], float]:
    """Violations at mechanisms, and the largest share of a bound that was used."""
    violations: list[Violation] = []
    if len(recorded.arrivals) != len(replayed.arrivals):
        counts = f"{len(recorded.arrivals)} and {len(replayed.arrivals)}"
        violations.append(Violation(number, "mechanisms", f"the neighbors reach a different number of them: {counts}"))
    tightest = 0.0
    joint: dict[str, list[tuple[Scores, float]]] = defaultdict(list)
    foreign: list[tuple[ForeignNoise, float]] = []
    for index, (first, second) in enumerate(zip(recorded.arrivals, replayed.arrivals, strict=False)):
        where = f"mechanism {index} ({type(first.mechanism).__name__})"
        public = _public(first), _public(second)
        if public[0] != public[1]:
            violations.append(Violation(number, where, f"differs between neighbors: {_contrasted(*public)}"))
            continue
        grows = pair.grows and first.relation is ADD_REMOVE
        shares, problems = _moved(first, second, grows)
        tightest = max([tightest, *shares.values()])
        problems += [f"{norm} moves by {share:.6g} of what is declared" for norm, share in shares.items() if share > 1]
        violations += [Violation(number, where, problem) for problem in problems]
        if first.joint is not None and isinstance(first.value, Scores):
            joint[first.joint].append((first.value, shares.get("linf", 0.0)))
        if isinstance(first.mechanism, ForeignNoise):
            foreign.append((first.mechanism, max(shares.values())))
    for name, moved in joint.items():
        total = sum(share for _, share in moved)
        tightest = max(tightest, total)
        if total > 1:
            what = f"all groups together move by {total:.6g} of what is declared for one unit"
            violations.append(Violation(number, name, what))
    if together:
        total = joint_share(foreign)
        tightest = max(tightest, total)
        if total > 1:
            what = f"all releases together move by {total:.6g} of what is declared"
            violations.append(Violation(number, "numpy's noise", what))
    return violations, tightest


def _public(arrival: Arrival) -> tuple[Any, ...]:
    """Everything about an arrival that must not depend on the data."""
    shown: tuple[Any, ...] = (repr(arrival.mechanism), arrival.relation, repr(arrival.event), arrival.joint)
    if "object at" in shown[0]:  # a mechanism with a state has no repr that shows its parameters
        shown = (type(arrival.mechanism).__name__, *shown[1:])
    match arrival.value:
        case Bounded() as bounded:
            facts = (bounded.name, bounded.granularity, bounded.labels, str(bounded.unit), repr(bounded.finish))
            return *shown, *facts, bounded.values.shape, bounded.direction, dict(bounded.sensitivities)
        case Scores() as scores:
            named = (scores.name, scores.candidates, str(scores.unit), scores.monotone)
            return *shown, *named, scores.values.shape, dict(scores.sensitivities)
        case dict():
            return *shown, arrival.limit
        case np.ndarray() as numbers:
            return *shown, numbers.shape
        case _:
            return *shown, len(arrival.value)


def _moved(first: Arrival, second: Arrival, grows: bool) -> tuple[dict[str, float], list[str]]:
    """The shares of the declared bounds that two neighbors' values use, and what else is wrong."""
    if isinstance(first.value, Bounded):
        change = _exact(second.value.values) - _exact(first.value.values)
        direction = first.value.direction
        against = grows and direction != 0 and min(change * direction, default=0) < 0
        problems = ["moves against its declared direction"] if against else []
        return _norms(change, first.value.sensitivity(first.relation)), problems
    if isinstance(first.value, Scores):
        change = _exact(second.value.values) - _exact(first.value.values)
        problems = []
        if first.value.is_monotone(first.relation) and min(change) < 0 < max(change):
            problems.append("scores that are declared monotone move both ways")
        return {"linf": float(max(abs(change)) / first.value.sensitivity(first.relation))}, problems
    if isinstance(first.mechanism, ForeignNoise):
        norm = "l1" if first.mechanism.kind == "laplace" else "l2"
        return {norm: first.mechanism.share(second.value - first.value)}, []
    if isinstance(first.mechanism, KeySelection):
        floor = first.mechanism.least - 1  # counts below `least` are never released, so they count alike
        keys = sorted({*first.value, *second.value}, key=repr)
        change = np.array(
            [max(second.value.get(key, 0), floor) - max(first.value.get(key, 0), floor) for key in keys], dtype=object
        )
        return _norms(change, first.limit), []
    assert isinstance(first.mechanism, RandomizedResponse)
    changed = sum(visible(a) != visible(b) for a, b in zip(first.value, second.value, strict=True))
    return {"answers": float(changed)}, []


def _exact(values: Any) -> Any:
    """Integers without a limit: differences of 64-bit integers could overflow."""
    return np.array(values.ravel().tolist(), dtype=object)


def _norms(change: Any, bound: Sensitivity) -> dict[str, float]:
    moved = [abs(int(step)) for step in change]
    seen = {
        "l0": sum(step > 0 for step in moved),
        "l1": sum(moved),
        "l2_squared": sum(step * step for step in moved),
        "linf": max(moved, default=0),
    }
    return {name: amount / getattr(bound, name) for name, amount in seen.items()}
