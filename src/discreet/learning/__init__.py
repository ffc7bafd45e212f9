"""Private training: the flow in a loop. The only part of Discreet that imports torch."""

from discreet.learning import _extra as _extra  # first: says what to install
from discreet.learning.check import check
from discreet.learning.clipping import Adaptive, Automatic, Clipping, Flat, PerLayer
from discreet.learning.engine import ClippedSum, Engine, clipped_sum
from discreet.learning.fix import fix
from discreet.learning.noise import GaussianNoise, L2LaplaceNoise, LaplaceNoise
from discreet.learning.plan import Plan
from discreet.learning.run import History, Run
from discreet.learning.sampling import FixedSizeSampler, PoissonSampler, ShuffledEpochs
from discreet.learning.step import Step
from discreet.learning.train import train

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
