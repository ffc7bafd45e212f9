"""Extremes, choices, covariances, correlations and marginals: what they mean, and what they refuse."""

from __future__ import annotations

import math

import ibis
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet import analytics, queries
from discreet.analytics import correlation, count, covariance, marginal, mean, top_k
from discreet.analytics.aggregates.marginal import Marginal
from discreet.analytics.aggregates.top_k import TopCategories
from discreet.analytics.engine import collation, compiling, running
from discreet.errors import EngineFailed, InvalidArgument
from discreet.queries.grid import Grid
from discreet.queries.statistics.covariance import (
    LEVELS,
    CorrelationFinish,
    CovarianceFinish,
    correlation_moves,
    covariance_moves,
    products,
)
from discreet.queries.statistics.variance import centered_squares
from discreet.release import NoiseLaw
from tests.analytics.plans import exact, table

BOUNDS = {"x": (0, 10), "y": (-5, 45)}
X = [3.0, None, 7.5, math.nan, math.inf, -math.inf, 2.5, 1e308, 9.0]
Y = [30.0, 1.0, None, 2.0, 40.0, -3.0, 25.0, -1e308, math.nan]


@pytest.fixture
def people(account):
    data = {"x": X, "y": Y, "g": [*"aabbabzab"], "k": [1, 2, 1, 2, 1, 2, 1, 2, None]}
    return dp.Private(pa.table(data), account=account, bounds=BOUNDS)


# --- covariance and correlation -----------------------------------------------------------------------------------


def clamped():
    """The rows with both values, each clamped to its own bounds."""
    both = [(x, y) for x, y in zip(X, Y, strict=True) if None not in (x, y) and not (math.isnan(x) or math.isnan(y))]
    return np.array([(min(max(x, 0), 10), min(max(y, -5), 45)) for x, y in both]).T


def finished(asked):
    ((value,),) = exact(asked).values()
    return value.finish.value(value.values)


def test_both_columns_are_clamped_before_they_are_multiplied(people):
    x, y = clamped()
    assert finished(people.covariance("x", "y")) == pytest.approx(np.cov(x, y, ddof=0)[0, 1], abs=1e-4)
    assert finished(people.correlation("x", "y")) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-5)


def test_the_engine_sums_the_integers_of_the_proof(people):
    first, second = (Grid.over(BOUNDS[name], center=True, levels=LEVELS) for name in "xy")
    k, l = (grid.levels(side, 0) for grid, side in zip((first, second), clamped(), strict=True))  # noqa: E741
    sums = [k.sum(), l.sum(), products(k, l, first, second).sum()]
    squares = [centered_squares(k, first.reach).sum(), centered_squares(l, second.reach).sum()]
    rows = max(first.reach, second.reach) * k.size
    (found,) = exact(people.covariance("x", "y"))["covariance"]
    assert found.values.tolist() == [*sums, rows]
    assert found.values.tolist() == queries.covariance(X, Y, bounds=tuple(BOUNDS.values())).values.tolist()
    (found,) = exact(people.correlation("x", "y"))["correlation"]
    assert found.values.tolist() == [*sums, *squares, rows]
    same = queries.correlation(X, Y, bounds=tuple(BOUNDS.values()))
    assert found.values.tolist() == same.values.tolist()
    assert found.sensitivity(dp.REPLACE_ONE) == same.sensitivity(dp.REPLACE_ONE)
    with pytest.raises(InvalidArgument, match="two pairs"):
        queries.covariance(X, Y, bounds=(0, 1, 2))
    with pytest.raises(InvalidArgument, match="others"):
        queries.covariance(X, Y[1:], bounds=((0, 1), (0, 1)))


@given(
    bounds=st.tuples(*[st.sampled_from([(0, 1), (-1, 3), (0, 1000), (-5e6, -1), (0.1, 0.3)])] * 2),
    rows=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=2),
)
@settings(max_examples=200, deadline=None)
def test_two_rows_differ_by_no_more_than_the_proof_says(bounds, rows):
    grids = [Grid.over(pair, center=True, levels=LEVELS) for pair in bounds]
    ends = [(round(x * grids[0].reach), round(y * grids[1].reach)) for x, y in rows]
    corners = [(sx * grids[0].reach, sy * grids[1].reach) for sx in (-1, 1) for sy in (-1, 1)]

    def vector(k, l, *, squares):  # noqa: E741
        both = [int(centered_squares(k, grids[0].reach)), int(centered_squares(l, grids[1].reach))]
        return [k, l, products(k, l, *grids), *(both if squares else ())]

    for squares, moves in ((False, covariance_moves), (True, correlation_moves)):
        present, swapped = moves(*grids)
        count_weight = max(grids[0].reach, grids[1].reach)
        for one in (*ends, *corners):
            alone = [abs(v) for v in vector(*one, squares=squares)] + [count_weight]
            assert sum(alone) <= present.l1
            assert sum(v * v for v in alone) <= present.l2_squared
            assert max(alone) <= present.linf
            for two in (*ends, *corners):
                pair = zip(vector(*one, squares=squares), vector(*two, squares=squares), strict=True)
                moved = [abs(a - b) for a, b in pair]
                assert sum(moved) <= swapped.l1
                assert sum(v * v for v in moved) <= swapped.l2_squared
                assert max(moved) <= swapped.linf


