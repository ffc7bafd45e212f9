"""A process that saw a row refuses a ledger that no longer has it; a fork inside a charge gives one receipt."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from fractions import Fraction

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import LedgerUnavailable, NotALedger
from discreet.ledger.stores import records
from tests.ledger.faults import AFTER, BEFORE, STEP, at, forget, hooked, opened, spent
from tests.ledger.test_verify import rewrite

ROLLED_BACK = "older copy was restored"


def attempts(ledger, account):
    """Every way to read from an account, or to write to it."""
    return {
        "spend": lambda: account.spend(STEP),
        "retry": lambda: account.spend(STEP, key="known"),
        "reserve": lambda: account.reserve(STEP, key="plan"),
        "remaining": account.remaining,
        "would_afford": lambda: account.would_afford(STEP),
        "statement": account.statement,
        "history": account.history,
        "allot": lambda: account.allot("bob", dp.PureDP(1.0)),
        "reopen": lambda: ledger.account("census"),
        "open": lambda: ledger.account("census", budget=dp.PureDP(1.0)),
        "accounts": ledger.accounts,
    }


def all_refuse(ledger, account):
    for name, attempt in attempts(ledger, account).items():
        with pytest.raises(NotALedger, match=ROLLED_BACK):
            print(name, attempt())


@pytest.fixture
def ledger(place):
    with opened(place) as opened_here:
        account = opened_here.account("census", budget=dp.PureDP(1.0))
        account.spend(STEP, key="known")
        account.spend(STEP)
        account.spend(STEP)
        yield opened_here


def cut(place):
    """Remove the last spend and compute everything again, as restoring an older copy would."""
    rewrite(place, "census", lambda sequence, value: None if sequence == 3 else value)


def test_a_ledger_that_lost_a_row_is_refused_by_everyone_in_the_process(ledger, place):
    account = ledger.account("census")
    cut(place)
    all_refuse(ledger, account)
    with opened(place) as another:  # another object, the same process
        with pytest.raises(NotALedger, match=ROLLED_BACK):
            another.account("census")
        found = another.verify()
        assert (found.account, found.sequence, ROLLED_BACK in found.problem) == ("census", 3, True), str(found)
    forget()
    assert spent(ledger.account("census")) == Fraction(2, 64)  # a new process has no way to know


def test_a_row_that_was_replaced_is_refused(ledger, place):
    account = ledger.account("census")
    rewrite(place, "census", lambda sequence, value: {**value, "purpose": "other"} if sequence == 3 else value)
    all_refuse(ledger, account)
    found = ledger.verify()
    assert (found.account, found.sequence, "history was rewritten" in found.problem) == ("census", 3, True)


def test_verify_finds_a_rollback_that_others_wrote_beyond(ledger, place):
    """The sequence is higher again, but the row that this process saw is another one."""
    cut(place)
    seen = dict(ledger._backend.store._seen)
    forget()
    for _ in range(3):
        ledger.account("census").spend(ev.Laplace(32.0))
    ledger._backend.store._seen.update(seen)
    found = ledger.verify()
    assert (found.account, found.sequence, "history was rewritten" in found.problem) == ("census", 3, True)


def test_an_account_that_is_gone_does_not_open_afresh(ledger, place):
    place.execute("DELETE FROM discreet_entry", "DELETE FROM discreet_account")
    with pytest.raises(NotALedger, match="shows no row"):
        ledger.account("census", budget=dp.PureDP(1.0))
    found = ledger.verify()
    assert (found.account, found.sequence) == ("census", 3)


def test_a_file_that_was_deleted_and_started_again_is_refused(tmp_path):
    path = tmp_path / "census.ledger"
    with dp.Ledger(path) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).spend(ev.Laplace(1.0))
    older = path.read_bytes()
    path.unlink()
    with dp.Ledger(path) as ledger, pytest.raises(NotALedger, match=ROLLED_BACK):
        ledger.account("census", budget=dp.PureDP(1.0))
    path.write_bytes(older)
    with dp.Ledger(path) as ledger:
        assert ledger.verify()


def test_what_this_process_only_read_counts_in_sqlite(new_sqlite):
    """A row that SQLite shows is on disk."""
    place = new_sqlite()
    with opened(place) as ledger:
        account = ledger.account("census", budget=dp.PureDP(1.0))
        for _ in range(3):
            account.spend(STEP)
        forget()
        assert account.remaining()
        cut(place)
        with pytest.raises(NotALedger, match=ROLLED_BACK):
            account.remaining()


def test_a_charge_that_is_rolled_back_is_not_remembered(place):
    with opened(place) as ledger:
        account = ledger.account("census", budget=dp.PureDP(1.0))
        for step in BEFORE:
            if step != "recorded above":
                hooked(ledger, at(step, lambda: 1 / 0))
                with pytest.raises(ZeroDivisionError):
                    account.spend(STEP)
        assert account.spend(STEP).sequence == 1


def test_readers_beside_writers_in_one_process_raise_no_false_alarm(place):
    with opened(place) as ledger:
        account = ledger.account("census", budget=dp.PureDP(1000.0))
        done, errors = threading.Event(), []

        def look():
            while not done.is_set():
                try:
                    account.remaining()
                    account.statement()
                except Exception as error:
                    errors.append(error)
                    return

        readers = [threading.Thread(target=look) for _ in range(3)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(100):
                account.spend(STEP)
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert errors == []
        assert ledger.verify()


def test_a_snapshot_from_before_a_spend_raises_no_false_alarm(ledger):
    account = ledger.account("census")

    def work(transaction):
        assert records.existing(transaction, "census").sequence == 3
        account.spend(STEP)  # on another connection
        return records.existing(transaction, "census").sequence

    assert ledger._backend.read(work) == 3
    assert ledger._backend.read(lambda transaction: records.existing(transaction, "census").sequence) == 4


# --- forks


@pytest.mark.parametrize("step", [name for name in BEFORE + AFTER if name not in {"priced", "recorded above"}])
def test_a_fork_inside_a_charge_gives_one_receipt(place, step):
    reading, writing = os.pipe()
    children = []

    def fork():
        children.append(os.fork())

    with opened(place) as ledger:
        account = ledger.account("census", budget=dp.PureDP(1.0))
        hooked(ledger, at(step, fork))
        try:
            outcome = account.spend(STEP).hash
        except LedgerUnavailable:
            outcome = "refused"
        except BaseException as error:
            outcome = repr(error)
        if children[0] == 0:  # the child has the same stack: it tells what it got, and ends
            with contextlib.suppress(BaseException):
                os.write(writing, outcome.encode())
            os._exit(0)
        os.waitpid(children[0], 0)
        os.close(writing)
        assert os.read(reading, 1000) == b"refused"
        os.close(reading)
        assert len(outcome) == 64
        assert account.spend(STEP).sequence == 2
        assert spent(account) == Fraction(2, 64)
        assert ledger.verify()
    if place.server is None:
        with contextlib.closing(sqlite3.connect(place.location)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
