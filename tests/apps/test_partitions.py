"""`discreet query --partition`: each part is charged separately, and the account counts the costliest ones."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import discreet as dp

DAYS = [dt.date(2024, month, 5) for month in (1, 1, 2, 3, 3, 3)]


@pytest.fixture
def clinic(run, folder):
    """A ledger that protects rows, another that protects patients, and their visits."""
    who, ward = [1, 2, 1, 1, 2, 3], ["a", "b", "a", "a", "b", "a"]
    pq.write_table(pa.table({"who": who, "day": DAYS, "ward": ward, "n": range(6)}), folder / "visits.parquet")
    pq.write_table(pa.table({"who": [1, 2, 3], "sex": ["f", "m", "f"]}), folder / "patients.parquet")
    run("discreet ledger init r.ledger --account r --epsilon 1000")
    run("discreet ledger init p.ledger --account p --epsilon 1000 --unit who --max-rows 9")
    return run


BY_MONTH = "--partition \"DATE_TRUNC('month', day) AS month=2024-01..2024-04\""
COUNT = 'discreet query visits.parquet "SELECT COUNT(*) AS n FROM visits"'


def test_each_part_is_answered_and_the_costliest_is_counted(clinic):
    done = clinic(f"{COUNT} {BY_MONTH} --epsilon 300 --ledger r.ledger")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][:2] == ["month", "n"]
    assert [line[:2] for line in lines[1:5]] == [
        ["2024-01-01", "2"],
        ["2024-02-01", "1"],
        ["2024-03-01", "3"],
        ["2024-04-01", "0"],
    ]
    assert "charged ε = 300 to each part, to r as entries 1 to 4; the account counts the costliest part" in done.out
    assert "month: 2024-02-01" in clinic("discreet ledger statement r.ledger").out
    # One more question about one part, as JSON.
    one = clinic(f"{COUNT} {BY_MONTH} --part 2024-02 --epsilon 300 --ledger r.ledger --json")
    answer = json.loads(one.out)
    assert [(part["part"], part["rows"][0]["n"]) for part in answer["parts"]] == [("2024-02-01", 1)]
    assert (answer["partition"], answer["counted_parts"]) == ("month", 1)
    # February has no room for a third one; the others have.
    assert clinic(f"{COUNT} {BY_MONTH} --part 2024-02 --epsilon 500 --ledger r.ledger").code == 3
    assert clinic(f"{COUNT} {BY_MONTH} --part 2024-03 --part 2024-04 --epsilon 500 --ledger r.ledger").code == 0


def test_persons_count_in_few_parts(clinic):
    ask = f"{COUNT} {BY_MONTH} --epsilon 200 --ledger p.ledger"
    refused = clinic(ask)
    assert refused.code == 2
    assert "--max-parts must be given where persons are protected" in refused.err
    done = clinic(f"{ask} --max-parts 2")
    assert done.code == 0, done.err
    # Patient 1 counts in January and February alone.
    assert [line.split()[1] for line in done.out.splitlines()[1:5]] == ["2", "1", "2", "0"]
    assert "the account counts the costliest 2 parts" in done.out


def test_groups_previews_and_estimates_go_with_parts(clinic):
    by_ward = 'discreet query visits.parquet "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward" --keys ward=a,b'
    done = clinic(f"{by_ward} --partition n=0..2 --epsilon 300 --ledger r.ledger")
    assert [line.split()[:3] for line in done.out.splitlines()[:3]] == [
        ["n", "ward", "n"],
        ["0", "a", "1"],
        ["0", "b", "0"],
    ]
    preview = clinic(f"{by_ward} {BY_MONTH} --epsilon 300 --ledger r.ledger --preview")
    assert preview.out.startswith("4 of 4 parts by month, asked one by one; the account counts the costliest part\n")
    known = clinic(f'{COUNT} --partition "MONTH(day) AS month" --part 1 --epsilon 9 --ledger r.ledger')
    assert known.out.splitlines()[1].split()[:2] == ["1", "2"]
    options = f"{BY_MONTH} --max-parts 2 --epsilon 9 --ledger p.ledger --bias"
    assert clinic(f"{COUNT} {options} --part 2024-01").code == 0
    assert "one --part" in clinic(f"{COUNT} {options}").err


def test_what_was_charged_is_printed_before_a_refusal(clinic):
    clinic(f"{COUNT} {BY_MONTH} --part 2024-03 --epsilon 900 --ledger r.ledger")
    done = clinic(f"{COUNT} {BY_MONTH} --epsilon 300 --ledger r.ledger")
    assert done.code == 3
    assert [line.split()[:2] for line in done.out.splitlines()[1:3]] == [["2024-01-01", "2"], ["2024-02-01", "1"]]
    assert "as entries 2 to 3" in done.out


REFUSED = (
    ("--part 2024-01", "must be used with --partition"),
    ("--max-parts 2", "must be used with --partition"),
    ("--partition ward=", "--partition must be COLUMN=KEYS"),
    ("--partition ward", "--partition must be COLUMN=KEYS"),
    ("--partition nothing=a", "be one of the table's"),
    ('--partition "YEAR(day AS y=1"', "can be parsed"),
    ('--partition "SELECT 1=1"', "column or a function of columns"),
    ("--partition ward=a,b --part c", "one of the partition's"),
    ("--partition ward=a,b --part a --part a", "each part once"),
    (f"{BY_MONTH} --part yesterday", "must be dates"),
    ("--partition n=3..1", "a range must be"),
    ("--partition n=2024-01..b", "a range must be"),
    ("--partition ward=a,b --max-parts 2", "--max-parts must be left out"),
)


def test_what_is_no_partition_is_refused(clinic):
    for options, said in REFUSED:
        done = clinic(f"{COUNT} {options} --epsilon 1 --ledger r.ledger")
        assert done.code == 2, options
        assert said in done.err, options
    with dp.Ledger("r.ledger") as ledger:
        assert ledger.account("r").remaining().epsilon == 1000.0


def test_a_part_is_not_joined_with_private_tables(clinic):
    joined = 'discreet query visits.parquet "SELECT COUNT(*) AS n FROM v JOIN patients USING (who)"'
    options = "--max-parts 1 --table patients=patients.parquet --epsilon 1 --ledger p.ledger"
    done = clinic(f"{joined} --partition ward=a,b {options}")
    assert done.code == 2
    assert "in Python, join first" in done.err
