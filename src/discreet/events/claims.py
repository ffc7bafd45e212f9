"""Guarantees that were proved elsewhere, failures, and releases without a guarantee."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import _check
from discreet.events.base import Event, check_depth, check_event


@dataclass(frozen=True)
class Claimed(Event):
    """Something that is (ε, δ)-DP by an external proof; nothing more is known about it."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _check.settle(self, "epsilon", _check.nonnegative, "it is the ε that was proved")
        _check.settle(self, "delta", _check.probability, "it is the δ that was proved")


@dataclass(frozen=True)
class MayFail(Event):
    """`event`, except with `probability`: then everything about everyone may be revealed, whatever the data are.

    Its price at ε is δ = p + (1 − p)·δ(ε) of the event, exactly. It stands for mechanisms that can break down, such
    as one whose noise is drawn correctly with probability 1 − p only.
    """

    probability: float
    event: Event

    def __post_init__(self) -> None:
        remedy = "it is the probability that everything is revealed"
        _check.settle(self, "probability", _check.probability, remedy)
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class NonPrivate(Event):
    """A release without any guarantee. Its price is infinite."""


@dataclass(frozen=True)
class Insecure(Event):
    """`event`, run with reproducible noise. Whoever knows the seed can remove the noise, so the price is infinite."""

    event: Event

    def __post_init__(self) -> None:
        check_event("event", self.event)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)
