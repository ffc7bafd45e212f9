"""Which price belongs to which event. Imported by `discreet.accounting`, so that every accountant knows all of them.

A new price is one line here: `register(events.X, XPrice())`.
"""

from discreet import events
from discreet.accounting.prices.declared import DeclaredPrice
from discreet.accounting.prices.price import register

register(events.DeclaredExponentials, DeclaredPrice())
