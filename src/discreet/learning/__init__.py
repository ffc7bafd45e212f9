"""Private training: the flow in a loop. The only part of Discreet that imports torch."""

from discreet.learning import _extra as _extra  # first: says what to install
from discreet.learning._train import train
from discreet.learning.clipping import Adaptive, Automatic, Clipping, Flat, PerLayer
from discreet.learning.compatibility import check, fix
from discreet.learning.data.sampling import FixedSizeSampler, PoissonSampler, ShuffledEpochs
from discreet.learning.engine import ClippedSum, Engine, clipped_sum
from discreet.learning.noise import GaussianNoise, L2LaplaceNoise, LaplaceNoise
from discreet.learning.plan import Plan
from discreet.learning.run import History, Run
from discreet.learning.step import Step

__all__ = [
    "Adaptive",
    "Automatic",
    "ClippedSum",
    "Clipping",
    "Engine",
    "FixedSizeSampler",
    "Flat",
    "GaussianNoise",
    "History",
    "L2LaplaceNoise",
    "LaplaceNoise",
    "PerLayer",
    "Plan",
    "PoissonSampler",
    "Run",
    "ShuffledEpochs",
    "Step",
    "check",
    "clipped_sum",
    "fix",
    "train",
]
