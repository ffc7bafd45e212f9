"""Accounts in PostgreSQL that many want at once, and servers that are meddled with meanwhile."""

from __future__ import annotations

import threading
import time
from fractions import Fraction
from zlib import crc32

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, LedgerBusy, LedgerError, LedgerUnavailable
from discreet.ledger import postgres
from discreet.ledger.session import Session

STEP = ev.Laplace(64.0)


def opened(place, **options):
    return dp.Ledger(place.location, **options)


def spent(account):
    return account.budget.epsilon - Fraction(account.remaining().epsilon)


def crowd(ledger, crowded=True):
    """The sessions at rest had to wait for others, or had not, when they last locked an account."""
    for session in ledger._store._pool._free:
        session.crowded = crowded


def at_rest(ledger):
    """What the sessions at rest would do with the next commit, and whether a transaction is open on one of them."""
    free = ledger._store._pool._free
    return {
        (session.execute("SHOW synchronous_commit").fetchone()[0], session._connection.info.transaction_status.name)
        for session in free
    }


def settled(place, statement, name, value):
    """Change the server's configuration and wait until a new session sees it."""
    import psycopg

    with psycopg.connect(place.location, autocommit=True) as connection:
        connection.execute(statement)
        connection.execute("SELECT pg_reload_conf()")
    for _ in range(200):
        if place.query(f"SHOW {name}") == [(value,)]:
            time.sleep(0.2)
            return
        time.sleep(0.05)
    raise AssertionError(f"the server did not set {name}")


@pytest.mark.parametrize("crowded", [False, True])
def test_a_server_that_is_told_not_to_wait_for_the_disk_does_so_for_no_open_session(new_postgres, crowded):
    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        try:
            settled(place, "ALTER SYSTEM SET synchronous_commit = off", "synchronous_commit", "off")
            crowd(ledger, crowded)
            census.spend(STEP)
            assert at_rest(ledger) == {("on", "IDLE")}
        finally:
            settled(place, "ALTER SYSTEM RESET synchronous_commit", "synchronous_commit", "on")


def test_a_session_keeps_a_stricter_rule_of_the_database(new_postgres):
    place = new_postgres()
    name = place.query("SELECT current_database()")[0][0]
    place.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0))
        crowd(ledger)
        ledger.account("census").spend(STEP)
        assert at_rest(ledger) == {("remote_apply", "IDLE")}


@pytest.mark.parametrize("crowded", [False, True])
def test_a_wait_for_replicas_that_was_given_up_gives_no_receipt(new_postgres, crowded):
    """The server warns, and then says that the commit succeeded."""
    place = new_postgres()
    with opened(place, timeout=20) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        census.spend(STEP)
        answers = []

        def work():
            try:
                answers.append(census.spend(STEP))
            except LedgerError as error:
                answers.append(error)

        try:
            settled(
                place, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "synchronous_standby_names", "nobody"
            )
            crowd(ledger, crowded)
            thread = threading.Thread(target=work)
            thread.start()
            waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
            while thread.is_alive() and not place.query(f"SELECT pg_cancel_backend(pid) {waits}"):
                time.sleep(0.02)
            thread.join(20)
        finally:
            settled(place, "ALTER SYSTEM RESET synchronous_standby_names", "synchronous_standby_names", "")
        assert isinstance(answers[0], LedgerUnavailable)
        assert "not known" in str(answers[0])
        census.spend(STEP)
        assert spent(census) == Fraction(3, 64)


def test_a_queue_that_a_stranger_holds_is_left_for_the_row_itself(new_postgres):
    import psycopg

    place = new_postgres()
    with opened(place, timeout=0.3) as ledger, psycopg.connect(place.location, autocommit=True) as stranger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        number = crc32(repr(("census",)).encode()) - 2**31
        stranger.execute("SELECT pg_advisory_lock(%s, %s)", (postgres._LOCKS, number))
        crowd(ledger)
        with pytest.raises(LedgerBusy, match="nothing was charged"):
            census.spend(STEP)
        assert at_rest(ledger) == {("on", "IDLE")}
        for _ in range(3):
            census.spend(STEP)
        assert spent(census) == Fraction(3, 64)


@pytest.mark.parametrize(
    "function",
    [
        "set_config(text, text, boolean)",
        "pg_advisory_xact_lock(int, int)",
        "pg_logical_emit_message(boolean, text, text)",
    ],
)
def test_a_role_that_may_not_call_a_function_spends_from_crowded_accounts(new_postgres, function):
    place = new_postgres()
    role = "plain_" + place.query("SELECT current_database()")[0][0]
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0))
    place.execute(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {role}",
        f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC",
    )
    try:
        with dp.Ledger(place.location.replace("discreet@", f"{role}@"), create=False) as ledger:
            census = ledger.account("census")
            for _ in range(3):
                crowd(ledger)
                census.spend(STEP)
            assert spent(census) == Fraction(3, 64)
            assert at_rest(ledger) == {("on", "IDLE")}
    finally:
        place.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("crowded", [False, True])
