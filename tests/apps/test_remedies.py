"""The command line says flags where Python says arguments, and makes keys from the calendar."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def visits(run, folder):
    """A ledger, and visits on three days."""
    days = [dt.date(2024, 1, 5), dt.date(2024, 1, 6), dt.date(2024, 3, 1)]
    pq.write_table(pa.table({"day": days, "ward": ["a", "b", "a"], "cost": [1.0, 2.0, 3.0]}), folder / "v.parquet")
    run("discreet ledger init v.ledger --account v --epsilon 9000")
    return "--ledger v.ledger --epsilon 900"


def test_months_are_keys(run, visits):
    sql = "\"SELECT DATE_TRUNC('month', day) AS month, COUNT(*) AS n FROM v GROUP BY month ORDER BY month\""
    done = run(f'discreet query v.parquet {sql} --keys "month=months(2024-01, 2024-03)" {visits} --json')
    assert done.code == 0, done.err
    assert [(row["month"], row["n"]) for row in json.loads(done.out)["rows"]] == [
        ("2024-01-01", 2),
        ("2024-02-01", 0),
        ("2024-03-01", 1),
    ]


@pytest.mark.parametrize(
    ("sql", "flag"),
    [
        ("SELECT SUM(cost) FROM v", "--bounds cost=LOWER,UPPER"),
        ("SELECT ward, COUNT(*) FROM v GROUP BY ward", "--keys"),
        ("SELECT COUNT(*) FROM (SELECT ward, COUNT(*) FROM v GROUP BY ward)", "protects persons"),
    ],
)
def test_a_remedy_names_a_flag(run, visits, sql, flag):
    done = run(f'discreet query v.parquet "{sql}" {visits}')
    assert done.code == 2
    assert flag in done.err
    assert "dp." not in done.err
