"""Bounded → Release: exact noise, one file per mechanism. This is the only place where noise for a release is drawn.

Each mechanism is a class in noise units (`Laplace(scale)`, `Gaussian(standard_deviation)`, …) with `event`, `guarantee`
and `release`, and a function that calibrates it for a wanted privacy (`laplace(bounded, epsilon=…)`, …).
"""

from discreet.mechanisms.discrete_gaussian import DiscreteGaussian, discrete_gaussian
from discreet.mechanisms.exponential import Exponential, exponential
from discreet.mechanisms.gaussian import Gaussian, gaussian
from discreet.mechanisms.key_selection import KeySelection
from discreet.mechanisms.l2_laplace import L2Laplace, l2_laplace
from discreet.mechanisms.laplace import Laplace, laplace
from discreet.mechanisms.noisy_max import NoisyMax, noisy_max
from discreet.mechanisms.randomized_response import RandomizedResponse, randomized_response
from discreet.mechanisms.sparse_vector import SparseVector, sparse_vector
from discreet.mechanisms.top_k import TopK, top_k

__all__ = [
    "DiscreteGaussian",
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
    "exponential",
    "gaussian",
    "l2_laplace",
    "laplace",
    "noisy_max",
    "randomized_response",
    "sparse_vector",
    "top_k",
]
