"""Where `discreet query` finds its data: files, patterns, databases, several tables; and errors as JSON."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def shop(run, folder):
    """A ledger that protects customers, and their orders in a DuckDB file."""
    for part in (1, 2):
        pq.write_table(pa.table({"customer": [part, 3], "vip": [True, False]}), folder / f"customers-{part}.parquet")
    with duckdb.connect(folder / "shop.duckdb") as connection:
        connection.execute("CREATE TABLE orders AS SELECT 1 AS buyer, 'a' AS ward, 5.0 AS cost")
    pq.write_table(
        pa.table({"buyer": [1, 1, 2], "ward": ["a", "b", "a"], "cost": [1.0, 2.0, 3.0]}), folder / "o.parquet"
    )
    (folder / "wards.csv").write_text("ward,region\na,north\nb,south\n")
    run("discreet ledger init s.ledger --account s --epsilon 9000 --unit customer --max-rows 9")
    return "--ledger s.ledger --epsilon 900"


def test_a_pattern_of_files_is_one_table_and_booleans_are_no_numbers(run, shop):
    sql = '"SELECT vip, COUNT(*) AS n FROM t GROUP BY vip"'
    done = run(f"discreet query 'customers-*.parquet' {sql} --keys vip=true,false {shop}")
    assert done.code == 0, done.err
    assert [line.split()[:2] for line in done.out.splitlines()[1:3]] == [["true", "2"], ["false", "2"]]
    assert done.out.startswith("vip ")


def test_private_and_public_tables_are_joined(run, shop):
    sql = (
        '"SELECT region, COUNT(*) AS n FROM c JOIN orders ON customer = buyer JOIN wards USING (ward) GROUP BY region"'
    )
    tables = "--table orders=o.parquet --person orders=buyer --public wards=wards.csv --bounds cost=0,9"
    done = run(f"discreet query customers-1.parquet {sql} {tables} --keys region=north,south {shop} --json")
    assert done.code == 0, done.err
    assert [row["n"] for row in json.loads(done.out)["rows"]] == [1, 1]
    for wrong, said in (
        ("--bounds beds=0,9", "CLAMP"),
        ("--person nothing=x", "--table"),
        ("--table orders", "--table"),
    ):
        refused = run(f"discreet query customers-1.parquet {sql} {tables} {wrong} --keys region=north {shop}")
        assert refused.code == 2
        assert said in refused.err


def test_a_table_of_a_duckdb_file_is_asked_by_its_address(run, folder):
    with duckdb.connect(folder / "clinic.duckdb") as connection:
        connection.execute("CREATE TABLE visits AS SELECT range AS who FROM range(5)")
    run("discreet ledger init r.ledger --account r --epsilon 900")
    options = "--ledger r.ledger --epsilon 100 --json"
    done = run(f'discreet query "duckdb:///clinic.duckdb?table=visits" "SELECT COUNT(*) AS n FROM t" {options}')
    assert json.loads(done.out)["rows"][0]["n"] == 5
    refused = run(f'discreet query "duckdb:///clinic.duckdb?table=other" "SELECT COUNT(*) FROM t" {options}')
    assert refused.code == 2
    assert json.loads(refused.err) == {"error": json.loads(refused.err)["error"], "exit_code": 2}
    assert "visits" in refused.err


def test_errors_are_json_where_json_was_asked_for(run):
    for line in ("discreet ledger statement absent.ledger --json", "discreet query --wrong --json"):
        done = run(line)
        assert json.loads(done.err)["exit_code"] == done.code == 2
        assert not done.out


def test_a_sub_account_may_set_a_part_of_its_delta_aside(run):
    run("discreet ledger init a.ledger --account a --epsilon 3 --delta 1e-6 --aside 1e-7")
    done = run("discreet ledger allot a.ledger ann --account a --epsilon 1 --delta 1e-6 --aside 1e-7")
    assert done.code == 0, done.err
    refused = run("discreet ledger allot a.ledger bob --account a --epsilon 1 --delta 1e-6 --aside 2e-6")
    assert refused.code == 2
