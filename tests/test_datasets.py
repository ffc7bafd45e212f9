"""The Adult data as columns and as files."""

from __future__ import annotations

import csv
import sys

import pyarrow.parquet as pq
import pytest

from discreet import datasets
from discreet.errors import InvalidArgument, MissingExtra

#: The columns that the examples of the README, docs/cli.md and docs/tutorials/team-budget.md name.
USED_BY_EXAMPLES = {"age", "sex", "hours", "income"}


def in_file(part):
    columns = datasets.adult(part)
    return {"hours" if name == "hours_per_week" else name: values.tolist() for name, values in columns.items()}


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_parquet_file_holds_the_same_rows(tmp_path, part):
    path = datasets.write_adult(tmp_path / "people.parquet", part)
    written = pq.read_table(path)
    assert set(written.column_names) >= USED_BY_EXAMPLES
    assert written.to_pydict() == in_file(part)


def test_a_csv_file_holds_the_same_rows_and_needs_no_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = datasets.write_adult(str(tmp_path / "people.csv"))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name, values in in_file("train").items():
        assert [row[name] for row in rows] == ["" if value is None else str(value) for value in values]


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'discreet\[analytics\]', or write a \.csv"):
        datasets.write_adult(tmp_path / "people.parquet")
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("mine")
    with pytest.raises(InvalidArgument, match=r"path must not exist yet, got .*people\.csv.*: .*overwrite=True"):
        datasets.write_adult(path)
    assert path.read_text() == "mine"
    datasets.write_adult(path, "test", overwrite=True)
    assert len(path.read_text().splitlines()) == 1 + 16_281


@pytest.mark.parametrize("name", ["people.xlsx", "people", "parquet"])
def test_another_ending_is_refused(tmp_path, name):
    with pytest.raises(InvalidArgument, match=r"path's ending must be one of '\.parquet', '\.csv'"):
        datasets.write_adult(tmp_path / name)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match="existing folder"):
        datasets.write_adult(tmp_path / "nowhere" / "people.csv")


def test_the_adult_data_are_as_published():
    for part, rows in (("train", 32_561), ("test", 16_281)):
        people = datasets.adult(part)
        assert len(people) == 15
        assert {len(column) for column in people.values()} == {rows}
        for name, labels in datasets.CATEGORIES.items():
            assert set(people[name]) <= {*labels, None}
    assert datasets.adult()["age"].mean() == pytest.approx(38.5816, abs=1e-4)
    with pytest.raises(InvalidArgument, match="part must be one of"):
        datasets.adult("all")
