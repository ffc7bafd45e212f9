"""Samplers: which units are in which batch. A sampler emits its own event, so no batch gets the price of another kind.

A sampler is a frozen description. Its draw is a function of a secret and the step's number, so the processes of one run
draw the same batches without communication. For Poisson draws and subsets, the price assumes that the members of a
batch are secret: the secret is never written down, and a resumed run draws its remaining batches from a fresh one.
Their steps are independent, so the position is the whole state. A randomly allocated epoch is secret too, but its steps
belong together, so a resumed run starts with the next epoch. A shuffled epoch must continue where it stopped, so its
secret is saved; its price does not depend on secrecy. Which rows of a person are in a batch comes from another secret,
which is never saved, and from a stream of its own for each person and step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import ClassVar

import numpy as np

from discreet import _check, events
from discreet.errors import InvalidArgument
from discreet.events import Event
from discreet.learning.data.records import Indices
from discreet.learning.noise import Secret
from discreet.mechanisms.sampling.entropy import Generator


@dataclass(frozen=True)
class Sampler(ABC):
    """How batches are drawn. Abstract.

    Attributes:
        batch_size: the expected number of units in a batch: what noisy sums are divided by.
        examples: the public number of units that the plan was made for.
    """

    batch_size: int
    examples: int
    name: ClassVar[str]
    #: Whether the price assumes that nobody knows who was drawn.
    secret_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check.settle_integers(self, "examples", remedy="it is the public number of units")
        remedy = "it is the expected number of units in a batch, so at most all of them"
        _check.settle_integers(self, "batch_size", remedy=remedy, at_most=self.examples)

    @property
    def steps_of_event(self) -> int:
        """How many steps one event of `sampled` covers."""
        return 1

    @abstractmethod
    def sampled(self, event: Event) -> Event:
        """The event of `steps_of_event` steps, if each step runs `event` on its batch."""

    def whole(self, event: Event, steps: int) -> Event:
        """The event of `steps` steps, and so of a whole plan."""
        return events.Repeated(self.sampled(event), ceil(steps / self.steps_of_event))

    def resumes_at(self, step: int) -> int:
        """The first step, from `step` on, at which a run may continue with a fresh secret."""
        return step

    def continues(self, step: int) -> bool:
        """Whether the batch of `step` must come from the stream that the batches before it came from."""
        return not self.secret_order or self.resumes_at(step) != step

    def check_number(self, units: int) -> None:
        """Refuse data whose number of units breaks a bound that the price assumes, before anything is charged."""
        return

    @abstractmethod
    def in_words(self, unit: str) -> str:
        """How batches are drawn, as a clause about units called `unit` ("example" or "person")."""

    @abstractmethod
    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        """The units in the batch of `step`, as indices below `units`."""

    def steps(self, epochs: float) -> int:
        """The number of steps in `epochs` passes over the data."""
        return max(1, round(epochs * self.examples / self.batch_size))


@dataclass(frozen=True)
class PoissonSampler(Sampler):
    """Each unit joins each batch independently with probability rate = batch_size / examples.

    Guarantee:
        A unit joins if a uniform 64-bit number is below ⌊rate·2⁶⁴⌋, so the true rate is never above `rate`, and below
        it by less than 2⁻⁶⁴; the price grows with the rate. The number of drawn units, and so the time of a step,
        depends on chance and on the number of units.

    >>> PoissonSampler(100, 1000).whole(events.Gaussian(1.0), 50)
    Repeated(event=PoissonSampled(rate=0.1, event=Gaussian(noise_multiplier=1.0)), count=50)
    """

    name: ClassVar[str] = "poisson"

    @property
    def rate(self) -> float:
        """The probability that one unit joins one batch."""
        return self.batch_size / self.examples

    def sampled(self, event: Event) -> Event:
        return events.PoissonSampled(self.rate, event)

    def in_words(self, unit: str) -> str:
        return (
            f"each {unit} joins each batch independently with probability {self.rate:.4g}, {self.batch_size} on average"
        )

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        return joining(self.rate, units, secret.stream("poisson", step))


@dataclass(frozen=True)
class TruncatedPoissonSampler(PoissonSampler):
    """Poisson batches that are cut to at most `largest_batch` units, which are chosen uniformly.

    Guarantee:
        It holds for data with at most `examples` units, which is public: data with more of them is refused. Truncation
        adds to δ what `events.TruncatedPoissonSampled` says; choose `largest_batch` ten standard deviations above
        `batch_size`.

    >>> TruncatedPoissonSampler(100, 1000, 200).sampled(events.Gaussian(1.0))
    TruncatedPoissonSampled(rate=0.1, largest=200, units=1000, event=Gaussian(noise_multiplier=1.0))
    """

    largest_batch: int
    name: ClassVar[str] = "truncated poisson"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.settle_integers(
            self,
            "largest_batch",
            remedy="it is the most units in a batch, so at least the expected number",
            at_least=self.batch_size,
        )

    def sampled(self, event: Event) -> Event:
        return events.TruncatedPoissonSampled(self.rate, self.largest_batch, self.examples, event)

    def check_number(self, units: int) -> None:
        if units > self.examples:
            raise InvalidArgument(
                f"data must hold at most the {self.examples} units that the plan was made for: the price of truncated "
                "batches needs a public bound on their number; make the plan with more examples"
            )

    def in_words(self, unit: str) -> str:
        return f"{super().in_words(unit)}, and at most {self.largest_batch} of those who join are kept"

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        self.check_number(units)
        joined = super().draw(step, units, secret)
        if len(joined) <= self.largest_batch:
            return joined
        kept = secret.stream("truncation", step).choice(joined, size=self.largest_batch, replace=False, shuffle=False)
        return np.sort(kept).astype(np.int64)


@dataclass(frozen=True)
class FixedSizeSampler(Sampler):
    """Each batch is a uniformly random subset of exactly batch_size units, drawn anew in each step.

    The number of units is public, so it has a price only under replace-one.
    """

    name: ClassVar[str] = "without replacement"

    def sampled(self, event: Event) -> Event:
        return events.SampledWithoutReplacement(self.batch_size, self.examples, event)

    def in_words(self, unit: str) -> str:
        return f"each batch is a random subset of exactly {self.batch_size} of {self.examples} {unit}s"

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        same_number(units, self.examples)
        drawn = secret.stream("subset", step).choice(units, size=self.batch_size, replace=False, shuffle=False)
        return np.asarray(drawn, dtype=np.int64)


@dataclass(frozen=True)
class ShuffledEpochs(Sampler):
    """Passes over all units in random order; every unit is in exactly one batch of each pass.

    It is priced without amplification: shuffled batches are not Poisson samples (arXiv 2403.17673). The last batch of a
    pass may be smaller, and is still divided by batch_size.
    """

    name: ClassVar[str] = "shuffle"
    secret_order: ClassVar[bool] = False

    @property
    def steps_of_event(self) -> int:
        return ceil(self.examples / self.batch_size)

    def sampled(self, event: Event) -> Event:
        return events.ShuffledEpoch(self.batch_size, self.examples, event)

    def in_words(self, unit: str) -> str:
        return (
            f"each pass goes through all {self.examples} {unit}s in random order, {self.batch_size} in a batch, and is "
            "priced without amplification"
        )

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        same_number(units, self.examples)
        epoch, batch = divmod(step, self.steps_of_event)
        order = fixed_order(secret, epoch, units)
        return order[batch * self.batch_size : (batch + 1) * self.batch_size]

    def steps(self, epochs: float) -> int:
        return max(1, round(epochs * self.steps_of_event))


@dataclass(frozen=True)
class AllocatedEpochs(Sampler):
    """In each epoch every unit draws `selected` of its batches for itself, so the sizes of batches vary.

    Guarantee:
        A unit's batches are a uniformly random set, without rounding, independent of all other units and epochs. The
        size of a batch, and so the time of a step, depends on chance and on the number of units. A run that stops
        within an epoch does not finish it: with a fresh secret, units would join the rest of it a second time.

    >>> AllocatedEpochs(100, 1000).whole(events.Gaussian(1.0), 25)
    Repeated(event=RandomlyAllocated(steps=10, selected=1, event=Gaussian(noise_multiplier=1.0)), count=3)
    """

    selected: int = 1
    name: ClassVar[str] = "allocation"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.settle_integers(self, "selected", remedy="it is the number of batches of an epoch that a unit is in")

    @property
    def steps_of_event(self) -> int:
        return ceil(self.examples * self.selected / self.batch_size)

    def sampled(self, event: Event) -> Event:
        return events.RandomlyAllocated(self.steps_of_event, self.selected, event)

    def resumes_at(self, step: int) -> int:
        return ceil(step / self.steps_of_event) * self.steps_of_event

    def in_words(self, unit: str) -> str:
        return (
            f"in each epoch of {self.steps_of_event} batches each {unit} draws "
            f"{'its batch' if self.selected == 1 else f'{self.selected} of them'} for itself, about {self.batch_size} "
            "in a batch"
        )

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        epoch, batch = divmod(step, self.steps_of_event)
        chosen = _places(secret, epoch, units, self.steps_of_event, self.selected)
        return np.flatnonzero((chosen == batch).any(axis=0)).astype(np.int64)

    def steps(self, epochs: float) -> int:
        return max(1, round(epochs * self.steps_of_event / self.selected))


def joining(rate: float, units: int, stream: Generator) -> Indices:
    """Which of some units join: each independently with probability `rate`, rounded down to a multiple of 2⁻⁶⁴."""
    threshold = floor(Fraction(rate) * 2**64)
    if threshold >= 2**64:
        return np.arange(units, dtype=np.int64)
    # The first 16 bits decide for nearly all units; the other 48 are drawn only for ties.
    high, low = threshold >> 48, threshold & (2**48 - 1)
    first = stream.integers(0, 2**16, size=units, dtype=np.uint16)
    joins = first < high
    ties = np.flatnonzero(first == high)
    joins[ties] = stream.integers(0, 2**48, size=len(ties), dtype=np.uint64) < low
    return np.flatnonzero(joins).astype(np.int64)


@lru_cache(maxsize=2)
def _places(secret: Secret, epoch: int, units: int, batches: int, selected: int) -> Indices:
    """`selected` different batches for each unit, as rows of an array: Floyd's algorithm for a uniform subset."""
    stream = secret.stream("allocation", epoch)
    chosen = np.full((selected, units), -1, dtype=np.int64)
    for row, last in enumerate(range(batches - selected, batches)):
        drawn = stream.integers(0, last + 1, size=units)
        taken = (chosen[:row] == drawn).any(axis=0)
        chosen[row] = np.where(taken, last, drawn)
    return chosen


