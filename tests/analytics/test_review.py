"""Faults that a second reader found in private analytics, one test for each."""

from __future__ import annotations

import ibis
import pyarrow as pa

import discreet as dp


def test_each_private_table_is_answered_from_its_own_database(account_of):
    """Ibis calls any two databases in memory equal; a query that was compiled for one must not run in the other."""
    ten, many = (dp.Private({"x": [1.0] * rows}, account=account_of()) for rows in (10, 5000))
    first, second = ten.count(), many.count()
    assert [one.release(epsilon=100.0).value for one in (first, second, first)] == [10, 5000, 10]
    connections = ibis.duckdb.connect(), ibis.duckdb.connect()
    tables = [
        con.create_table("t", pa.table({"x": [1] * rows})) for con, rows in zip(connections, (10, 5000), strict=True)
    ]
    answers = [dp.Private(one, account=account_of()).count() for one in tables]
    assert [one.release(epsilon=100.0).value for one in answers] == [10, 5000]


def test_two_databases_discover_their_own_keys(tmp_path):
    account = dp.Ledger(tmp_path / "keys.ledger").account("keys", dp.ApproxDP(1e5, 0.5), aside=0.4)
    answers = [
        dp.Private({"city": [name] * 500}, account=account).group_by("city", keys=dp.discover()).count()
        for name in ("bern", "ulm")
    ]
    found = [one.release(epsilon=20.0, delta=1e-9).columns["city"] for one in answers]
    assert found == [("bern",), ("ulm",)]
