"""Events made of other events: in sequence, in parallel, for groups."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from discreet import _check
from discreet.events.base import Event, check_depth, check_event, check_tuple
from discreet.events.claims import Insecure


class _Around(Event):
    """One event and a number. Abstract."""

    event: Event

    def __post_init__(self) -> None:
        check_event("event", self.event)
        self._settle_number()
        check_depth(self)

    @abstractmethod
    def _settle_number(self) -> None:
        """Check the number, and store it as a Python integer."""

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


class _Several(Event):
    """A tuple of events. Abstract."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        check_tuple("events", self.events)
        for inner in self.events:
            check_event("events", inner)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return self.events


@dataclass(frozen=True)
class Repeated(_Around):
    """`event`, `count` times, each with fresh randomness."""

    event: Event
    count: int

    def _settle_number(self) -> None:
        _check.settle_integers(self, "count", remedy="it is the number of times the event runs", at_least=0)


@dataclass(frozen=True)
class Composed(_Several):
    """All of `events` on the same data, fixed in advance."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Parallel(_Several):
    """Each of `events` on its own part of the data; the parts are disjoint and every unit lies in one part."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Group(_Around):
    """`event`, priced for `people` units that change together instead of one."""

    event: Event
    people: int

    def _settle_number(self) -> None:
        _check.settle_integers(self, "people", remedy="it is the number of units that change together")


def is_secure(event: Event) -> bool:
    """Whether no part of `event` was run with reproducible noise.

    >>> from discreet.events import Gaussian
    >>> is_secure(Repeated(Insecure(Gaussian(1.0)), 3))
    False
    """
    return not any(isinstance(nested, Insecure) for nested in event.walk())
