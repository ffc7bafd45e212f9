"""Files and local tables that become private tables: what is broken is refused without quoting it."""

from __future__ import annotations

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


def test_a_table_of_mixed_types_is_refused_without_quoting_it(account):
    with pytest.raises(InvalidArgument, match="mixed types") as caught:
        dp.Private({"x": [1, "secret"]}, account=account)
    assert caught.value.__context__ is None