def check_clamped(account_of):
    """A row with one huge value moves the sums by no more than is declared."""
    account = account_of()
    for x, n in ((1e308, 1), (1.0, 2**62)):
        one, two = (
            exact(dp.Private(table(rows), account=account).covariance("x", "n", bounds={"x": (0, 1), "n": (0, 1)}))
            for rows in ([], [("p", x, n, "a", 0.0)])
        )
        moved = abs(two["covariance"][0].values - one["covariance"][0].values)
        assert int(moved.max()) <= one["covariance"][0].sensitivity().linf


def test_one_huge_value_moves_a_covariance_by_what_is_declared(account_of):
    check_clamped(account_of)


@pytest.mark.parametrize("which", [0, 1])
def test_the_mutant_that_clamps_one_column_only_is_caught(account_of, monkeypatch, which):
    honest, asked = compiling.level, []

    def careless(value, grid, missing):
        asked.append(value)
        if len(asked) % 2 == which:
            return (value.clip(-(2.0**36), 2.0**36) / float(grid.step)).fill_null(0).cast("int64")
        return honest(value, grid, missing)

    monkeypatch.setattr(compiling, "level", careless)
    with pytest.raises((AssertionError, EngineFailed)):  # a product that overflows shows the mutant too
        check_clamped(account_of)


def test_a_correlation_stays_within_one_and_its_interval_holds_it():
    grid = Grid.over((0, 1), center=True, levels=LEVELS)
    for finish in (CovarianceFinish(grid, grid), CorrelationFinish(grid, grid)):
        for noisy in ([0] * 6, [grid.reach] * 6, [-(2**40)] * 6, [5, -3, 2**50, 7, -(2**50), 100 * grid.reach]):
            values = np.array(noisy[: finish.mixes], dtype=np.int64)
            for scale in (1e-3, 1.0, 1e9, 1e15):
                low, high = finish.interval(values, NoiseLaw(gaussian=False, rounded=False, scale=scale), 0.05)
                assert -1 <= low <= finish.value(values) <= high <= 1
            assert finish.standard_error(values, 1e6) >= 0


def test_errors_of_covariances_cover_the_truth(account):
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 10, 3000)
    y = 2 * x + rng.uniform(0, 10, 3000)
    people = dp.Private({"x": x, "y": y}, account=account)
    bounds = {"x": (0, 10), "y": (0, 30)}
    asked = people.aggregate(c=covariance("x", "y", bounds=bounds), r=correlation("x", "y", bounds=bounds))
    truth = {"c": np.cov(x, y, ddof=0)[0, 1], "r": np.corrcoef(x, y)[0, 1]}
    misses = 0
    for _ in range(20):
        (row,) = asked.release(epsilon=4.0).rows()
        misses += sum(abs(row[name] - value) > row[f"{name}_error"] + 1e-4 for name, value in truth.items())
    # 40 intervals, each wrong with probability at most 5%; more than 15 wrong has probability < 1e-6 even if so.
    assert misses <= 15


# --- extremes, choices and marginals ------------------------------------------------------------------------------


def test_extremes_are_quantiles(account):
    people = dp.Private({"x": np.arange(10_001) / 100}, account=account)
    result = people.aggregate(
        low=analytics.min("x", bounds=(0, 128)), high=analytics.max("x", bounds=(0, 128), rank=0.999)
    ).release(epsilon=100.0)
    assert result.columns["low"][0] == pytest.approx(1.0, abs=0.3)
    assert result.columns["high"][0] == pytest.approx(99.9, abs=0.3)
    assert people.max("x", bounds=(0, 128)).release(epsilon=100.0).value == pytest.approx(99.0, abs=0.3)
    assert people.min("x", bounds=(0, 128)).event(1.0) == people.quantile("x", 0.01, bounds=(0, 128)).event(1.0)


