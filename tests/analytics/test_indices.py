"""Only the index of a public key leaves the engine: no value of a group column can break or blur an answer."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import ibis
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import count, count_distinct, marginal
from discreet.analytics.engine import grouping
from discreet.analytics.plan.keys import Keys
from discreet.errors import EngineFailed
from discreet.queries.weighted import WEIGHT
from tests.analytics.engines import postgres
from tests.analytics.plans import exact
from tests.analytics.test_sensitivity import assert_within

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)


@pytest.fixture(scope="module")
def server():
    """A connection to PostgreSQL, through which SQL becomes a table."""
    with postgres() as load:
        yield load(pa.table({"row": [1]})).get_backend()


def numerics(connection, values):
    rows = ", ".join(f"('{person}', {value}::numeric)" for person, value in values)
    return connection.sql(f"SELECT * FROM (VALUES {rows}) AS v(id, x)")


def test_a_row_next_to_a_numeric_key_is_in_no_group_and_breaks_nothing(server, account):
    for extra in ("1", "1.00000000000000000001", "'NaN'", "1e400", "1e-400"):
        people = dp.Private(numerics(server, [("p", 1), ("q", 2), ("r", extra)]), account=account)
        asked = people.group_by("x", keys=[1, 2]).count()
        (found,) = exact(asked)["count"]
        assert found.values.tolist() == [1 + (extra == "1"), 1]
        assert len(asked.release(epsilon=1.0).columns["count"]) == 2


NEAR = [Decimal("1") + Decimal(i) * Decimal("1e-20") for i in range(8)]  # all are 1.0 as floats


def near_decimals(persons):
    data = {"id": [person for person, _ in persons], "x": pa.array([x for _, x in persons], pa.decimal128(30, 20))}
    return pa.table(data)


def near_integers(persons):
    """The same persons with integers of 128 bits that are equal as floats."""
    connection = ibis.duckdb.connect()
    large = [(person, 2**62 + int((x - 1) * 10**20)) for person, x in persons]
    rows = ", ".join(f"('{person}', {x}::HUGEINT)" for person, x in large)
    connection.raw_sql(f"CREATE TABLE t AS SELECT * FROM (VALUES {rows}) AS v(id, x)")
    return connection.table("t")


@pytest.mark.parametrize(("load", "key"), [(near_decimals, 1), (near_integers, 2**62)])
def test_values_that_are_equal_as_floats_are_not_added_into_one_key(load, key, account_of):
    """A person who has eight such values counted eight times in one key: 64 times the ρ that was charged."""
    account = account_of(dp.person("id", max_rows=8, max_groups=8))
    absent, present = (
        exact(
            dp.Private(load(rows), account=account)
            .group_by("x", keys=[key, 2])
            .aggregate(n=count(), p=count_distinct())
        )
        for rows in ([("a", NEAR[0])], [("a", NEAR[0]), *(("new", x) for x in NEAR)])
    )
    assert_within(absent, present, dp.ADD_REMOVE)
    assert present["p"][0].values.tolist() == [2 * WEIGHT, 0]


def test_numeric_values_that_are_equal_as_floats_are_not_added_into_one_key(server, account_of):
    account = account_of(dp.person("id", max_rows=8, max_groups=8))
    people = dp.Private(numerics(server, [("a", 1), *(("new", x) for x in NEAR)]), account=account)
    (found,) = exact(people.group_by("x", keys=[1, 2]).count_distinct())["persons"]
    assert found.values.tolist() == [2 * WEIGHT, 0]


def months(connection, days):
    listed = ", ".join(f"(DATE '{day}')" for day in days)
    connection.raw_sql(f"CREATE OR REPLACE TEMP VIEW days AS SELECT * FROM (VALUES {listed}) AS v(day)")
    stored = connection.table("days")
    return stored.mutate(month=stored.day.truncate("M"))


@pytest.mark.parametrize("engine_name", ["duckdb", "postgres"])
def test_a_date_that_the_engine_returns_as_a_timestamp_is_counted(engine_name, request, account):
    connection = ibis.duckdb.connect() if engine_name == "duckdb" else request.getfixturevalue("server")
    days = ["2024-01-05", "2024-01-31", "2024-02-01", "2025-01-01"]
    people = dp.Private(months(connection, days), account=account)
    keys = [dt.date(2024, 1, 1), dt.date(2024, 2, 1), dt.date(2024, 3, 1)]
    asked = people.group_by("month", keys=keys).aggregate(
        n=count(), m=marginal("month", categories={"month": keys[:2]})
    )
    found = exact(asked)
    assert found["n"][0].values.tolist() == [2, 1, 0]
    assert found["m"][0].values.tolist() == [2, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("engine_name", ["duckdb", "postgres"])
def test_such_a_date_is_discovered(engine_name, request, account_of):
    connection = ibis.duckdb.connect() if engine_name == "duckdb" else request.getfixturevalue("server")
    account = account_of(budget=dp.ApproxDP(1e5, 0.5), fresh=True, aside=0.4)
    people = dp.Private(months(connection, ["2024-01-05", "2024-01-31", "2024-02-01"] * 100), account=account)
    result = people.group_by("month", keys=dp.discover()).count().release(epsilon=100.0, delta=1e-6)
    assert result.columns["month"] == (dt.date(2024, 1, 1), dt.date(2024, 2, 1))
    assert result.columns["count"] == (200, 100)


def many_keys(account, table, name, keys):
    """The counts by key, with enough keys that they are joined as a table."""
    (found,) = exact(dp.Private(table, account=account).group_by(name, keys=keys).count())["count"]
    return found.values.tolist()


def test_many_keys_of_every_kind_find_their_rows(engine, account):
    texts = [f"t{i}'" for i in range(12)]
    days = [dt.date(2024, 1, 1 + i) for i in range(12)]
    data = pa.table(
        {
            "text": pa.array([*texts[:3], "t0'", None]),
            "real": pa.array([0.1, 0.2, 0.1 + 0.2, 0.1, None], pa.float64()),
            "whole": pa.array([0, 3, 6, 0, None], pa.int64()),
            "day": pa.array([*days[:3], days[0], None], pa.date32()),
        }
    )
    loaded = engine(data)
    keys = {
        "text": texts,
        "real": [0.1, 0.2, 0.1 + 0.2, *(7.0 + i for i in range(9))],
        "whole": [3 * i for i in range(12)],
        "day": days,
    }
    for name, listed in keys.items():
        assert many_keys(account, loaded, name, listed) == [2, 1, 1, *[0] * 9], name
    pairs = [(text, day) for text, day in zip(texts, days, strict=True)]
    people = dp.Private(loaded, account=account)
    (found,) = exact(people.group_by("text", "day", keys=pairs).count())["count"]
    assert found.values.tolist() == [2, 1, 1, *[0] * 9]


KEYS = Keys(("g",), (("a",), ("b",)))
WRONG = {
    "a code out of range": {"k": [2], "c": [1]},
    "a negative code": {"k": [-1], "c": [1]},
    "a second row for a code": {"k": [0, 0], "c": [1, 1]},
    "no code": {"k": pa.array([None], pa.int64()), "c": [1]},
    "a code of another type": {"k": ["a"], "c": [1]},
    "no total": {"k": [0], "c": pa.array([None], pa.int64())},
    "a total of another type": {"k": [0], "c": [1.0]},
    "a fraction": {"k": [0], "c": [Decimal("0.5")]},
    "no column": {"k": [0]},
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_an_answer_that_no_query_gives_raises_the_same_error(answer):
    with pytest.raises(EngineFailed) as caught:
        grouping.totals(pa.table(answer), KEYS, ["c"])
    assert str(caught.value.engine_error) == "an engine's answer must hold one row of integers for each group"


@pytest.mark.parametrize("level", [[4, 4], [9, 4], [3, 4]])
def test_a_level_out_of_range_or_twice_raises_the_same_error(level):
    with pytest.raises(EngineFailed):
        grouping.level_totals(pa.table({"k": [0, 0], "level": level, "rows": [1, 1]}), KEYS, 4, 5)


def test_totals_are_scattered_in_the_order_of_the_keys():
    keys = Keys(("x", "g"), ((7, "a"), (5, "b"), (6, "a")))
    answer = pa.table({"k": keys.codes[[2, 0]], "c": pa.array([Decimal(2**70), Decimal(-3)], pa.decimal128(38, 0))})
    assert grouping.totals(answer, keys, ["c"]) == [[-3], [0], [1 << 60]]
