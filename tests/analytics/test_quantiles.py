"""Quantiles say between which levels they lie; with `refine`, a first charged pass places the levels.

The rank error holds from the ends of the answer, grid included. Two passes cost one charge, and the second one's levels
depend on what the first one released alone.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet import events
from discreet.analytics import count, quantile
from discreet.auditing import Pair, replay
from discreet.bounded import Scores
from discreet.errors import InvalidArgument
from discreet.mechanisms import Exponential, NoisyMax
from discreet.mechanisms.refinement import Refinement
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE
from discreet.queries.statistics.marks import Marks, merged
from discreet.queries.statistics.quantile import RefinedScores, refined_scores, scores_of_cells
from tests.analytics.plans import exact

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)

HOSTILE = [0.0, -0.0, 1.0, 0.1, 2.5, 99.999, 100.0, 5e-324, 1e-310, 1e308, -1e308, math.inf, -math.inf]
BOUNDS = [(0.0, 100.0), (-3.0, 8.0), (17.3, 90.0), (-1e6, 1e6), (1.0, 1e6), (0.0, 1e150), (1e-150, 2e-150)]


def skewed(rows=20_000):
    """Costs of visits: most are a few hundred, and the public bound is a million."""
    return np.random.default_rng(0).lognormal(5, 1.2, rows)


@pytest.mark.parametrize("bounds", BOUNDS)
def test_marks_tile_the_bounds_and_every_number_has_one_cell(bounds):
    marks = Marks.over(bounds, 16)
    points = np.array(marks.points)
    assert (points[0], points[-1]) == bounds
    assert np.all(np.diff(points) > 0)
    assert len(points) <= 16 * 110
    off = np.abs(marks.cells(points) - 2 * np.arange(points.size) - 1).max()
    assert off <= (0 if all(end == int(end) for end in bounds) else 1)  # marks are rounded where the bounds are
    inside = np.random.default_rng(1).uniform(*bounds, 500)
    values = np.concatenate([inside, [x for x in HOSTILE if not math.isnan(x)]])
    cells, clamped = marks.cells(values), np.clip(values, *bounds)
    before, after = points[(cells - 1) // 2], points[np.minimum(cells // 2, points.size - 1)]
    assert np.all((before <= clamped) & (clamped <= after + marks.no_distance))


def test_integers_are_marks_where_parts_are_no_wider_than_one():
    marks = Marks.over((0.0, 1e5), 128)
    assert set(range(129)) <= set(marks.points)


def test_bounds_too_narrow_for_their_size_are_refused(account):
    people = dp.Private({"x": [1.0]}, account=account)
    for refine in (False, True):
        with pytest.raises(InvalidArgument, match="be wider"):
            people.median("x", bounds=(1e15, 1e15 + 1), refine=refine)


@given(st.lists(st.integers(-20, 420).map(lambda x: x / 4), min_size=1, max_size=30), st.data())
@settings(max_examples=40, deadline=None)
def test_merged_counts_are_the_counts_of_fewer_marks(values, data):
    marks = Marks.over((0.0, 100.0), 4)
    counts = np.bincount(marks.cells(values), minlength=marks.size)
    kept = marks.around(data.draw(st.integers(0, 2 * len(marks.coarse))))
    own = np.array([marks.points[place] for place in kept])
    clamped = np.clip(values, 0, 100)
    wanted = [np.sum(clamped == low) for low in own]
    found = merged(counts, kept)
    assert found[1::2].tolist() == wanted
    assert found.sum() == len(values)
    assert set(marks.places) <= set(kept)


@given(
    st.lists(st.floats(0, 100), max_size=15),
    st.floats(0, 100),
    st.floats(0, 100),
    st.sampled_from([10, 500, 990]),
)
@settings(max_examples=25, deadline=None)
def test_a_row_moves_the_scores_of_both_passes_by_what_is_declared(rows, mine, other, rank):
    """Whatever the first pass released: the second one's candidates are the same for neighbors, and its bound holds."""
    marks, rank = Marks.over((0.0, 100.0), 4), Fraction(rank, 1000)

    def scores(values):
        cells = marks.cells(np.array(values)) if values else np.array([], dtype=int)
        return refined_scores(marks, rank, np.bincount(cells, minlength=marks.size), dp.rows())

    less, more, swapped = scores(rows), scores([*rows, mine]), scores([*rows, other])
    for place in less.coarse.candidates[::9]:
        for relation, one, two in ((ADD_REMOVE, less, more), (REPLACE_ONE, more, swapped)):
            for a, b in ((one.coarse, two.coarse), (one.fine(place), two.fine(place))):
                assert a.candidates == b.candidates
                assert np.abs(a.values - b.values).max() <= a.sensitivity(relation)
                assert a.values.max() >= 0


