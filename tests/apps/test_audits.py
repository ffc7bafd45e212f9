"""`discreet audit` refutes, says how hard it looked, draws, and keeps the verdict in the ledger and its report."""

from __future__ import annotations

import json

import pytest

from tests.apps.conftest import Run

AUDIT = "discreet audit pipeline.py:release --bounds 0,100 --epsilon 1 --white-box --samples 2000"


def test_a_right_claim_is_recorded_and_shown_in_the_report(run: Run, folder):
    assert run("discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6").code == 0
    done = run(f"{AUDIT} --ledger census.ledger --plot audit.svg")
    assert (done.code, done.err) == (0, "")
    assert "no violation found; " in done.out
    assert "recorded in row 1 of account census" in done.out
    assert (folder / "audit.svg").read_text().startswith("<?xml")
    assert run("discreet ledger verify census.ledger").code == 0
    assert run("discreet report census.ledger --out report.html").code == 0
    page = (folder / "report.html").read_text()
    assert '<h2 id="audits-title">Audits</h2>' in page
    assert "no violation found; " in page
    assert "pipeline.py:release" in page
    assert "runs on 15 pairs of datasets; ε ≥ " in page
    assert (
        run("discreet audit pipeline.py:exact --bounds 0,100 --epsilon 1 --samples 500 --ledger census.ledger").code
        == 1
    )
    assert run("discreet report census.ledger --out report.html").code == 0
    assert "<strong>Violation:</strong> pair " in (folder / "report.html").read_text()


def test_a_violation_has_exit_code_1_and_a_witness(run: Run):
    done = run("discreet audit pipeline.py:exact --bounds 0,100 --epsilon 1 --samples 1000 --json")
    assert done.code == 1
    found = json.loads(done.out)
    assert found["violated"]
    assert found["witness"]["p_value"] < 1e-6


def test_pairs_come_from_the_file(run: Run):
    done = run("discreet audit pipeline.py:total --pairs pairs --epsilon 1 --white-box --samples 2000 --json")
    assert done.code == 0
    assert json.loads(done.out)["pairs"] == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("discreet audit pipeline.py:release --bounds 0,100", "Give exactly one of --epsilon"),
        ("discreet audit pipeline.py:release --epsilon 1", "Give exactly one of --pairs and --bounds"),
        ("discreet audit pipeline.py:release --bounds 0 --epsilon 1", "--bounds must be two numbers"),
        ("discreet audit pipeline.py:absent --bounds 0,100 --epsilon 1", "FUNCTION must be defined"),
        ("discreet audit absent.py:release --bounds 0,100 --epsilon 1", "FILE must be a Python file that exists"),
        (f"{AUDIT} --plot audit.jpg", "--plot must end in"),
        (f"{AUDIT} --ledger absent.ledger", "LEDGER must exist"),
        (f"{AUDIT} --alpha 2", "alpha must be < 1"),
    ],
)
def test_bad_arguments_are_one_line(line, message, run: Run):
    done = run(line)
    assert done.code == 2
    assert message in done.err


@pytest.mark.slow
def test_the_tour_prints_every_attack_and_writes_one_page(run: Run, folder):
    done = run("discreet tour --folder tour")
    assert (done.code, done.err) == (0, "")
    page = (folder / "tour" / "tour.html").read_text()
    for name in (
        "Unique people",
        "Linkage",
        "The governor&#39;s record",
        "Film ratings",
        "k-anonymity",
        "Differencing",
    ):
        assert f">{name}</h2>" in page
    assert page.count("<svg") == 9
    assert "http://" not in page.replace("http://www.w3.org/", "")
