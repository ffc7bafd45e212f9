"""Exposure is the rank of a secret in bits, and an extraction finds the likeliest continuation first."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from discreet.auditing import exposure, extractions, reidentification
from discreet.errors import InvalidArgument


def test_exposure_is_the_rank_in_bits():
    losses = np.arange(1024.0)
    assert exposure(losses, 0) == 10.0
    assert exposure(losses, 1) == 9.0
    assert exposure(losses, 1023) == 0.0
    assert exposure(np.zeros(3), 1) == math.log2(3) - 1  # all tie: the middle rank


def test_the_average_exposure_of_chance_is_about_one_bit_and_a_half():
    """log₂ e, for many candidates."""
    bits = [exposure(np.arange(4096.0), place) for place in range(4096)]
    assert np.mean(bits) == pytest.approx(math.log2(math.e), abs=0.01)


def test_extractions_come_in_the_order_of_their_probability():
    generator = np.random.default_rng(3)
    table = {}

    def scores(text):
        return table.setdefault(text, dict(zip("abc", np.log(generator.dirichlet(np.ones(3))), strict=True)))

    found = list(extractions(scores, "x", 3))
    texts = ["".join(letters) for letters in itertools.product("abc", repeat=3)]
    chances = {t: sum(scores("x" + t[:i])[t[i]] for i in range(3)) for t in texts}
    assert [text for text, _ in found] == sorted(texts, key=lambda text: -chances[text])
    assert [score for _, score in found] == pytest.approx(sorted(chances.values(), reverse=True))
    assert all(set(text) <= {"a", "b"} for text, _ in extractions(scores, "x", 3, alphabet="ab"))


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="losses must be finite"):
        exposure([math.nan, 1.0], 0)
    with pytest.raises(InvalidArgument, match="secret must be"):
        exposure([1.0, 2.0], 2)
    with pytest.raises(InvalidArgument, match="length must be"):
        next(extractions(lambda text: {}, "", 0))


@pytest.mark.slow
def test_a_language_model_gives_secrets_away_unless_it_is_private():
    """Without privacy each code is learned by heart: this is no matter of chance, as weights and texts are fixed.

    With ε = 4, the chance of writing down a code of three digits is at most e⁴·10⁻³ + δ < 6% for each of 20 (a code is
    in one text, and an attacker who never saw it guesses with 10⁻³), so 12 or more have a probability below
    C(20, 12)·0.06¹² < 1e-9 if the codes were independent; and below 1e-6 by far from what was measured, which is 0.
    """
    seen = reidentification.remember()
    assert seen.extracted[0] > 0.9
    assert np.median(seen.exposures[0]) > seen.most - 1
    assert seen.extracted[1] < 0.6
    assert np.mean(seen.exposures[1]) < seen.most - 2
