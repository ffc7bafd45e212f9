"""What the ± covers, and what bounds and limits change: said in words, and estimated for a price."""

from __future__ import annotations

import math

import numpy as np
import pytest

import discreet as dp
from discreet import analytics
from discreet.analytics.aggregates.registry import GroupsPerPerson, OutsideBounds, RowsPerPerson
from discreet.errors import InvalidArgument
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE
from tests.analytics.plans import exact

UNIT = dp.person("id", max_rows=3, max_groups=2)


def visits() -> dict[str, object]:
    """1,000 persons: 900 with 2 rows in 2 groups, 100 with 13 rows in 4 groups; one row in ten above the bounds."""
    ids = np.concatenate([np.repeat(np.arange(900), 2), np.repeat(np.arange(900, 1000), 13)])
    group = np.concatenate([np.tile([0, 1], 900), np.tile(np.arange(13) % 4, 100)])
    x = np.where(np.arange(ids.size) % 10 == 0, 15.0, 5.0)
    return {"id": ids, "g": group, "x": x}


@pytest.fixture
def people(account_of):
    return dp.Private(visits(), account=account_of(UNIT, fresh=True), bounds={"x": (0, 10)})


def test_a_result_states_its_guarantee_event_and_intervals(people):
    result = (
        people.group_by("g", keys=range(4)).aggregate(n=analytics.count(), m=analytics.mean("x")).release(epsilon=1)
    )
    assert result.guarantee == dp.PureDP(1.0, protects=dp.Neighbors(ADD_REMOVE, UNIT))
    assert result.event == result.receipt.event
    intervals = result.confidence_interval()
    assert set(intervals) == {"n", "m"}
    for name, (low, high) in intervals.items():
        value, error = result.columns[name], result.columns[f"{name}_error"]
        assert len(low) == len(high) == 4
        for i in range(4):
            assert value[i] - error[i] == pytest.approx(min(low[i], value[i] - error[i]))
            assert low[i] <= value[i] <= high[i]
            assert max(high[i] - value[i], value[i] - low[i]) == pytest.approx(error[i])
    wide, narrow = result.confidence_interval(0.99, "n"), result.confidence_interval(0.5, "n")
    assert all(a <= b <= c <= d for a, b, c, d in zip(wide[0], narrow[0], narrow[1], wide[1], strict=True))


@pytest.mark.parametrize(
    ("spend", "promise"),
    [
        ({"epsilon": 0.5}, dp.PureDP(0.5)),
        ({"epsilon": 0.5, "delta": 1e-6, "noise": "gaussian"}, dp.ApproxDP(0.5, 1e-6)),
        ({"rho": 0.1}, dp.ZCDP(0.1)),
    ],
)
def test_the_guarantee_is_what_was_spent(account_of, spend, promise):
    account = account_of(budget=dp.ApproxDP(50.0, 1e-4), fresh=True)
    result = dp.Private(visits(), account=account).count().release(**spend)
    assert result.guarantee == promise.protecting(account.neighbors)


def test_consistent_columns_have_intervals_of_their_own(people):
    released = people.group_by("g", keys=range(6)).count().release(epsilon=1, total=True, nonnegative=True)
    low, high = released.confidence_interval()
    assert min(low) >= 0
    for value, error, end in zip(released.columns["count"], released.columns["count_error"], high, strict=True):
        assert end == pytest.approx(value + error)


def test_previews_results_and_releases_say_what_the_error_covers(people, account):
    asked = people.group_by("g", keys=range(4)).aggregate(
        n=analytics.count(), m=analytics.mean("x"), p=analytics.count_distinct()
    )
    for text in (str(asked.preview(epsilon=1)), str(asked.release(epsilon=1))):
        assert "half width of a 95% interval for the noise" in text
        assert "x is clamped to [0, 10]" in text
        assert "a person with more than 3 rows counts as 3" in text
        assert "a person in more than 2 groups counts as 2 persons" in text
    plain = dp.Private(visits(), account=account).count()
    assert "no bound or limit changes the rows" in str(plain.preview(epsilon=1))
    with pytest.raises(InvalidArgument, match="nothing is clamped and nobody is limited"):
        plain.limits()
    released = dp.laplace(dp.queries.count([1] * 50), epsilon=0.1)
    low, high = released.confidence_interval()
    assert released.margin() == max(high - released.value, released.value - low) == pytest.approx(30, abs=1)
    assert f"± {released.margin():.3g} " in str(released)


def test_bias_finds_what_limits_and_bounds_remove(people):
    """The noise of ε = 1000 is far below 1 row."""
    asked = people.group_by("g", keys=range(4)).aggregate(n=analytics.count(), m=analytics.mean("x"))
    bias = asked.bias(epsilon=1000)
    assert bias.persons.value == 100
    assert bias.rows_removed.low <= 100 * (13 - 3) <= bias.rows_removed.high
    assert bias.rows_removed.value == pytest.approx(1000, rel=0.3)
    assert bias.groups_removed.low <= 100 * (4 - 2) <= bias.groups_removed.high
    own = bias.columns["x"]
    assert own.below.value == 0
    # Rows weigh as in the answer: 180 of the 900 persons' rows, and 130 rows that weigh 3/13 each.
    assert own.above.value == pytest.approx(180 + 130 * 3 / 13, abs=1)
    assert own.moved.low <= -5 * own.above.value <= own.moved.high
    for words in ("persons above the limit", "rows that they lose", "x: rows above its bounds", "1000-DP"):
        assert words in str(bias)


