"""How an accountant refuses an event: it names the sub-event that it has no theorem for."""

from __future__ import annotations

from discreet.errors import UnknownEvent
from discreet.events import Event, PoissonSampled, SampledWithoutReplacement, Shuffled, ShuffledEpoch
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation

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
    """Refuse a fixed-size sampler inside of a Poisson sample, because the size of a Poisson batch is random."""
    for part in event.event.walk():
        if isinstance(part, FixedSize) and relation is not REPLACE_ONE:
            raise unknown(part, accountant, "its size is public, but inside a Poisson sample it is random")
