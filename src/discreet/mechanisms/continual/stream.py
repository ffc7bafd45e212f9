"""What arrives step by step, the state between two steps, and what is released at each."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check
from discreet.bounded import Bounded, Sensitivity
from discreet.errors import InvalidArgument
from discreet.neighbors import ADD_REMOVE, Neighbors, Rows, Unit

#: The version of the format of stored states.
VERSION = 1
# Errors and sensitivities are computed step by step, and accountants sum no more steps than this.
_MOST_STEPS = 1 << 22

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Stream:
    """A stream of queries, one at each step, and how far one unit can move them.

    Attributes:
        steps: T: the largest number of steps.
        sensitivity: how far one unit can move the query of one step that it takes part in, under add/remove.
        participations: the most steps that one unit takes part in. With 1, a unit is one event of the stream.
        separation: any two steps of one unit are at least this far apart.
        dimension: the number of coordinates of each query, such as the bins of a histogram.
        granularity: the grid's step in the units of the statistic.
        unit: who is protected.
    """

    steps: int
    sensitivity: Sensitivity = Sensitivity(1, 1, 1, 1)
    participations: int = 1
    separation: int = 1
    dimension: int = 1
    granularity: Fraction = Fraction(1)
    unit: Unit = Rows()

    def __post_init__(self) -> None:
        _check.settle_integers(self, "steps", remedy="it is the largest number of steps", at_most=_MOST_STEPS)
        _check.settle_integers(self, "participations", remedy="it is the most steps that one unit takes part in")
        _check.settle_integers(self, "separation", remedy="any two steps of one unit are at least this far apart")
        _check.settle_integers(self, "dimension", remedy="it is the number of coordinates of one step's query")
        step = _check.positive("granularity", self.granularity, "it is the step of the grid")
        object.__setattr__(self, "granularity", step)
        if type(self.sensitivity) is not Sensitivity:
            remedy = "it says how far one unit moves one step; Stream.of takes it from a query"
            raise _check.fail("sensitivity", "be a Sensitivity", self.sensitivity, remedy)

    @classmethod
    def of(cls, query: Bounded, steps: int, *, participations: int = 1, separation: int = 1) -> Stream:
        """The stream of queries like this one, such as `queries.count([])`. Its value is not used.

        Guarantee: reads the query's shape, grid and sensitivity, which are public, and nothing else.
        """
        if type(query) is not Bounded:
            raise _check.fail("query", "be a Bounded made by a query", type(query).__name__, "see discreet.queries")
        return cls(
            steps,
            query.sensitivity(ADD_REMOVE),
            participations,
            separation,
            query.dimension,
            query.granularity,
            query.unit,
        )

    @property
    def neighbors(self) -> Neighbors:
        """Whom a counter protects: one unit, added or removed, with all of its steps."""
        return Neighbors(ADD_REMOVE, self.unit)

    @property
    def most_participations(self) -> int:
        """The most steps of one unit that fit into the stream."""
        return min(self.participations, -(-self.steps // self.separation))

    def integers(self, query: Bounded) -> list[int]:
        """The integers of one step's query, after a check that the stream's bounds cover it."""
        if type(query) is not Bounded:
            raise _check.fail("query", "be a Bounded made by a query", type(query).__name__, "see discreet.queries")
        if (query.dimension, query.granularity, query.unit) != (self.dimension, self.granularity, self.unit):
            raise InvalidArgument(
                f"query must have {self.dimension} coordinates on a grid of step {self.granularity} for {self.unit}, "
                f"got {query!r}: make every step's query with the same arguments"
            )
        given, most = query.sensitivity(ADD_REMOVE), self.sensitivity
        small = given.l0 <= most.l0 and given.l1 <= most.l1
        if not (small and given.l2_squared <= most.l2_squared and given.linf <= most.linf):
            raise _check.fail(
                "query", f"have a sensitivity of at most {most}", given, "plan the stream with this query"
            )
        whole: list[int] = query.values.ravel().tolist()
        return whole


@dataclass(frozen=True, eq=False)
class State:
    """Everything a counter knows between two steps. Secret: it holds sums of raw data, and noise not yet used.

    Whoever reads a state can undo the privacy of releases, and whoever continues one state twice reuses its noise.
    `Account.stream` keeps states in files that only their owner can read, and continues each state once.

    Attributes:
        counter: a fingerprint of the counter that the state belongs to.
        step: how many steps were taken.
        content: what the counter needs: integers and floats in nested lists.
    """

    counter: str
    step: int
    content: dict[str, Any]

    def to_bytes(self) -> bytes:
        """The state for a file; keep it secret."""
        body = {"version": VERSION, "counter": self.counter, "step": self.step, "content": self.content}
        return json.dumps(body, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> State:
        """The inverse of `to_bytes`."""
        try:
            body = json.loads(stored)
            version, counter, step, content = (body[name] for name in ("version", "counter", "step", "content"))
            content = dict(content)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"the state is damaged ({type(error).__name__}): start the stream again") from None
        if version != VERSION:
            raise InvalidArgument(f"the state was written by version {version} of its format: start the stream again")
        return cls(str(counter), _check.integer("step", step, "it is part of the state", at_least=0), content)

    def __repr__(self) -> str:
        return f"<state after step {self.step}: content hidden>"


@dataclass(frozen=True, eq=False)
class RunningRelease:
    """What a counter releases at one step. It is part of `Counter.event`, which covers all steps together.

    Attributes:
        step: the number of the step, from 1.
        value: the noisy running answer: a number, or one for each coordinate.
        standard_error: the standard error of each coordinate.
        gaussian: whether the noise is Gaussian; it decides how wide intervals are.
    """

    step: int
    value: Any
    standard_error: float
    gaussian: bool

    def interval(self, confidence: float = 0.95) -> tuple[Any, Any]:
        """A range for each coordinate that holds the exact running answer with probability about `confidence`.

        Gaussian noise: by the normal distribution. Laplace noise: sums of several are close to normal near the center
        but have heavier tails, so that the range is that of a single Laplace variable with the same variance, which is
        at least as wide from 90% on.
        """
        tail = float(1 - _check.probability("confidence", confidence, "such as 0.95"))
        normal = -float(special.ndtri(tail / 2))
        wide = normal if self.gaussian else max(normal, -float(np.log(tail)) / 2**0.5)
        half = wide * self.standard_error
        return self.value - half, self.value + half


def fingerprint(counter: object) -> str:
    """Equal for counters that agree in every parameter."""
    return hashlib.blake2b(repr(counter).encode(), digest_size=16).hexdigest()
