"""`discreet.connect`: the same tables and results, with the work done by a server."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest

import discreet as dp
from discreet import analytics
from discreet.analytics import case, coalesce, count, greatest, mean, quantile
from discreet.analytics.table.expressions import Column
from discreet.apps.client.http import Http
from discreet.apps.wire.values import read, written
from discreet.errors import AccessDenied, BudgetExceeded, InvalidArgument, KeyReused
from tests.server.conftest import make_world
from tests.server.serving import served


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    for world in make_world(tmp_path_factory.mktemp("client")):
        with served(world) as url:
            world.more["url"] = url
            yield world


def test_a_remote_table_reads_like_a_local_one(remote):
    with dp.connect(remote.more["url"], remote.tokens["ann"]) as connection:
        assert connection.datasets == ("people",)
        people = connection["people"]
        assert people.columns == ("sex", "hours", "age")
        asked = people.where(people.age >= 30).group_by("sex", keys=["F", "M"]).aggregate(n=count(), h=mean("hours"))
        local = dp.Private(
            remote.folder / "people.parquet",
            account=remote.curator.ledger.account("census/ann"),
            bounds={"hours": (0, 100)},
        )
        same = local.where(local.age >= 30).group_by("sex", keys=["F", "M"]).aggregate(n=count(), h=mean("hours"))
        there, here = asked.preview(epsilon=0.2), same.preview(epsilon=0.2)
        assert there.event == here.event
        assert there.columns == here.columns
        assert there.cost == here.cost
        trial = asked.trial(epsilon=0.2)
        assert trial.columns.keys() == {"sex", "n", "n_error", "h", "h_error"}
        result = asked.release(epsilon=0.2, key="mine")
        assert isinstance(result, analytics.Result)
        assert result.columns["sex"] == ("F", "M")
        assert result.to_pandas().shape == (2, 5)
        low, high = result.confidence_interval(column="n")
        assert all(a < n < b for a, n, b in zip(low, result.columns["n"], high, strict=True))
        assert result.event == here.event
        assert result.receipt.account == "census/ann"
        assert not remote.curator.ledger.verify([result.receipt]).problem
        again = asked.release(epsilon=0.2, key="mine")
        assert again.columns == result.columns
        assert again.receipt.hash == result.receipt.hash
        with pytest.raises(KeyReused):
            asked.release(epsilon=0.1, key="mine")
        assert people.sql("SELECT COUNT(*) AS n FROM people", epsilon=0.1).value > 0
        assert connection.me()["shares"][0]["charges"] == 2
        with pytest.raises(BudgetExceeded, match="no room"):
            people.count().release(epsilon=5.0)
        with pytest.raises(InvalidArgument, match="bounds must be given"):
            people.mean("age").preview(epsilon=0.1)
        with pytest.raises(InvalidArgument, match="column must be one of"):
            _ = people.salary
        with pytest.raises(AccessDenied):
            connection.statement("census")


def test_an_auditor_reads_the_ledger_through_the_client(remote):
    with dp.connect(remote.more["url"], remote.tokens["eve"]) as connection:
        assert connection.statement("census/bob")["charges"] == []
        assert connection.verify()["ok"]
        assert {entry["account"] for entry in connection.export()} == {"census", "census/ann", "census/bob"}


def test_a_wrong_token_is_refused(remote):
    with pytest.raises(AccessDenied):
        dp.connect(remote.more["url"], "dsc_000000000000000000_" + "a" * 43)


def test_a_token_is_sent_over_tls_or_to_this_machine_alone():
    for url in ("http://curator.example.org", "ftp://x", "curator", "https://user:pw@curator.example.org"):
        with pytest.raises(InvalidArgument):
            Http(url, "token", 1.0)
    assert Http("https://curator.example.org", "token", 1.0)
    assert Http("http://127.0.0.1:8080", "token", 1.0)
    with pytest.raises(InvalidArgument):
        Http("https://curator.example.org", "to\nken", 1.0)


def _columns():
    return Column("a"), Column("b"), Column("t"), Column("d")


def _expressions():
    a, b, t, d = _columns()
    return [
        a >= 3, a < b, (a == 1) & (b != 2) | ~(a <= 0), a + b * 2 - 3 / a, a % 2, a // 2, a**2, -a, 2 - a, abs(a),
        a.clip(0, 9), a.isin([1, 2]), a.isin([]), a.between(1, 2), a.is_null(), a.fill_null(0), a.bin([0, 1, 2]),
        a.cast("text"), a.cast("integer"), t.cast("date"), a.round(2), a.sqrt().ln().exp().log10().sign(),
        a.floor() + a.ceil() + a.trunc(), t.lower().upper().strip(), t.length(), t.substring(1, 2), t.substring(1),
        t.right(2), t.concat("x", t), t.like("%a_"), t.like("%A_", ignore_case=True), t.startswith("a"),
        t.endswith("a"), t.contains("a"), t.replace("a", "b"), d.year() + d.quarter() + d.month() + d.week() + d.day(),
        d.weekday(), d.hour() * 60 + d.minute(), d.date(), d.truncate("month"), d.days_since(dt.date(2024, 1, 1)),
        d.in_zone("UTC"), d.strftime("%Y-%m"), d >= dt.datetime(2024, 1, 1, 8), case((a < 1, "x"), otherwise="y"),
        case((a < 1, 1)), coalesce(a, b, 0), greatest(a, b), analytics.least(a, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("expression", _expressions(), ids=lambda one: repr(one)[:50])
def test_an_expression_is_the_same_after_its_journey(expression):
    sent = json.loads(json.dumps(written(expression)))
    arrived = read(sent)
    assert written(arrived) == sent
    if "Logic(operator='or', parts=())" not in repr(expression):  # isin([]) becomes a comparison that is never true
        assert _plain(arrived) == _plain(expression)


def _plain(expression):
    """The tree of an expression. Present(x) travels as ~x.is_null(), which says the same."""
    text = re.sub(r"<function [^>]*>|0x[0-9a-f]+", "", repr(expression))
    return re.sub(r"Logic\(operator='not', parts=\(Missing\(inner=(Column\(name='\w'\)|Constant\(value=\w+\))\),\)\)",
                  r"Present(inner=\1)", text)  # fmt: skip


@pytest.mark.parametrize(
    "aggregate",
    [
        count(), count("a"), analytics.count_distinct(), analytics.count_values("a"), mean("a", bounds=(0, 1)),
        analytics.sum("a", share=2.0), analytics.variance("a"), analytics.std("a", bounds=(-1, 1)),
        analytics.covariance("a", "b", bounds={"a": (0, 1), "b": (0, 2)}), analytics.correlation("a", "b"),
        quantile("a", 0.9, bounds=(0, 1), levels=64), quantile("a", 0.5, candidates=[1.0, 2.0]),
        analytics.median("a", bounds=(0, 1), refine=True), analytics.min("a", bounds=(0, 1)),
        analytics.top_k("a", k=2, categories=["x", "y", "z"]),
        analytics.marginal("a", categories={"a": ["x", "y"]}),
    ],
    ids=str,
)  # fmt: skip
def test_an_aggregate_is_the_same_after_its_journey(aggregate):
    assert read(json.loads(json.dumps(written(aggregate)))) == aggregate


def test_values_keep_their_types_on_the_journey():
    values = [None, True, 1, 1.5, "x", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 8), ("a", 1), {"sex": ("F", "M")}]
    assert list(read(json.loads(json.dumps(written(values))))) == values
    assert read(written(dp.discover(least=5))) == dp.discover(least=5)
    for bad in (float("nan"), float("inf"), {"$column": 1}, object(), {1: 2}):
        with pytest.raises(InvalidArgument):
            written(bad)
