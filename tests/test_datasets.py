"""The Adult data and the made-up hospital, as columns and as files."""

from __future__ import annotations

import csv
import sys

import numpy as np
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


def test_a_hospital_has_persons_dates_and_two_tables():
    patients, visits = datasets.hospital()
    assert len(patients["patient"]) == len(set(patients["patient"].tolist())) == 20_000
    assert set(visits["patient"].tolist()) <= set(patients["patient"].tolist())
    assert 90_000 < len(visits["visit"]) < 120_000
    assert (str(visits["day"].min())[:7], str(visits["day"].max())[:7]) == ("2023-01", "2024-12")
    assert set(visits["ward"].tolist()) == set(datasets.WARDS)
    assert set(patients["district"].tolist()) == set(datasets.DISTRICTS)
    # What makes it realistic: missing costs, typing errors, and patients who come every week.
    assert 0.01 < np.isnan(visits["cost"]).mean() < 0.02
    assert np.nanmax(visits["cost"]) > 50_000
    assert np.bincount(visits["patient"]).max() > 100


def test_a_hospital_is_the_same_for_one_seed_and_another_for_another(tmp_path):
    first, again, other = (datasets.hospital(seed)[1] for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name], equal_nan=name == "cost") for name in first)
    assert not np.array_equal(first["patient"][:1000], other["patient"][:1000])


def test_the_files_of_a_hospital_hold_its_tables(tmp_path):
    paths = datasets.write_hospital(tmp_path / "new" / "clinic")
    for path, columns in zip(paths, datasets.hospital(), strict=True):
        head, *rows = path.read_text().splitlines()
        assert head == ",".join(columns)
        assert len(rows) == len(columns["patient"])
        assert rows[-1].startswith(",".join(str(values[-1]) for values in list(columns.values())[:3]))
    with pytest.raises(InvalidArgument, match=r"patients\.csv.*overwrite=True"):
        datasets.write_hospital(tmp_path / "new" / "clinic")
    with pytest.raises(InvalidArgument, match="seed must be ≥ 0"):
        datasets.write_hospital(tmp_path, seed=-1)
