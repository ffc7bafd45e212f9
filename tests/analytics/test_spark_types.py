"""Earlier defects on Spark: values next to a key, dates as times, collations, and types that it cannot group by.

The same on DuckDB and PostgreSQL is in test_indices and test_refusals.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import count, count_distinct
from discreet.errors import InvalidArgument
from discreet.queries.weighted import WEIGHT
from tests.analytics.engines import spark
from tests.analytics.plans import exact
from tests.analytics.test_sensitivity import assert_within

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket.*127.0.0.1:ResourceWarning"),
]

NEAR = [f"1.0000000000000000000{digit}" for digit in range(8)]  # all are 1.0 as floats


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A connection to Spark, in which SQL makes views."""
    with spark(tmp_path_factory.mktemp("spark")) as load:
        yield load(pa.table({"row": [1]})).get_backend()


def view(session, sql):
    session.raw_sql(f"CREATE OR REPLACE TEMP VIEW viewed AS {sql}")
    return session.table("viewed")


def decimals(session, rows):
    listed = ", ".join(f"('{person}', CAST('{value}' AS DECIMAL(38, 20)))" for person, value in rows)
    return view(session, f"SELECT * FROM VALUES {listed} AS t(id, x)")


def test_a_row_next_to_a_key_is_in_no_group_and_breaks_nothing(session, account):
    for extra in ("1", NEAR[1], "99999999999999999"):
        people = dp.Private(decimals(session, [("p", 1), ("q", 2), ("r", extra)]), account=account)
        asked = people.group_by("x", keys=[1, 2]).count()
        assert exact(asked)["count"][0].values.tolist() == [1 + (extra == "1"), 1]
        assert len(asked.release(epsilon=1.0).columns["count"]) == 2


def test_values_that_are_equal_as_floats_are_not_added_into_one_key(session, account_of):
    account = account_of(dp.person("id", max_rows=8, max_groups=8))
    absent, present = (
        exact(
            dp.Private(decimals(session, rows), account=account)
            .group_by("x", keys=[1, 2])
            .aggregate(n=count(), p=count_distinct())
        )
        for rows in ([("a", 1)], [("a", 1), *(("new", value) for value in NEAR)])
    )
    assert_within(absent, present, dp.ADD_REMOVE)
    assert present["p"][0].values.tolist() == [2 * WEIGHT, 0]


def test_the_first_day_of_a_month_is_counted_and_discovered(session, account_of):
    days = ", ".join(f"(DATE '{day}')" for day in ("2024-01-05", "2024-01-31", "2024-02-01"))
    stored = view(session, f"SELECT v.day FROM VALUES {days} AS v(day), RANGE(100)")
    months = stored.mutate(month=stored.day.truncate("M"))
    account = account_of(budget=dp.ApproxDP(1e5, 0.5), fresh=True, aside=0.4)
    people = dp.Private(months, account=account)
    keys = [dt.date(2024, 1, 1), dt.date(2024, 2, 1), dt.date(2024, 3, 1)]
    assert exact(people.group_by("month", keys=keys).count())["count"][0].values.tolist() == [200, 100, 0]
    found = people.group_by("month", keys=dp.discover()).count().release(epsilon=100.0, delta=1e-6)
    assert found.columns["month"] == tuple(keys[:2])


#: Questions about a column `g`, which may name the person.
ASKED = {
    "person": (dp.person("g", max_rows=1), lambda people: people.count().release(epsilon=1.0)),
    "keys": (dp.rows(), lambda people: people.group_by("g", keys=["a"]).count().release(epsilon=1.0)),
    "discovered": (
        dp.rows(),
        lambda people: people.group_by("g", keys=dp.discover()).count().release(epsilon=1.0, delta=1e-6),
    ),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(
    "value",
    ["COLLATE('a', 'UTF8_LCASE')", "COLLATE('a', 'UNICODE_CI')", "ARRAY('a')", "NAMED_STRUCT('a', 1)", "MAP('a', 1)"],
)
def test_what_spark_takes_for_equal_is_refused_before_the_charge(session, account_of, value, asked):
    unit, ask = ASKED[asked]
    account = account_of(unit, budget=dp.ApproxDP(1e5, 0.5), fresh=True, aside=0.4)
    before = account.remaining()
    with pytest.raises(InvalidArgument):
        ask(dp.Private(view(session, f"SELECT {value} AS g, 1 AS x"), account=account))
    assert account.remaining() == before
