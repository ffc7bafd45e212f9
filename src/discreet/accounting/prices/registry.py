"""Which price belongs to which event. Imported by `discreet.accounting`, so that every accountant knows all of them.

A new price is one line here: `register(events.X, XPrice())`.
"""

from discreet import events
from discreet.accounting.prices.allocation import AllocationPrice
from discreet.accounting.prices.correlated import CorrelatedPrice, CyclicPrice
from discreet.accounting.prices.price import register
from discreet.accounting.prices.truncated import TruncatedPrice

register(events.RandomlyAllocated, AllocationPrice())
register(events.ToeplitzNoise, CorrelatedPrice())
register(events.SquareRootNoise, CorrelatedPrice())
register(events.BufferedNoise, CorrelatedPrice())
register(events.TreeNoise, CorrelatedPrice())
register(events.CyclicSampled, CyclicPrice())
register(events.TruncatedPoissonSampled, TruncatedPrice())
