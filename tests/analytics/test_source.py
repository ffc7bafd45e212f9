"""Files and local tables that become private tables: what is broken is refused without quoting it."""

from __future__ import annotations

import duckdb
import pytest

import discreet as dp
from discreet.errors import InvalidArgument


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


def test_a_pattern_stands_for_all_files_that_it_matches(tmp_path, account):
    for number in (1, 2):
        (tmp_path / f"visits-{number}.csv").write_text(f"who,cost\n{number},2.5\n{number},x\n")
    people = dp.Private(tmp_path / "visits-*.csv", account=account)
    assert people.count().release(epsilon=1000.0).value == 4
    (tmp_path / "visits-3.parquet").write_bytes(b"")
    with pytest.raises(InvalidArgument, match="of one kind"):
        dp.Private(str(tmp_path / "visits-*"), account=account)
    with pytest.raises(InvalidArgument, match="file that exists"):
        dp.Private(str(tmp_path / "nothing-*.csv"), account=account)


def test_a_table_in_a_duckdb_file_is_found_by_its_address(tmp_path, account):
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE visits AS SELECT range AS who FROM range(5)")
    assert dp.Private(path, account=account).count().release(epsilon=1000.0).value == 5
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE wards AS SELECT 1 AS who")
    visits = dp.Private(f"duckdb:///{path}?table=visits", account=account)
    wards = dp.public(f"duckdb:///{path}?table=wards")
    assert visits.join(wards, "who").count().release(epsilon=1000.0).value == 1
    for address in (path, f"duckdb://{path}?table=other"):
        with pytest.raises(InvalidArgument, match="visits, wards"):
            dp.Private(address, account=account)


@pytest.mark.parametrize("address", ["mysql://me:secret@host/x", "postgresql://me:secret@localhost:1/x?table=y"])
def test_an_address_that_cannot_be_opened_is_refused_without_its_password(account, address):
    with pytest.raises(InvalidArgument) as caught:
        dp.Private(address, account=account)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_table_of_mixed_types_is_refused_without_quoting_it(account):
    with pytest.raises(InvalidArgument, match="mixed types") as caught:
        dp.Private({"x": [1, "secret"]}, account=account)
    assert caught.value.__context__ is None
