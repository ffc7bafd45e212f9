"""Selections of bounded range: the best attack from below, every strategy from above, scores declared in advance."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting.losses import ranges
from discreet.accounting.tight import delta, epsilon
from discreet.events import (
    Composed,
    DeclaredExponentials,
    Exponential,
    Gaussian,
    Group,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)


def one_selection(loss, at):
    """(√E − √y)²/(E − 1): the closed form of docs/proofs/bounded-range.md for a single draw."""
    e, y = mp.exp(mp.mpf(loss)), mp.exp(mp.mpf(at))
    return (mp.sqrt(e) - mp.sqrt(y)) ** 2 / (e - 1)


def played(loss, shares, at):
    """δ when draw i splits the range at shares[i], whatever the outcomes: a sum over all outcomes."""
    e, outcomes = mp.exp(mp.mpf(loss)), [(mp.mpf(1), mp.mpf(1))]
    for share in shares:
        s = mp.exp(mp.mpf(loss) * share)
        p = (e - s) / (e - 1)
        outcomes = [(a * x, b * y) for a, b in outcomes for x, y in ((p, p / s), (1 - p, (1 - p) * e / s))]
    return mp.fsum(max(mp.mpf(0), a - mp.exp(mp.mpf(at)) * b) for a, b in outcomes)


def two_adaptive_draws(loss, at, points=400, last=None):
    """The recursion for two draws: the first split on a fine grid, the second (of range `last`) by the closed form."""
    last = loss if last is None else last

    def second(x):
        if x >= last:
            return 0.0
        if x <= -last:
            return -math.expm1(x)
        return float(one_selection(last, x))

    best = 0.0
    for t in np.linspace(0, loss, points + 1):
        p = math.expm1(t - loss) / math.expm1(-loss)
        best = max(best, p * second(at - t) + (1 - p) * second(at - t + loss))
    return best


@pytest.mark.parametrize("loss", [Fraction(1, 10), Fraction(1), Fraction(4)])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_one_selection_has_the_profile_of_the_proof(loss, share):
    at = share * float(loss)
    found = delta(Exponential(loss), at)
    truth = one_selection(float(loss), at)
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-3 * found.upper
    assert delta(DeclaredExponentials(loss, 1), at).contains(float(truth))


@pytest.mark.parametrize(("loss", "at"), [(0.5, 0.2), (1.0, 0.0), (2.0, 2.5)])
def test_two_selections_are_those_of_the_recursion(loss, at):
    found = delta(Repeated(Exponential(Fraction(loss)), 2), at)
    truth = two_adaptive_draws(loss, at)
    assert found.lower <= truth * (1 + 1e-4)
    assert truth <= found.upper
    assert found.width <= 1e-3 * found.upper


@pytest.mark.parametrize(
    ("first", "second", "at"), [(0.3, 1.0, 0.2), (0.3, 1.0, 0.9), (2.0, 0.7, 1.9), (0.25, 0.6, 0.0)]
)
def test_two_selections_of_different_ranges_cost_the_worse_of_their_orders(first, second, at):
    orders = [two_adaptive_draws(first, at, last=second), two_adaptive_draws(second, at, last=first)]
    found = delta(Composed((Exponential(Fraction(first)), Exponential(Fraction(second)))), at)
    assert max(orders) <= found.upper
    assert found.lower <= max(orders) * (1 + 1e-4)
    assert found.width <= 2e-3 * found.upper
    # A bound that covers the better order alone would be noticed.
    assert at == 0.0 or min(orders) * (1 + 1e-9) < max(orders)


def test_the_ranges_of_a_composition_are_rounded_outward():
    """Ranges that fit no common grid: above, all are rounded up; below, all down."""
    chosen = ((0.1, 3), (math.pi / 10, 2), (math.sqrt(2) / 2, 2))
    above, below = ranges._games(chosen, math.ceil), ranges._games(chosen, math.floor)
    for (loss, _), upper, lower in zip(chosen, above, below, strict=True):
        assert lower.epsilon <= loss * (1 + 1e-12)
        assert loss * (1 - 1e-12) <= upper.epsilon <= 1.1 * loss
    event = Composed(tuple(Repeated(Exponential(Fraction(loss)), count) for loss, count in chosen))
    found = epsilon(event, 1e-6)
    as_one_range = epsilon(Repeated(Exponential(Fraction(math.sqrt(2) / 2)), 7), 1e-6)
    assert found.width <= 5e-3 * found.upper
    assert found.upper < as_one_range.lower


def test_many_different_ranges_fall_back_to_bounds_that_need_no_order():
    event = Composed(tuple(Exponential(Fraction(1, k)) for k in range(10, 22)))
    assert ranges._together(ranges._chosen(frozenset((part, 1) for part in event.events)), upper=True) is None
    found = epsilon(event, 1e-6)
    assert 0 < found.lower <= found.upper < 1


def test_a_hundred_selections_cost_what_the_best_adaptive_attack_attains():
    """Never below the best non-adaptive attack, 2.24603, nor above ε²/8-zCDP, 2.400."""
    found = epsilon(Repeated(Exponential(Fraction(1, 10)), 100), 1e-6)
    declared = epsilon(DeclaredExponentials(Fraction(1, 10), 100), 1e-6)
    assert declared.upper < found.lower
    assert 2.2460 < declared.lower <= declared.upper < 2.2461
    assert 2.2505 < found.lower <= found.upper < 2.2520


def test_declared_scores_are_priced_by_the_largest_sum_over_all_equal_splits():
    """δ at the price by 40 digits: Σ_i C(k, i) p^{k−i}(1−p)^i [e^{kt−iε} − e^x]₊ with Q's p, maximized over t."""
    loss, count, at = mp.mpf("0.1"), 100, mp.mpf("2.246027")
    with mp.workdps(40):
        factor = mp.exp(at)

        def value(t):
            q = (mp.exp(-t) - mp.exp(-loss)) / (1 - mp.exp(-loss))
            return mp.fsum(
                mp.binomial(count, i) * q ** (count - i) * (1 - q) ** i * max(0, mp.exp(count * t - i * loss) - factor)
                for i in range(count + 1)
            )

        truth = max(value((at + (i + 1) * loss) / (count + 1)) for i in range(20, 40))
    found = delta(DeclaredExponentials(Fraction(1, 10), count), float(at))
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-4 * found.upper
    assert truth == pytest.approx(1e-6, rel=1e-4)


