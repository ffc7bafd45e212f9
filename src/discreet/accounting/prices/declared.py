"""The price of selections whose scores were all declared in advance."""

from __future__ import annotations

from discreet.accounting.prices.price import EventPrices
from discreet.events import DeclaredExponentials, Event, Exponential, Repeated
from discreet.neighbors import Relation


class DeclaredPrice(EventPrices):
    """Optimal non-adaptive composition of exponential mechanisms (Dong, Durfee & Rogers 2020).

    Its loss depends on which other selections a composition has, so `losses.of_events` gives it. In the forms that
    add up (pure, zCDP, Rényi) nothing is gained by declaring scores: there, `Repeated(Exponential)` is priced.
    """

    has_losses = True

    def simpler(self, event: DeclaredExponentials, relation: Relation, accountant: str) -> Event:
        return Repeated(Exponential(event.epsilon), event.count)
