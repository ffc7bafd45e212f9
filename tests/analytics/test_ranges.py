"""Finer quantiles, listed candidates, and private ranges: what is chosen, and how far one row or person moves it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.mechanisms import Exponential, NoisyMax
from discreet.neighbors import ADD_REMOVE
from discreet.queries.statistics.quantile import (
    levels_of,
    places_of,
    scores_of_bins,
    scores_of_cells,
    scores_of_places,
)
from tests.analytics.plans import exact


def rank_distance(values, quantile, answer):
    """How many rows lie between an answer and the quantile; negative where the quantile is inside the answer's rows."""
    rows, below, on = len(values), np.sum(values < answer), np.sum(values == answer)
    return max(float(below - quantile * rows), float(quantile * rows - below - on))


def distance_of_place(values, quantile, place):
    """How many rows lie between a place, a level or the inside of an interval, and the quantile; negative inside."""
    rows, is_level = len(values), place.low == place.high
    below = np.sum(values < place.low) if is_level else np.sum(values <= place.low)
    upto = np.sum(values <= place.high) if is_level else np.sum(values < place.high)
    return max(float(below - quantile * rows), float(quantile * rows - upto))


X = np.concatenate([np.random.default_rng(2).lognormal(1, 1, 300), [5.0] * 40, [-3.0, 2e9]])


@pytest.mark.parametrize("levels", [64, 4096])
@pytest.mark.parametrize("rank", [0.5, 0.9])
def test_scores_count_the_rows_between_a_place_and_the_quantile(account, levels, rank):
    """The grid's own error is in the scores: a mutant that rounds rows to levels calls a bad level perfect."""
    asked = dp.Private({"x": X}, account=account).quantile("x", rank, bounds=(0, 100), levels=levels)
    (scores,) = exact(asked)["quantile"]
    clamped, exact_rank = np.clip(X, 0, 100), Fraction(rank).limit_denominator(1000)
    # The outermost places, beyond the first and the last level, hold nothing: both bounds are levels.
    inner = scores.candidates[1:-1]
    wanted = [-distance_of_place(clamped, exact_rank, one) * exact_rank.denominator for one in inner]
    assert scores.values[1:-1].tolist() == pytest.approx(wanted, abs=1e-6)
    assert scores.values.max() >= 0  # some place holds the quantile


def test_scores_of_listed_candidates_count_the_rows_up_to_the_quantile(account):
    listed = [0.0, 1.5, 2.5, 5.0, 40.0]
    (scores,) = exact(dp.Private({"x": X}, account=account).quantile("x", 0.9, candidates=listed))["quantile"]
    wanted = [-rank_distance(X, Fraction(9, 10), one) * 10 for one in listed]
    assert scores.values.tolist() == pytest.approx(wanted, abs=1e-6)


def test_more_levels_bring_a_median_nearer_to_the_truth(account):
    x = np.random.default_rng(4).lognormal(3, 1, 5000)
    people = dp.Private({"x": x}, account=account, bounds={"x": (0, 1e4)})
    coarse, fine = (people.median("x", levels=levels).release(epsilon=20).columns for levels in (64, 1 << 17))
    assert rank_distance(x, 0.5, fine["median"][0]) < 200 < rank_distance(x, 0.5, coarse["median"][0])
    for found in (coarse, fine):
        assert found["median_low"][0] - 1 <= np.median(x) <= found["median_high"][0] + 1


def test_candidates_may_be_listed_and_need_no_bounds(account):
    people = dp.Private({"x": [*range(100)]}, account=account)
    assert people.quantile("x", 0.5, candidates=[0, 10, 48, 90]).release(epsilon=1000).value == 48
    assert "is clamped" not in people.quantile("x", 0.5, candidates=[1, 2]).preview(epsilon=1).covers
    for wrong in ([], [2, 1], [1, 1], [math.nan], [math.inf], "ab", range(2000), 3):
        with pytest.raises(InvalidArgument, match="candidates"):
            people.quantile("x", 0.5, candidates=wrong)
    for wrong in (1, 0, 1 << 20, 2.5, math.nan):
        with pytest.raises(InvalidArgument, match="levels"):
            people.median("x", bounds=(0, 1), levels=wrong)


