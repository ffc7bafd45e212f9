"""What a review broke once: forks, files that change beneath a process, names, rounding, and what verify overlooked."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from fractions import Fraction

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, DiscreetError, LedgerUnavailable
from discreet.ledger import sqlite

TENTH = ev.Laplace(10.0)


def opened(path):
    return dp.Ledger(path).account("c", budget=dp.PureDP(1.0))


def spend_all(account):
    count = 0
    while True:
        try:
            account.spend(TENTH)
        except BudgetExceeded:
            return count
        count += 1


def elsewhere(code, *arguments):
    """Run code in another process and return what it prints."""
    script = "import sys\nimport discreet as dp\n" + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout.strip()


VERIFY = "ledger = dp.Ledger(sys.argv[1]); print(bool(ledger.verify())); ledger.close()"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_goes_on_spending_after_its_parent_closed_and_nothing_is_lost(tmp_path):
    path = tmp_path / "l"
    ledger = dp.Ledger(path)
    account = ledger.account("c", budget=dp.PureDP(1.0))
    account.spend(TENTH)
    to_child, from_child = os.pipe(), os.pipe()
    if os.fork() == 0:
        try:
            account.spend(TENTH)
            os.write(from_child[1], b"1")
            os.read(to_child[0], 1)
            os.write(from_child[1], bytes([spend_all(account)]))
        finally:
            os._exit(0)
    os.read(from_child[0], 1)
    ledger.close()
    assert elsewhere(VERIFY, path) == "True"
    os.write(to_child[1], b"1")
    assert os.read(from_child[0], 1) == bytes([8])
    os.wait()
    assert spend_all(opened(path)) == 0


def test_a_process_that_copies_its_ledger_by_opening_it_notices_that_its_commits_could_vanish(tmp_path):
    path = tmp_path / "l"
    account = opened(path)
    account.spend(TENTH)
    shutil.copy(path, tmp_path / "copy")  # closing the descriptor drops SQLite's locks in this process
    elsewhere(VERIFY, path)
    receipts = 0
    with contextlib.suppress(LedgerUnavailable):
        for _ in range(9):
            account.spend(TENTH)
            receipts += 1
    kept = elsewhere("print(len(dp.Ledger(sys.argv[1]).account('c').history()))", path)
    assert int(kept) >= 2 + receipts  # opening, the first spend, and every spend that returned


@pytest.mark.parametrize("gone", ["", "-wal"])
def test_files_deleted_beneath_a_process_give_no_receipt(tmp_path, gone):
    path = tmp_path / "l"
    account = opened(path)
    account.spend(TENTH)
    os.unlink(f"{path}{gone}")
    with pytest.raises(LedgerUnavailable, match="were replaced"):
        account.spend(TENTH)


def test_a_log_that_vanishes_from_a_folder_at_rest_is_noticed(tmp_path, monkeypatch):
    """The log itself is not looked at while the folder stays as it was; that it was removed shows in the folder."""
    monkeypatch.setattr(sqlite, "_SETTLED", 0)
    path = tmp_path / "l"
    account = opened(path)
    looked = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda place, **more: (looked.append(str(place)), stat(place, **more))[1])
    for _ in range(3):
        account.spend(TENTH)
    assert looked.count(f"{path}-wal") <= 1
    os.unlink(f"{path}-wal")
    with pytest.raises(LedgerUnavailable, match="were replaced"):
        account.spend(TENTH)


def test_a_second_name_for_the_file_is_refused(tmp_path):
    account = opened(tmp_path / "l")
    os.link(tmp_path / "l", tmp_path / "other")
    with pytest.raises(LedgerUnavailable, match="hard links"):
        account.spend(TENTH)
    os.unlink(tmp_path / "other")
    account.spend(TENTH)


def test_a_name_that_a_crash_left_behind_is_removed(tmp_path):
    account = opened(tmp_path / "l")
    os.link(tmp_path / "l", tmp_path / ".l.1-1.new")
    account.spend(TENTH)
    assert not (tmp_path / ".l.1-1.new").exists()


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        opened(tmp_path / folder / "l")
    monkeypatch.chdir(tmp_path / "x")
    ledger = dp.Ledger("l")
    account = ledger.account("c")
    ledger.close()
    monkeypatch.chdir(tmp_path / "y")
    account.spend(TENTH)
    assert len(opened(tmp_path / "x" / "l").history()) == 2
    assert len(opened(tmp_path / "y" / "l").history()) == 1


def test_a_symbolic_link_opens_the_ledger_it_points_to(tmp_path):
    account = opened(tmp_path / "l")
    account.spend(TENTH)
    os.symlink(tmp_path / "l", tmp_path / "s")
    assert spend_all(opened(tmp_path / "s")) == 9


def test_what_fits_only_before_it_is_rounded_for_storage_is_refused(tmp_path):
    ledger = dp.Ledger(tmp_path / "l")
    account = ledger.account("c", budget=dp.PureDP(0.3))
    event = ev.Exponential(Fraction(3, 10) - Fraction(1, 3**1000))
    assert not account.would_afford(event)
    with pytest.raises(BudgetExceeded):
        account.spend(event)
    assert ledger.verify()


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM discreet_account WHERE name = 'c'",
        "UPDATE discreet_entry SET account = 'ghost' WHERE sequence = 1",
        "UPDATE discreet_entry SET body = CAST(body AS BLOB) WHERE sequence = 1",
        "UPDATE discreet_account SET terms = CAST(terms AS BLOB)",
        "DROP TABLE discreet_entry",
    ],
)
def test_verify_finds_what_is_missing_or_of_another_type(tmp_path, edit):
    path = tmp_path / "l"
    ledger = dp.Ledger(path)
    account = ledger.account("c", budget=dp.PureDP(1.0))
    account.spend(TENTH)
    ledger.close()
    with sqlite3.connect(path) as connection:
        connection.execute(edit)
    connection.close()
    assert not ledger.verify()


def test_an_account_that_vanished_affords_nothing(tmp_path):
    path = tmp_path / "l"
    ledger = dp.Ledger(path)
    account = ledger.account("c", budget=dp.PureDP(1.0))
    ledger.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM discreet_account")
    connection.close()
    for ask in (account.remaining, lambda: account.would_afford(TENTH), lambda: account.spend(TENTH)):
        with pytest.raises(DiscreetError):
            ask()
