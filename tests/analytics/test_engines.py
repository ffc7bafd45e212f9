"""DuckDB, Spark and PostgreSQL give the same integers, whatever the rows hold, and none of them fails."""

from __future__ import annotations

import datetime as dt
import math

import ibis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics import count, marginal
from tests.analytics.engines import postgres
from tests.analytics.plans import ask, exact, ids, plans, row, table
from tests.analytics.test_sensitivity import MANY, UNITS, assert_within

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)
HOSTILE = [
    ("p", 1.5, 2, "a", 0.0),
    ("q", math.nan, None, "b", 1.0),
    ("p", math.inf, 2**63 - 1, "a", 0.0),
    (None, 3.0, 4, "é", 2.0),
    ("r", -1e308, -(2**63), "z", None),
    ("p", 2.5, 3, "b", 2.0),
    ("p", None, 3, "a", -0.0),
    ("", 5e-324, 0, "a'; --", 0.1),
    ("s", 1e-200, 1, "a", 1e-200),
]
CORE = [(1, 1, 4, 1)]
MORE = [(0, 0, 0, 1), (2, 2, 1, 1), (4, 3, 5, 1), (3, 0, 3, 1), (5, 4, 2, 3)]
PLANS = [*CORE, *(pytest.param(plan, marks=pytest.mark.slow) for plan in MORE)]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("unit", [dp.rows(), UNITS[1]], ids=str)
def test_every_engine_sums_the_same_integers(engine, account_of, unit, plan):
    ours, theirs = (exact(ask(data, account_of(unit), plan)) for data in (table(HOSTILE), engine(table(HOSTILE))))
    for name, values in ours.items():
        for one, other in zip(values, theirs[name], strict=True):
            assert one.values.tolist() == other.values.tolist(), name


def check_person(engine, account, rows, theirs, plan):
    absent = exact(ask(engine(table(rows)), account, plan))
    present = exact(ask(engine(table([*rows, *(("new", *one) for one in theirs)])), account, plan))
    assert_within(absent, present, dp.ADD_REMOVE)


@pytest.mark.parametrize("plan", PLANS)
def test_one_person_moves_no_aggregate_further_than_declared(engine, account_of, plan):
    check_person(engine, account_of(UNITS[2]), HOSTILE, MANY, plan)


