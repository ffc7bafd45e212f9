"""How an accountant refuses an event: it names the sub-event that it has no theorem for."""

from __future__ import annotations

from discreet.errors import UnknownEvent
from discreet.events import (
    Event,
    LocalReport,
    PoissonSampled,
    RandomizedResponse,
    SampledWithoutReplacement,
    Shuffled,
    ShuffledEpoch,
)
from discreet.neighbors import ADD_REMOVE, ZERO_OUT, Relation

FixedSize = SampledWithoutReplacement | Shuffled | ShuffledEpoch


def unknown(event: Event, accountant: str, why: str = "it has no theorem for it") -> UnknownEvent:
    """The refusal of `accountant` to price `event`."""
    return UnknownEvent(f"{accountant} cannot price {event!r}: {why}")


def check_fixed_size(event: FixedSize, relation: Relation, accountant: str) -> None:
    """Refuse a sampler that makes the number of units public where the relation hides it."""
    if relation is ADD_REMOVE:
        why = "it makes the number of units public, which add/remove hides; price it under REPLACE_ONE or ZERO_OUT"
        raise unknown(event, accountant, why)


def check_poisson(event: PoissonSampled, relation: Relation, accountant: str) -> None:
    """Refuse what no theorem covers inside of a Poisson sample.

    The size of a Poisson batch is random, so it cannot hold a sampler of a fixed size. A report of a unit that is empty
    is still a report, so a sample of reports hides its unit only where another one takes its place.
    """
    for nested in event.event.walk():
        if isinstance(nested, FixedSize):
            raise unknown(nested, accountant, "its size is public, but inside a Poisson sample it is random")
        if isinstance(nested, LocalReport | RandomizedResponse) and relation is ZERO_OUT:
            raise unknown(nested, accountant, "inside a Poisson sample an empty unit reports too; use REPLACE_ONE")
