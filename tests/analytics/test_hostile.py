"""Every door of a private table takes hostile values: each is answered, or refused with an error of ours."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import count
from discreet.analytics import sum as total
from discreet.errors import DiscreetError, EngineFailed

DATA = pa.table(
    {
        "id": [1, 2, 2, None],
        "x": [1.0, math.nan, math.inf, None],
        "n": pa.array([1, 2**63 - 1, -(2**63), None], pa.int64()),
        "u": pa.array([1, 2, 3, 2**64 - 1], pa.uint64()),
        "s": ["a", "b", "e\u0301", None],
        "d": [dt.date(2024, 1, 1), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
        "t": pa.array([dt.datetime(2024, 1, 1), None, None, None], pa.timestamp("us")),
    }
)
VALUES = (
    *(math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e300, 2**53, 2**63, -(2**63), 2**64, 10**400, np.float32(0.1)),
    *(np.datetime64("NaT"), pd.NaT, pd.NA, pd.Timestamp("2024-01-01T00:00:00.000000001"), None, True, "", "a\0b"),
    *("e\u0301", "\ud800", b"x", dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.datetime(9999, 12, 31, 23, 59)),
    *(dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.timedelta(1), Decimal("NaN"), 1j, object()),
    *(
        Decimal("1E+50"),
        Fraction(1, 3),
        [],
        {},
        (),
        set(),
        [1],
        (1, 2),
        {"x": 1},
        np.array([1, 2]),
        np.array(1),
        range(3),
    ),
)
#: Doors that see a value beside each column; `p` is the table, `c` the column's name.
OF_COLUMNS = {
    "keys": lambda p, c, v: p.group_by(c, keys=[v]).count(),
    "all keys": lambda p, c, v: p.group_by(c, keys=v).count(),
    "part": lambda p, c, v: p.partition(c, keys=[v])[v],
    "where": lambda p, c, v: p.where(p[c] < v),
    "isin": lambda p, c, v: p.where(p[c].isin([v])),
    "fill": lambda p, c, v: p.mutate(q=p[c].fill_null(v)),
    "edges": lambda p, c, v: p.bin(c, v),
    "edge": lambda p, c, v: p.bin(c, [v, 5]),
    "bounds": lambda p, c, v: p.sum(c, bounds=(0, v)),
    "pair": lambda p, c, v: p.sum(c, bounds=v),
    "rank": lambda p, c, v: p.quantile(c, v, bounds=(0, 1)),
    "candidates": lambda p, c, v: p.quantile(c, 0.5, candidates=[v, 1]),
    "cast": lambda p, c, v: p.mutate(q=p[c].cast(v)),
    "truncate": lambda p, c, v: p.mutate(q=p[c].truncate(v)),
    "pattern": lambda p, c, v: p.mutate(q=p[c].strftime(v)),
    "remainder": lambda p, c, v: p.mutate(q=p[c] % v),
}
SLOW = pytest.mark.slow
WARDS = {"s": ["a"], "x": [1]}
#: Doors that see a value once; `q` is a table whose account protects persons.
ONCE = {
    "epsilon": lambda p, q, v: p.count().preview(epsilon=v),
    "delta": lambda p, q, v: p.count().preview(epsilon=1.0, delta=v),
    "noise": lambda p, q, v: p.count().preview(epsilon=1.0, noise=v),
    "column": lambda p, q, v: p[v],
    "select": lambda p, q, v: p.select(v),
    "per person": lambda p, q, v: q.per_person(v, n=count()),
    "sums per person": lambda p, q, v: q.per_person(n=total("x", bounds=(0, v))),
    "sql": lambda p, q, v: p.plan(v),
    "tables": lambda p, q, v: p.plan("SELECT COUNT(*) FROM t", tables=v),
    "sql keys": lambda p, q, v: p.plan("SELECT s, COUNT(*) FROM t GROUP BY s", keys=v),
    "several": lambda p, q, v: dp.sql("SELECT COUNT(*) FROM t", v, epsilon=1.0),
    "on": lambda p, q, v: p.join(dp.public(WARDS), on=v),
    "how": lambda p, q, v: p.join(dp.public(WARDS), on="s", how=v),
    "rname": lambda p, q, v: p.join(dp.public(WARDS), on="s", rname=v),
    "public": lambda p, q, v: dp.public(v),
    "public cell": lambda p, q, v: p.join(dp.public({"s": ["a"], "v": [v]}), on="s"),
    "private": lambda p, q, v: dp.Private(v, account=p._spec.account),
    "unit": lambda p, q, v: dp.Private(DATA, account=p._spec.account, unit=v),
    "declared": lambda p, q, v: dp.Private(DATA, account=p._spec.account, bounds=v),
    "through": lambda p, q, v: dp.Private(DATA, account=p._spec.account, through=v),
    "max_parts": lambda p, q, v: q.partition("s", keys=["a"], max_parts=v),
    "first": lambda p, q, v: dp.months(v, "2024"),
    "last": lambda p, q, v: dp.weeks("2024", v),
}


def check(door, value, ask):
    try:
        ask()
    except EngineFailed as error:
        pytest.fail(f"{door} of {value!r}: {type(error.engine_error).__name__} after the charge")
    except DiscreetError:
        pass
    except Exception as error:
        pytest.fail(f"{door} of {value!r}: {type(error).__name__}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("door", OF_COLUMNS)
def test_a_hostile_value_beside_a_column_is_answered_or_refused(door, account_of):
    people = dp.Private(DATA, account=account_of())
    for value in VALUES:
        for column in ("x", "n", "u", "s", "d", "t"):
            check(f"{door} of {column}", value, lambda c=column, v=value: OF_COLUMNS[door](people, c, v))


@pytest.mark.parametrize("door", [pytest.param(one, marks=SLOW) if one == "public cell" else one for one in ONCE])
def test_a_hostile_argument_is_answered_or_refused(door, account_of):
    people, persons = (dp.Private(DATA, account=account_of(unit)) for unit in (None, dp.person("id", max_rows=3)))
    for value in VALUES:
        check(door, value, lambda v=value: ONCE[door](people, persons, v))


def test_the_keys_of_each_column_are_released_beside_hostile_ones(account_of):
    """What is no error before the charge is none after it."""
    people = dp.Private(DATA, account=account_of())
    for column, keys in {
        "x": [1, 1e300, -0.0, 2**53, -(2**63)],
        "n": [1, 1e300, 0.5, -0.0, -(2**63), *range(10, 30)],
        "u": [1, -1, 1e19, float(2**64 - 2048), *range(10, 30)],
        "s": ["a", "", "é", "'; --"],
        "d": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "t": [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)],
    }.items():
        check(column, keys, lambda c=column, k=keys: people.group_by(c, keys=k).count().release(epsilon=1.0))


def test_an_integer_that_64_bits_cannot_hold_makes_no_cast_fail(account_of):
    """A failure would tell, without noise, that somebody has such a value. It counts as missing instead."""
    table = dp.Private(
        {"u": pa.array([1, 2, 2**63 - 1, 2**63, 2**64 - 1], pa.uint64())}, account=account_of(budget=dp.PureDP(1e6))
    )
    whole = table["u"].cast("integer")
    answers = [table.where(rule).count().release(epsilon=1e3) for rule in (whole > 0, whole.is_null())]
    # Laplace noise of scale 1/1000 rounds to 0 but with probability e^(−1000).
    assert [round(answer.rows()[0]["count"]) for answer in answers] == [3, 2]