@pytest.mark.slow
@given(
    unit=st.sampled_from(UNITS),
    rows=st.lists(st.tuples(ids, row).map(lambda both: (both[0], *both[1])), max_size=8),
    theirs=st.lists(row, max_size=8),
    plan=plans,
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_persons_move_no_aggregate_further_than_declared(engine, account_of, unit, rows, theirs, plan):
    check_person(engine, account_of(unit), rows, theirs, plan)


def test_a_release_is_charged_and_answered(engine, account):
    people = dp.Private(engine(table(HOSTILE)), account=account)
    result = people.group_by("g", keys=["a", "absent"]).count().release(epsilon=100.0)
    assert result.columns["count"] == (4, 0)


X = [3.0, None, 7.5, math.nan, math.inf, -math.inf, -0.0, 5e-324, 2.0**53 + 1, 1e308, 2.5, 9.999999, 0.1]
G = [*"aabbabzabaab", None]
N = [2**63 - 1, -(2**63), 2**53 + 1, 0, 1, 2, 3, None, -1, -2, 5, 6, 7]
EXPRESSIONS = {
    "a comparison with nothing is False": (lambda p: p.x >= 2.5, 7),
    "and its opposite True": (lambda p: ~(p.x >= 2.5), 6),
    "NaN is missing": (lambda p: p.x.is_null(), 2),
    "NaN is not unequal": (lambda p: p.x != 3, 10),
    "x / 0 is missing": (lambda p: (p.x / 0).is_null(), 13),
    "n / 0 is missing": (lambda p: (p.n / (p.n - p.n)).is_null(), 13),
    "no overflow": (lambda p: p.x * p.x * 10 > 1e120, 3),
    "no overflow of integers": (lambda p: p.n * p.n >= 0, 12),
    "no underflow": (lambda p: p.x * 1e-290 * 1e-290 == 0, 11),
    "integers beyond 2^53 as floats": (lambda p: p.n == 2.0**53, 1),
    "the ends of 64 bits": (lambda p: abs(p.n) >= 2.0**63, 2),
    "inf - inf is 0 here": (lambda p: (p.x - p.x) == 0, 11),
    "text": (lambda p: p.g.isin(["a", "z"]) & (p.x > 0), 5),
    "missing text": (lambda p: p.g != "a", 6),
    "filled": (lambda p: p.x.fill_null(-5) < 0, 3),
    "clipped": (lambda p: p.x.clip(0, 1) == 1, 7),
    "binned": (lambda p: p.x.bin([0, 2.5, 5, 10]) == 5, 2),
    "a boolean counts as 0 or 1": (lambda p: (p.x > 0) + (p.n > 0) == 2, 6),
}


def test_expressions_mean_the_same(engine, account):
    data = pa.table({"x": pa.array(X, pa.float64()), "g": pa.array(G), "n": pa.array(N, pa.int64())})
    people = dp.Private(engine(data), account=account)
    conditions = {f"e{i}": build(people) for i, (build, _) in enumerate(EXPRESSIONS.values())}
    asked = people.mutate(**{name: one.fill_null(False) for name, one in conditions.items()})
    asked = asked.mutate(**{f"k{name}": (asked[name] == True) + 0 for name in conditions})  # noqa: E712
    found = exact(asked.aggregate(**{name: dp.analytics.sum(f"k{name}", bounds=(0, 1)) for name in conditions}))
    for name, (words, (_, kept)) in zip(conditions, EXPRESSIONS.items(), strict=True):
        (one,) = found[name]
        assert one.finish.value(one.values) == kept, words


def test_times_are_compared_as_instants_and_local_times_as_written(engine, account):
    at = [dt.datetime(2024, 3, 10, hour, 30, tzinfo=dt.UTC) for hour in (5, 6, 7)] + [None]
    local = [dt.datetime(1969, 12, 31, 23, 59), dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 7, 1), None]
    days = [dt.date(1969, 12, 31), dt.date(2000, 2, 29), None, dt.date(1, 1, 1)]
    data = pa.table(
        {
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "local": pa.array(local, pa.timestamp("us")),
            "day": pa.array(days, pa.date32()),
        }
    )
    people = dp.Private(engine(data), account=account)
    india = dt.timezone(dt.timedelta(hours=5, minutes=30))
    conditions = [
        (people.at >= dt.datetime(2024, 3, 10, 12, 0, tzinfo=india), 2),
        (people.at < dt.datetime(2024, 3, 10, 6, 30, tzinfo=dt.UTC), 1),
        (people.day < dt.date(1970, 1, 1), 2),
    ]
    written = [(people.local >= dt.datetime(2024, 3, 10, 2, 30), 2), (people.local < dt.datetime(1970, 1, 1), 1)]
    if people._spec.table.get_backend().name == "pyspark":
        for condition, _ in written:  # Spark would read 2:30 of that night, which its zone skips, as 3:30
            with pytest.raises(dp.errors.InvalidArgument, match=r"without zone on Spark.*use its date\(\)"):
                people.where(condition)
        with pytest.raises(dp.errors.InvalidArgument, match=r"without zone on Spark.*use its date\(\)"):
            people.group_by("local", keys=[dt.datetime(2024, 7, 1)])
        # The remedies work.
        written = people.mutate(when=people.local.strftime("%Y-%m-%d %H:%M"), on=people.local.date())
        for column, key in [("when", "2024-03-10 02:30"), ("on", dt.date(2024, 3, 10))]:
            (found,) = exact(written.group_by(column, keys=[key]).count())["count"]
            assert found.values.tolist() == [1]
    else:
        conditions += written
    for condition, kept in conditions:
        (found,) = exact(people.where(condition).count())["count"]
        assert found.values.tolist() == kept, condition
    with pytest.raises(dp.errors.InvalidArgument, match="one kind"):
        people.where(people.at > dt.datetime(2024, 1, 1))


