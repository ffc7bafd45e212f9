"""Whoever may only read a SQLite ledger can verify it and see its statements, and can charge nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

import discreet as dp
from discreet.errors import LedgerUnavailable
from tests.ledger.faults import STEP, in_child
from tests.ledger.places import memory

NOBODY = 65534


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=memory(), prefix="discreet-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


def audited(path, receipt, rows):
    """Audit a ledger as a user who may not write, in a process of its own."""

    def work():
        if os.getuid() == 0:  # permissions do not bind root
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        assert not os.access(path.parent, os.W_OK)
        before = sorted(path.parent.iterdir())
        with dp.Ledger(path, create=False) as ledger:
            for _ in range(2):
                verified = ledger.verify([receipt])
                assert verified, str(verified)
            census = ledger.account("census", budget=dp.PureDP(1.0))
            assert len(census.history()) == rows
            assert len(census.statement().lines) == rows - 1
            for attempt in (lambda: census.spend(STEP), lambda: census.allot("ann", dp.PureDP(0.1))):
                with pytest.raises(LedgerUnavailable, match="must be writable"):
                    attempt()
            assert len(census.history()) == rows
        assert sorted(path.parent.iterdir()) == before

    assert in_child(work) == 0


def protect(folder):
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)


def made(path):
    """A ledger in use, and the receipt of its last spend."""
    ledger = dp.Ledger(path)
    census = ledger.account("census", budget=dp.PureDP(1.0))
    return ledger, [census.spend(STEP) for _ in range(3)][-1]


def test_a_closed_ledger_is_audited_in_a_folder_that_cannot_be_written(folder):
    path = folder / "census.ledger"
    ledger, receipt = made(path)
    ledger.close()
    assert not Path(f"{path}-wal").exists()
    protect(folder)
    audited(path, receipt.to_json(), 4)
    folder.chmod(0o755)


def test_a_ledger_in_use_is_audited_in_a_folder_that_cannot_be_written(folder):
    """A user who may write goes on meanwhile."""
    path = folder / "census.ledger"
    holder = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # a process that has the ledger open
        try:
            kept_open = made(path)
            receipt = kept_open[1]
            os.write(holder[0][1], receipt.to_json().encode())
            os.read(holder[1][0], 1)
        finally:
            os._exit(0)
    try:
        receipt = os.read(holder[0][0], 100_000).decode()
        assert Path(f"{path}-wal").stat().st_size > 0
        protect(folder)
        audited(path, receipt, 4)
    finally:
        folder.chmod(0o755)
        os.write(holder[1][1], b".")
        os.waitpid(child, 0)


def test_a_copy_of_a_ledger_in_use_is_audited_with_its_log(folder):
    """The log alone holds the newest spends, and SQLite cannot make its index there."""
    path = folder / "kept" / "census.ledger"
    path.parent.mkdir()

    def crash():
        _, receipt = made(folder / "census.ledger")
        (folder / "receipt").write_text(receipt.to_json())
        os._exit(0)  # without closing: the log stays

    in_child(crash)
    for ending in ("", "-wal"):
        shutil.copy(folder / f"census.ledger{ending}", f"{path}{ending}")
    protect(path.parent)
    audited(path, (folder / "receipt").read_text(), 4)
    path.parent.chmod(0o755)


def test_a_read_during_which_others_write_is_run_again(folder, monkeypatch):
    path = folder / "census.ledger"
    made(path)[0].close()
    with opened_read_only(path, monkeypatch) as auditor:
        runs = []

        def work(transaction):
            runs.append(transaction.rows("SELECT COUNT(*) FROM discreet_entry"))
            if len(runs) == 1:
                os.utime(path)  # as a commit would
            return len(runs)

        assert auditor._backend.read(work) == 2


def opened_read_only(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("discreet.ledger.stores.sqlite.os.access", lambda name, mode: False)
        return dp.Ledger(path, create=False)
