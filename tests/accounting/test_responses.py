"""Shuffled randomized response from above: every choice of the others' values is covered, and hardly more."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from discreet import events as ev
from discreet.accounting import responses
from discreet.accounting.shuffle import clones, clones_delta, shuffled_delta
from discreet.accounting.tight import delta, epsilon
from discreet.neighbors import REPLACE_ONE
from tests.accounting.test_shuffles import excess, histograms

SMALL = [(2, 2, 1.0), (2, 7, 1.0), (2, 7, 3.0), (3, 2, 1.0), (3, 5, 1.0), (3, 4, 2.5), (4, 4, 1.0), (6, 3, 0.5)]


def worst(categories: int, reports: int, loss: float, at: float) -> float:
    """The largest δ over the values of all others, and over which dataset is the first."""
    found = []
    for others in itertools.combinations_with_replacement(range(categories), reports - 1):
        outcomes = histograms(loss, categories, others)
        found += [excess(outcomes, at), excess([(q, p) for p, q in outcomes], at)]
    return max(found)


@pytest.mark.parametrize(("categories", "reports", "loss"), SMALL)
def test_no_values_of_the_others_reveal_more(categories, reports, loss):
    table = responses.table(reports - 1, loss, categories)
    for at in np.linspace(0.0, 0.97, 7) * loss:
        bound, truth = float(table.delta(np.array([at]))[0]), worst(categories, reports, loss, float(at))
        assert truth <= bound * (1 + 1e-12)
        # With two categories nothing is lost but chords; with more, who answers at random is revealed.
        assert bound <= truth * (1.003 if categories == 2 else 1.25)


@pytest.mark.parametrize("ones", [0, 3, 8])
def test_binary_sums_are_those_of_sixty_digits(ones):
    others, loss, at = 8, 1.0, 0.4
    with mp.workdps(60):
        p, growth = 1 / (1 + mp.exp(-mp.mpf(loss))), mp.exp(mp.mpf(at))
        law = [mp.mpf(1)]
        for chance in [p] * ones + [1 - p] * (others - ones):
            law = [
                (law[m - 1] * chance if m else 0) + (law[m] * (1 - chance) if m < len(law) else 0)
                for m in range(len(law) + 1)
            ]
        law = [mp.mpf(0), *law, mp.mpf(0)]
        truth = mp.fsum(
            max((p - growth * (1 - p)) * law[m] - (growth * p - 1 + p) * law[m + 1], 0) for m in range(len(law) - 1)
        )
        bound = float(responses.table(others, loss, 2).delta(np.array([at]))[0])
        assert truth <= bound
        if ones == others:  # the worst one at this ε
            assert bound <= truth * 1.003


def test_groups_of_values_and_blocks_of_counts_only_raise_the_bound(monkeypatch):
    at = np.linspace(0.0, 0.5, 11)
    fine = [responses.table.__wrapped__(60, 1.5, categories).delta(at) for categories in (2, 4)]
    monkeypatch.setattr(responses, "_MOST_GROUPS", 5)
    monkeypatch.setattr(responses, "_ANSWERED", 2)
    monkeypatch.setattr(responses, "_CHOSEN", 4)
    coarse = [responses.table.__wrapped__(60, 1.5, categories).delta(at) for categories in (2, 4)]
    for better, worse in zip(fine, coarse, strict=True):
        assert np.all(better <= worse * (1 + 1e-9))
        assert np.any(better < 0.9 * worse)


@pytest.mark.parametrize(
    ("reports", "loss", "categories", "width"),
    [(1000, 1, 2, 0.006), (10_000, 1, 2, 0.006), (10_000, 3, 10, 0.015), (1000, 3, 3, 0.05), (10_000, 1, 100, 0.006)],
)
def test_the_interval_is_narrow(reports, loss, categories, width):
    event = ev.Shuffled(reports, ev.RandomizedResponse(Fraction(loss), categories))
    found = epsilon(event, 1e-6, REPLACE_ONE)
    assert 0 < found.width <= width * found.upper


def test_the_bound_is_far_below_that_of_clones_for_many_categories():
    event = ev.Shuffled(1000, ev.RandomizedResponse(Fraction(1), 100))
    hidden = clones(event)
    plain = type(hidden)(hidden.others, hidden.rate, hidden.loss, hidden.share)
    assert shuffled_delta(event, 0.03) < 1e-6
    assert clones_delta(plain, 0.7) > 1e-6


def test_too_many_reports_keep_the_clones(monkeypatch):
    event = ev.Shuffled(4000, ev.RandomizedResponse(Fraction(1)))
    hidden = clones(event)
    monkeypatch.setattr(responses, "_WORK", 1.0)
    responses.table.cache_clear()
    plain = type(hidden)(hidden.others, hidden.rate, hidden.loss, hidden.share)
    assert responses.table(hidden.others, hidden.loss, 2) is None
    assert responses.table(10**8, hidden.loss, 50) is None
    assert clones_delta(hidden, 0.03) == clones_delta(plain, 0.03)
    responses.table.cache_clear()


def test_masses_of_many_reports_have_the_digits_that_are_counted_on():
    count, worst = 10**7, mp.mpf(0)
    with mp.workdps(40):
        for chance in (0.5, 0.2689, 1e-3):
            for deviations in (-8, 0, 5, 9):
                k = round(count * chance + deviations * (count * chance * (1 - chance)) ** 0.5)
                logarithm = mp.loggamma(count + 1) - mp.loggamma(k + 1) - mp.loggamma(count - k + 1)
                logarithm += k * mp.log(mp.mpf(chance)) + (count - k) * mp.log1p(-mp.mpf(chance))
                found = mp.mpf(float(responses.binomial().pmf(k, count, chance)))
                worst = max(worst, abs(found / mp.exp(logarithm) - 1))
    assert worst < responses._RELATIVE / 10


@pytest.mark.parametrize("categories", [2, 3, 1000])
@pytest.mark.parametrize("loss", [Fraction(1, 1000), Fraction(20), Fraction(300)])
@pytest.mark.parametrize("reports", [1, 2, 300])
def test_extreme_reports_have_valid_prices(categories, loss, reports):
    event = ev.Shuffled(reports, ev.RandomizedResponse(loss, categories))
    found = delta(event, float(loss) / 2, REPLACE_ONE)
    assert 0 <= found.lower <= found.upper <= 1


@pytest.mark.parametrize("mutant", ["fair coins for lies", "twice as many at random", "a smaller truth"])
def test_a_mutant_is_caught(mutant, monkeypatch):
    masses, given = responses._masses, responses._given
    if mutant == "fair coins for lies":
        monkeypatch.setattr(responses, "_masses", lambda count, _: masses(count, 0.5))
    elif mutant == "twice as many at random":
        monkeypatch.setattr(responses, "_given", lambda number, *rest: given(2 * number, *rest))
    else:
        monkeypatch.setattr(responses, "_given", lambda number, p, q, *rest: given(number, (p + q) / 2, q, *rest))
    caught = 0
    for categories, reports, loss in ((2, 7, 1.0), (3, 5, 1.0)):
        bound = responses.table.__wrapped__(reports - 1, loss, categories)
        caught += float(bound.delta(np.array([0.5]))[0]) < worst(categories, reports, loss, 0.5)
    assert caught > 0