def test_floats_are_no_persons(engine, account_of):
    """−0.0 equals 0.0, NaN may equal itself, and large ids that differ are one float."""
    data = engine(pa.table({"id": pa.array([0.0, -0.0, math.nan, None, 1.0], pa.float64())}))
    with pytest.raises(dp.errors.InvalidArgument, match=r"person column 'id' must.*cast it"):
        dp.Private(data, account=account_of(dp.person("id", max_rows=1)))


def test_an_empty_table_is_answered(engine, account_of):
    people = dp.Private(engine(table([])), account=account_of(UNITS[1]))
    assert people.aggregate(n=count()).release(epsilon=100.0).value == 0


def test_each_private_table_is_answered_from_its_own_database(account_of):
    """Ibis treats any two in-memory databases as equal; a query compiled for one must not run in the other."""
    ten, many = (dp.Private({"x": [1.0] * rows}, account=account_of()) for rows in (10, 5000))
    first, second = ten.count(), many.count()
    assert [one.release(epsilon=100.0).value for one in (first, second, first)] == [10, 5000, 10]
    connections = ibis.duckdb.connect(), ibis.duckdb.connect()
    tables = [
        con.create_table("t", pa.table({"x": [1] * rows})) for con, rows in zip(connections, (10, 5000), strict=True)
    ]
    answers = [dp.Private(one, account=account_of()).count() for one in tables]
    assert [one.release(epsilon=100.0).value for one in answers] == [10, 5000]


def test_no_decimal_is_too_large_or_too_small_for_an_engine(account_of):
    """PostgreSQL's decimals have no limit, and a cast that fails would reveal a single row."""
    with postgres() as load:
        stored = load(pa.table({"row": [1, 2, 3, 4, 5]}))
        sizes = ["1e400", "-1e400", "1e-400", "NaN", "0.5"]
        chosen = ", ".join(f"({i}, '{size}'::numeric)" for i, size in enumerate(sizes, 1))
        people = dp.Private(
            stored.get_backend().sql(f"SELECT * FROM (VALUES {chosen}) AS v(row, x)"), account=account_of()
        )
        bounds = {"x": (-1, 1), "row": (0, 5)}
        found = people.group_by("row", keys=[1, 2, 3, 4, 5]).sum("x", bounds=(-1, 1)).release(epsilon=1e5)
        assert found.columns["sum"] == pytest.approx((1, -1, 0, 0, 0.5), abs=0.01)
        assert people.where(people.x > 0.1).count().release(epsilon=100.0).value == 2
        assert people.group_by("x", keys=[0.5]).count().release(epsilon=100.0).columns["count"] == (1,)
        people.correlation("x", "row", bounds=bounds).release(epsilon=100.0)
        people.median("x", bounds=(-1, 1)).release(epsilon=100.0)


def test_text_that_looks_like_a_variable_is_text(engine, account_of):
    """Spark replaces ${…} by settings and environment variables: one text would be compared as another."""
    texts = ["discreet", "${spark.app.name}", "${env:HOME}", "\\${env:HOME}", "$", "{}"]
    people = dp.Private(engine(pa.table({"s": texts * 5})), account=account_of())
    found = people.group_by("s", keys=texts).aggregate(n=count(), m=marginal("s", categories={"s": texts}))
    result = found.release(epsilon=1e3)
    assert result.columns["n"] == (5,) * len(texts)
    for place, text in enumerate(texts):
        assert result.columns[f"m[{text}]"] == tuple(5 * (place == other) for other in range(len(texts)))
