"""The base of all counters: one event for a whole stream, a pure step, and the exact error at each step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.accounting.forms.gdp import gdp
from discreet.accounting.forms.pure import pure
from discreet.bounded import Bounded
from discreet.errors import InvalidArgument
from discreet.guarantees import Guarantee
from discreet.mechanisms._gaussian import Gaussian
from discreet.mechanisms._laplace import Laplace
from discreet.mechanisms.continual.stream import RunningRelease, State, Stream, Vector, fingerprint
from discreet.mechanisms.sampling import entropy

CounterNoise = Laplace | Gaussian
#: What a counter keeps between steps, as JSON holds it.
Content = dict[str, Any]
# Counters work in grid units, so that the grid's step is 1.
_GRID = Fraction(1)
# Seeded noise of different steps comes from different seeds.
_SEEDS_APART = 1 << 32
# Steps whose noise `run` draws in one go: it makes a step several times as fast.
_BLOCK = 256


class Drawn:
    """Noise for a few steps, drawn in one go. Each integer is handed out once."""

    def __init__(self, counter: Counter, draws: int, bits: entropy.Bits) -> None:
        self._counter, self._bits = counter, bits
        self._ahead, self._size, self._used = draws, counter.stream.dimension, 0
        self._pool: list[int] = []

    def vector(self) -> list[int]:
        """One noise integer for each coordinate."""
        end = self._used + self._size
        if end > len(self._pool):
            end = self._size
            self._pool, self._used = self._counter._draw(max(1, self._ahead) * end, self._bits).tolist(), 0
        taken = self._pool[self._used : end]
        self._used = end
        return taken


@dataclass(frozen=True)
class Counter(ABC):
    """Releases a running answer after each step of a stream, under one event for all steps. Abstract.

    Attributes:
        stream: what arrives, and how far one unit can move it.
        noise: the noise of each independent draw, in grid units.
    """

    stream: Stream
    noise: CounterNoise

    # --- what each counter defines

    @property
    @abstractmethod
    def event(self) -> events.Event:
        """The event of all steps together: charge it once, before the first step."""

    @abstractmethod
    def errors(self) -> Vector:
        """The exact variance of the answer at each step, in grid units squared."""

    @abstractmethod
    def _initial(self) -> Content:
        """The content of the state before the first step."""

    @abstractmethod
    def _advance(self, content: Content, step: int, query: list[int], drawn: Drawn) -> tuple[Content, list[float]]:
        """The content after step number `step`, and the noisy running answer in grid units."""

    @property
    @abstractmethod
    def state_size(self) -> int:
        """The most numbers that must be kept between two steps, for each coordinate."""

    @property
    def draws_per_step(self) -> int:
        """About how many vectors of noise one step takes."""
        return 1

    # --- what all of them share

    @property
    def guarantee(self) -> Guarantee:
        """What all releases together promise: ε-DP with Laplace noise, μ-GDP with Gaussian noise.

        The queries of later steps may depend on earlier releases (docs/proofs/continual.md).
        """
        promise: Guarantee = gdp(self.event) if isinstance(self.noise, Gaussian) else pure(self.event)
        return promise.protecting(self.stream.neighbors)

    def start(self) -> State:
        """The state before the first step."""
        return State(self._name, 0, self._initial())

    def step(self, state: State, query: Bounded, *, insecure_seed: int | None = None) -> tuple[State, RunningRelease]:
        """The state after one more step, and the running answer.

        Args:
            state: the state after the step before; it is not changed. Continue each state once: a second release from
                the same state uses noise again. `Account.stream` sees to that.
            query: what arrived in this step, made by a query such as `queries.count`.
            insecure_seed: repeatable noise, for tests and teaching only.

        Guarantee: all releases of one run of steps together have `event`, for one unit of `stream.unit` under
        add/remove, which takes part in at most `stream.participations` steps. That a unit takes part no more often is
        up to the caller (`Participation` sees to it). The state is secret.
        """
        ((after, release),) = self.run(state, [query], insecure_seed=insecure_seed)
        return after, release

    def run(
        self, state: State, queries: Iterable[Bounded], *, insecure_seed: int | None = None
    ) -> Iterator[tuple[State, RunningRelease]]:
        """The steps of several queries in turn, as `step`; faster, because noise is drawn for many steps at once.

        Guarantee: as `step`.
        """
        if state.counter != self._name:
            raise InvalidArgument("the state must belong to this counter: a state continues with what it started with")
        given = list(queries)
        seed = None if insecure_seed is None else insecure_seed * _SEEDS_APART + state.step
        drawn = Drawn(self, self.draws_per_step * min(len(given), _BLOCK), entropy.bits(seed))
        content, taken = state.content, state.step
        for query in given:
            if taken >= self.stream.steps:
                raise InvalidArgument(f"the stream must end after {self.stream.steps} steps: plan a longer one")
            taken += 1
            content, answer = self._advance(content, taken, self.stream.integers(query), drawn)
            yield State(self._name, taken, content), self._release(taken, answer)

    def error(self, step: int) -> float:
        """The exact expected squared error of the answer at a step, from 1, in the units of the statistic squared."""
        number = _check.integer("step", step, "steps are counted from 1", at_most=self.stream.steps)
        return float(self._errors[number - 1]) * float(self.stream.granularity) ** 2

    def mean_error(self) -> float:
        """The mean over all steps of `error`."""
        return float(np.mean(self._errors)) * float(self.stream.granularity) ** 2

    def max_error(self) -> float:
        """The largest `error` of a step."""
        return float(np.max(self._errors)) * float(self.stream.granularity) ** 2

    @cached_property
    def _errors(self) -> Vector:
        return self.errors()

    @cached_property
    def _name(self) -> str:
        return fingerprint(self)

    @property
    def _noise_variance(self) -> float:
        """The variance of one draw, in grid units."""
        return self.noise.noise_law(_GRID).standard_deviation() ** 2

    def _draw(self, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        return np.clip(self.noise.draw(_GRID, size, bits), -(1 << 62), 1 << 62)

    def _release(self, step: int, answer: list[float]) -> RunningRelease:
        unit = self._grid_step
        values = answer if unit == 1 else [value * unit for value in answer]  # integers stay integers on a grid of 1
        error = math.sqrt(self._errors[step - 1]) * unit
        shown: Any = values[0] if self.stream.dimension == 1 else np.array(values)
        return RunningRelease(step, shown, error, isinstance(self.noise, Gaussian))

    @cached_property
    def _grid_step(self) -> float:
        return float(self.stream.granularity)