def test_the_most_frequent_categories_are_chosen_in_order(account):
    data = {"g": ["a"] * 500 + ["b"] * 900 + ["c"] * 100 + ["d"] * 700, "h": ["x", "y"] * 1100}
    people = dp.Private(data, account=account)
    result = people.top_k("g", k=3, categories=["a", "b", "c", "d", "e"]).release(epsilon=50.0)
    assert result.value == ("b", "d", "a")
    grouped = people.group_by("h", keys=["x", "y"]).top_k("g", k=2, categories=["c", "a", "b"]).release(epsilon=50.0)
    assert grouped.columns["top_k"] == (("b", "a"), ("b", "a"))
    assert grouped.to_pandas()["top_k"].tolist()[0].tolist() == ["b", "a"]
    assert str(grouped).count("b, a") == 2
    # An unlisted category is never chosen, however frequent.
    assert people.top_k("g", k=1, categories=["c", "e"]).release(epsilon=50.0).value == ("c",)


def test_a_marginal_counts_each_cell_for_the_price_of_one_count(people):
    cells = {"g": ["a", "b"], "k": [1, 2]}
    asked = people.marginal("g", "k", categories=cells)
    ((found,),) = exact(asked).values()
    assert found.values.tolist() == [2, 2, 1, 2]
    assert asked.event(0.5) == people.count().event(0.5)
    result = people.aggregate(n=count(), c=marginal("g", "k", categories=cells)).release(epsilon=100.0)
    assert {name: column[0] for name, column in result.columns.items() if "error" not in name} == {
        "n": 9,
        "c[a, 1]": 2,
        "c[a, 2]": 2,
        "c[b, 1]": 1,
        "c[b, 2]": 2,
    }
    binned = people.bin("x", [0, 5, 10]).marginal("x_bin", "g", categories={"g": ["a"]})
    assert binned.release(epsilon=100.0).group_columns == 2
    grouped = people.group_by("g", keys=["a", "b"]).aggregate(c=marginal("k", categories={"k": [1, 2, 3]}))
    rows = grouped.release(epsilon=100.0).rows()
    assert [[row[f"c[{k}]"] for k in (1, 2, 3)] for row in rows] == [[2, 2, 0], [1, 2, 0]]


@pytest.mark.parametrize("relation", list(dp.Relation), ids=str)
def test_disjoint_groups_cost_once_for_every_aggregate(account_of, relation):
    """Parallel composition: two groups cost as much as two hundred, and one as much under add/remove."""
    people = dp.Private(table([]), account=account_of(relation=relation), bounds={"x": (0, 1), "n": (0, 9)})
    asked = {
        "n": count(),
        "m": mean("x"),
        "v": analytics.variance("x"),
        "s": analytics.sum("x"),
        "q": analytics.median("x"),
        "c": covariance("x", "n"),
        "r": correlation("x", "n"),
        "t": top_k("g", k=2, categories=["a", "b"]),
        "d": marginal("g", categories={"g": ["a", "b"]}),
    }
    one, two, many = (
        people.group_by("k", keys=[float(i) for i in range(n)]).aggregate(**asked).event(1.0) for n in (1, 2, 200)
    )
    assert two == many
    if relation is not dp.REPLACE_ONE:
        assert one == two == people.aggregate(**asked).event(1.0)


def test_one_pass_serves_all_sums(people):
    asked = people.aggregate(
        n=count(),
        m=mean("x"),
        c=covariance("x", "y"),
        t=top_k("g", k=1, categories=["a"]),
        d=marginal("g", categories={"g": ["a"]}),
    )
    assert len(asked._question.queries()) == 1


# --- public tables of keys ----------------------------------------------------------------------------------------


def test_keys_may_come_from_a_public_table(people):
    listed = {"k": [2, 1, 2], "g": ["b", "a", "a"], "note": ["x", "y", "z"]}
    tables = [
        pandas.DataFrame(listed),
        polars.DataFrame(listed),
        pa.table(listed),
        pa.RecordBatch.from_pydict(listed),
        ibis.memtable(pa.table(listed)),
        [("b", 2), ("a", 1), ("a", 2)],
    ]
    for keys in tables:
        result = people.group_by("g", "k", keys=keys).count().release(epsilon=200.0)
        assert result.columns["g"] == ("b", "a", "a")
        assert result.columns["k"] == (2, 1, 2)
        assert result.columns["count"] == (2, 2, 2)