def test_bias_is_charged_like_any_release(account_of):
    account = account_of(UNIT, budget=dp.PureDP(1.0), fresh=True)
    asked = dp.Private(visits(), account=account).count()
    assert asked.limits().preview(epsilon=0.4).affordable
    bias = asked.bias(epsilon=0.4)
    assert bias.result.receipt.purpose == "limits of count=count()"
    assert account.remaining().epsilon == pytest.approx(0.6)
    with pytest.raises(dp.errors.BudgetExceeded):
        asked.bias(epsilon=0.7)


@pytest.mark.parametrize("kind", [RowsPerPerson(3), GroupsPerPerson(2, 4), OutsideBounds("x", (0, 10))])
@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE])
def test_one_person_moves_a_histogram_by_what_is_declared(account_of, kind, relation):
    """A mutant that counts rows instead of persons, or puts a row into two cells, moves it further."""
    account = account_of(UNIT, relation)
    data = visits()
    without = {name: np.asarray(column)[np.asarray(data["id"]) != 950] for name, column in data.items()}
    changed = {**data, "x": np.where(np.asarray(data["id"]) == 950, 1e9, data["x"])}
    changed = {name: np.append(column, np.repeat(np.asarray(column)[-1:], 40)) for name, column in changed.items()}
    changed["id"] = np.append(data["id"], np.repeat(950, 40))
    neighbors = [without] if relation is ADD_REMOVE else [without, changed]

    def counted(rows):
        question = dp.Private(rows, account=account).group_by("g", keys=range(4)).rows_per_person()
        if isinstance(kind, OutsideBounds):
            question = dp.Private(rows, account=account).aggregate(asked=kind)
        (bounded,) = exact(question)[{"outside": "asked"}.get(kind.name, kind.name)]
        return bounded

    one = counted(data)
    bound = one.sensitivity(relation)
    for other in neighbors:
        moved = np.abs(one.values - counted(other).values)
        assert moved.sum() <= bound.l1
        assert (moved**2).sum() <= bound.l2_squared
        assert moved.max() <= bound.linf
        assert np.count_nonzero(moved) <= bound.l0


def test_cells_of_outside_are_disjoint_and_hold_every_value(account):
    hostile = [
        -1e308,
        -math.inf,
        -5.0,
        -0.0,
        0.0,
        5e-324,
        10.0,
        10.0000001,
        12.5,
        20.0,
        1e308,
        math.inf,
        None,
        math.nan,
    ]
    asked = dp.Private({"x": hostile}, account=account).aggregate(asked=OutsideBounds("x", (0, 10)))
    (bounded,) = exact(asked)["asked"]
    assert bounded.values.sum() == len(hostile) - 2
    assert bounded.values.max() <= 4


def test_advice_weighs_noise_against_what_is_lost(people):
    released = people.group_by("g", keys=range(4)).rows_per_person().release(epsilon=100)
    generous, frugal = analytics.advice(released, epsilon=10.0), analytics.advice(released, epsilon=1e-4)
    assert generous.max_rows in range(13, 17)
    assert generous.max_groups == 4
    assert frugal.max_rows == 1
    assert "of persons within" in str(generous)
    with pytest.raises(InvalidArgument, match="rows_per_person"):
        analytics.advice(people.count().release(epsilon=1), epsilon=1.0)
    assert people.rows_per_person().release(epsilon=1).columns.keys()


def test_rows_have_no_limit_to_advise_on(account):
    with pytest.raises(InvalidArgument, match="each row is its own person"):
        dp.Private(visits(), account=account).rows_per_person()


@pytest.mark.parametrize("unit", [dp.rows(), UNIT], ids=["rows", "persons"])
def test_bias_includes_what_the_candidates_of_a_quantile_miss(account_of, unit):
    """The rank error is counted from the nearest candidate; bias says how far that one is off, in the worst group."""
    rng = np.random.default_rng(3)
    data = {"id": np.arange(4000) // 2, "g": np.arange(4000) % 2, "x": rng.lognormal(2, 1, 4000)}
    people = dp.Private(data, account=account_of(unit, fresh=True), bounds={"x": (0, 1e4)})
    asked = people.group_by("g", keys=[0, 1]).quantile("x", 0.5, candidates=range(0, 10000, 40))
    assert "the ranks of quantile are counted from the nearest of its candidates" in asked.preview(epsilon=1).covers
    released = asked.release(epsilon=1000)
    off = []
    for group, answer in zip(released.columns["g"], released.columns["quantile"], strict=True):
        own = data["x"][data["g"] == group]
        off.append(abs(int(np.sum(own < answer)) - own.size / 2))
    assert max(off) > 50 > released.columns["quantile_rank_error"][0]
    bias = asked.bias(epsilon=1000)
    assert bias.ranks["quantile"].value == pytest.approx(max(off), abs=2)
    assert "quantile: ranks from its nearest candidate" in str(bias)


def test_one_row_moves_a_gap_by_what_is_declared(account):
    x = np.random.default_rng(5).lognormal(2, 1, 300)
    for extra in ([], [0.5], [1e9], [np.median(x)]):
        gap, base = (
            exact(dp.Private({"x": rows}, account=account).quantile("x", 0.5, candidates=range(0, 400, 9)).limits())
            for rows in (np.append(x, extra), x)
        )
        (gap,), (base,) = gap["grid quantile"], base["grid quantile"]
        assert abs(int(gap.values) - int(base.values)) <= base.sensitivity().l1
