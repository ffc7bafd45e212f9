"""The random number of trials of a search, drawn exactly from its law.

How often a search runs is what its privacy rests on, so no floating-point number decides it. The geometric law flips
coins of a rational probability. The other truncated negative binomial laws with η ≤ 1 accept a geometric number k with
probability Π (l + η)/(l + 1) over l = 1, …, k − 1, which is the ratio of the two laws (Papernot & Steinke 2022,
Definition 1). A Poisson number is the sum of Poisson numbers of mean at most 1, each drawn by inversion.
"""

from __future__ import annotations

from fractions import Fraction
from math import factorial

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.events.selection import BinomialTrials, NegativeBinomialTrials, Trials
from discreet.mechanisms.sampling import entropy
from discreet.mechanisms.sampling.fixed_point import bernoulli, exp_neg

#: Coins that are flipped at once.
_COINS = 256


def draw(trials: Trials, bits: entropy.Bits = entropy.SYSTEM) -> int:
    """A number of trials from the law. It is secret.

    >>> draw(NegativeBinomialTrials(1, 0.5), entropy.bits(insecure_seed=3)) >= 1
    True
    """
    if isinstance(trials, NegativeBinomialTrials):
        return _negative_binomial(Fraction(trials.shape), Fraction(trials.stop), bits)
    if isinstance(trials, BinomialTrials):
        return int(np.count_nonzero(_coins(Fraction(trials.probability), trials.most, bits)))
    return _poisson(Fraction(trials.mean), bits)


def generating(trials: Trials, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """E[x^K] for x in [0, 1]: the probability that all of K independent things happen, each with probability x."""
    if isinstance(trials, BinomialTrials):
        return np.asarray((1 - trials.probability + trials.probability * at) ** trials.most)
    if isinstance(trials, NegativeBinomialTrials):
        left = np.log1p(-(1 - trials.stop) * at)
        if trials.shape == 0:
            return np.asarray(left / np.log(trials.stop))
        return np.asarray(np.expm1(-trials.shape * left) / np.expm1(-trials.shape * np.log(trials.stop)))
    return np.asarray(np.exp(trials.mean * (at - 1)))


def check(trials: object) -> None:
    """Refuse a law from which no number can be drawn exactly here."""
    if not isinstance(trials, Trials):
        raise _check.fail("trials", "be a law of the number of trials", trials, "see discreet.events")
    if isinstance(trials, NegativeBinomialTrials) and trials.shape > 1:
        raise _check.fail("shape", "be ≤ 1 to be drawn", trials.shape, "1 is the geometric law, 0 the logarithmic one")


def _coins(chance: Fraction, size: int, bits: entropy.Bits) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    def enclosure(precision: int) -> tuple[int, int]:
        scaled = (chance.numerator << precision) // chance.denominator
        return scaled, scaled + (0 if (chance * (1 << precision)).denominator == 1 else 1)

    return bernoulli(enclosure, size, bits)


def _negative_binomial(shape: Fraction, stop: Fraction, bits: entropy.Bits) -> int:
    while True:
        number = _geometric(stop, bits)
        if shape == 1 or all(_coins((before + shape) / (before + 1), 1, bits)[0] for before in range(1, number)):
            return number


def _geometric(stop: Fraction, bits: entropy.Bits) -> int:
    """The number of the first coin that says stop."""
    before = 0
    while True:
        stops = np.flatnonzero(_coins(stop, _COINS, bits))
        if stops.size:
            return before + int(stops[0]) + 1
        before += _COINS


def _poisson(mean: Fraction, bits: entropy.Bits) -> int:
    whole = mean.numerator // mean.denominator
    rates = [Fraction(1)] * whole + ([mean - whole] if mean > whole else [])
    return sum(_small_poisson(rate, bits) for rate in rates)


def _small_poisson(mean: Fraction, bits: entropy.Bits) -> int:
    """A Poisson number of mean ≤ 1: the largest k that a uniform U ≥ P(K < k) still reaches."""
    number = 0
    prefix, width = bits.integer(64), 64
    while True:
        below = sum((mean**k / factorial(k) for k in range(number + 1)), Fraction(0))

        def enclosure(precision: int, below: Fraction = below) -> tuple[int, int]:
            low, high = exp_neg(mean, precision + 8)
            return int(low * below) >> 8, (int(high * below) >> 8) + 1

        low, high = enclosure(width)
        while low <= prefix < high:  # undecided: the same uniform gets more bits
            prefix, width = (prefix << 64) | bits.integer(64), width + 64
            low, high = enclosure(width)
        if prefix < low:
            return number
        number += 1
