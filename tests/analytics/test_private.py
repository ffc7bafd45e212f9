"""What a private table promises: charged first, only public facts in shapes and errors, the integers of `queries`."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys

import ibis
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet import queries
from discreet.analytics import Answer, answer, count, count_distinct, marginal, mean, median, std, variance
from discreet.analytics import sum as total
from discreet.analytics.engine import running
from discreet.analytics.engine.levels import level, levels
from discreet.errors import BudgetExceeded, EngineFailed, Exhausted, InvalidArgument
from discreet.queries.grid import Grid
from discreet.queries.weighted import WEIGHT
from tests.analytics.plans import exact, table

VALUES = [3.0, None, 7.5, math.nan, math.inf, -math.inf, -0.0, 5e-324, 2.0**53 + 1, 1e308, 2.5, 9.999999, 0.1]
DATA = {
    "x": VALUES,
    "g": [*"aabbabzabaab", None],
    "id": ["p", "q", "p", None, "q", "p", "r", "p", "q", "", "r", "p", "p"],
}


@pytest.fixture
def people(account):
    return dp.Private(pa.table(DATA), account=account, bounds={"x": (0, 10)})


# --- the same integers as queries ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds", [(0, 10), (-3, 8), (2.5, 9.75), (-7, -1), (-1e-3, 1e9), (0.1, 0.7), (1e-150, 1e-149)]
)
def test_the_engine_sums_the_very_integers_of_queries(account, bounds):
    people = dp.Private(pa.table(DATA), account=account)
    asked = people.aggregate(
        n=count("x"), s=total("x", bounds=bounds), m=mean("x", bounds=bounds), v=variance("x", bounds=bounds)
    )
    found = {name: value[0] for name, value in exact(asked).items()}
    same = {
        "n": queries.count(VALUES),
        "s": queries.sum(VALUES, bounds=bounds),
        "m": queries.mean(VALUES, bounds=bounds),
        "v": queries.variance(VALUES, bounds=bounds),
    }
    for name, wanted in same.items():
        assert found[name].values.tolist() == wanted.values.tolist(), name
        assert found[name].sensitivity(dp.ADD_REMOVE) == wanted.sensitivity(dp.ADD_REMOVE), name
        assert found[name].granularity == wanted.granularity


def both_levels(x, grid):
    fast = levels(x, grid)
    rows = x.as_table().select(**fast.parts, x=x)
    asked = rows.select(fast=fast.each(fast.row(rows)).fill_null(5), portable=level(rows.x, grid, 5), x=rows.x)
    return asked.to_pyarrow().to_pydict()


@given(
    values=st.lists(st.floats(width=64) | st.none(), min_size=1, max_size=30),
    low=st.floats(-1e6, 1e6).map(lambda low: round(low, 9)),
    width=st.floats(1.0, 1e6),
    center=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_level_in_the_engine_is_the_level_of_the_grid(values, low, width, center):
    grid = Grid.over((low, low + width), center=center)
    x = ibis.duckdb.connect().create_table("t", pa.table({"x": pa.array(values, pa.float64())})).x
    found = both_levels(x, grid)
    wanted = sorted(grid.levels(queries.grid.numbers(values), 5).tolist())
    assert sorted(found["fast"]) == sorted(found["portable"]) == wanted


def test_ties_go_to_even_levels():
    grid = Grid(queries.grid.Fraction(0), 0, -10, 10)
    x = ibis.duckdb.connect().create_table("t", pa.table({"x": [n / 2 for n in range(-25, 26)]})).x
    found = both_levels(x, grid)
    wanted = [max(-10, min(10, round(value))) for value in found["x"]]
    assert found["fast"] == found["portable"] == wanted


def test_persons_within_their_limits_are_summed_as_by_queries(account_of):
    unit = dp.person("id", max_rows=9)
    people = dp.Private(pa.table(DATA), account=account_of(unit))
    kept = [name is not None for name in DATA["id"]]
    found = exact(people.aggregate(n=count(), s=total("x", bounds=(0, 10)), m=mean("x", bounds=(0, 10))))
    ids = {"persons": DATA["id"], "max_rows": 9}
    assert found["n"][0].values.tolist() == sum(kept) * WEIGHT
    for name, ask in {"s": queries.sum, "m": queries.mean}.items():
        ((ours,), theirs) = found[name], ask(VALUES, bounds=(0, 10), **ids)
        assert ours.finish.value(ours.values) == pytest.approx(theirs.finish.value(theirs.values), rel=1e-4)
        mine, other = (b.sensitivity().l1 * float(b.granularity) for b in (ours, theirs))
        assert mine == pytest.approx(other, rel=1e-3), "the same noise, in the column's units"


def test_a_person_beyond_the_limits_counts_as_much_as_the_limits_say(account_of):
    unit = dp.person("id", max_rows=4, max_groups=2)
    data = {"id": ["p"] * 16 + ["q"], "g": [*"aabbbbccccdddddd", "a"], "x": [1.0] * 17}
    people = dp.Private(pa.table(data), account=account_of(unit))
    asked = people.group_by("g", keys=[*"abcd"]).aggregate(n=count(), k=count_distinct(), s=total("x", bounds=(0, 2)))
    found = {name: (one.values * float(one.granularity)).tolist() for name, (one,) in exact(asked).items()}
    assert found["n"] == [2 / 4 + 1, 4 / 4, 4 / 4, 6 / 4], "16 rows count as 4, each as a quarter"
    assert found["s"] == pytest.approx(found["n"], rel=1e-4)
    assert found["k"] == [1 / 2 + 1, 1 / 2, 1 / 2, 1 / 2], "4 groups count as 2"


def test_a_persons_mean_is_not_bent_by_the_row_limit(account_of):
    data = pa.table({"id": ["p"] * 100, "x": [30.0] * 100})
    people = dp.Private(data, account=account_of(dp.person("id", max_rows=10)))
    (value,) = exact(people.mean("x", bounds=(0, 100)))["mean"]
    assert value.finish.value(value.values) == pytest.approx(30.0, abs=1e-3)
    assert value.values[1] == 100 * (10 * WEIGHT // 100) * value.finish.inner.weight


def test_a_histogram_is_that_of_queries(people):
    (found,) = exact(people.histogram("x", edges=[0, 2.5, 5, 10]))["count"]
    assert found.values.tolist() == queries.histogram(VALUES, edges=[0, 2.5, 5, 10]).values.tolist()
    (found,) = exact(people.histogram("g", categories=["b", "a", "no"]))["count"]
    assert found.values.tolist() == queries.histogram(DATA["g"], categories=["b", "a", "no"]).values.tolist()


def test_a_quantile_is_where_the_rows_are(account):
    people = dp.Private({"x": np.repeat([1.0, 4.0, 40.0, 41.0], [10, 400, 500, 10])}, account=account)
    assert people.median("x", bounds=(0, 100)).release(epsilon=100).value == 40.0
    assert people.quantile("x", 0.1, bounds=(0, 100)).release(epsilon=100).value == 4.0


# --- charge, then query, then noise --------------------------------------------------------------------------------


def check_charge_first(people, monkeypatch):
    """The query never runs when the charge is refused, and runs after the charge when it is not."""
    steps = []
    run, spend = answer._run, people._spec.account.spend
    monkeypatch.setattr(answer, "_run", lambda queries: steps.append("query") or run(queries))
    monkeypatch.setattr(
        type(people._spec.account), "spend", lambda self, *a, **k: (steps.append("charge"), spend(*a, **k))[1]
    )
    people.count().release(epsilon=0.5)
    assert steps == ["charge", "query"]
    with pytest.raises(BudgetExceeded):
        people.count().release(epsilon=1e9)
    assert steps == ["charge", "query", "charge"]


def test_the_charge_comes_before_the_query(people, monkeypatch):
    check_charge_first(people, monkeypatch)


def test_the_mutant_that_charges_after_the_query_is_caught(people, monkeypatch):
    honest = Answer.release

    def late(self, *, epsilon, **rest):
        answer._run(self._question.queries())
        return honest(self, epsilon=epsilon, **rest)

    monkeypatch.setattr(Answer, "release", late)
    with pytest.raises(AssertionError):
        check_charge_first(people, monkeypatch)


def test_the_account_is_charged_what_was_previewed(account_of):
    account = account_of(budget=dp.PureDP(1.0), fresh=True)
    people = dp.Private(pa.table(DATA), account=account, bounds={"x": (0, 10)})
    asked = people.group_by("g", keys=["a", "b"]).aggregate(
        n=count(share=3), m=mean("x"), sd=std("x"), half=median("x")
    )
    preview = asked.preview(epsilon=0.25)
    assert account.remaining().epsilon == pytest.approx(1.0)
    assert preview.affordable
    assert [round(column.epsilon, 6) for column in preview.columns] == [0.125, *[round(0.125 / 3, 6)] * 3]
    assert "SUM" in preview.sql
    assert "SUM" not in str(preview)
    result = asked.release(epsilon=0.25)
    assert result.event == preview.event == result.receipt.event
    assert account.remaining().epsilon == pytest.approx(0.75, abs=1e-5)
    assert not asked.preview(epsilon=0.9).affordable
    with pytest.raises(BudgetExceeded):
        asked.release(epsilon=0.9)
    assert account.remaining().epsilon == pytest.approx(0.75, abs=1e-5)


def test_many_groups_cost_as_much_as_one(people):
    few, many = (people.group_by("g", keys=keys).count().event(0.5) for keys in (["a"], [*"abcdefgh"]))
    assert few == many == people.count().event(0.5)


def test_a_preview_touches_no_data(people, monkeypatch):
    monkeypatch.setattr(answer, "_run", None)
    assert "remaining" in str(people.mean("x").preview(epsilon=0.1))


def test_a_wanted_error_finds_its_epsilon(people):
    asked = people.aggregate(n=count(), m=mean("x"))
    preview = asked.preview(error_target={"n": 20, "m": 0.5}, rows=500)
    assert all(column.error <= limit for column, limit in zip(preview.columns, (20, 0.5), strict=True))
    less = asked.preview(epsilon=preview.epsilon * 0.95, rows=500)
    assert any(column.error > limit for column, limit in zip(less.columns, (20, 0.5), strict=True))
    assert people.count().epsilon_for(30.0) < people.count().epsilon_for(3.0)
    for wrong in ({"k": 1.0}, {}, -1.0, float("nan")):
        with pytest.raises(InvalidArgument, match="error_target"):
            asked.preview(error_target=wrong)
    for both in ({}, {"epsilon": 1.0, "error_target": 1.0}):
        with pytest.raises(InvalidArgument, match="Give exactly one of epsilon"):
            asked.preview(**both)


def test_a_key_pays_for_one_release(people):
    people.count().release(epsilon=0.1, key="monday")
    with pytest.raises(Exhausted):
        people.count().release(epsilon=0.1, key="monday")


def test_an_engine_failure_is_reported_without_its_message(people, monkeypatch):
    asked = people.count()

    def broken(self, *_, **__):
        raise RuntimeError("row 17 holds the secret 42")

    monkeypatch.setattr(running.Planned, "arrow", broken)
    before = people._spec.account.remaining().epsilon
    with pytest.raises(EngineFailed) as caught:
        asked.release(epsilon=0.5)
    assert "42" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "42" in str(caught.value.engine_error)
    assert people._spec.account.remaining().epsilon == pytest.approx(before - 0.5)


def test_the_unit_is_the_accounts(account_of):
    with pytest.raises(InvalidArgument, match="unit must be the account's"):
        dp.Private(pa.table(DATA), account=account_of(), unit=dp.person("id", max_rows=3))
    unit = dp.person("id", max_rows=3, max_groups=2)
    with pytest.raises(InvalidArgument, match=r"max_groups=None\), got Person\(.*max_groups=2\)"):
        dp.Private(pa.table(DATA), account=account_of(dp.person("id", max_rows=3)), unit=unit)
    with pytest.raises(InvalidArgument, match="account must be"):
        dp.Private(pa.table(DATA), account=None)
    with pytest.raises(InvalidArgument, match="column must be one of"):
        dp.Private({"x": [1]}, account=account_of(dp.person("id", max_rows=3)))


# --- results ------------------------------------------------------------------------------------------------------


def test_absent_keys_are_answered_and_unlisted_ones_are_not(people):
    result = people.group_by("g", keys=["no", "b", "a"]).count().release(epsilon=200)
    assert result.columns["g"] == ("no", "b", "a")
    assert result.columns["count"] == (0, 5, 6)
    assert result.to_pandas().columns.tolist() == ["g", "count", "count_error"]
    assert result.to_polars().shape == (3, 3)
    assert result.to_arrow().num_rows == len(result.rows()) == 3
    assert str(result).startswith("g ")


def test_a_plot_has_a_bar_for_each_group(people):
    figures = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed (the docs extra has it)")
    result = people.group_by("g", keys=["a", "b", "no"]).aggregate(n=count(), m=median("x")).release(epsilon=1.0)
    for column in (None, "m"):
        axes = result.plot(column, axes=figures.Figure().subplots())
        assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "no"]
        assert len(axes.patches) == 3
    with pytest.raises(InvalidArgument, match="column"):
        result.plot("g")


def test_an_empty_table_has_the_same_shape(account):
    empty = dp.Private(table([]), account=account)
    asked = empty.group_by("g", keys=["a", "b"]).aggregate(
        n=count(), s=total("x", bounds=(0, 1)), m=mean("x", bounds=(0, 1)), q=median("x", bounds=(0, 1))
    )
    result = asked.release(epsilon=1.0)
    assert len(result.rows()) == 2
    assert all(value is not None for column in result.columns.values() for value in column)
    assert isinstance(empty.sum("x", bounds=(0, 1)).release(epsilon=1.0).value, float)


def test_errors_cover_the_truth(account):
    people = dp.Private({"x": np.arange(1000) % 10.0}, account=account)
    asked = people.aggregate(
        n=count(), s=total("x", bounds=(0, 9)), m=mean("x", bounds=(0, 9)), d=std("x", bounds=(0, 9))
    )
    truth = {"n": 1000, "s": 4500, "m": 4.5, "d": math.sqrt(8.25)}
    misses = 0
    for _ in range(20):
        (row,) = asked.release(epsilon=4.0).rows()
        misses += sum(abs(row[name] - value) > row[f"{name}_error"] + 1e-3 for name, value in truth.items())
    # 80 intervals, each wrong with probability at most 5%; more than 22 wrong has probability < 1e-6 even if so.
    assert misses <= 22


def test_row_order_changes_nothing(account_of):
    account = account_of(dp.person("id", max_rows=2, max_groups=1))
    forwards, backwards = (
        dp.Private(pa.table({name: column[::way] for name, column in DATA.items()}), account=account) for way in (1, -1)
    )
    one, two = (
        exact(p.group_by("g", keys=["a", "b"]).aggregate(n=count(), s=total("x", bounds=(0, 10))))
        for p in (forwards, backwards)
    )
    assert all(one[name][0].values.tolist() == two[name][0].values.tolist() for name in one)


# --- where tables come from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "parquet", "csv", "ibis", "mapping"])
def test_every_source_gives_the_same_answer(kind, account, tmp_path):
    arrow = pa.table({"x": [1.0, 2.0, None, 4.0], "n": [1, None, 3, 4], "g": ["a", "b", None, "a"]})
    pyarrow.parquet.write_table(arrow, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(arrow, tmp_path / "t.csv")
    source = {
        "pandas": arrow.to_pandas,
        "polars": lambda: polars.from_arrow(arrow),
        "arrow": lambda: arrow,
        "parquet": lambda: str(tmp_path / "t.parquet"),
        "csv": lambda: tmp_path / "t.csv",
        "ibis": lambda: ibis.duckdb.connect().create_table("mine", arrow),
        "mapping": lambda: {name: arrow[name].to_pylist() for name in arrow.column_names},
    }[kind]()
    people = dp.Private(source, account=account)
    found = exact(people.group_by("g", keys=["a", "b"]).aggregate(n=count("n"), s=total("x", bounds=(0, 4))))
    assert found["n"][0].values.tolist() == [2, 0]
    assert found["s"][0].finish.value(found["s"][0].values).tolist() == [5.0, 2.0]


def test_a_cell_that_does_not_fit_its_csv_column_is_missing(account, tmp_path):
    rows = ["n,g"] + ["1,a"] * 30_000 + ["oops,a", "1e999,a", "7"]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    people = dp.Private(tmp_path / "t.csv", account=account)
    assert exact(people.group_by("g", keys=["a"]).count())["count"][0].values.tolist()[0] in (30_001, 30_002)


def test_a_csv_file_may_come_from_windows_and_must_have_a_header(account, tmp_path):
    path = tmp_path / "PEOPLE.CSV"
    path.write_bytes(b"\xef\xbb\xbfn,g\r\n" + b"1,a\r\n" * 50)
    assert exact(dp.Private(path, account=account).group_by("g", keys=["a"]).count())["count"][0].values.tolist() == [
        50
    ]
    path.write_bytes(b"")
    with pytest.raises(InvalidArgument, match="empty': name the columns"):
        dp.Private(path, account=account)


def test_a_column_that_is_no_number_is_named(account, tmp_path):
    (tmp_path / "t.csv").write_text("age,notes\n,ill\n,well\n")
    people = dp.Private(tmp_path / "t.csv", account=account)
    with pytest.raises(InvalidArgument, match="an aggregate of 'age' must get numbers"):
        people.mean("age", bounds=(0, 100))


def test_a_notebook_shows_previews_and_results_as_print_does(people):
    asked = people.mean("x")
    for shown in (asked.preview(epsilon=0.1), asked.release(epsilon=0.1)):
        assert repr(shown) == str(shown)
        assert "Fraction(" not in repr(shown)


def test_a_table_is_told_what_is_wrong_with_it(account):
    """A wrong reason in an error misleads people."""
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    for source in (twice, {"a": [1, 2], "b": [1]}):
        with pytest.raises(InvalidArgument, match="mixed types, lengths or names"):
            dp.Private(source, account=account)
    with pytest.raises(InvalidArgument, match="must have a column"):
        dp.Private(pandas.DataFrame(), account=account)
    with pytest.raises(InvalidArgument, match="a column of type unknown'"):
        dp.Private({"a": []}, account=account).sum("a", bounds=(0, 1))
    connection = ibis.duckdb.connect().con
    for source in (connection, connection.sql("SELECT 1 AS a")):
        with pytest.raises(InvalidArgument, match="from_connection"):
            dp.Private(source, account=account)


def test_a_mistyped_column_is_told_which_there_are(people):
    with pytest.raises(
        AttributeError, match="a private table must have what is asked of it, got 'ages': it has the col"
    ):
        _ = people.ages


def test_mixed_columns_are_refused_without_quoting_them(account):
    with pytest.raises(InvalidArgument, match="one type each") as caught:
        dp.Private(pandas.DataFrame({"x": [1, "secret", 2.0]}), account=account)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("source", [7, None, [1, 2], "missing.parquet", "README.md", polars.LazyFrame({"x": [1]})])
def test_what_is_no_table_is_refused(source, account):
    with pytest.raises(InvalidArgument, match="table must"):
        dp.Private(source, account=account)


# --- expressions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "kept"),
    [
        (lambda p: p.x >= 2.5, 7),
        (lambda p: ~(p.x >= 2.5), 6),
        (lambda p: p.x != 3, 10),
        (lambda p: p.x.is_null(), 2),
        (lambda p: p.x / 0 > 0, 0),
        (lambda p: (p.x - p.x) == 0, 11),
        (lambda p: p.x * p.x * 10 > 1e120, 3),
        (lambda p: p.g == "a", 6),
        (lambda p: p.g.isin(["a", "z"]) & (p.x > 0), 5),
        (lambda p: p.x.fill_null(-5) < 0, 3),
        (lambda p: p.x.between(0.1, 3), 3),
        (lambda p: p.g.isin([]), 0),
        (lambda p: ~p.g.isin([]), 13),
        (lambda p: abs(-p.x) == 3, 1),
        (lambda p: 1 / p.x > 5, 1),
    ],
)
def test_an_expression_means_the_same_on_every_engine(people, build, kept):
    (found,) = exact(people.where(build(people)).count())["count"]
    assert found.values.tolist() == kept


def test_dates_are_compared_with_dates(account):
    days = [dt.date(1969, 12, 31), dt.date(2000, 2, 29), None]
    people = dp.Private(pa.table({"day": days}), account=account)
    (found,) = exact(people.where(people.day < dt.date(1970, 1, 1)).count())["count"]
    assert found.values.tolist() == 1
    with pytest.raises(InvalidArgument, match="one kind"):
        people.where(people.day < "soon")


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda p: p.x**-1, "exponent"),
        (lambda p: p.g.cast("int"), "integer"),
        (lambda p: p.g.astype("int"), "cast"),
        (lambda p: p.x.apply(print), "compose"),
        (lambda p: p.x.mean(), "people.mean"),
        (lambda p: p.x.isna(), "is_null"),
        (lambda p: p.nothing, "nothing"),
        (len, "private"),
        (list, "private"),
        (lambda p: list(p.x), "private"),
        (lambda p: p.where(p.x > 1 and p.x < 3), "&"),
        (lambda p: p.where(p.g > 1), "one kind"),
        (lambda p: p.where(p.x), "True or False"),
        (lambda p: p.where(True), "expression"),
        (lambda p: p.where(p.x + float("nan") > 0), "finite"),
        (lambda p: p.where(p.g == "a\0b"), "NUL"),
        (lambda p: p.where(p.x > 2**70), "64 bits"),
        (lambda p: p.select("g").where(p.x > 1), "x"),
        (lambda p: p.mutate(y=3), "expression"),
        (lambda p: p.group_by("g"), "keys"),
        (lambda p: p.group_by("g", keys=["a", "a"]), "distinct"),
        (lambda p: p.group_by("x", keys=[1, 1.0]), "distinct"),
        (lambda p: p.group_by("g", keys=[1]), "one kind"),
        (lambda p: p.group_by("g", keys=[None]), "text"),
        (lambda p: p.group_by("x", keys=[math.nan]), "finite"),
        (lambda p: p.group_by("g", keys=[]), "between"),
        (lambda p: p.group_by("g", keys="ab"), "list"),
        (lambda p: p.group_by("g", keys=p.g), "list"),
        (lambda p: p.group_by(keys=["a"]), "column"),
        (lambda p: p.group_by("g", "x", keys=["a"]), "one value for each"),
        (lambda p: p.sum("g", bounds=(0, 1)), "numbers"),
        (lambda p: p.median("g", bounds=(0, 1)), "numbers"),
        (lambda p: p.select("g").sum("x"), "column"),
        (lambda p: p.mutate(y=p.x / p.x).sum("y"), "bounds"),
        (lambda p: p.sum("x", bounds=(1, 1)), "lower < upper"),
        (lambda p: p.sum("x", bounds=(2, 1)), "lower < upper"),
        (lambda p: p.sum("x", bounds=(0, math.inf)), "finite"),
        (lambda p: p.sum("x", bounds=(math.nan, 1)), "finite"),
        (lambda p: p.quantile("x", 1.0), "quantile"),
        (lambda p: p.count_distinct(), "persons"),
        (lambda p: p.aggregate(), "at least one"),
        (lambda p: p.aggregate(n=5), "aggregate"),
        (lambda p: p.aggregate(n_error=count()), "_error"),
        (lambda p: p.count().release(epsilon=0), "epsilon"),
        (lambda p: p.count().release(epsilon=math.nan), "epsilon"),
        (lambda p: p.count().preview(epsilon=-1), "epsilon"),
        (lambda p: p.bin("x", [1]), "edges"),
    ],
)
def test_what_is_not_on_the_list_is_refused_with_a_remedy(people, refused, words):
    with pytest.raises(InvalidArgument, match=words):
        refused(people)


def test_a_persons_id_cannot_be_replaced(account_of):
    people = dp.Private(pa.table(DATA), account=account_of(dp.person("id", max_rows=2)))
    with pytest.raises(InvalidArgument, match="id alone"):
        people.mutate(id=people.x * 1)
    (found,) = exact(people.select("x").count_distinct())["persons"]
    assert found.values.tolist() == 4 * WEIGHT


def test_a_person_with_too_many_rows_is_refused(account_of):
    people = dp.Private(pa.table(DATA), account=account_of(dp.person("id", max_rows=1 << 20)))
    with pytest.raises(InvalidArgument, match="max_rows"):
        people.sum("x", bounds=(0, 1))


def test_columns_may_have_any_name(account):
    names = ["person", "rows", "g0", "s0", "level", 'a"; DROP TABLE people; --', "count"]
    people = dp.Private({name: [1.0, 2.0] for name in names}, account=account)
    for name in names:
        (found,) = exact(people.where(people[name] > 1).group_by(name, keys=[2]).sum(name, bounds=(0, 4)))["sum"]
        assert found.finish.value(found.values).tolist() == [2.0]


def test_nothing_shows_a_value(people):
    shown = f"{people!r} {people.count()!r} {people.x!r}"
    assert "9.99" not in shown
    assert "hidden" in shown


def test_the_base_install_imports_nothing_that_takes_long():
    slow = {"ibis", "duckdb", "pandas", "pyarrow", "torch", "scipy.signal", "scipy.stats"}
    code = f"import sys, discreet; assert not {slow} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_extra_says_what_to_install():
    code = (
        "import sys; sys.modules['ibis'] = None\n"
        "import discreet\n"
        "try: discreet.Private\n"
        "except discreet.errors.MissingExtra as error: assert 'discreet[analytics]' in str(error)\n"
        "else: raise SystemExit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_replace_one_accounts_are_served(account_of):
    people = dp.Private(pa.table(DATA), account=account_of(relation=dp.REPLACE_ONE))
    result = people.group_by("g", keys=["a", "b"]).aggregate(n=count(), m=mean("x", bounds=(0, 10))).release(epsilon=1)
    assert result.receipt.event.events[0].sensitivity == 2


def test_no_column_of_a_result_hides_another(account):
    people = dp.Private({"count_error": ["k", "l"], "a": ["x, y", "x"], "b": ["z", "y, z"]}, account=account)
    with pytest.raises(InvalidArgument, match="differ"):
        people.group_by("count_error", keys=["k", "l"]).count()
    with pytest.raises(InvalidArgument, match="differ"):
        people.aggregate(m=marginal("a", "b", categories={"a": ["x, y", "x"], "b": ["z", "y, z"]}))
    people.group_by("count_error", keys=["k", "l"]).aggregate(n=count())


def test_a_new_column_differs_by_more_than_case(account_of):
    """DuckDB would read the old column: to it `Y` is `y`."""
    people = dp.Private({"who": [1, 2], "y": [1.0, 2.0]}, account=account_of(dp.person("who", max_rows=2)))
    for name in ("Y", "WHO"):
        with pytest.raises(InvalidArgument, match="case"):
            people.select("y").mutate(**{name: people.y * 3})
    with pytest.raises(InvalidArgument, match="case"):
        people.mutate(z=people.y, Z=people.y * 3)
    people.mutate(y=people.y * 3)
