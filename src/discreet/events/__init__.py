"""Events: records of what was run. Mechanisms emit them, and accountants price them.

An event is a frozen value made of numbers and other events. It holds only public facts (noise, sensitivity, rates,
counts), reads like what happened, and nests:

>>> from fractions import Fraction
>>> step = PoissonSampled(rate=0.01, event=Gaussian(noise_multiplier=1.0))
>>> Composed((Repeated(step, 1000), DiscreteLaplace(sensitivity=1, scale=Fraction(10))))
Composed(events=(Repeated(event=PoissonSampled(rate=0.01, event=Gaussian(noise_multiplier=1.0)), count=1000), \
DiscreteLaplace(sensitivity=1, scale=Fraction(10, 1))))

Its numbers are settled when it is made: a number of numpy becomes the Python number that equals it, and a number that
Python cannot hold exactly is refused. So equal events have equal prices, in whatever type their numbers came.

The meaning of an event never changes: a new meaning gets a new event. An accountant that does not know an event raises
`UnknownEvent`.
"""

from discreet.events.aggregation import DistributedDiscreteGaussian, Skellam
from discreet.events.base import Event
from discreet.events.choices import (
    DeclaredExponentials,
    Exponential,
    LocalReport,
    NoisyMax,
    RandomizedResponse,
    SparseVector,
)
from discreet.events.claims import Claimed, Insecure, MayFail, NonPrivate
from discreet.events.correlated import BufferedNoise, CyclicSampled, SquareRootNoise, ToeplitzNoise, TreeNoise
from discreet.events.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, L2Laplace, Laplace
from discreet.events.objectives import PerturbedObjective
from discreet.events.sampling import (
    PoissonSampled,
    RandomlyAllocated,
    SampledWithoutReplacement,
    Shuffled,
    ShuffledEpoch,
    TruncatedPoissonSampled,
)
from discreet.events.selection import BinomialTrials, NegativeBinomialTrials, PoissonTrials, SelectedFromRepeats, Trials
from discreet.events.structure import Composed, Group, Parallel, Repeated, is_secure
from discreet.events.votes import GaussianVoteCheck, GaussianVotes, LaplaceVotes

__all__ = [
    "BinomialTrials",
    "BufferedNoise",
    "Claimed",
    "Composed",
    "CyclicSampled",
    "DeclaredExponentials",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DistributedDiscreteGaussian",
    "Event",
    "Exponential",
    "Gaussian",
    "GaussianVoteCheck",
    "GaussianVotes",
    "Group",
    "Insecure",
    "L2Laplace",
    "Laplace",
    "LaplaceVotes",
    "LocalReport",
    "MayFail",
    "NegativeBinomialTrials",
    "NoisyMax",
    "NonPrivate",
    "Parallel",
    "PerturbedObjective",
    "PoissonSampled",
    "PoissonTrials",
    "RandomizedResponse",
    "RandomlyAllocated",
    "Repeated",
    "SampledWithoutReplacement",
    "SelectedFromRepeats",
    "Shuffled",
    "ShuffledEpoch",
    "Skellam",
    "SparseVector",
    "SquareRootNoise",
    "ToeplitzNoise",
    "TreeNoise",
    "Trials",
    "TruncatedPoissonSampled",
    "is_secure",
]