def test_every_engine_counts_the_same_cells(engine, account):
    """Hostile values too: nothing underflows, and infinities are clamped."""
    rng = np.random.default_rng(5)
    x = [*rng.normal(0, 50, 40).tolist(), *HOSTILE, math.nan, None]
    people = dp.Private(engine(pa.table({"x": pa.array(x, pa.float64())})), account=account)
    there = [one for one in x if one is not None and not math.isnan(one)]
    for bounds in (BOUNDS[0], BOUNDS[3], BOUNDS[5], BOUNDS[6]):
        asked = people.quantile("x", 0.25, bounds=bounds, levels=64, refine=True)
        measured = asked._question.asked["quantile"]
        wanted = np.bincount(measured.marks.cells(there), minlength=measured.marks.size)
        (found,) = exact(asked)["quantile"]
        assert np.array_equal(found.coarse.values, measured.scores(wanted.tolist(), ADD_REMOVE).values)
        place = found.coarse.candidates[len(found.coarse.candidates) // 2]
        computed = measured._refined(wanted.tolist(), ADD_REMOVE).fine(place)
        assert np.array_equal(found.fine(place).values, computed.values)


def test_two_passes_are_one_charge_of_the_same_total(account_of):
    data = {"x": skewed(100)}
    pure, approx = account_of(fresh=True), account_of(budget=dp.ApproxDP(5.0, 1e-5), fresh=True)
    parts = [Fraction(1, 8) / 2, Fraction(7, 8) / 2]
    for account, kind in ((pure, NoisyMax), (approx, Exponential)):
        asked = dp.Private(data, account=account).median("x", bounds=(0, 1e6), refine=True)
        assert asked.event(0.5) == events.Composed(tuple(kind(part).event() for part in parts))
        released = asked.release(epsilon=0.5)
        assert released.event == asked.event(0.5)
        assert released.releases["median"][0].guarantee.epsilon == 0.5
        assert released.releases["median"][0].value == released.columns["median"][0]
        shown = str(asked.preview(epsilon=0.5))
        assert "two passes of" in shown
        assert "ε = 0.0625 + 0.438" in shown
    zcdp = asked.event(rho=0.01).events
    assert sum(one.epsilon**2 for one in zcdp) / 8 == pytest.approx(0.01, rel=1e-9)
    assert sum(one.epsilon**2 for one in zcdp) / 8 <= 0.01


@pytest.mark.parametrize("rank", [0.5, 0.9])
def test_refined_quantiles_are_nearer_where_values_are_skewed(account, rank):
    """The exact chances of both, at the same ε: a mean rank error of 20 instead of a thousand."""
    x = skewed()
    people = dp.Private({"x": x}, account=account, bounds={"x": (0, 1e6)})
    plain, fine = (exact(people.quantile("x", rank, refine=refine))["quantile"][0] for refine in (False, True))

    def likelihood(scores, epsilon):
        return np.exp((scores.values - scores.values.max()) * epsilon / 2 / scores.sensitivity())

    def mean_error(scores, epsilon):
        chances = likelihood(scores, epsilon)
        ranks = [abs(np.sum(x < place.value) - rank * x.size) for place in scores.candidates]
        return float(np.sum(chances * ranks) / np.sum(chances))

    coarse = fine.coarse
    first = likelihood(coarse, 0.1 / 8)
    first /= first.sum()
    likely = np.flatnonzero(first > 1e-4)
    refined = sum(first[i] * mean_error(fine.fine(coarse.candidates[i]), 0.1 * 7 / 8) for i in likely)
    assert refined < 30 < 1000 < mean_error(plain, 0.1)


def test_a_quantile_lies_between_its_ends_or_within_its_rank_error(account):
    """100 draws of each: at a coverage of 95%, 21 misses have a probability below 1e-6. The error includes the grid."""
    x = skewed(2000)
    people = dp.Private({"x": x}, account=account, bounds={"x": (0, 1e6)})
    for refine in (False, True):
        asked = people.median("x", refine=refine)
        columns = asked.release(epsilon=1.0).columns
        low, high, error = (columns[f"median_{name}"][0] for name in ("low", "high", "rank_error"))
        assert low <= columns["median"][0] <= high
        (scores,) = exact(asked)["median"]
        mechanism = asked._question.asked["median"].mechanism(Fraction(1), pure=True)
        places = [
            mechanism.release("median", [scores], ADD_REMOVE)[0].value if refine else mechanism.release(scores).value
            for _ in range(100)
        ]
        off = [max(np.sum(x < place.low) - 1000, 1000 - np.sum(x <= place.high)) for place in places]
        assert sum(np.array(off) > error) < 21
    assert max(place.high - place.low for place in places) < 100


def test_listed_candidates_err_less_than_by_middle_ranks():
    """The exact chances at ε = 0.1 over ten tables of whole numbers, beside scores as OpenDP has them.

    A mutant whose scores are 0 wherever the quantile lies on a candidate errs more than twice as much.
    """
    rng, candidates = np.random.default_rng(1), tuple(float(i) for i in range(101))
    own = middle = flat = 0.0
    for _ in range(10):
        x = np.clip(np.rint(rng.gamma(4, 10, 2000)), 0, 100).astype(int)
        counts = np.zeros(203, dtype=int)
        counts[1::2] = np.bincount(x, minlength=101)
        scores = scores_of_cells(candidates, Fraction(1, 2), counts.tolist(), dp.rows()).values / 2
        below, upto = np.cumsum(counts[1::2]) - counts[1::2], np.cumsum(counts[1::2])
        ranks = np.maximum(-scores, 0)

        def mean_error(values, ranks=ranks):
            chances = np.exp(0.1 * (values - values.max()))
            return float(np.sum(chances * ranks) / np.sum(chances))

        own += mean_error(scores)
        flat += mean_error(np.minimum(scores, 0))
        middle += mean_error(-np.abs(below + upto - 2000) / 2)
    assert own < middle
    assert 2 * own < flat


def test_a_column_of_zeros_mostly_has_the_median_zero(account):
    x = np.concatenate([np.zeros(900), np.random.default_rng(2).uniform(3000, 99999, 100)])
    for refine in (False, True):
        columns = dp.Private({"x": x}, account=account).median("x", bounds=(0, 1e5), refine=refine).release(epsilon=1.0)
        assert columns.columns["median_low"] == columns.columns["median_high"] == (0.0,)


def test_groups_refine_each_by_its_own_scale(account):
    x = np.concatenate([np.full(500, 7.0), np.full(500, 70_000.0)])
    groups = dp.Private({"x": x, "g": np.arange(1000) // 500}, account=account).group_by("g", keys=[0, 1, 2])
    released = groups.aggregate(n=count(), q=quantile("x", 0.5, bounds=(0, 1e6), refine=True)).release(epsilon=40.0)
    assert released.columns["q_low"][0] <= 7 <= released.columns["q_high"][0] < 8
    assert 69_000 < released.columns["q_low"][1] <= 70_000 <= released.columns["q_high"][1] < 71_000
    assert {"q", "q_rank_error", "q_low", "q_high"} <= set(released.columns)


def test_what_cannot_be_refined_is_refused(account):
    people = dp.Private({"x": [1.0]}, account=account)
    for wrong, match in (
        ({"refine": 1}, "refine"),
        ({"refine": True, "candidates": [1, 2]}, "listed candidates"),
        ({"refine": True, "levels": 1 << 15}, "levels"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            people.quantile("x", 0.5, bounds=(0, 1), **wrong)
    with pytest.raises(InvalidArgument, match="differ from every other column"):
        people.aggregate(q=quantile("x", 0.5, bounds=(0, 1)), q_low=count())


def test_names_of_a_table_do_not_hide_what_is_computed(account):
    """A table may have a column that is named like ours."""
    people = dp.Private({"own0": [3.0] * 50, "OWN1": [1.0] * 50}, account=account)
    assert people.median("own0", bounds=(0, 8), refine=True).release(epsilon=10.0).value == 3.0


# --- mutants ------------------------------------------------------------------------------------------------------


def second_pass_by_the_exact_scores(patch):
    """The second pass is placed by the exact quantile instead of by what the first pass released."""

    def exactly(self, name, groups, relation):
        best = [scores.coarse.candidates[int(scores.coarse.values.argmax())] for scores in groups]
        fine = [one.fine(place) for one, place in zip(groups, best, strict=True)]
        return [self.second.release(one, relation=relation) for one in fine]

    patch.setattr(Refinement, "release", exactly)


def half_the_bound(patch):
    """The second pass declares half of its sensitivity."""
    honest = refined_scores

    def halved(*args, **kwargs):
        found = honest(*args, **kwargs)

        def fine(place):
            one = found.fine(place)
            declared = {relation: max(bound // 2, 1) for relation, bound in one.sensitivities.items()}
            return Scores(one.values, one.candidates, declared, one.name, one.unit)

        return RefinedScores(found.coarse, fine)

    patch.setattr("discreet.analytics.aggregates.quantile.refined_scores", halved)


def neighbors(account_of):
    """Medians by group of tables in which one row more moves the first pass's best place."""

    def run(rows):
        account = account_of(dp.rows(), fresh=True)
        data = pa.table({"x": pa.array([x for x, _ in rows], pa.float64()), "g": [g for _, g in rows]})
        groups = dp.Private(data, account=account).group_by("g", keys=["a", "b"])
        return groups.aggregate(q=quantile("x", 0.1, bounds=(0, 1000), levels=64, refine=True)).release(epsilon=1.0)

    common = [(1.0, "a"), (2.0, "b"), (900.0, "a")]
    return run, [Pair(common, [*common, (0.5, "a")], grows=True)]


def test_neighbors_reach_two_passes_within_their_bounds(account_of):
    seen = replay(*neighbors(account_of))
    assert (seen.passed, seen.failed) == (True, 0), str(seen)
    assert seen.arrivals == 4  # two passes of two groups


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [second_pass_by_the_exact_scores, half_the_bound])
def test_a_mutant_of_two_passes_is_caught(mutant, monkeypatch, account_of):
    mutant(monkeypatch)
    assert not replay(*neighbors(account_of)).passed


def test_a_list_asks_for_several_quantiles_at_once(account):
    people = dp.Private({"age": [10.0, 20.0, 30.0, 40.0] * 50}, account=account, bounds={"age": (0, 64)})
    several = people.quantile("age", [0.25, 0.5, 0.975])
    named = people.aggregate(
        quantile_25=quantile("age", 0.25), quantile_50=quantile("age", 0.5), quantile_97_5=quantile("age", 0.975)
    )
    assert several.event(1.0) == named.event(1.0)
    assert {"quantile_25", "quantile_50", "quantile_97_5"} <= set(several.release(epsilon=1.0).columns)
    for bad in ([], [0.5, 0.5], ["0.5"], [2.0]):
        with pytest.raises(InvalidArgument, match="quantile"):
            people.quantile("age", bad)
