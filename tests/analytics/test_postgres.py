"""The same plans on PostgreSQL: the same integers for rows, bounded persons, and no row that makes a query fail."""

from __future__ import annotations

import itertools

import ibis
import pytest

import discreet as dp
from tests.analytics.plans import SCHEMA, ask, exact, table
from tests.analytics.test_sensitivity import MANY, UNITS, assert_within
from tests.ledger.server import Server, programs

HOSTILE = [
    ("p", 1.5, 2, "a", 0.0),
    ("q", float("nan"), None, "b", 1.0),
    ("p", float("inf"), 2**63 - 1, "a", 0.0),
    (None, 3.0, 4, "é", 2.0),
    ("r", -1e308, -(2**63), "z", None),
    ("p", 2.5, 3, "b", 2.0),
    ("p", None, 3, "a", -0.0),
    ("", 5e-324, 0, "a'; --", 0.1),
    ("s", 1e-200, 1, "a", 1e-200),
]
_names = itertools.count()


@pytest.fixture(scope="module")
def postgres():
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: initdb was not found")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (the ledger extra has it)")
    server = Server(durable=False)
    connection = ibis.postgres.connect(host=str(server.folder), user="discreet", database="postgres")

    def load(rows):
        name = f"people{next(_names)}"
        kinds = {"string": "text", "double": "double precision", "int64": "bigint"}
        columns = ", ".join(f"{field.name} {kinds[str(field.type)]}" for field in SCHEMA)
        with psycopg.connect(server.url(), autocommit=True) as direct, direct.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            cursor.executemany(f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s)", rows)
        return connection.table(name)

    yield load
    connection.disconnect()
    server.remove()


PLANS = [(keep, change, group, 1) for keep, change, group in ((0, 0, 0), (1, 1, 1), (2, 2, 4), (4, 3, 5), (3, 0, 3))]


@pytest.mark.parametrize("plan", PLANS)
def test_postgres_sums_the_same_integers_as_duckdb(postgres, account_of, plan):
    ours, theirs = (exact(ask(data, account_of(), plan)) for data in (table(HOSTILE), postgres(HOSTILE)))
    for name, values in ours.items():
        for one, other in zip(values, theirs[name], strict=True):
            assert one.values.tolist() == other.values.tolist(), name


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("unit", UNITS[1:3], ids=str)
def test_one_person_moves_no_aggregate_further_than_declared_on_postgres(postgres, account_of, unit, plan):
    account = account_of(unit)
    absent = exact(ask(postgres(HOSTILE), account, plan))
    present = exact(ask(postgres([*HOSTILE, *(("new", *one) for one in MANY)]), account, plan))
    assert_within(absent, present, dp.ADD_REMOVE)


def test_a_release_on_postgres_is_charged_and_answered(postgres, account):
    people = dp.Private(postgres(HOSTILE), account=account)
    result = people.group_by("g", keys=["a", "absent"]).count().release(epsilon=100.0)
    assert result.columns["count"] == (4, 0)
