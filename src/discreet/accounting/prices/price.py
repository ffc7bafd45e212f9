"""What an accountant asks about an event: its loss, and its price in each form.

The basic events (noise, samples, composition) are priced in `losses/` and `forms/`, because their prices depend on each
other. Every other event has one object of this class, in a file of this folder. It either reduces the event to basic
ones (`simpler`), or knows more (`losses`, `pure`, …). An accountant asks for what it needs, then falls back to
`simpler`, and refuses an event that has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.accounting.refusal import unknown
from discreet.events import Event
from discreet.neighbors import Relation
from discreet.numeric.rounding import Floats

if TYPE_CHECKING:
    from discreet.accounting.losses.composed import Losses
    from discreet.accounting.losses.of_events import View


class EventPrices:
    """The prices of one type of event. None means: priced as the simpler event."""

    def simpler(self, event: Any, relation: Relation, accountant: str) -> Event:
        """An event that reveals at least as much as `event`, made of basic events; refused where there is none."""
        raise unknown(event, accountant)

    #: Whether `losses` is given. Otherwise the tight accountant prices the simpler event.
    has_losses: bool = False

    def losses(self, event: Any, view: View) -> Losses:
        """The privacy loss, from above or from below, as `view` asks."""
        raise unknown(event, "tight accounting")

    def exact(self, event: Any) -> bool:
        """Whether `losses` gives the whole distribution, the same from above and from below."""
        return False

    def pure(self, event: Any, relation: Relation) -> float | None:
        """ε of ε-DP, rounded up; inf where there is none."""
        return None

    def zcdp(self, event: Any, relation: Relation) -> float | None:
        """ρ of ρ-zCDP, rounded up; inf where there is none."""
        return None

    def gdp(self, event: Any, relation: Relation) -> float | None:
        """μ of μ-GDP, rounded up."""
        return None

    def rdp(self, event: Any, orders: Floats, relation: Relation) -> Floats | None:
        """The Rényi divergence at each order, rounded up."""
        return None

    def scaled(self, event: Any, factor: float) -> Event | None:
        """The same event with at least `factor` times the noise; None if there is no noise to scale."""
        return None


_PRICES: dict[type[Event], EventPrices] = {}


def register(kind: type[Event], price: EventPrices) -> None:
    """Price events of type `kind` with `price`. Each type has one price."""
    assert kind not in _PRICES, f"{kind.__name__} has a price already"
    _PRICES[kind] = price


def price_of(event: Event, accountant: str) -> EventPrices:
    """The price of an event outside the basic language; refused if nobody registered one."""
    price = _PRICES.get(type(event))
    if price is None:
        raise unknown(event, accountant)
    return price


def is_priced(event: Event) -> bool:
    """Whether somebody registered a price for this type of event."""
    return type(event) in _PRICES