def test_many_keys_of_several_columns_are_a_flat_condition(people):
    keys = [(f"k{i}", i % 97) for i in range(3000)] + [("a", 1)]
    result = people.group_by("g", "k", keys=keys).count().release(epsilon=200.0)
    assert result.columns["count"][-1] == 2
    assert sum(result.columns["count"]) == pytest.approx(2, abs=4)


def test_keys_from_the_private_table_are_refused(account):
    table_ = ibis.duckdb.connect().create_table("people", pa.table({"g": ["a", "b"]}))
    people = dp.Private(table_, account=account)
    with pytest.raises(InvalidArgument, match="private table"):
        people.group_by("g", keys=table_.distinct())


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda p: p.group_by("g", keys=pandas.DataFrame({"h": ["a"]})), "columns"),
        (lambda p: p.group_by("g", keys=pandas.DataFrame({"g": [None, "a"]})), "text"),
        (lambda p: p.group_by("g", keys=pandas.DataFrame({"g": [1]})), "one kind"),
        (lambda p: p.group_by("g", keys=pa.table({"g": pa.array([], pa.string())})), "between"),
        (lambda p: p.group_by("g", keys=polars.LazyFrame({"g": ["a"]})), "collect"),
        (lambda p: p.group_by("g", "k", keys={"g": "ab", "k": [1]}), "list"),
        (lambda p: p.covariance("x", "g"), "bounds"),
        (lambda p: p.covariance("x", "g", bounds={"g": (0, 1)}), "numbers"),
        (lambda p: p.covariance("x", "no"), "column"),
        (lambda p: p.covariance("x", "y", bounds=(0, 1)), "by name"),
        (lambda p: p.correlation("x", "y", bounds={"x": (1, 1)}), "lower < upper"),
        (lambda p: p.correlation("x", "y", bounds={"x": (0, math.inf)}), "finite"),
        (lambda p: p.correlation("x", "y", bounds={"y": (math.nan, 1)}), "finite"),
        (lambda p: p.top_k("g", k=0, categories=["a"]), "k must"),
        (lambda p: p.top_k("g", k=2, categories=["a"]), "k must"),
        (lambda p: p.top_k("g", k=1.0, categories=["a"]), "k must"),
        (lambda p: p.top_k("g", k=1, categories=[]), "categories"),
        (lambda p: p.top_k("g", k=1, categories=["a", "a"]), "categories"),
        (lambda p: p.top_k("g", k=1, categories="ab"), "list"),
        (lambda p: p.top_k("g", k=1, categories=[None]), "text"),
        (lambda p: p.top_k("g", k=1, categories=[math.nan]), "finite"),
        (lambda p: p.top_k("g", k=1, categories=[3]), "one kind"),
        (lambda p: p.top_k("no", k=1, categories=["a"]), "column"),
        (lambda p: p.marginal(), "column"),
        (lambda p: p.marginal("g"), "keys"),
        (lambda p: p.marginal("g", "k", categories={"g": ["a"]}), "keys"),
        (lambda p: p.aggregate(c=marginal("g", categories={"k": [1]})), "categories"),
        (lambda p: p.aggregate(c=marginal("k", categories={"k": range(2000)})), "categories"),
        (lambda p: p.aggregate(c=marginal("g", "k", categories={"g": list("abcdef"), "k": range(200)})), "cells"),
        (lambda p: p.min("x", rank=0.0), "quantile"),
        (lambda p: p.max("x", rank=1.0), "quantile"),
        (lambda p: p.max("x", bounds=(3, 3)), "lower < upper"),
        (lambda p: p.max("g", bounds=(0, 3)), "numbers"),
    ],
)
def test_what_makes_no_aggregate_is_refused_with_a_remedy(people, refused, words):
    with pytest.raises(InvalidArgument, match=words):
        refused(people)


def test_what_an_engine_has_no_words_for_is_refused_before_the_charge(people, monkeypatch):
    asked = people.count()
    before = people._spec.account.remaining()

    def wordless(*_, **__):
        raise ibis.common.exceptions.OperationNotDefinedError("Hash(Date) is not supported")

    monkeypatch.setattr(running, "prepare", wordless)
    with pytest.raises(InvalidArgument, match="engine"):
        asked.release(epsilon=1.0)
    assert people._spec.account.remaining() == before


# --- collations ---------------------------------------------------------------------------------------------------

LOOSE = ["NOCASE", "NOACCENT", "NOCASE.NOACCENT"]


