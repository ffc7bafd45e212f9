"""A spend that returned is on disk: it survives a crash of the server, also when commits go to memory first."""

from __future__ import annotations

import threading
import time
from fractions import Fraction

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import LedgerError, LedgerUnavailable
from discreet.ledger.stores import postgres
from discreet.ledger.stores.postgres import PostgresStore
from tests.ledger.faults import STEP, at_rest, configured, contend, opened, restart, spent


def returned_spends_survive(place):
    """Crash the server right after a spend returned, and look for the spend.

    The server's log writer sleeps for 10 s after its start, so it does not flush the spend by chance.
    """
    with configured(place, "wal_writer_delay", "10s"):
        restart(place, "fast")
        with opened(place) as ledger:
            census = ledger.account("census", budget=dp.PureDP(1.0))
            census.spend(STEP)
            restart(place, "immediate")
            assert spent(census) == Fraction(1, 64)
            assert ledger.verify()


def test_a_spend_that_returned_survives_a_crash_of_the_server(new_postgres):
    returned_spends_survive(new_postgres())


def is_lost(new_postgres):
    """Whether a crash loses a spend. Three attempts: on a busy machine something else may flush it now and then."""
    for _ in range(3):
        try:
            returned_spends_survive(new_postgres())
        except (AssertionError, dp.errors.DiscreetError):
            return True
    return False


def test_a_commit_that_is_not_waited_for_would_be_lost(new_postgres, monkeypatch):
    connect = PostgresStore._connect

    def careless(self):
        connection = connect(self)
        connection.execute("SET synchronous_commit = off")
        return connection

    monkeypatch.setattr(PostgresStore, "_connect", careless)
    assert is_lost(new_postgres)


def test_a_spend_from_a_contended_account_survives_a_crash_of_the_server(new_postgres, always_contended):
    returned_spends_survive(new_postgres())


def test_a_contended_spend_that_is_not_flushed_would_be_lost(new_postgres, always_contended, monkeypatch):
    monkeypatch.setattr(postgres, "_FLUSH", "SELECT 1")
    assert is_lost(new_postgres)


def test_a_role_that_may_not_flush_waits_for_each_commit(new_postgres, always_contended, monkeypatch):
    monkeypatch.setattr(postgres, "_FLUSH", "SELECT 1")  # would lose the spend, if it were sent
    monkeypatch.setattr(postgres, "_MAY_QUEUE", "SELECT false")
    returned_spends_survive(new_postgres())


def test_what_a_contended_plan_or_part_was_told_survives_a_crash_of_the_server(new_postgres, always_contended):
    place = new_postgres()
    with opened(place) as ledger, configured(place, "wal_writer_delay", "10s"):
        census = ledger.account("census", budget=dp.PureDP(1.0))
        restart(place, "fast")
        ann = census.allot("ann", dp.PureDP(1.0))
        restart(place, "immediate")
        plan = ann.reserve(ev.Repeated(STEP, 10), key="plan")
        restart(place, "immediate")
        assert spent(ann) == spent(census) == Fraction(10, 64)
        assert plan.start_block(4) == 4
        restart(place, "immediate")
        assert plan.started() == 4
        receipt = plan.close()
        restart(place, "immediate")
        assert spent(ann) == spent(census) == Fraction(4, 64)
        assert ledger.verify([plan.receipt, receipt])


@pytest.mark.parametrize("queues", [False, True])
def test_a_row_that_another_session_left_in_memory_is_on_disk_when_a_key_finds_it(new_postgres, monkeypatch, queues):
    place = new_postgres()
    with configured(place, "wal_writer_delay", "10s"):
        restart(place, "fast")
        with opened(place) as first, opened(place) as second:
            census, again = first.account("census", budget=dp.PureDP(1.0)), second.account("census")
            contend(first)
            with monkeypatch.context() as patched:
                patched.setattr(postgres, "_FLUSH", "SELECT 1 / 0")  # committed, but neither flushed nor returned
                patched.setattr(first._backend.store, "_timeout", 0)
                with pytest.raises(LedgerUnavailable):
                    census.spend(STEP, key="k")
            contend(second, queues)
            receipt = again.spend(STEP, key="k")
            assert receipt.replayed
            restart(place, "immediate")
            assert spent(again) == Fraction(1, 64)
            assert second.verify([receipt])


@pytest.mark.parametrize("contended", [False, True])
def test_a_server_that_is_told_not_to_wait_for_the_disk_does_so_for_no_open_session(new_postgres, contended):
    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        with configured(place, "synchronous_commit", "off"):
            contend(ledger, contended)
            census.spend(STEP)
            assert at_rest(ledger) == {("on", "IDLE")}


def test_a_session_keeps_a_stricter_rule_of_the_database(new_postgres):
    place = new_postgres()
    name = place.query("SELECT current_database()")[0][0]
    place.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0))
        contend(ledger)
        ledger.account("census").spend(STEP)
        assert at_rest(ledger) == {("remote_apply", "IDLE")}


@pytest.mark.parametrize("contended", [False, True])
def test_a_wait_for_replicas_that_was_given_up_gives_no_receipt(new_postgres, contended):
    """The server warns, and then reports that the commit succeeded."""
    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        census.spend(STEP)
        answers = []

        def work():
            try:
                answers.append(census.spend(STEP))
            except LedgerError as error:
                answers.append(error)

        with configured(place, "synchronous_standby_names", "nobody"):
            contend(ledger, contended)
            thread = threading.Thread(target=work)
            thread.start()
            waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
            while thread.is_alive() and not place.query(f"SELECT pg_cancel_backend(pid) {waits}"):
                time.sleep(0.02)
            thread.join(60)
        assert isinstance(answers[0], LedgerUnavailable)
        assert "not known" in str(answers[0])
        census.spend(STEP)
        assert spent(census) == Fraction(3, 64)


def test_a_failure_after_a_contended_commit_is_not_taken_for_a_refusal(new_postgres, always_contended, monkeypatch):
    with opened(new_postgres()) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        monkeypatch.setattr(postgres, "_FLUSH", "SELECT 1 / 0")
        with pytest.raises(LedgerUnavailable, match="not known"):
            census.spend(STEP)
        assert spent(census) == Fraction(1, 64)


def test_every_sqlite_commit_is_flushed_to_disk(new_sqlite):
    with opened(new_sqlite()) as ledger:
        settings = {
            name: ledger._backend.store.read(lambda transaction, name=name: transaction.rows(f"PRAGMA {name}"))[0][0]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_every_postgres_commit_is_flushed_to_disk_whatever_the_database_prefers(new_postgres):
    place = new_postgres()
    name = place.query("SELECT current_database()")[0][0]
    place.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with opened(place) as ledger:
        assert ledger._backend.store.read(lambda transaction: transaction.rows("SHOW synchronous_commit")) == [("on",)]
    returned_spends_survive(place)
