"""Shuffled reports as losses: attacks from below, clones from above, and composition with other events."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from discreet.accounting.losses import shuffles
from discreet.accounting.shuffle import Clones, clones_delta, shuffled_epsilon
from discreet.accounting.tight import delta, epsilon
from discreet.errors import UnknownEvent
from discreet.events import Claimed, Composed, Gaussian, Laplace, RandomizedResponse, Repeated, Shuffled
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE

Outcomes = list[tuple[float, float]]


def excess(outcomes: Outcomes, at: float) -> float:
    return math.fsum(max(0.0, p - math.exp(at) * q) for p, q in outcomes)


def twice(outcomes: Outcomes) -> Outcomes:
    return [(p * a, q * b) for p, q in outcomes for a, b in outcomes]


def histograms(loss: float, categories: int, others: tuple[int, ...]) -> Outcomes:
    """P and Q of every histogram of k-ary reports: one of category 0 or of category 1, and the given others."""
    norm = math.exp(loss) + categories - 1

    def law(values: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        result: dict[tuple[int, ...], float] = {(0,) * categories: 1.0}
        for value in values:
            after: dict[tuple[int, ...], float] = {}
            for counts, chance in result.items():
                for answer in range(categories):
                    key = tuple(count + (i == answer) for i, count in enumerate(counts))
                    share = math.exp(loss) / norm if answer == value else 1 / norm
                    after[key] = after.get(key, 0.0) + chance * share
            result = after
        return result

    first, second = law((0, *others)), law((1, *others))
    return [(first[key], second[key]) for key in first]


def among_clones(others: int, rate: float, loss: float) -> Outcomes:
    """The pair of the clone theorem, outcome by outcome."""
    stays, outcomes = 1 / (1 + math.exp(-loss)), []
    for c in range(others + 1):
        chance = math.comb(others, c) * rate**c * (1 - rate) ** (others - c) / 2**c
        for a in range(c + 2):
            up, keep = math.comb(c, a - 1) if a else 0, math.comb(c, a)
            outcomes.append((chance * (stays * up + (1 - stays) * keep), chance * ((1 - stays) * up + stays * keep)))
    return outcomes


@pytest.mark.parametrize("at", [0.0, 0.1, 0.4, 0.8])
def test_counting_binary_reports_attains_its_lower_end(at):
    exact = [(q, p) for p, q in histograms(1.0, 2, (1, 1, 1, 1, 1))]
    found = delta(Shuffled(6, RandomizedResponse(Fraction(1))), at, REPLACE_ONE)
    assert found.lower <= excess(exact, at) <= found.upper
    assert found.lower == pytest.approx(excess(exact, at), rel=0.02)
    # In the other order, a report that differs from all others in the first dataset, less is lost.
    assert excess([(q, p) for p, q in exact], at) <= found.lower * (1 + 1e-9)


@pytest.mark.parametrize("at", [0.0, 0.2, 0.7])
def test_the_histogram_attack_is_one_that_the_reports_allow(at):
    exact = histograms(1.5, 3, (2, 2, 2, 2))
    found = delta(Shuffled(5, RandomizedResponse(Fraction(3, 2), 3)), at, REPLACE_ONE)
    assert found.lower <= excess(exact, at) <= found.upper
    assert found.lower == pytest.approx(excess(exact, at), rel=0.05)


@pytest.mark.parametrize("at", [0.0, 0.3, 1.2])
def test_shuffles_compose_as_the_pair_of_the_theorem(at):
    truth = excess(twice(among_clones(3, math.exp(-1), 1.0)), at)
    found = delta(Repeated(Shuffled(4, Laplace(1.0)), 2), at, REPLACE_ONE)
    assert truth <= found.upper <= truth * 1.01


@pytest.mark.parametrize("at", [0.0, 0.3, 1.2])
def test_shuffled_responses_compose_below_their_clones_and_above_every_attack(at):
    found = delta(Repeated(Shuffled(4, RandomizedResponse(Fraction(1))), 2), at, REPLACE_ONE)
    assert found.upper < excess(twice(among_clones(3, 2 / (1 + math.e), 1.0)), at)
    attacked = max(excess(twice(histograms(1.0, 2, others)), at) for others in itertools.product(range(2), repeat=3))
    assert found.lower <= attacked <= found.upper


def test_the_pair_of_a_shuffle_joins_the_points_of_its_sum_from_above():
    hidden = Clones(5000, 0.3, 1.0)
    loss = shuffles.above(hidden)
    for at in (0.0, 0.0123, 0.05, 0.2, 0.9):
        truth = clones_delta(hidden, at)
        assert truth * (1 - 1e-9) <= loss.profile(at)[1] <= truth * 1.02 + 1e-12


def test_one_shuffle_costs_the_same_alone_and_in_a_composition():
    for report in (Laplace(1.0), RandomizedResponse(Fraction(2), 4), Claimed(0.5)):
        event = Shuffled(2000, report)
        alone, composed = shuffled_epsilon(event, 1e-6), epsilon(Repeated(event, 1), 1e-6, REPLACE_ONE).upper
        assert alone * (1 - 1e-9) <= composed <= alone * 1.003
        assert 0 < epsilon(event, 1e-6, REPLACE_ONE).lower < alone


def test_three_shuffles_and_a_gaussian_cost_less_than_the_sum_of_their_prices():
    shuffled, noise = Shuffled(10_000, RandomizedResponse(Fraction(1))), Gaussian(20.0)
    found = epsilon(Composed((Repeated(shuffled, 3), noise)), 1e-6, REPLACE_ONE)
    assert found.upper < 0.75 * (3 * shuffled_epsilon(shuffled, 2.5e-7) + epsilon(noise, 2.5e-7).upper)
    assert found.lower > epsilon(noise, 1e-6).upper
    assert found.width <= 0.05 * found.upper


def test_a_shuffle_inside_a_composition_is_refused_where_the_number_of_reports_is_private():
    with pytest.raises(UnknownEvent, match="Shuffled"):
        epsilon(Composed((Shuffled(10, Laplace(1.0)), Gaussian(1.0))), 1e-6, ADD_REMOVE)


@pytest.mark.parametrize("reports", [1, 2, 3])
def test_few_reports_keep_both_ends(reports):
    for report in (Laplace(1.0), RandomizedResponse(Fraction(1)), RandomizedResponse(Fraction(1), 5), Claimed(0.0)):
        found = epsilon(Shuffled(reports, report), 1e-3, REPLACE_ONE)
        assert 0 <= found.lower <= found.upper <= 1
        assert epsilon(Repeated(Shuffled(reports, report), 2), 1e-3, REPLACE_ONE).upper <= 2


def test_attacks_on_a_million_reports_keep_their_mass():
    # Tests of no weight, below the smallest normal float, once took all of it.
    for categories in (3, 100):
        assert float(shuffles.histogram(10**6, 3.0, categories).p.sum()) == pytest.approx(1, abs=1e-9)


def test_counts_that_an_attack_does_not_tell_apart_only_weaken_it(monkeypatch):
    exact = histograms(1.5, 3, (2, 2, 2, 2))
    monkeypatch.setattr(shuffles, "_TOLD_APART", 1)
    blurred = shuffles.histogram.__wrapped__(5, 1.5, 3)
    for at in (0.0, 0.2, 0.5):
        assert 0 < blurred.profile(at)[0] <= excess(exact, at)
