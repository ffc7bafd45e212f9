"""Faults that a second reader found in private analytics, one test for each."""

from __future__ import annotations

from decimal import Decimal

import ibis
import pandas
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import Aggregate, count, marginal
from discreet.errors import InvalidArgument
from tests.analytics.engines import postgres

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)


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


@pytest.mark.parametrize("categories", [[2**53, 2**53 + 1], [2**53 + 1, 2.0**53], [5e-324, 1e-323]])
def test_no_row_lies_in_two_cells_of_a_marginal(account, categories):
    """Numbers are compared as 64-bit floats, so categories that are one float would count a row twice."""
    people = dp.Private({"x": [2**53] * 10, "y": [2.0**-970] * 10}, account=account)
    for column in ("x", "y"):
        with pytest.raises(InvalidArgument):
            people.aggregate(cells=marginal(column, categories={column: categories}))
        with pytest.raises(InvalidArgument):
            people.top_k(column, k=1, categories=categories)


def test_a_category_listed_twice_is_refused_however_the_aggregate_is_made():
    with pytest.raises(InvalidArgument, match="distinct"):
        Aggregate("marginal", categories=(("x", ("a", "a")),))


def test_no_column_of_a_result_hides_another(account):
    people = dp.Private({"count_error": ["k", "l"], "a": ["x, y", "x"], "b": ["z", "y, z"]}, account=account)
    with pytest.raises(InvalidArgument, match="differ"):
        people.group_by("count_error", keys=["k", "l"]).count()
    with pytest.raises(InvalidArgument, match="differ"):
        people.aggregate(m=marginal("a", "b", categories={"a": ["x, y", "x"], "b": ["z", "y, z"]}))
    people.group_by("count_error", keys=["k", "l"]).aggregate(n=count())


def test_a_new_column_differs_by_more_than_case(account_of):
    """DuckDB would answer for the old column: `Y` is `y` to it."""
    people = dp.Private({"who": [1, 2], "y": [1.0, 2.0]}, account=account_of(dp.person("who", max_rows=2)))
    for name in ("Y", "WHO"):
        with pytest.raises(InvalidArgument, match="case"):
            people.select("y").mutate(**{name: people.y * 3})
    with pytest.raises(InvalidArgument, match="case"):
        people.mutate(z=people.y, Z=people.y * 3)
    people.mutate(y=people.y * 3)


@pytest.mark.parametrize("source", ["read_csv('people.csv')", "generate_series(1, 5)", "people p(y, who)"])
def test_sql_reads_one_table_under_its_own_columns(account, source):
    people = dp.Private({"who": [1, 2], "y": [1.0, 2.0]}, account=account)
    with pytest.raises(InvalidArgument, match="sql"):
        people.plan(f"SELECT COUNT(y) FROM {source}")
    people.plan("SELECT COUNT(p.y) FROM people AS p")


def test_decimals_are_grouped_by_keys_that_are_floats(account):
    people = dp.Private(pa.table({"x": pa.array([Decimal("0.10")] * 9, pa.decimal128(5, 2))}), account=account)
    for keys in ([0.1, 2.5], [2, 0.1]):
        assert 9 in people.group_by("x", keys=keys).count().release(epsilon=100.0).columns["count"]


def test_no_decimal_is_too_large_or_too_small_for_an_engine(account_of):
    """PostgreSQL's have no limit, and a cast that fails would tell of a single row."""
    with postgres() as load:
        stored = load(pa.table({"row": [1, 2, 3, 4, 5]}))
        sizes = ["1e400", "-1e400", "1e-400", "NaN", "0.5"]
        chosen = ", ".join(f"({i}, '{size}'::numeric)" for i, size in enumerate(sizes, 1))
        people = dp.Private(
            stored.get_backend().sql(f"SELECT * FROM (VALUES {chosen}) AS v(row, x)"), account=account_of()
        )
        bounds = {"x": (-1, 1), "row": (0, 5)}
        found = people.group_by("row", keys=[1, 2, 3, 4, 5]).sum("x", bounds=(-1, 1)).release(epsilon=1e5)
        assert found.columns["sum"] == pytest.approx((1, -1, 0, 0, 0.5), abs=0.01)
        assert people.where(people.x > 0.1).count().release(epsilon=100.0).value == 2
        assert people.group_by("x", keys=[0.5]).count().release(epsilon=100.0).columns["count"] == (1,)
        people.correlation("x", "row", bounds=bounds).release(epsilon=100.0)
        people.median("x", bounds=(-1, 1)).release(epsilon=100.0)