@pytest.mark.parametrize("count", [2, 3])
def test_no_unequal_splits_beat_equal_ones_when_scores_are_declared(count):
    rng = np.random.default_rng(7)
    for loss, at in ((1.0, 0.3), (0.5, 0.9), (3.0, 1.0)):
        declared = delta(DeclaredExponentials(Fraction(loss), count), at).upper
        adaptive = delta(Repeated(Exponential(Fraction(loss)), count), at).upper
        best = max(float(played(loss, rng.random(count), at)) for _ in range(300))
        assert best <= declared <= adaptive * (1 + 1e-3)


def test_the_bounds_hold_between_grid_points():
    above, below = ranges.steered_above(0.7, 3), ranges.steered_below(0.7, 3)
    for at in np.linspace(-1.9, 2.0, 41):
        assert below.profile(at)[0] <= above.profile(at)[1]
        for shares in ((0.5, 0.5, 0.5), (0.31, 0.62, 0.44), (0.9, 0.8, 0.7)):
            assert float(played(0.7, shares, at)) <= above.profile(at)[1]


def test_more_selections_than_one_block_cost_no_less_than_the_best_fixed_split():
    found = epsilon(Repeated(Exponential(Fraction(1, 20)), 300), 1e-6)
    attacked = epsilon(Repeated(RandomizedResponse(Fraction(1, 40)), 300), 1e-6)
    assert found.lower >= attacked.lower * (1 - 1e-9)
    assert found.width <= 0.01 * found.upper


def test_selections_compose_with_other_noise():
    alone = epsilon(Repeated(Exponential(Fraction(1, 10)), 100), 1e-6)
    both = epsilon(Composed((Repeated(Exponential(Fraction(1, 10)), 100), Gaussian(2.0))), 1e-6)
    assert both.width <= 1e-3 * both.upper
    # Both parts are near Gaussians with μ = 1/2, so together they are near μ = 1/√2.
    assert both.upper == pytest.approx(epsilon(Gaussian(math.sqrt(2)), 1e-6).upper, rel=0.01)
    assert both.lower > alone.upper


def test_selections_of_different_ranges_are_priced_in_any_order():
    small, large = Repeated(Exponential(Fraction(1, 10)), 5), Repeated(Exponential(Fraction(1, 2)), 5)
    found = epsilon(Composed((small, large)), 1e-6)
    attack = (Repeated(RandomizedResponse(Fraction(1, 20)), 5), Repeated(RandomizedResponse(Fraction(1, 4)), 5))
    assert found.lower >= epsilon(Composed(attack), 1e-6).lower
    assert found.upper <= epsilon(Repeated(Exponential(Fraction(1, 2)), 10), 1e-6).upper


@pytest.mark.parametrize("cells", [2, 3])
def test_splits_between_grid_points_are_covered_on_a_coarse_grid(cells, monkeypatch):
    monkeypatch.setattr(ranges, "_LEAST_CELLS", cells)
    monkeypatch.setattr(ranges, "_MOST_CELLS", cells)
    one, two = ranges.steered_above.__wrapped__(1.0, 1), ranges.steered_above.__wrapped__(1.0, 2)
    for at in np.linspace(-0.9, 0.9, 19):
        assert one.profile(at)[1] >= one_selection(1.0, at)
        assert two.profile(at)[1] >= two_adaptive_draws(1.0, at, points=60)


def test_two_batches_of_declared_scores_are_not_one():
    """The lower end may follow the best attack of one batch only: the envelope of both is not attained."""
    once, twice = DeclaredExponentials(Fraction(1, 2), 4), DeclaredExponentials(Fraction(1, 2), 8)
    two_batches = epsilon(Repeated(once, 2), 1e-4)
    assert two_batches.lower <= epsilon(Repeated(Exponential(Fraction(1, 2)), 8), 1e-4).upper
    assert two_batches.upper >= epsilon(twice, 1e-4).lower


def test_a_sampled_selection_costs_less_than_a_sampled_report():
    found = epsilon(Repeated(PoissonSampled(0.1, Exponential(Fraction(1))), 10), 1e-6)
    assert 0 < found.lower <= found.upper < 3


def test_a_group_widens_the_range():
    assert epsilon(Group(Exponential(Fraction(1, 4)), 3), 1e-6) == epsilon(Exponential(Fraction(3, 4)), 1e-6)


@pytest.mark.parametrize("loss", [Fraction(1, 10**9), Fraction(299), Fraction(301), Fraction(5000)])
def test_extreme_ranges_stay_within_their_pure_price(loss):
    for count in (1, 3, 40):
        found = epsilon(Repeated(Exponential(loss), count), 1e-9)
        assert 0 <= found.lower <= found.upper <= count * float(loss) * (1 + 1e-9)
