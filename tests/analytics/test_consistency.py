"""Consistency is post-processing: it looks at released numbers alone, and its errors stay honest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

import discreet as dp
from discreet.analytics import answer, count, marginal, mean
from discreet.analytics import sum as total
from discreet.analytics.result import consistency, result
from discreet.analytics.result.consistency import Consistency, Measured, least_squares, quantile, settled
from discreet.errors import InvalidArgument
from discreet.release import NoiseLaw
from tests.analytics.plans import ids, row, table

KEYS = [*"abcdefgh"]


@pytest.fixture
def groups(account):
    data = [("p", float(i % 4), 1, "abcde"[(i * i) % 5], 0.0) for i in range(500)]
    return dp.Private(table(data), account=account, bounds={"x": (0, 4)}).group_by("g", keys=KEYS)


def noise(scale, *, gaussian=False):
    return NoiseLaw(gaussian=gaussian, rounded=gaussian, scale=scale)


def measured(values, scale=5.0, **rest):
    values = np.asarray(values, dtype=np.float64)
    return Measured(values, np.full(values.shape, 3.0 * scale), noise(scale, **rest), 1.0)


numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


@given(values=numbers, whole=st.floats(-1e6, 1e7), scale=st.floats(1, 1e3), integer=st.booleans(), floor=st.booleans())
@settings(max_examples=60, deadline=None)
def test_groups_add_up_to_their_total(values, whole, scale, integer, floor):
    wanted = Consistency.of(floor, integer, True)
    found = settled(measured(values), measured([whole], scale), wanted, counts=True, lower=0.0)
    assert found.total is not None
    assert float(found.values.sum()) == pytest.approx(found.total[0], abs=1e-3 + 1e-9 * abs(found.total[0]))
    assert not floor or found.values.min() >= 0
    assert not integer or found.values.dtype == np.int64
    assert (found.errors > 0).all()


@given(values=numbers, gap=st.floats(-50, 50))
@settings(max_examples=40, deadline=None)
def test_least_squares_is_the_weighted_optimum(values, gap):
    """No other numbers have a smaller sum of squares over variances."""
    own, whole = measured(values, 5.0), measured([math.fsum(values) + gap], 2.0)
    fitted, (target, _) = least_squares(own, whole)

    def loss(x):
        return np.sum((x - own.values) ** 2) / own.variance + (x.sum() - whole.values[0]) ** 2 / whole.variance

    best = loss(fitted.values)
    assert fitted.values.sum() == pytest.approx(target, abs=1e-6 * (1 + abs(target)))
    for i in range(len(values)):
        for step in (-0.5, 0.5):
            other = fitted.values.copy()
            other[i] += step
            assert loss(other) >= best


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_error_of_one_noise_is_its_quantile(gaussian):
    wanted = -math.log(0.05) * 40 if not gaussian else stats.norm.isf(0.025) * 40
    assert quantile([(1.0, 1, noise(40.0, gaussian=gaussian), 1.0)]) == pytest.approx(wanted + 1, abs=0.1)
    many = quantile([(1.0, 400, noise(40.0, gaussian=gaussian), 1.0)])  # nearly normal
    assert many == pytest.approx(1.96 * 20 * 40 * (1 if gaussian else math.sqrt(2)), rel=0.01)


def test_errors_after_post_processing_still_cover_the_truth(groups):
    """9 intervals in each of 30 releases, each wrong with probability at most 5%, dependent within a release."""
    asked = groups.aggregate(n=count(), s=total("x"))
    truth = dict.fromkeys(KEYS, 0) | {
        key: sum((i * i) % 5 == place for i in range(500)) for place, key in enumerate("abcde")
    }
    wrong = np.zeros(30)
    for i in range(30):
        found = asked.release(epsilon=1.0, nonnegative=True, integer=True, total=True)
        wrong[i] = np.mean([abs(row["n"] - truth[row["g"]]) > row["n_error"] for row in found.rows()])
        assert sum(found.columns["n"]) == found.totals["n"][0]
        assert min(found.columns["n"]) >= 0
        assert min(found.columns["s"]) >= 0
        assert all(isinstance(n, int) for n in found.columns["n"])
    # A share of more than 0.3 in all has a probability below 1e-6 by Hoeffding's bound, even at 5% each.
    assert wrong.mean() <= 0.05 + math.sqrt(math.log(1e6) / 60)


def test_a_total_makes_totals_better(groups):
    asked = groups.count()
    with_total = [asked.release(epsilon=0.2, total=0.9) for _ in range(40)]
    without = [asked.release(epsilon=0.2) for _ in range(40)]
    error = np.mean([abs(sum(one.columns["count"]) - 500) for one in with_total])
    plain = np.mean([abs(sum(one.columns["count"]) - 500) for one in without])
    assert error < plain  # about 4.0 ± 0.7 against 15.5 ± 1.9: the wrong way round has a probability below 1e-6
    assert all(one.totals["count"][1] < 60 for one in with_total)


def test_a_total_is_charged_with_its_columns(groups):
    asked = groups.aggregate(n=count(), m=mean("x"))
    preview = asked.preview(epsilon=1.0, total=0.2)
    assert [column.name for column in preview.columns] == ["n", "m", "total of n"]
    assert [column.epsilon for column in preview.columns] == pytest.approx([0.4, 0.5, 0.1])
    assert asked.release(epsilon=1.0, total=0.2).event == preview.event
    assert dp.accounting.pure(preview.event).epsilon == pytest.approx(1.0)


def test_post_processing_is_free_and_leaves_releases_as_measured(groups):
    asked = groups.aggregate(n=count(), c=marginal("k", categories={"k": [0.0, 1.0]}))
    lowest = []
    for _ in range(8):
        found = asked.release(epsilon=0.01, nonnegative=True, integer=True)
        assert found.event == asked.event(0.01)
        assert min(found.columns["n"]) >= 0
        assert min(found.columns["c[1.0]"]) >= 0
        lowest.append(min(found.releases["n"][0].value.tolist()))
    # Five of the eight counts are 0. With noise of scale 200 none of the five is negative with a probability below
    # 0.51^5 < 0.035 in one release, and in all eight releases with one below 1e-11.
    assert min(lowest) < 0


@pytest.mark.parametrize("epsilon", [1e-6, 1e5])
def test_extreme_budgets_are_served(groups, epsilon):
    found = groups.count().release(epsilon=epsilon, nonnegative=True, integer=True, total=True)
    assert sum(found.columns["count"]) == found.totals["count"][0]
    assert all(math.isfinite(error) for error in found.columns["count_error"])
    assert epsilon < 1 or found.totals["count"][0] == 500


def test_sums_that_may_be_negative_stay_so(account):
    data = [("p", -3.0, 1, "a", 0.0)] * 50
    people = dp.Private(table(data), account=account).group_by("g", keys=["a"])
    assert people.sum("x", bounds=(-5, 5)).release(epsilon=50.0, nonnegative=True).columns["sum"][0] < 0
    assert people.mean("x", bounds=(-5, 5)).release(epsilon=50.0, nonnegative=True).columns["mean"][0] < 0


def check_after_the_charge(groups, monkeypatch):
    """Post-processing is called with released numbers, after the charge and the query."""
    steps = []
    spend, run, tidy = groups._spec.account.spend, answer._run, consistency.settled
    monkeypatch.setattr(
        type(groups._spec.account), "spend", lambda self, *a, **k: (steps.append("charge"), spend(*a, **k))[1]
    )
    monkeypatch.setattr(answer, "_run", lambda *a: steps.append("query") or run(*a))
    monkeypatch.setattr(result, "settled", lambda one, *a, **k: steps.append(type(one)) or tidy(one, *a, **k))
    groups.count().release(epsilon=1.0, nonnegative=True)
    assert steps == ["charge", "query", Measured]


def test_consistency_comes_last(groups, monkeypatch):
    check_after_the_charge(groups, monkeypatch)


def test_the_mutant_that_looks_at_exact_counts_is_caught(groups, monkeypatch):
    honest = answer.Answer._noised

    def peeking(self, part, value):
        result.settled(value, None, Consistency(True), counts=True, lower=0.0)
        return honest(self, part, value)

    monkeypatch.setattr(answer.Answer, "_noised", peeking)
    with pytest.raises((AssertionError, AttributeError)):
        check_after_the_charge(groups, monkeypatch)


@pytest.mark.parametrize(
    "bad",
    [
        {"nonnegative": 1},
        {"integer": "yes"},
        {"nonnegative": None},
        {"total": 1.0},
        {"total": -0.1},
        {"total": math.nan},
        {"total": "all"},
    ],
    ids=str,
)
def test_bad_requests_are_refused_before_the_charge(groups, bad):
    before = groups._spec.account.remaining()
    with pytest.raises(InvalidArgument):
        groups.count().release(epsilon=1.0, **bad)
    with pytest.raises(InvalidArgument, match="count or a sum"):
        groups.mean("x").release(epsilon=1.0, total=True)
    assert groups._spec.account.remaining() == before


# --- the total's own sensitivity ----------------------------------------------------------------------------------


def totals(rows, account):
    asked = (
        dp.Private(table(rows), account=account)
        .group_by("g", keys=["a", "b", "é"])
        .aggregate(n=count(), present=count("x"), s=total("x", bounds=(-3, 8)))
    )
    question, relation = asked._question, asked._relation
    values = question.values(answer._run(question.queries()), relation)
    return {name: question.asked[name].total(values[name][0], relation) for name in values}


def check_totals(account, rows, theirs, others):
    absent, present, swapped = (
        totals([*rows, *(("new", *one) for one in extra)], account) for extra in ([], theirs, others)
    )
    for name, one in present.items():
        assert abs(int(one.values) - int(absent[name].values)) <= one.sensitivity(dp.ADD_REMOVE).l1
        assert abs(int(one.values) - int(swapped[name].values)) <= one.sensitivity(dp.REPLACE_ONE).l1


@given(
    unit=st.sampled_from([dp.rows(), dp.person("id", max_rows=2, max_groups=1), dp.person("id", max_rows=3)]),
    rows=st.lists(st.tuples(ids, row).map(lambda both: (both[0], *both[1])), max_size=6),
    theirs=st.lists(row, min_size=1, max_size=7),
    others=st.lists(row, min_size=1, max_size=7),
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_unit_moves_a_total_no_further_than_declared(account_of, unit, rows, theirs, others):
    most = 1 if unit == dp.rows() else 7
    check_totals(account_of(unit), rows, theirs[:most], others[:most])
