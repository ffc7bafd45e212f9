"""Each attack succeeds on the release without noise and falls to chance on the one with noise.

With ε = 0.1 no attacker is right more often than 52.5% on average; the bounds below add five standard errors.
"""

from __future__ import annotations

import numpy as np
import pytest

from discreet.auditing import reidentification, replay
from discreet.auditing.reidentification.demonstration import balanced, cells_of, noisy_guesses

SINGLE = ("uniqueness", "linkage", "governor", "differencing")
MANY = ("ratings", "membership", "reconstruction")


@pytest.mark.slow
@pytest.mark.parametrize("name", SINGLE)
def test_an_attack_on_single_people_falls_to_chance(name):
    shown = getattr(reidentification, name)()
    assert shown.plain > 0.85
    assert shown.protected < shown.limit + 5 * 0.5 / 1000**0.5
    assert "by chance" in str(shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_an_attack_on_many_numbers_falls_to_chance(name):
    shown = getattr(reidentification, name)()
    assert shown.plain > 0.9
    assert shown.protected < 0.75  # a hundred secrets, or people: five standard errors


@pytest.mark.slow
def test_k_anonymous_classes_give_secrets_away():
    shown = reidentification.k_anonymity()
    assert shown.plain > 0.05
    assert shown.curve[1][1] > shown.curve[0][1]
    assert shown.protected == 0


def test_more_facts_single_out_more_people():
    cells = cells_of(np.array([1, 1, 2, 2]), np.array(["a", "b", "a", "a"]))
    assert np.bincount(cells)[cells].tolist() == [1, 1, 2, 2]


def test_the_noise_covers_a_secret_that_changes():
    """The attacker knows that a person is in the table and guesses the secret: both counts of the cell move."""
    cells, secret = np.arange(50), np.arange(50) % 2 == 0
    targets = balanced(cells, secret, 50, "test")
    other = secret ^ (cells == 7)
    seen = replay(lambda secrets: [noisy_guesses(cells, secrets, targets), None][1], [(secret, other)])
    assert (seen.passed, seen.tightest) == (True, 1.0), str(seen)


def test_noisy_guesses_are_no_better_than_the_limit_even_about_unique_people():
    """100,000 guesses, of which 51.2% are right on average: both limits are more than seven standard errors away."""
    cells = np.arange(100_000)
    secret = cells % 2 == 0
    targets = balanced(cells, secret, 100_000, "test")
    assert len(targets) == 100_000
    assert 0.5 < noisy_guesses(cells, secret, targets) < 0.525
