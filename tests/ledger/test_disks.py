"""A disk that is full or read-only charges nothing and leaves the ledger whole."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dp
from discreet.errors import LedgerError, LedgerUnavailable
from discreet.ledger.stores.postgres import PostgresTransaction
from discreet.ledger.stores.sqlite import SQLiteStore
from tests.ledger.faults import STEP, in_child, opened, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def until_refused(account):
    """How many spends were accepted before the store failed, and its error."""
    for accepted in range(10_000):
        try:
            account.spend(STEP)
        except LedgerUnavailable as error:
            return accepted, error
    raise AssertionError("the store never failed")


def test_a_full_sqlite_file_refuses_and_stays_whole(new_sqlite, monkeypatch):
    place = new_sqlite()
    connect = SQLiteStore._connect

    def cramped(self, mode, path=None):
        connection = connect(self, mode, path)
        if path is None and mode == "rw":
            connection.execute("PRAGMA max_page_count = 30")
        return connection

    monkeypatch.setattr(SQLiteStore, "_connect", cramped)
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(100.0))
        accepted, error = until_refused(census)
        assert "no room left" in str(error)
        assert accepted > 10
        assert spent(census) == Fraction(accepted, 64)
        assert ledger.verify()


def test_a_file_that_may_not_grow_refuses_and_stays_whole(new_sqlite):
    """The operating system refuses to write more; what was returned before is kept."""
    place = new_sqlite()
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(100.0))
    read, write = os.pipe()

    def victim():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        with opened(place) as ledger:
            census = ledger.account("census")
            try:
                while True:
                    census.spend(STEP)
                    os.write(write, b"x")
            except LedgerError:
                os.write(write, b"e")

    assert in_child(victim) == 0
    os.close(write)
    answer = os.read(read, 65536)
    os.close(read)
    assert answer.endswith(b"e")
    with opened(place) as ledger:
        assert len(answer) - 1 <= spent(ledger.account("census")) * 64 <= len(answer)
        ledger.account("census").spend(STEP)
        assert ledger.verify()


def test_a_full_disk_refuses_and_stays_whole(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        os.getuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], check=False, capture_output=True
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        with dp.Ledger(folder / "x.ledger") as ledger:
            census = ledger.account("census", budget=dp.PureDP(100.0))
            accepted, _ = until_refused(census)
            assert accepted > 5
            assert spent(census) == Fraction(accepted, 64)
            assert ledger.verify()
        with dp.Ledger(folder / "x.ledger") as again:
            assert spent(again.account("census")) == Fraction(accepted, 64)
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def test_a_full_disk_of_the_server_refuses_and_stays_whole(new_postgres, monkeypatch):
    import psycopg

    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        run = PostgresTransaction.run

        def full(self, sql, *values):
            if "UPDATE" in sql:
                raise psycopg.errors.DiskFull("could not extend file: No space left on device")
            run(self, sql, *values)

        with monkeypatch.context() as patched:
            patched.setattr(PostgresTransaction, "run", full)
            with pytest.raises(LedgerUnavailable, match="No space left"):
                census.spend(STEP)
        assert spent(census) == 0
        census.spend(STEP)
        assert ledger.verify()


def drop_root():
    """Become `nobody`, in a child process of root."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def test_a_read_only_file_says_so():
    """Root may write anything, so root tries as another user."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.ledger"
        with dp.Ledger(path) as ledger:
            ledger.account("census", budget=dp.PureDP(1.0))
        path.chmod(0o444)
        os.chmod(folder, 0o555)
        before = path.read_bytes()

        def attempt():
            drop_root()
            try:
                dp.Ledger(path).account("census").spend(STEP)
            except LedgerUnavailable as error:
                os._exit(7 if "writable" in str(error) else 8)
            os._exit(9)

        assert os.waitstatus_to_exitcode(in_child(attempt)) == 7
        assert path.read_bytes() == before
        os.chmod(folder, 0o755)


def test_a_folder_that_may_not_be_entered_says_so():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o000)

        def attempt():
            drop_root()
            try:
                dp.Ledger(Path(folder) / "x.ledger")
            except LedgerUnavailable:
                os._exit(7)
            os._exit(9)

        assert os.waitstatus_to_exitcode(in_child(attempt)) == 7
        os.chmod(folder, 0o755)


def test_a_table_that_became_a_view_is_charged_nothing(new_postgres):
    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        place.execute("ALTER TABLE discreet_entry RENAME TO kept", "CREATE VIEW discreet_entry AS SELECT 1 AS account")
        with pytest.raises(LedgerError):
            census.spend(STEP)
        place.execute("DROP VIEW discreet_entry", "ALTER TABLE kept RENAME TO discreet_entry")
        assert spent(census) == 0