@lru_cache(maxsize=4)
def fixed_order(secret: Secret, epoch: int, units: int) -> Indices:
    """All units in the random order of an epoch."""
    return secret.stream("epoch", epoch).permutation(units).astype(np.int64)


def same_number(units: int, examples: int) -> None:
    """Refuse data that does not hold exactly the units that a plan was made for."""
    if units != examples:  # the number is public under every relation with a price for these samplers
        raise InvalidArgument(
            f"data must hold the {examples} units that the plan was made for, got {units}: "
            "with batches of a fixed size the number of units is public, so it must be exact"
        )


def _kept(rows: list[Indices], units: Indices, most: int, step: int, secret: Secret) -> list[Indices]:
    """The rows of each drawn unit. Each draws from a stream of its own: no unit moves the choice for another."""

    def of_one(unit: int) -> Indices:
        if len(rows[unit]) <= most:
            return rows[unit]
        return secret.stream("rows", step, unit).choice(rows[unit], size=most, replace=False)

    return [of_one(unit) for unit in units.tolist()]


def limited(rows: list[Indices], units: Indices, most: int, step: int, secret: Secret) -> Indices:
    """The rows of the drawn units, at most `most` of each, chosen at random if a unit has more."""
    kept = _kept(rows, units, most, step, secret)
    return np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)


def grouped(rows: list[Indices], units: Indices, most: int, step: int, secret: Secret) -> Indices:
    """As `limited`, with a line of `most` places for each drawn unit; −1 where a unit has no further row."""
    lines = np.full((len(units), most), -1, dtype=np.int64)
    for line, kept in zip(lines, _kept(rows, units, most, step, secret), strict=True):
        line[: len(kept)] = kept
    return lines
