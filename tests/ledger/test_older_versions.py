"""Ledgers that older versions wrote: they open, verify, show the same balances, and can be spent from."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dp
from discreet import codec
from discreet import events as ev
from discreet.errors import BudgetExceeded
from discreet.numeric.texts import sum_value
from tests.ledger.fixtures.write import BUDGETS, EVENTS, facts

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(path.stem for path in FIXTURES.glob("version-*.ledger"))
#: Kinds of events that no account can be charged.
NEVER_CHARGED = {"non-private", "insecure"}
#: Kinds of events that did not exist yet in a version.
LATER = {
    "version-0.1.0": {
        "buffered-noise",
        "cyclic-sampled",
        "declared-exponentials",
        "distributed-discrete-gaussian",
        "gaussian-vote-check",
        "gaussian-votes",
        "laplace-votes",
        "local-report",
        "may-fail",
        "perturbed-objective",
        "randomly-allocated",
        "selected-from-repeats",
        "skellam",
        "square-root-noise",
        "toeplitz-noise",
        "tree-noise",
        "truncated-poisson-sampled",
    }
}


@pytest.fixture(params=VERSIONS)
def version(request) -> str:
    return request.param


@pytest.fixture
def path(version, tmp_path) -> Path:
    return Path(shutil.copy(FIXTURES / f"{version}.ledger", tmp_path / "older.ledger"))


def said(version: str) -> dict:
    """What the older version said of its ledger."""
    return json.loads((FIXTURES / f"{version}.json").read_text())


def stored(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT account, sequence, body, hash FROM discreet_entry ORDER BY 1, 2").fetchall()


def test_there_is_a_ledger_of_an_older_version():
    assert "version-0.1.0" in VERSIONS


def test_the_ledger_holds_every_kind_of_event_and_budget(path, version):
    rows = stored(path)
    tags = set(re.findall(r'"tag":"([^"]+)"', " ".join(body.replace("\\", "") for _, _, body, _ in rows)))
    assert set(codec._EVENTS) - NEVER_CHARGED - LATER.get(version, set()) <= tags
    assert set(codec._GUARANTEES) <= tags
    assert {"rows", "person"} <= tags
    kinds = {codec.parse(body)["kind"] for _, _, body, _ in rows}
    assert kinds == {"open", "allot", "spend", "reserve", "start", "close"}


def test_an_older_ledger_shows_the_same_balances_and_hashes_and_verifies(path, version):
    assert facts(path) == said(version)


def test_texts_are_written_as_the_older_version_wrote_them(path):
    with dp.Ledger(path, create=False) as ledger:
        texts = {(entry.account, entry.sequence): entry.body() for a in ledger.accounts() for entry in a.history()}
    assert texts == {(account, sequence): body for account, sequence, body, _ in stored(path)}


def test_an_older_ledger_is_spent_from_and_still_verifies(path, version):
    before, rows = said(version)["accounts"], stored(path)
    with dp.Ledger(path, create=False) as ledger:
        for name in BUDGETS:
            account = ledger.account(name, budget=BUDGETS[name], aside=1e-7 if name == "approximate" else 0.0)
            replayed = account.spend(EVENTS[2], key=f"{name} 2")
            assert replayed.replayed
            assert account.spend(ev.Laplace(1000.0)).sequence == before[name]["last_sequence"] + 1
            with pytest.raises(BudgetExceeded):
                account.spend(ev.Laplace(0.01))
        ann = ledger.account('süd "1"/ann')
        receipt = ann.spend(ev.Claimed(0.01, 5e-8), purpose="the rest of the δ")
        with pytest.raises(BudgetExceeded, match="set aside"):
            ann.spend(ev.Claimed(0.01, 1e-9))
        with closing(sqlite3.connect(path)) as connection:
            [(state,)] = connection.execute("SELECT state FROM discreet_account WHERE name = ?", (ann.name,))
        assert sum_value(codec.parse(state)["claimed"]) == 2 * Fraction(5e-8)
        verified = ledger.verify([receipt])
        assert verified, str(verified)
    assert rows == [row for row in stored(path) if row[1] <= before[row[0]]["last_sequence"]]


def test_an_open_reservation_of_an_older_ledger_goes_on_where_it_stood(path):
    plan = ev.Repeated(ev.Gaussian(100.0), 60)
    with dp.Ledger(path, create=False) as ledger:
        ann = ledger.account('süd "1"/ann')
        before = ann.remaining()
        reservation = ann.reserve(plan, key="training")
        assert reservation.receipt.replayed
        assert reservation.start_block(5) == 20
        closed = reservation.close()
        assert closed.event == ev.Repeated(ev.Gaussian(100.0), 20)
        assert all(now >= then for now, then in zip(ann.remaining().epsilons, before.epsilons, strict=True))
        assert max(ann.remaining().epsilons) > max(before.epsilons)
        assert ledger.verify()
