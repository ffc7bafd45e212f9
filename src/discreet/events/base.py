"""The base of all events, and what their numbers are checked for when they are made."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.events.wording import in_words

# How deeply events may nest. Accountants take up to four calls for each level, and Python allows a thousand.
_DEEPEST = 150


class Event:
    """The base of everything that can be priced. Abstract; every concrete event is a final frozen dataclass."""

    __slots__ = ()

    def __str__(self) -> str:
        return in_words(self)

    def parts(self) -> tuple[Event, ...]:
        """The events directly inside this one; empty for a leaf."""
        return ()

    def walk(self) -> Iterator[Event]:
        """This event and all events inside it, outermost first."""
        yield self
        for part in self.parts():
            yield from part.walk()


def settle_multiplier(event: Event, name: str) -> None:
    """Check a noise multiplier, and store it as an exact Python number."""
    remedy = "it is the noise's scale over the sensitivity; no noise at all is events.NonPrivate()"
    _check.settle(event, name, _check.positive, remedy, infinite=True)


def check_depth(event: Event) -> None:
    """Refuse an event that is nested too deeply for the recursive functions that price it."""
    depth = 1 + max((getattr(part, "_depth", 0) for part in event.parts()), default=0)
    if depth > _DEEPEST:
        remedy = "put the events into one Composed, or raise the count of one Repeated"
        raise _check.fail("event", f"be nested at most {_DEEPEST} deep", f"{depth} levels", remedy)
    object.__setattr__(event, "_depth", depth)  # no field: it is no part of the event's value


def check_event(name: str, value: object) -> None:
    """Refuse what is not an event."""
    if not isinstance(value, Event):
        raise _check.fail(name, "be an event", value, "events are the dataclasses in discreet.events")


def check_tuple(name: str, value: object) -> None:
    """Refuse what is not a tuple."""
    if not isinstance(value, tuple):
        raise _check.fail(name, "be a tuple", value, "events hold only immutable values")


def settle_rational(event: Event, name: str) -> None:
    """Check a positive fraction, and store it in lowest terms."""
    value = getattr(event, name)
    if not isinstance(value, Fraction):
        raise _check.fail(name, "be a fractions.Fraction", value, "exact mechanisms carry exact numbers")
    if value <= 0:
        raise InvalidArgument(f"{name} must be > 0, got {value}: it is a parameter of the mechanism")
    object.__setattr__(event, name, _check.number(name, value, "it is a parameter of the mechanism"))