def test_text_that_looks_like_a_variable_is_text(engine, account_of):
    """Spark puts settings and the environment in the place of ${…}: one text would be compared as another."""
    texts = ["discreet", "${spark.app.name}", "${env:HOME}", "\\${env:HOME}", "$", "{}"]
    people = dp.Private(engine(pa.table({"s": texts * 5})), account=account_of())
    found = people.group_by("s", keys=texts).aggregate(n=count(), m=marginal("s", categories={"s": texts}))
    result = found.release(epsilon=1e3)
    assert result.columns["n"] == (5,) * len(texts)
    for place, text in enumerate(texts):
        assert result.columns[f"m[{text}]"] == tuple(5 * (place == other) for other in range(len(texts)))


@pytest.mark.parametrize("text", [b"a,b\n1,2\n3,4,5\n6\n7,8\n", b"a,b\n1,2\nsecret\xe9,4\n5,6\n"])
def test_a_broken_csv_file_is_refused_without_quoting_it(tmp_path, account, text):
    path = tmp_path / "broken.csv"
    path.write_bytes(text)
    with pytest.raises(InvalidArgument, match="CSV") as caught:
        dp.Private(path, account=account)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_broken_parquet_file_is_refused_without_quoting_it(tmp_path, account):
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 secret")
    with pytest.raises(InvalidArgument, match="Parquet") as caught:
        dp.Private(path, account=account)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_no_late_line_of_a_csv_file_makes_a_query_fail(tmp_path, account):
    path = tmp_path / "late.csv"
    lines = [b"\xe9,4\n", b"\x00,4\n", b'"x,4\n5,6\n', b"3,4\r5,6\r\n7,8\n", b"1,2,3\n", b"1\n"]
    for line in lines:
        path.write_bytes(b"a,b\n" + b"1,2\n" * 40_000 + line)
        dp.Private(path, account=account).mean("b", bounds=(0, 10)).release(epsilon=1.0)


def test_a_table_of_mixed_types_is_refused_without_quoting_it(account):
    with pytest.raises(InvalidArgument, match="mixed types") as caught:
        dp.Private({"x": [1, "secret"]}, account=account)
    assert caught.value.__context__ is None


def test_times_of_nanoseconds_are_no_literals(account):
    """Engines' literals drop them, so two categories would be one, and a row would lie in both cells."""
    times = [pandas.Timestamp(nanosecond) for nanosecond in (0, 1, 2)]
    people = dp.Private(pa.table({"t": pa.array([0] * 9, pa.timestamp("ns"))}), account=account)
    for asked in (times, [pandas.NaT]):
        with pytest.raises(InvalidArgument, match="microseconds"):
            people.aggregate(m=marginal("t", categories={"t": asked}))
    assert people.group_by("t", keys=times[:1]).count().release(epsilon=100.0).columns["count"] == (9,)


def test_a_row_lies_in_one_cell_whatever_the_engine_calls_equal(account):
    """The conditions of the cells are asked in turn, so even cells that are equal to the engine share no row."""
    people = dp.Private({"x": [2**53] * 10}, account=account)
    asked = marginal("x", categories={"x": [0, 1]})
    object.__setattr__(asked, "categories", (("x", (2**53, 2**53 + 1)),))
    found = people.aggregate(m=asked).release(epsilon=100.0).rows()[0]
    assert [found[f"m[{2**53 + i}]"] for i in (0, 1)] == [10, 0]
