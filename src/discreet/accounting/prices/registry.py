"""Which price belongs to which event. Imported by `discreet.accounting`, so that every accountant knows all of them.

A new price is one line here: `register(ev.X, XPrice())`.
"""

from discreet import events as ev
from discreet.accounting.prices.aggregation import DistributedDiscreteGaussianPrice, SkellamPrice
from discreet.accounting.prices.allocation import AllocationPrice
from discreet.accounting.prices.correlated import CorrelatedPrice, CyclicPrice
from discreet.accounting.prices.declared import DeclaredPrice
from discreet.accounting.prices.local import LocalReportPrice
from discreet.accounting.prices.objectives import PerturbedObjectivePrice
from discreet.accounting.prices.price import register
from discreet.accounting.prices.selection import SelectionPrice
from discreet.accounting.prices.truncated import TruncatedPrice
from discreet.accounting.prices.votes import VotesPrice

register(ev.SelectedFromRepeats, SelectionPrice())
register(ev.DistributedDiscreteGaussian, DistributedDiscreteGaussianPrice())
register(ev.Skellam, SkellamPrice())
register(ev.GaussianVotes, VotesPrice())
register(ev.GaussianVoteCheck, VotesPrice())
register(ev.LaplaceVotes, VotesPrice())
register(ev.LocalReport, LocalReportPrice())
register(ev.RandomlyAllocated, AllocationPrice())
register(ev.ToeplitzNoise, CorrelatedPrice())
register(ev.SquareRootNoise, CorrelatedPrice())
register(ev.BufferedNoise, CorrelatedPrice())
register(ev.TreeNoise, CorrelatedPrice())
register(ev.CyclicSampled, CyclicPrice())
register(ev.TruncatedPoissonSampled, TruncatedPrice())
register(ev.DeclaredExponentials, DeclaredPrice())
register(ev.PerturbedObjective, PerturbedObjectivePrice())
