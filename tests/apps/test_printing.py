"""What a charge has paid for is printed whatever its type, and never lost if printing fails."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import discreet as dp
from discreet.apps.cli import printing
from discreet.apps.cli.printing import NotPrinted, Output, cell_text, to_json_value
from tests.apps.conftest import Run
from tests.apps.test_commands import COMMAND, INIT, QUERY

CELLS = [
    (None, "–", None),
    (True, "true", True),
    (1234, "1,234", 1234),
    (0.123456789, "0.12346", 0.123456789),
    (float("inf"), "inf", None),
    (float("nan"), "nan", None),
    ("text\x1b[2J", "text\N{REPLACEMENT CHARACTER}[2J", "text\x1b[2J"),
    (date(1950, 2, 3), "1950-02-03", "1950-02-03"),
    (datetime(2024, 12, 31, 10), "2024-12-31 10:00:00", "2024-12-31 10:00:00"),
    (Decimal("12.50"), "12.50", "12.50"),
    (Fraction(1, 3), "1/3", "1/3"),
    (b"raw", "b'raw'", "b'raw'"),
    (["a", 2], "a, 2", ["a", 2]),
    (np.int64(5), "5", 5),
    (np.float32(0.5), "0.5", 0.5),
    (np.bool_(True), "true", True),
    (np.str_("x"), "x", "x"),
    (np.array([1, 2]), "1, 2", [1, 2]),
    (np.datetime64("2024-12-31"), "2024-12-31", "2024-12-31"),
    (np.datetime64("2024-12-31T10", "ns"), "2024-12-31T10:00:00.000000000", "2024-12-31T10:00:00.000000000"),
]


@pytest.mark.parametrize(("cell", "text", "value"), CELLS, ids=lambda one: repr(one)[:24])
def test_a_cell_of_any_type_prints_and_goes_to_json(cell, text, value, capsys):
    assert cell_text(cell) == text
    assert to_json_value(cell) == value
    Output().table(("key", "n"), [(cell, 1)])
    assert text in capsys.readouterr().out
    Output().emit({"rows": [{"key": cell}]})
    assert json.loads(capsys.readouterr().out) == {"rows": [{"key": value}]}


def test_an_answer_by_date_is_printed_as_a_table(run: Run, folder):
    """It was charged and then lost to a TypeError."""
    run("discreet ledger init c.ledger --account c --epsilon 300")
    (folder / "stays.csv").write_text("day,at\n" + "1950-02-03,2024-12-31T10:00:00\n" * 40)
    for column, key, shown in (("day", "1950-02-03", "1950-02-03"), ("at", "2024-12-31T10:00:00", "2024-12-31 10:00")):
        line = f'discreet query stays.csv "SELECT {column}, COUNT(*) AS n FROM t GROUP BY {column}" --ledger c.ledger'
        done = run(f"{line} --keys {column}={key} --epsilon 50")
        assert done.code == 0, done.err
        assert shown in done.out
        assert "40" in done.out


def fails() -> None:
    raise RuntimeError("a bug in the table")


def test_an_answer_of_any_type_is_saved_if_printing_fails(folder):
    answer = {"rows": [{"day": date(2024, 1, 2), "n": Decimal(3)}]}

    with pytest.raises(NotPrinted, match=r"saved in discreet-answer-census-ann-7\.json"):
        Output().print_charged(answer, "census/ann-7", fails)
    path = folder / "discreet-answer-census-ann-7.json"
    assert json.loads(path.read_text()) == {"rows": [{"day": "2024-01-02", "n": "3"}]}
    assert path.stat().st_mode & 0o077 == 0, "others must not read it"
    with pytest.raises(NotPrinted, match=r"saved in discreet-answer-census-ann-7-2\.json"):
        Output().print_charged(answer, "census/ann-7", fails)


def test_an_answer_that_cannot_be_saved_either_is_in_the_error(folder, monkeypatch):
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(printing, "os", SimpleNamespace(**{**vars(os), "open": full}))
    with pytest.raises(NotPrinted, match=r'"n": 3'):
        Output().print_charged({"rows": [{"n": 3}]}, "census-1", fails)


def test_a_query_whose_reader_has_gone_saves_its_answer(run: Run, folder):
    run(INIT)
    words = [*COMMAND, *shlex.split(QUERY)[1:], "--json"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=folder, check=False)
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "The answer was charged but could not be printed (Broken pipe): it is saved in" in done.stderr
    (path,) = folder.glob("discreet-answer-census-*.json")
    kept = json.loads(path.read_text())
    assert [row["sex"] for row in kept["rows"]] == ["Female", "Male"]
    with dp.Ledger("census.ledger", create=False) as ledger:
        (line,) = ledger.account("census").statement().lines
    assert kept["purpose"] == line.purpose
    # What was saved serves as a result and as a receipt.
    assert run(f"discreet ledger verify census.ledger --receipt {path.name}").code == 0
    assert run(f"discreet report census.ledger --result {path.name}").code == 0


@pytest.mark.slow
def test_an_answer_that_the_terminal_cannot_encode_is_still_readable(run: Run, folder):
    run("discreet ledger init c.ledger --account c --epsilon 300")
    (folder / "cities.csv").write_text("city\n" + "Łódź\n" * 40)
    line = 'discreet query cities.csv "SELECT city, COUNT(*) AS n FROM t GROUP BY city" --ledger c.ledger'
    words = [*COMMAND, *shlex.split(f"{line} --keys city=Łódź --epsilon 50")[1:]]

    def answered(words, encoding):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        return subprocess.run(words, capture_output=True, cwd=folder, env=environment, check=True)

    plain = answered(words, "ascii")
    assert b"40" in plain.stdout
    machine = answered([*words, "--json"], "latin-1")
    assert json.loads(machine.stdout)["rows"][0]["city"] == "Łódź"
    assert list(folder.glob("discreet-answer-*")) == []
