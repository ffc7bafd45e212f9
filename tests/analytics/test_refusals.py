"""Types, collations and depths that cannot be answered are refused before anything is charged, with a remedy."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import ibis
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import count_distinct
from discreet.errors import InvalidArgument
from tests.analytics.engines import postgres

PERSON = dp.person("id", max_rows=2)


@pytest.fixture(scope="module")
def server():
    """A connection to PostgreSQL with columns whose equality is not exact, or which are of unusual types."""
    with postgres() as load:
        connection = load(pa.table({"row": [1]})).get_backend()
        for statement in (
            "CREATE TYPE mood AS ENUM ('a', 'b')",
            "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            "CREATE TABLE odd (id text, loose text COLLATE loose, mood mood, pay money, doc xml, word varchar)",
            "INSERT INTO odd VALUES ('p', 'a', 'a', 1, '<a/>', 'x'), ('q', 'A', 'b', 2, '<a/>', 'X')",
        ):
            connection.raw_sql(statement).close()
        yield connection


def refused(account, match, ask):
    """The error, after checking that nothing was charged."""
    before = account.remaining()
    with pytest.raises(InvalidArgument, match=match):
        ask()
    assert account.remaining() == before


# --- persons ------------------------------------------------------------------------------------------------------


def test_persons_under_a_nondeterministic_collation_are_refused(server, account_of):
    account = account_of(dp.person("loose", max_rows=1), fresh=True)
    people = dp.Private(server.table("odd"), account=account)
    refused(account, "tell different texts apart.*loose.*collation", lambda: people.count().release(epsilon=1.0))


def test_persons_of_case_insensitive_text_are_refused(server, account_of):
    if not server.raw_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'").fetchall():
        pytest.skip("PostgreSQL has no citext here")
    server.raw_sql("CREATE EXTENSION IF NOT EXISTS citext").close()
    server.raw_sql("CREATE TABLE IF NOT EXISTS same (id citext)").close()
    account = account_of(PERSON, fresh=True)
    people = dp.Private(server.table("same"), account=account)
    refused(account, "cast them to text", lambda: people.count().release(epsilon=1.0))


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")  # of Ibis, on engines that it reads with pandas
@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
def test_persons_under_a_collation_of_sqlite_are_refused(collation, account_of):
    connection = ibis.sqlite.connect()
    connection.con.executescript(
        f"CREATE TABLE t (id TEXT COLLATE {collation}, fine TEXT); INSERT INTO t VALUES ('a', 'a')"
    )
    account = account_of(PERSON, fresh=True)
    people = dp.Private(connection.table("t"), account=account)
    refused(account, "tell different texts apart.*id", lambda: people.count().release(epsilon=1.0))
    exact = account_of(dp.person("fine", max_rows=2), fresh=True)
    assert dp.Private(connection.table("t"), account=exact).count().release(epsilon=100.0).value == 1


def test_persons_under_a_collation_of_duckdb_are_refused(account_of):
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE t (id TEXT COLLATE NOCASE)")
    account = account_of(PERSON, fresh=True)
    people = dp.Private(connection.table("t"), account=account)
    refused(account, "tell different texts apart.*id", lambda: people.count().release(epsilon=1.0))


@pytest.mark.parametrize("ids", [[0.5, 1.0], [[1], [2]], [{"a": 1}, {"a": 2}]], ids=["float", "list", "struct"])
def test_persons_of_a_type_without_exact_equality_are_refused(ids, account_of):
    account = account_of(PERSON, fresh=True)
    refused(account, "person column 'id' must.*cast it", lambda: dp.Private({"id": ids}, account=account))


def test_persons_of_other_types_are_counted(account_of):
    kinds = [
        [1, 2],
        ["a", "A"],
        [dt.date(2024, 1, 1), dt.date(2024, 1, 2)],
        [Decimal("1.5"), Decimal("2")],
        [b"a", b"b"],
    ]
    for ids in kinds:
        people = dp.Private({"id": ids}, account=account_of(PERSON, fresh=True))
        assert people.aggregate(n=count_distinct()).release(epsilon=100.0).value == pytest.approx(2, abs=0.5)


# --- types --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda p: p.sum("pay", bounds=(0, 1)), "plain numbers.*pay.*money.*cast"),
        (lambda p: p.where(p.pay > 1).count(), "engine can be asked.*cast"),
        (lambda p: p.group_by("mood", keys=["a", "z"]).count(), "mood.*cast them to text"),
        (lambda p: p.where(p.mood == "z").count(), "engine can be asked.*cast"),
        (lambda p: p.group_by("doc", keys=["<a/>"]).count(), "one kind"),
        (lambda p: p.top_k("mood", k=1, categories=["a", "b"]), "mood.*cast them to text"),
    ],
)
def test_a_type_that_the_engine_cannot_use_is_refused_before_the_charge(ask, match, server, account_of):
    account = account_of(fresh=True)
    people = dp.Private(server.table("odd"), account=account)
    refused(account, match, lambda: ask(people).release(epsilon=1.0))


@pytest.mark.parametrize("name", ["loose", "mood", "pay", "doc"])
def test_keys_are_not_discovered_in_such_columns(name, server, account_of):
    ledgered = account_of(budget=dp.ApproxDP(10, 0.1), fresh=True, aside=0.05)
    people = dp.Private(server.table("odd"), account=ledgered)
    refused(
        ledgered,
        name,
        lambda: people.group_by(name, keys=dp.discover()).count().release(epsilon=1.0, delta=1e-6),
    )


# --- depths, and arguments of another kind ------------------------------------------------------------------------

ROWS = {"cost": [1.0, 2.0], "age": [1, 2]}


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(f"age IN ({', '.join(str(i) for i in range(2, 1202))})", marks=pytest.mark.slow),
        " AND ".join(f"age <> {i}" for i in (1, *range(3, 1503))),
        pytest.param(" OR ".join(f"age = {i}" for i in range(2, 1502)), marks=pytest.mark.slow),
    ],
    ids=["IN", "AND", "OR"],
)
def test_long_lists_and_chains_in_sql_are_answered(condition, account):
    people = dp.Private(ROWS, account=account)
    assert people.plan(f"SELECT COUNT(*) FROM t WHERE {condition}").release(epsilon=100.0).value == 1


@pytest.mark.slow
def test_long_chains_in_python_are_answered(account):
    people = dp.Private(ROWS, account=account)
    every = people.age != 1
    for i in range(1500):
        every = every & (people.age != i + 3)
    for condition in (every, people.age.isin(range(2, 1202))):
        assert people.where(condition).count().release(epsilon=100.0).value == 1


def test_what_is_nested_too_deeply_is_refused(account):
    people = dp.Private(ROWS, account=account)
    deep = people.age
    for _ in range(3000):
        deep = deep + 1
    refused(account, "nested less deeply", lambda: people.mutate(deep=deep).count().release(epsilon=1.0))
    sql = f"SELECT COUNT(*) FROM t WHERE {'(' * 3000}age = 1{')' * 3000}"
    refused(account, "nested less deeply", lambda: people.plan(sql).release(epsilon=1.0))


def test_a_call_without_arguments_is_refused(account):
    people = dp.Private(ROWS, account=account)
    for call in ("COUNT()", "SUM()", "QUANTILE_CONT()"):
        refused(account, "sql must", lambda call=call: people.plan(f"SELECT {call} FROM t"))


def test_an_expression_in_place_of_a_name_is_refused_with_a_remedy(account):
    people = dp.Private(ROWS, account=account)
    ratio = people.cost / people.age
    for ask in (
        lambda: people.mean(ratio, bounds=(0, 1)),
        lambda: people.count(ratio),
        lambda: people.group_by(ratio, keys=[1]),
        lambda: people.group_by(ratio, keys=dp.discover()),
        lambda: people.median(ratio, bounds=(0, 1)),
        lambda: people.mean(ratio),
        lambda: people.top_k(ratio, k=1, categories=[1]),
    ):
        refused(account, "column must be a name.*mutate", ask)


def test_decimals_that_are_too_wide_are_refused(account):
    refused(account, "38 digits", lambda: dp.Private({"x": [Decimal("1E+50")]}, account=account))