@pytest.mark.parametrize("loose", LOOSE)
@pytest.mark.parametrize(
    "ask",
    [
        lambda p: p.group_by("g", keys=["a"]).count(),
        lambda p: p.mutate(h=p.g.fill_null("b")).group_by("n", "h", keys={"n": [1], "h": ["a"]}).count(),
        lambda p: p.top_k("g", k=1, categories=["a", "A"]),
        lambda p: p.aggregate(c=marginal("g", categories={"g": ["a", "A"]})),
    ],
)
def test_a_column_with_a_loose_collation_makes_no_groups(account, loose, ask):
    """Where 'a' equals 'A' one row could rename a group, or lie in two cells."""
    connection = ibis.duckdb.connect()
    connection.raw_sql(f"CREATE TABLE people (g VARCHAR COLLATE {loose}, n BIGINT)")
    connection.raw_sql("INSERT INTO people VALUES ('A', 1), ('a', 1), ('é', 1), ('e', 1)")
    people = dp.Private(connection.table("people"), account=account)
    before = account.remaining()
    with pytest.raises(InvalidArgument, match="collation"):
        ask(people).release(epsilon=1.0)
    assert account.remaining() == before
    assert people.where(people.g == "a").group_by("n", keys=[1]).count().release(epsilon=100.0).columns["count"][0] >= 1


def test_the_question_about_collations_reads_no_row(people, monkeypatch):
    seen = []
    honest = collation.running.rows
    monkeypatch.setattr(collation.running, "rows", lambda query: seen.append(ibis.to_sql(query)) or honest(query))
    collation.require_exact(people._spec.table, ("g", "k", "g"))
    assert len(seen) == 1
    assert "FALSE" in seen[0]


@pytest.mark.parametrize("categories", [[2**53, 2**53 + 1], [2**53 + 1, 2.0**53], [5e-324, 1e-323]])
def test_no_row_lies_in_two_cells_of_a_marginal(account, categories):
    """Numbers are compared as 64-bit floats: two categories that are the same float would count a row twice."""
    people = dp.Private({"x": [2**53] * 10, "y": [2.0**-970] * 10}, account=account)
    for column in ("x", "y"):
        with pytest.raises(InvalidArgument):
            people.aggregate(cells=marginal(column, categories={column: categories}))
        with pytest.raises(InvalidArgument):
            people.top_k(column, k=1, categories=categories)


def test_a_category_listed_twice_is_refused_however_the_aggregate_is_made():
    with pytest.raises(InvalidArgument, match="distinct"):
        Marginal((("x", ("a", "a")),))
    with pytest.raises(InvalidArgument, match="distinct"):
        TopCategories("x", ("a", "a"), 1)


def test_times_of_nanoseconds_are_no_literals(account):
    """Engines' literals drop nanoseconds: two categories would become one, and a row would lie in both cells."""
    times = [pandas.Timestamp(nanosecond) for nanosecond in (0, 1, 2)]
    people = dp.Private(pa.table({"t": pa.array([0] * 9, pa.timestamp("ns"))}), account=account)
    for asked in (times, [pandas.NaT]):
        with pytest.raises(InvalidArgument, match="microseconds"):
            people.aggregate(m=marginal("t", categories={"t": asked}))
    assert people.group_by("t", keys=times[:1]).count().release(epsilon=100.0).columns["count"] == (9,)


def test_a_row_lies_in_one_cell_whatever_the_engine_calls_equal(account):
    """Cells are tested in order, so even cells that the engine treats as equal share no row."""
    people = dp.Private({"x": [2**53] * 10}, account=account)
    asked = marginal("x", categories={"x": [0, 1]})
    object.__setattr__(asked, "categories", (("x", (2**53, 2**53 + 1)),))
    found = people.aggregate(m=asked).release(epsilon=100.0).rows()[0]
    assert [found[f"m[{2**53 + i}]"] for i in (0, 1)] == [10, 0]


def test_a_boolean_column_needs_no_bounds(account):
    people = dp.Private({"urgent": [True, False, True, None]}, account=account)
    assert people.sum("urgent").event(1.0) == people.sum("urgent", bounds=(0, 1)).event(1.0)
    # At this ε the noise of either answer has a scale below 1e-4.
    assert people.sum("urgent").release(epsilon=1e5).value == pytest.approx(2, abs=0.01)
    assert people.plan("SELECT AVG(urgent) AS m FROM t").release(epsilon=1e5).value == pytest.approx(2 / 3, abs=0.01)
