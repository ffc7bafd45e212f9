"""Streams of unknown length: counters for 1, 2, 4, … times as many steps, one after the other.

One event of the stream lies in one of these epochs and moves no other, so the whole costs as much as one epoch. The
total of the epochs before is the sum of their last answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from discreet import _check, events
from discreet.accounting.closed_forms import gaussian_noise_multiplier
from discreet.bounded import Bounded
from discreet.errors import InvalidArgument
from discreet.guarantees import ApproxDP, Guarantee, PureDP
from discreet.mechanisms.continual.choosing import choose
from discreet.mechanisms.continual.counter import Counter
from discreet.mechanisms.continual.stream import RunningRelease, State, Stream, fingerprint
from discreet.numeric.rounding import down, float_up

# Epochs beyond this length do not grow any more: a longer stream takes more of them.
_LONGEST = 1 << 16


@dataclass(frozen=True)
class Doubling:
    """A running total of a stream whose length nobody knows in advance.

    Each epoch has the best counter of its length, calibrated to the same ε and δ. With Gaussian noise the
    error grows like the square of log t, as for a counter that knows the length, plus one last answer for each epoch.

    Attributes:
        stream: what arrives; its `steps` are the length of the first epoch. One unit takes part in one step.
        epsilon: the ε of the whole stream.
        delta: its δ; None for Laplace noise and ε-DP.
    """

    stream: Stream
    epsilon: float
    delta: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", float(_check.epsilon(self.epsilon)))
        if self.delta is not None:
            object.__setattr__(self, "delta", float(_check.delta(self.delta)))
        if self.stream.participations != 1:
            remedy = "a unit in several epochs would pay for each; plan the length of the stream"
            raise _check.fail("participations", "be 1", self.stream.participations, remedy)

    @property
    def event(self) -> events.Event:
        """The event of all steps together: that of one epoch, because a unit is in one of them."""
        if self.delta is None:
            return events.Claimed(float_up(_check.epsilon(self.epsilon)))
        return events.Gaussian(down(gaussian_noise_multiplier(self.epsilon, self.delta)))

    @property
    def guarantee(self) -> Guarantee:
        """What all releases together promise."""
        promise: Guarantee = PureDP(self.epsilon) if self.delta is None else ApproxDP(self.epsilon, self.delta)
        return promise.protecting(self.stream.neighbors)

    def counter(self, epoch: int) -> Counter:
        """The counter of an epoch, from 0."""
        return _counter(self, epoch)

    def start(self) -> State:
        """The state before the first step."""
        zero = [0.0] * self.stream.dimension
        return State(
            fingerprint(self), 0, {"epoch": 0, "taken": 0, "before": zero, "inner": self.counter(0)._initial()}
        )

    def step(self, state: State, query: Bounded, *, insecure_seed: int | None = None) -> tuple[State, RunningRelease]:
        """The state after one more step, and the running total; see `Counter.step`.

        Guarantee: all releases together have `event`, for one unit that takes part in one step, under add/remove.
        """
        if state.counter != fingerprint(self):
            raise InvalidArgument("the state must belong to this counter: a state continues with what it started with")
        content = state.content
        epoch, before = content["epoch"], content["before"]
        counter = self.counter(epoch)
        inner = State(counter._name, content["taken"], content["inner"])
        inner, release = counter.step(inner, query, insecure_seed=insecure_seed)
        scale = float(self.stream.granularity)
        value = [release.value] if self.stream.dimension == 1 else list(release.value)
        total = [past + now / scale for past, now in zip(before, value, strict=True)]
        after = {"epoch": epoch, "taken": inner.step, "before": before, "inner": inner.content}
        if inner.step == counter.stream.steps:
            after = {"epoch": epoch + 1, "taken": 0, "before": total, "inner": self.counter(epoch + 1)._initial()}
        taken = state.step + 1
        shown = replace(
            release,
            step=taken,
            value=total[0] * scale if self.stream.dimension == 1 else np.array(total) * scale,
            standard_error=self.error(taken) ** 0.5,
        )
        return State(state.counter, taken, after), shown

    def error(self, step: int) -> float:
        """The exact expected squared error of the total at a step, from 1."""
        left = _check.integer("step", step, "steps are counted from 1")
        total, epoch = 0.0, 0
        while left > (length := self._length(epoch)):
            total, left, epoch = total + self.counter(epoch).error(length), left - length, epoch + 1
        return total + self.counter(epoch).error(left)

    def _length(self, epoch: int) -> int:
        return min(self.stream.steps << min(epoch, 32), max(_LONGEST, self.stream.steps))


@lru_cache(maxsize=64)
def _counter(doubling: Doubling, epoch: int) -> Counter:
    stream = replace(doubling.stream, steps=doubling._length(epoch))
    # With a δ the event is Gaussian, which a Laplace tree is not.
    return choose(stream, doubling.epsilon, doubling.delta, laplace=doubling.delta is None).counter