def test_a_pure_budget_draws_by_permute_and_flip(account_of):
    """The same ε buys less error; where a δ is counted, a bounded range is cheaper."""
    data = {"x": [*range(100)]}
    pure = dp.Private(data, account=account_of(fresh=True)).median("x", bounds=(0, 100))
    approx = dp.Private(data, account=account_of(budget=dp.ApproxDP(5.0, 1e-5), fresh=True)).median(
        "x", bounds=(0, 100)
    )
    assert pure.event(0.5) == NoisyMax(Fraction(1, 2)).event()
    assert approx.event(0.5) == Exponential(Fraction(1, 2)).event()
    assert pure.release(epsilon=0.5).event == pure.event(0.5)


@pytest.mark.parametrize(
    "x", [np.random.default_rng(1).lognormal(10, 1, 5000), -np.arange(1.0, 4000.0), np.zeros(3000)]
)
def test_a_found_range_holds_the_share_of_rows_that_was_asked_for(account, x):
    """100 ranges: each misses with probability 10% at most, so 28 misses have a probability below 1e-6."""
    asked = dp.Private({"x": x}, account=account).find_bounds("x", inside=0.95)
    error = max(column.error for column in asked.preview(epsilon=1.0).columns)
    (lower,), (upper,) = exact(asked).values()
    mechanism = NoisyMax(Fraction(1, 2))
    misses = 0
    for _ in range(100):
        low, high = mechanism.release(lower).value, mechanism.release(upper).value
        misses += np.mean((x >= low) & (x <= high)) < 0.95 - 2 * error / x.size
        assert high - low <= 64 * max(np.ptp(x), 1.0)
    assert misses < 28
    assert asked.release(epsilon=1.0).columns.keys() == {"lower", "lower_rank_error", "upper", "upper_rank_error"}


numbers = st.lists(st.sampled_from([-9.0, -4.0, -1.0, -0.3, 0.0, 0.5, 1.0, 3.0, 4.0, 100.0]), max_size=12)
CUTS = (-4.0, -1.0, 0.0, 1.0, 4.0)


def cells(values):
    return [
        sum(1 for v in values if (v in CUTS[i // 2 : i // 2 + 1] if i % 2 else _between(v, i // 2))) for i in range(11)
    ]


def _between(value, i):
    return (i == 0 or value > CUTS[i - 1]) and (i == len(CUTS) or value < CUTS[i])


@given(
    values=numbers,
    extra=st.sampled_from([-9.0, -4.0, -1.0, 0.0, 0.5, 4.0, 100.0]),
    rank=st.sampled_from([1, 10, 500, 990]),
)
@settings(max_examples=150, deadline=None)
def test_a_row_moves_scores_by_what_is_declared(values, extra, rank):
    quantile = Fraction(rank, 1000)
    for make in (
        lambda counts: scores_of_cells(CUTS, quantile, counts, dp.rows()),
        lambda counts: scores_of_places(places_of(CUTS, (-9.0, 100.0)), quantile, counts, dp.rows()),
        lambda counts: scores_of_bins(CUTS, quantile, counts, dp.rows(), upper=rank > 500),
    ):
        one, two = make(cells(values)), make(cells([*values, extra]))
        assert np.abs(one.values - two.values).max() <= one.sensitivity(ADD_REMOVE)
    bins = scores_of_bins(CUTS, quantile, cells(values), dp.rows(), upper=False)
    places = scores_of_places(places_of(CUTS, (-9.0, 100.0)), quantile, cells(values), dp.rows())
    assert min(bins.values.max(), places.values.max()) >= 0  # some interval holds the quantile


def test_what_is_no_range_is_refused(account):
    people = dp.Private({"x": [1.0]}, account=account)
    for wrong in (0.2, 1.0, 1.5, math.nan):
        with pytest.raises(InvalidArgument, match="inside"):
            people.find_bounds("x", inside=wrong)
    for wrong in ((3, 3), (5, 1), (1,), 7, (0.5, 2), (-1000, 2)):
        with pytest.raises(InvalidArgument, match="exponents"):
            people.find_bounds("x", exponents=wrong)


def test_levels_are_the_candidates(account):
    asked = dp.Private({"x": [1.0]}, account=account).median("x", bounds=(0, 1), levels=16)
    measured = asked._question.asked["median"]
    levels = levels_of(measured.levels.level.grid)
    assert measured.places == places_of(levels, (0.0, 1.0))
    assert levels == tuple(i / 16 for i in range(17))
