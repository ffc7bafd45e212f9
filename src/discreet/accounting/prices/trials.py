"""Laws of the number of trials, through f′: the derivative of the generating function f(x) = E[x^K].

The best of K runs exceeds all others, so its density is that of one run times f′(F), where F is the probability that a
run is no better. With u = 1 − F, each law has a formula for ln f′(1 − u), which falls in u from ln E[K] at u = 0.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from discreet.events.selection import BinomialTrials, NegativeBinomialTrials, PoissonTrials, Trials
from discreet.numeric.rounding import Floats

# Beyond this fall of ln f′ its values no longer matter: they are weighed by e^{−80}.
_FAR_FALL = 80.0
# Points of a grid that follow the fall of ln f′ up to there, and points beyond.
_NEAR_POINTS, _FAR_POINTS = 1200, 100


def log_mean(trials: Trials) -> float:
    """ln E[K]."""
    return float(log_density(trials, np.zeros(1))[0])


def log_density(trials: Trials, worse: Floats) -> Floats:
    """ln f′(1 − u) at each u in `worse`."""
    match trials:
        case NegativeBinomialTrials(shape, stop):
            eta, gamma = float(shape), float(stop)
            exponent = eta * math.log(gamma)
            # (1 − γ^η)/η, which is −ln γ at η = 0.
            spread = -math.log(gamma) * (math.expm1(exponent) / exponent if exponent else 1.0)
            top = math.log1p(-gamma) - math.log(gamma) - math.log(spread)
            return top - (eta + 1) * np.log1p((1 - gamma) / gamma * worse)
        case PoissonTrials(mean):
            return math.log(mean) - float(mean) * worse
        case BinomialTrials(most, probability):
            chance = float(probability)
            return math.log(most) + math.log(chance) + float(most - 1) * np.log1p(-chance * worse)


def log_none(trials: Trials) -> float:
    """ln P(K = 0)."""
    match trials:
        case NegativeBinomialTrials():
            return -math.inf
        case PoissonTrials(mean):
            return -float(mean)
        case BinomialTrials(most, probability):
            return most * math.log1p(-float(probability))


def grid(trials: Trials) -> Floats:
    """Points u from 0 to 1 between which ln f′(1 − u) falls by equal amounts."""
    fall = log_mean(trials) - float(log_density(trials, np.ones(1))[0])
    if fall <= 0:  # one trial at most: f′ is constant
        return np.array([0.0, 1.0])
    near = np.linspace(0.0, min(fall, _FAR_FALL), _NEAR_POINTS)
    far = np.linspace(min(fall, _FAR_FALL), fall, _FAR_POINTS)
    falls = np.concatenate((near, far))
    match trials:
        case NegativeBinomialTrials(shape, stop):
            gamma = float(stop)
            points = np.expm1(falls / (float(shape) + 1)) * gamma / (1 - gamma)
        case PoissonTrials(mean):
            points = falls / float(mean)
        case BinomialTrials(most, probability):
            points = -np.expm1(-falls / (most - 1)) / float(probability)
    return np.unique(np.append(np.clip(points, 0.0, 1.0), (0.0, 1.0)))


def pure_growth(trials: Trials, epsilon: float) -> float:
    """The largest ln f′(F) − ln f′(F′) if each run is ε-DP.

    The worst set of outputs has probability 1/(1 + e^ε) under one neighbor and e^ε/(1 + e^ε) under the other: between
    the two lines that bound u′ the quotient is a monotone function of u, so its largest value is where they meet.
    """
    first, second = log_density(trials, special.expit(np.array([-epsilon, epsilon])))
    return max(0.0, float(first - second))