def test_an_interrupt_while_a_refusal_is_rolled_back_frees_the_account(new_postgres, monkeypatch, crowded):
    def interrupted(self, sql):
        raise KeyboardInterrupt

    with opened(new_postgres(), timeout=2) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        crowd(ledger, crowded)
        with monkeypatch.context() as patched:
            patched.setattr(Session, "execute", interrupted)
            with pytest.raises(KeyboardInterrupt) as kept:
                census.spend(ev.Laplace(0.5))
        census.spend(STEP)
        assert kept.value is not None  # whoever keeps the traceback keeps no lock
        assert not ledger._store._pool._busy
        with pytest.raises(BudgetExceeded):
            census.spend(ev.Laplace(0.5))


def test_what_a_crowded_plan_or_part_was_told_survives_a_crash_of_the_server(new_postgres, monkeypatch):
    """The server's own log writer sleeps, so nothing else saves what was returned."""
    place = new_postgres()
    monkeypatch.setattr(Session, "crowded", True)
    monkeypatch.setattr(postgres, "_CROWDED", -1.0)

    def restart(mode):
        place.server.stop(mode)
        place.server.start()

    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        settled(place, "ALTER SYSTEM SET wal_writer_delay = '10s'", "wal_writer_delay", "10s")
        try:
            restart("fast")
            ann = census.allot("ann", dp.PureDP(1.0))
            restart("immediate")
            plan = ann.reserve(ev.Repeated(STEP, 10), key="plan")
            restart("immediate")
            assert spent(ann) == spent(census) == Fraction(10, 64)
            assert plan.start_block(4) == 4
            restart("immediate")
            assert plan.started() == 4
            receipt = plan.close()
            restart("immediate")
            assert spent(ann) == spent(census) == Fraction(4, 64)
            assert ledger.verify([plan.receipt, receipt])
        finally:
            settled(place, "ALTER SYSTEM RESET wal_writer_delay", "wal_writer_delay", "200ms")


@pytest.mark.parametrize("found_by", ["a session that queues", "one that does not"])
def test_a_row_that_another_session_left_in_memory_is_on_disk_when_a_key_finds_it(new_postgres, monkeypatch, found_by):
    place = new_postgres()
    settled(place, "ALTER SYSTEM SET wal_writer_delay = '10s'", "wal_writer_delay", "10s")
    try:
        place.server.stop("fast")
        place.server.start()
        with opened(place) as first, opened(place) as second:
            census, again = first.account("census", budget=dp.PureDP(1.0)), second.account("census")
            crowd(first)
            with monkeypatch.context() as patched:
                patched.setattr(postgres, "_MARK", "SELECT 1 / 0")  # committed, and neither forced to disk nor returned
                patched.setattr(first._store, "_timeout", 0)
                with pytest.raises(LedgerUnavailable):
                    census.spend(STEP, key="k")
            crowd(second, found_by == "a session that queues")
            receipt = again.spend(STEP, key="k")
            assert receipt.replayed
            place.server.stop("immediate")
            place.server.start()
            assert spent(again) == Fraction(1, 64)
            assert second.verify([receipt])
    finally:
        settled(place, "ALTER SYSTEM RESET wal_writer_delay", "wal_writer_delay", "200ms")


@pytest.mark.parametrize("crowded", [False, True])
def test_a_deadlock_is_known_to_have_charged_nothing_and_is_tried_again(new_postgres, crowded):
    """Someone who changes the tables in another order takes the entries first, and then waits for the accounts."""
    import psycopg

    place = new_postgres()
    with opened(place) as ledger, psycopg.connect(place.location) as other:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        other.execute("SET deadlock_timeout = '100s'")  # it is the spend that finds out
        other.commit()
        threads = []

        def change():
            other.execute("LOCK TABLE discreet_account IN ACCESS EXCLUSIVE MODE")
            other.commit()

        def meddle(step):
            if step == "committing" and not threads:
                other.execute("LOCK TABLE discreet_entry IN ACCESS EXCLUSIVE MODE")
                threads.append(threading.Thread(target=change))
                threads[0].start()
                waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'discreet_account'::regclass"
                while not place.query(waits):
                    time.sleep(0.02)

        ledger._store._on_step = meddle
        crowd(ledger, crowded)
        census.spend(STEP)
        threads[0].join(20)
        assert spent(census) == Fraction(1, 64)
        assert ledger.verify()


@pytest.mark.parametrize("crowded", [False, True])
def test_a_limit_of_the_servers_own_is_not_taken_for_ours(new_postgres, crowded):
    import psycopg

    place = new_postgres()
    with opened(place) as ledger, psycopg.connect(place.location) as other:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        ledger._store._pool._free[0].execute("SET statement_timeout = 200")
        other.execute("SELECT * FROM discreet_account FOR UPDATE")
        crowd(ledger, crowded)
        with pytest.raises(LedgerBusy, match=r"statement timeout.*nothing was charged"):
            census.spend(STEP)
        assert at_rest(ledger) == {("on", "IDLE")}
        other.rollback()
        census.spend(STEP)
        assert spent(census) == Fraction(1, 64)


@pytest.mark.parametrize("timeout", [3e6, 1e100])
def test_a_timeout_of_any_length_is_understood_by_the_server(new_postgres, timeout):
    answers = []

    def work():
        with dp.Ledger(place.location, create=False, timeout=timeout) as ledger:
            answers.append(ledger.account("census").spend(STEP).sequence)

    place = new_postgres()
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0))
    thread = threading.Thread(target=work, daemon=True)  # it would never come back
    thread.start()
    thread.join(20)
    assert answers == [1]
