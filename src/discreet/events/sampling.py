"""Events on a random sample of the units, or on a random order of them."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import _check
from discreet.events.base import Event, check_depth, check_event


@dataclass(frozen=True)
class PoissonSampled(Event):
    """`event` on a batch that each unit joins independently with probability `rate`."""

    rate: float
    event: Event

    def __post_init__(self) -> None:
        _check.settle(self, "rate", _check.probability, "it is the probability that one unit joins a batch")
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class SampledWithoutReplacement(Event):
    """`event` on a uniformly random subset of exactly `size` of `population` units."""

    size: int
    population: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "population", remedy="it is the public number of units")
        _check.settle_integers(self, "size", remedy="it is the number of units in a batch", at_most=self.population)
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class Shuffled(Event):
    """`reports` local reports, each made by `event` on one unit's data, released in random order without names."""

    reports: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "reports", remedy="it is the public number of reports that are shuffled together")
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class ShuffledEpoch(Event):
    """One pass over `examples` units in random order, `event` on each batch of `batch_size` in turn.

    Each unit is in exactly one batch, so the epoch is not a sequence of Poisson samples and gets no amplification.
    """

    batch_size: int
    examples: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "examples", remedy="it is the public number of units in an epoch")
        _check.settle_integers(self, "batch_size", remedy="it is the number of units in a batch", at_most=self.examples)
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class RandomlyAllocated(Event):
    """`event` on each of `steps` batches in turn, where each unit joins `selected` of them, drawn by itself.

    A unit's batches are a uniformly random set, independent of all other units, so the sizes of batches vary ("balls in
    bins"). Nobody learns who is in which batch. It is not a shuffled epoch, where batches have a fixed size.
    """

    steps: int
    selected: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "steps", remedy="it is the number of batches that a unit draws from")
        _check.settle_integers(self, "selected", remedy="it is the number of batches of one unit", at_most=self.steps)
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class TruncatedPoissonSampled(Event):
    """`event` on a batch that each of at most `units` units joins with probability `rate`, cut to `largest` units.

    If more joined, `largest` of them are chosen uniformly at random. `units` is a public bound on the number of units,
    in this dataset and in its neighbors.
    """

    rate: float
    largest: int
    units: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle(self, "rate", _check.probability, "it is the probability that one unit joins a batch")
        _check.settle_integers(self, "largest", remedy="it is the most units that a batch may hold")
        _check.settle_integers(self, "units", remedy="it is a public bound on the number of units")
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)
