"""The losses of an event that bounds another one, for prices that reduce to basic events in one direction only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from discreet.accounting.losses.collapse import ACCOUNTANT, collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.refusal import unknown
from discreet.events import Event, Group

if TYPE_CHECKING:
    from discreet.accounting.losses.of_events import View


def losses_of(bound: Event, event: Event, view: View) -> Losses:
    """The losses of `bound`, which holds for `event` on one side; refused where a unit can meet it in several ways.

    A group within is refused too: the splits that must be priced for it (`of_events.splits`) are looked for outside.
    """
    from discreet.accounting.losses import of_events

    ways = collapse(bound, view.relation)
    if len(ways) != 1:
        raise unknown(event, ACCOUNTANT, "the event within has parts that run in parallel")
    if any(isinstance(leaf, Group) for leaf, _ in ways[0]):
        raise unknown(event, ACCOUNTANT, "a group within it is priced only from outside: put Group around it")
    return replace(of_events.losses(ways[0], view), exact=False)
