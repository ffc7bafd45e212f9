"""A query is planned before the charge without reading a row, and runs after it as it was planned."""

from __future__ import annotations

import ibis
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics.engine import running


@pytest.fixture
def table():
    return ibis.duckdb.connect().create_table("people", pa.table({"age": [20, 30]}))


def test_planning_reads_no_row(table):
    planned = running.plan(table.aggregate(n=table.count()))
    table.get_backend().con.execute("INSERT INTO people VALUES (40)")
    assert planned.arrow()["n"].to_pylist() == [3]


def test_a_release_reads_its_sql_once(table, tmp_path, monkeypatch):
    account = dp.Ledger(tmp_path / "ledger").account("people", dp.PureDP(1.0))
    answer = dp.Private(table, account=account).aggregate(n=dp.analytics.count())
    read = []

    class Counting:
        def __init__(self, connection):
            self._connection = connection

        def __getattr__(self, name):
            return getattr(self._connection, name)

        def sql(self, text):
            read.append(text)
            return self._connection.sql(text)

    monkeypatch.setattr(table.get_backend(), "con", Counting(table.get_backend().con))
    answer.release(epsilon=0.5)
    assert read == [running.prepare(answer._question.queries()[0]).sql]
    answer.release(epsilon=0.5)
    assert len(read) == 2, "a second release plans anew: it must see what the table holds then"
