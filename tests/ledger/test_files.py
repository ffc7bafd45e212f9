"""A SQLite file that is copied, replaced, linked or mounted by other means gives no receipt that could vanish."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from fractions import Fraction

import pytest

import discreet as dp
from discreet.errors import LedgerUnavailable
from discreet.ledger.stores import sqlite
from tests.ledger.faults import STEP, hooked, opened, spent


def account_at(path):
    return dp.Ledger(path).account("c", budget=dp.PureDP(1.0))


def run_elsewhere(code, *arguments):
    """Run code in another process and return what it prints."""
    script = f"import sys\nimport discreet as dp\n{code}"
    return subprocess.check_output([sys.executable, "-c", script, *map(str, arguments)], text=True).strip()


def test_a_log_index_that_was_removed_beneath_a_process_is_noticed_before_it_writes(new_sqlite):
    """Otherwise it would overwrite what others wrote since, and their receipts would be worthless."""
    place = new_sqlite()
    with opened(place) as first:
        mine = first.account("census", budget=dp.PureDP(1.0))
        mine.spend(STEP)
        time.sleep(0.3)  # until the folder's timestamps are settled, so that the log is no longer checked
        mine.spend(STEP)
        os.remove(f"{place.location}-shm")
        script = (
            "import sys, discreet as dp; from discreet import events as ev\n"
            "ledger = dp.Ledger(sys.argv[1]); account = ledger.account('census')\n"
            "account.spend(ev.Laplace(64.0))\n"
            "print('spent', flush=True); sys.stdin.read(); account.spend(ev.Laplace(64.0)); ledger.close()\n"
        )
        command = [sys.executable, "-c", script, str(place.location)]
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "spent\n"
        steps = []
        hooked(first, steps.append)
        with pytest.raises(LedgerUnavailable, match="replaced"):
            mine.spend(STEP)
        assert "recorded" not in steps
    other.communicate(timeout=120)
    assert other.returncode == 0
    with opened(place) as again:
        assert spent(again.account("census")) == Fraction(4, 64)
        assert again.verify()


def test_a_file_that_is_mounted_without_its_folder_is_refused(new_sqlite, tmp_path, monkeypatch):
    place = new_sqlite()
    with opened(place):
        pass
    mounts = tmp_path / "mountinfo"
    name = os.path.realpath(place.location).replace(" ", "\\040")
    mounts.write_text(f"1 2 0:3 / / rw - ext4 a rw\n4 1 0:3 /x {name} rw - ext4 a rw\n")
    monkeypatch.setattr("discreet.ledger.stores.sqlite._MOUNTS", mounts)
    with pytest.raises(LedgerUnavailable, match="mount its folder"):
        opened(place).__enter__()


def test_a_process_that_copies_its_ledger_by_opening_it_notices_that_its_commits_could_vanish(tmp_path):
    path = tmp_path / "l"
    account = account_at(path)
    account.spend(STEP)
    shutil.copy(path, tmp_path / "copy")  # closing the descriptor drops SQLite's locks in this process
    run_elsewhere("dp.Ledger(sys.argv[1]).verify()", path)
    receipts = 0
    with contextlib.suppress(LedgerUnavailable):
        for _ in range(9):
            account.spend(STEP)
            receipts += 1
    kept = run_elsewhere("print(len(dp.Ledger(sys.argv[1]).account('c').history()))", path)
    assert int(kept) >= 2 + receipts  # opening, the first spend, and every spend that returned


@pytest.mark.parametrize("gone", ["", "-wal"])
def test_files_deleted_beneath_a_process_give_no_receipt(tmp_path, gone):
    path = tmp_path / "l"
    account = account_at(path)
    account.spend(STEP)
    os.unlink(f"{path}{gone}")
    with pytest.raises(LedgerUnavailable, match="were replaced"):
        account.spend(STEP)


def test_a_log_that_vanishes_from_a_folder_at_rest_is_noticed(tmp_path, monkeypatch):
    """The log itself is not checked while its folder is unchanged; its removal shows in the folder."""
    monkeypatch.setattr(sqlite, "_SETTLED_COARSE", 0)
    monkeypatch.setattr(sqlite, "_SETTLED_FINE", 0)
    path = tmp_path / "l"
    account = account_at(path)
    checked = []
    stat = os.stat

    def recorded(path, **options):
        checked.append(str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", recorded)
    for _ in range(3):
        account.spend(STEP)
    assert checked.count(f"{path}-wal") <= 1
    os.unlink(f"{path}-wal")
    with pytest.raises(LedgerUnavailable, match="were replaced"):
        account.spend(STEP)


def test_a_second_name_for_the_file_is_refused(tmp_path):
    account = account_at(tmp_path / "l")
    os.link(tmp_path / "l", tmp_path / "other")
    with pytest.raises(LedgerUnavailable, match="hard links"):
        account.spend(STEP)
    os.unlink(tmp_path / "other")
    account.spend(STEP)


def test_a_name_that_a_crash_left_behind_is_removed(tmp_path):
    account = account_at(tmp_path / "l")
    os.link(tmp_path / "l", tmp_path / ".l.1-1.new")
    account.spend(STEP)
    assert not (tmp_path / ".l.1-1.new").exists()


def test_a_relative_path_stays_where_it_was(tmp_path, monkeypatch):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        account_at(tmp_path / folder / "l")
    monkeypatch.chdir(tmp_path / "x")
    ledger = dp.Ledger("l")
    account = ledger.account("c")
    ledger.close()
    monkeypatch.chdir(tmp_path / "y")
    account.spend(STEP)
    assert len(account_at(tmp_path / "x" / "l").history()) == 2
    assert len(account_at(tmp_path / "y" / "l").history()) == 1


def test_a_symbolic_link_opens_the_ledger_it_points_to(tmp_path):
    account = account_at(tmp_path / "l")
    account.spend(STEP)
    os.symlink(tmp_path / "l", tmp_path / "s")
    assert account_at(tmp_path / "s").spend(STEP).sequence == 2
