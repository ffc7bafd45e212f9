"""Public keys: which rows they select."""

from __future__ import annotations

from decimal import Decimal

import ibis
import numpy as np
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics.engine.grouping import _offset, with_codes
from discreet.analytics.plan.keys import Keys

ROWS = [None, -2, -1, 0, 1, 2, 3, 4, 5, 2**62]


@pytest.mark.parametrize(
    "keys", [(0, 1, 2, 3), (3, 1, 2), (0, 2, 3), (2,), (-1, 0, 1), (5, 2**62), tuple(range(0, 40, 2))]
)
@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_keys_select_the_rows_that_hold_them_whether_in_a_row_or_not(keys, kind):
    half = 0.5 if kind == "float64" else 0
    values = [None if row is None else float(row) if half and row != 2 else row + half for row in ROWS]
    connection = ibis.duckdb.connect()
    table = connection.create_table("t", pa.table({"x": pa.array(values, pa.type_for_alias(kind))}))
    listed = Keys(("x",), tuple((key,) for key in keys))
    found = with_codes(table.select(g0=table.x, x=table.x), listed).to_pyarrow().to_pylist()
    assert sorted(row["x"] for row in found) == sorted(value for value in values if value in keys)
    assert all(keys[listed.codes.tolist().index(row["k"])] == row["x"] for row in found)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("kind", "first"),
    [*((kind, first) for kind in ("int8", "int32", "int64") for first in (0, 2, -3)), ("uint64", 0), ("uint64", 2)],
)
def test_no_integer_makes_the_place_among_keys_overflow(kind, first, alone):
    """An engine may compute it before it filters, so no row of the whole table may fail."""
    ends = np.iinfo(kind)
    values = [ends.min, ends.min + 1, *range(max(first, 0), first + 4), ends.max - 1, ends.max, None]
    table = ibis.duckdb.connect().create_table("t", pa.table({"x": pa.array(values, pa.type_for_alias(kind))}))
    placed = table.select(x=table.x, place=_offset(table.x, first, first + 3, alone)).to_pyarrow().to_pylist()
    for row in placed:
        if row["x"] is not None and first <= row["x"] < first + 4:
            assert row["place"] == row["x"] - first


def test_decimals_are_grouped_by_keys_that_are_floats(account):
    people = dp.Private(pa.table({"x": pa.array([Decimal("0.10")] * 9, pa.decimal128(5, 2))}), account=account)
    for keys in ([0.1, 2.5], [2, 0.1]):
        assert 9 in people.group_by("x", keys=keys).count().release(epsilon=100.0).columns["count"]


def test_keys_that_a_decimal_column_cannot_hold_are_answered_as_zeros(account):
    data = pa.table({"x": pa.array([Decimal("0.10"), Decimal("123")], pa.decimal128(5, 2))})
    people = dp.Private(data, account=account)
    keys = [0.1, 0.101, 1000, 2**62, -1e300, 123.0]
    assert people.group_by("x", keys=keys).count().release(epsilon=1e3).columns["count"] == (1, 0, 0, 0, 0, 1)
    wide = dp.Private(pa.table({"x": data["x"].cast(pa.decimal128(38, 30))}), account=account)
    assert wide.group_by("x", keys=keys).count().release(epsilon=1e3).columns["count"] == (1, 0, 0, 0, 0, 1)


def test_keys_that_differ_from_every_float_or_integer_are_answered_as_zeros(account):
    data = {"real": [float(2**53), 0.5], "whole": [2**53, 2**53 + 1]}
    people = dp.Private(data, account=account)
    for name, counts in {"real": (1, 0, 1), "whole": (1, 1, 0)}.items():
        asked = people.group_by(name, keys=[2**53, 2**53 + 1, 0.5]).count()
        assert asked.release(epsilon=1e3).columns["count"] == counts, name


@pytest.mark.parametrize("many", [0, 20])
def test_keys_beyond_64_bits_are_answered_as_zeros_in_columns_of_integers(account, many):
    """Few keys are compared one after another, and many as a table."""
    data = {
        "signed": pa.array([2**63 - 1, -(2**63), 7], pa.int64()),
        "small": pa.array([127, -128, 7], pa.int8()),
        "unsigned": pa.array([2**64 - 2048, 2**63, 7], pa.uint64()),
    }
    keys = [1e300, -1e300, 1e19, float(2**63), float(2**64 - 2048), -float(2**63), 7, *range(100, 100 + many)]
    people = dp.Private(pa.table(data), account=account)
    counts = {"signed": (0, 0, 0, 0, 0, 1, 1), "small": (0, 0, 0, 0, 0, 0, 1), "unsigned": (0, 0, 0, 1, 1, 0, 1)}
    for name, expected in counts.items():
        assert people.group_by(name, keys=keys).count().release(epsilon=1e3).columns["count"][:7] == expected, name
