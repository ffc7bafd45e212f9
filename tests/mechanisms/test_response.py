"""Randomized response from 16-bit words: the cuts are certified, words at a cut get more bits, and the law is exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.mechanisms.sampling.response import Response
from tests.exact import FALSE_ALARM, ScriptedBits


@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), Fraction(5), Fraction(256)])
@pytest.mark.parametrize("count", [2, 3, 4, 16, 32])
def test_the_cuts_enclose_the_probabilities(epsilon, count):
    truth = 1 / (1 + (count - 1) * math.exp(-epsilon))
    for precision in (16, 80):
        for j, (low, high) in enumerate(Response(epsilon, count).cuts(precision)):
            end = truth + (1 - truth) * j / (count - 1)
            assert low / 2.0**precision <= end * (1 + 1e-15)
            assert high / 2.0**precision >= end * (1 - 1e-15)
            assert 0 <= high - low <= 4


def test_every_word_has_the_outcome_of_all_reals_that_start_with_it():
    sampler = Response(Fraction(1), 4)
    ends = [low / 2.0**80 for low, _ in sampler.cuts(80)]
    words = np.arange(1 << 16)
    first = np.searchsorted(ends, words / 2.0**16, side="right")
    last = np.searchsorted(ends, (words + 1) / 2.0**16 - 2.0**-40, side="right")
    decided = sampler._outcomes >= 0
    assert (first[decided] == sampler._outcomes[decided]).all()
    assert (last[decided] == sampler._outcomes[decided]).all()
    assert np.count_nonzero(~decided) <= 6


def test_outcomes_are_drawn_with_their_probabilities():
    for epsilon, count in [(Fraction(1, 2), 2), (Fraction(1), 4), (Fraction(2), 16)]:
        drawn = Response(epsilon, count).draw(50_000)
        chances = np.array([math.exp(epsilon)] + [1.0] * (count - 1)) / (math.exp(epsilon) + count - 1)
        expected = chances * drawn.size
        statistic = np.sum((np.bincount(drawn, minlength=count) - expected) ** 2 / expected)
        assert statistic < stats.chi2.isf(FALSE_ALARM, count - 1)


def test_a_word_at_a_cut_gets_more_bits_until_it_is_decided():
    sampler = Response(Fraction(1), 4)
    word = int(np.flatnonzero(sampler._outcomes < 0)[0])
    low, high = sampler.cuts(80)[0]
    assert low >> 64 == word

    class AtTheCut(ScriptedBits):
        def read(self, count):
            return np.full(2, word, dtype=np.uint16).tobytes() if count == 4 else super().read(count)

    below, above = (low - 1) & (2**64 - 1), high & (2**64 - 1)
    assert sampler.draw(2, AtTheCut(integers=[below, above])).tolist() == [0, 1]
    # A word whose next 64 bits lie at the cut as well is asked for 64 more.
    bits = AtTheCut(integers=[low & (2**64 - 1), 0, above])
    sampler.draw(2, bits)
    assert bits.asked == [64, 64, 64]
