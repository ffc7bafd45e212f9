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

from discreet.events.base import Event
from discreet.events.choices import DeclaredExponentials, Exponential, NoisyMax, RandomizedResponse, SparseVector
from discreet.events.claims import Claimed, Insecure, MayFail, NonPrivate
from discreet.events.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, L2Laplace, Laplace
from discreet.events.sampling import PoissonSampled, SampledWithoutReplacement, Shuffled, ShuffledEpoch
from discreet.events.structure import Composed, Group, Parallel, Repeated, is_secure

__all__ = [
    "Claimed",
    "Composed",
    "DeclaredExponentials",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Exponential",
    "Gaussian",
    "Group",
    "Insecure",
    "L2Laplace",
    "Laplace",
    "MayFail",
    "NoisyMax",
    "NonPrivate",
    "Parallel",
    "PoissonSampled",
    "RandomizedResponse",
    "Repeated",
    "SampledWithoutReplacement",
    "Shuffled",
    "ShuffledEpoch",
    "SparseVector",
    "is_secure",
]
