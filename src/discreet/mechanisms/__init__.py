"""Bounded → Release: exact noise, one file per mechanism. Noise for a release is drawn only here.

Each mechanism is a class in noise units (`Laplace(scale)`, `Gaussian(standard_deviation)`, …) with `event`, `guarantee`
and `release`, and has a function that calibrates it to a privacy level (`laplace(bounded, epsilon=…)`, …).
"""

from discreet.mechanisms._discrete_gaussian import DiscreteGaussian, discrete_gaussian
from discreet.mechanisms._epsilon_range import EpsilonRange, epsilon_range
from discreet.mechanisms._exponential import Exponential, exponential
from discreet.mechanisms._gaussian import Gaussian, gaussian
from discreet.mechanisms._l2_laplace import L2Laplace, l2_laplace
from discreet.mechanisms._laplace import Laplace, laplace
from discreet.mechanisms._noisy_max import NoisyMax, noisy_max
from discreet.mechanisms._randomized_response import RandomizedResponse, randomized_response
from discreet.mechanisms._sparse_vector import SparseVector, sparse_vector
from discreet.mechanisms._top_k import TopK, top_k
from discreet.mechanisms.key_selection import KeySelection

__all__ = [
    "DiscreteGaussian",
    "EpsilonRange",
    "Exponential",
    "Gaussian",
    "KeySelection",
    "L2Laplace",
    "Laplace",
    "NoisyMax",
    "RandomizedResponse",
    "SparseVector",
    "TopK",
    "discrete_gaussian",
    "epsilon_range",
    "exponential",
    "gaussian",
    "l2_laplace",
    "laplace",
    "noisy_max",
    "randomized_response",
    "sparse_vector",
    "top_k",
]
