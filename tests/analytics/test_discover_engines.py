"""Every engine discovers the same keys, bounds persons, and fails on no value."""

from __future__ import annotations

import datetime as dt
import itertools
import math

import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import answer, correlation, count, count_distinct, marginal, top_k
from discreet.errors import InvalidArgument
from discreet.queries.discovered import keys_moved
from tests.analytics.plans import table
from tests.analytics.test_discover import MANY, assert_within
from tests.analytics.test_engines import HOSTILE

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)
KINDS = pa.table(
    {
        "id": [f"p{i}" for i in range(600)],
        "text": ["é", "a'; DROP TABLE people; --", None] * 200,
        "real": [0.1 + 0.2, math.nan, math.inf] * 200,
        "whole": [7, -(2**62), None] * 200,
        "yes": [True, False, None] * 200,
        "day": pa.array([dt.date(1969, 1, 1), dt.date(2, 2, 2), dt.date(9999, 1, 1)] * 200, pa.date32()),
        "when": pa.array(
            [dt.datetime(1969, 1, 1, 12), dt.datetime(2, 2, 2), dt.datetime(9999, 1, 1)] * 200, pa.timestamp("us")
        ),
    }
)
FOUND = {
    "text": ["a'; DROP TABLE people; --", "é"],
    "real": [0.1 + 0.2],
    "whole": [-(2**62), 7],
    "yes": [False, True],
    "day": [dt.date(1969, 1, 1)],
    "when": [dt.datetime(1969, 1, 1, 12)],
}
UNIT = dp.person("id", max_rows=5, max_groups=2)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def account_with_delta(tmp_path_factory):
    ledger = dp.Ledger(tmp_path_factory.mktemp("ledger") / "engines.ledger")
    return lambda unit: ledger.account(f"a{next(_numbers)}", dp.ApproxDP(1e5, 0.5), unit, aside=0.4)


def test_every_engine_finds_the_same_keys(engine, account_with_delta):
    loaded = engine(KINDS)
    for unit in (dp.rows(), UNIT):
        people = dp.Private(loaded, account=account_with_delta(unit))
        for name, keys in FOUND.items():
            if name == "when" and "pyspark" in type(loaded._find_backend()).__module__:
                with pytest.raises(InvalidArgument, match="Spark"):  # which reads such times in the session's zone
                    people.group_by(name, keys=dp.discover()).count()
                continue
            result = people.group_by(name, keys=dp.discover()).count().release(epsilon=60.0, delta=1e-9)
            assert list(result.columns[name]) == keys, name
            assert all(n > 150 for n in result.columns["count"]), name


def test_one_person_moves_no_more_keys_than_declared(engine, account_with_delta):
    account = account_with_delta(UNIT)
    counted = []
    for rows in (HOSTILE, [*HOSTILE, *(("new", *one) for one in MANY)]):
        asked = dp.Private(engine(table(rows)), account=account).group_by("g", "k", keys=dp.discover()).count()
        found = answer._run([asked._question.candidates(12345)])[0].to_pylist()
        counted.append({(one["g0"], one["g1"]): one["units"] for one in found})
    assert_within(*counted, keys_moved(UNIT, dp.ADD_REMOVE))
    assert counted[0] != counted[1]


def test_all_aggregates_are_answered_for_discovered_keys(engine, account_with_delta):
    rows = [(f"p{i // 4}", float(i % 8), i % 8, "ab"[i % 2], 0.0) for i in range(1600)]
    people = dp.Private(engine(table(rows)), account=account_with_delta(UNIT), bounds={"x": (0, 7), "n": (0, 7)})
    result = people.group_by("g", keys=dp.discover()).aggregate(
        n=count(),
        p=count_distinct(),
        r=correlation("x", "n"),
        t=top_k("g", k=1, categories=["a", "b"]),
        c=marginal("k", categories={"k": [0, 1]}),
    )
    found = result.release(epsilon=300.0, delta=1e-9)
    assert found.columns["g"] == ("a", "b")
    assert found.columns["t"] == (("a",), ("b",))
    assert found.columns["p"] == pytest.approx((400, 400), abs=20)
    assert all(r > 0.5 for r in found.columns["r"])
