"""Which price belongs to which event. Imported by `discreet.accounting`, so that every accountant knows all of them.

A new price is one line here: `register(events.X, XPrice())`.
"""

from discreet import events as ev
from discreet.accounting.prices.aggregation import DistributedDiscreteGaussianPrice, SkellamPrice
from discreet.accounting.prices.local import LocalReportPrice
from discreet.accounting.prices.price import register
from discreet.accounting.prices.selection import SelectionPrice
from discreet.accounting.prices.votes import VotesPrice

register(ev.SelectedFromRepeats, SelectionPrice())
register(ev.DistributedDiscreteGaussian, DistributedDiscreteGaussianPrice())
register(ev.Skellam, SkellamPrice())
register(ev.GaussianVotes, VotesPrice())
register(ev.GaussianVoteCheck, VotesPrice())
register(ev.LaplaceVotes, VotesPrice())
register(ev.LocalReport, LocalReportPrice())
