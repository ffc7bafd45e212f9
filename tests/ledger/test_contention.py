"""An account in PostgreSQL that many want at once: who queues, who does not, and that totals stay right."""

from __future__ import annotations

import multiprocessing
from fractions import Fraction
from zlib import crc32

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, LedgerBusy
from discreet.ledger.stores import postgres
from discreet.ledger.stores.session import PreparedConnection
from tests.ledger.faults import STEP, at_rest, contend, opened, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_a_queue_that_a_stranger_holds_is_left_for_the_row_itself(new_postgres):
    import psycopg

    place = new_postgres()
    with opened(place, timeout=0.3) as ledger, psycopg.connect(place.location, autocommit=True) as stranger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        number = crc32(repr(("census",)).encode()) - 2**31
        stranger.execute("SELECT pg_advisory_lock(%s, %s)", (postgres._LOCK_SPACE, number))
        contend(ledger)
        with pytest.raises(LedgerBusy, match="nothing was charged"):
            census.spend(STEP)
        assert at_rest(ledger) == {("on", "IDLE")}
        for _ in range(3):
            contend(ledger)  # as a server or a machine that is slow would do
            census.spend(STEP)
        assert spent(census) == Fraction(3, 64)
        for session in ledger._backend.store._pool._free:
            session.no_queue_until = 0.0  # a while later it queues again
        contend(ledger)
        with pytest.raises(LedgerBusy, match="nothing was charged"):
            census.spend(STEP)


@pytest.mark.parametrize(
    "function",
    [
        "set_config(text, text, boolean)",
        "pg_advisory_xact_lock(int, int)",
        "pg_logical_emit_message(boolean, text, text)",
    ],
)
def test_a_role_that_may_not_call_a_function_spends_from_contended_accounts(new_postgres, function):
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
                contend(ledger)
                census.spend(STEP)
            assert spent(census) == Fraction(3, 64)
            assert at_rest(ledger) == {("on", "IDLE")}
    finally:
        place.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("contended", [False, True])
def test_an_interrupt_while_a_refusal_is_rolled_back_frees_the_account(new_postgres, monkeypatch, contended):
    def interrupted(self, sql):
        raise KeyboardInterrupt

    # The timeout is how long the server may take to notice that the interrupted connection was closed.
    with opened(new_postgres(), timeout=20) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        contend(ledger, contended)
        with monkeypatch.context() as patched:
            patched.setattr(PreparedConnection, "execute", interrupted)
            with pytest.raises(KeyboardInterrupt) as kept:
                census.spend(ev.Laplace(0.5))
        census.spend(STEP)
        assert kept.value is not None  # keeping the traceback alive keeps no lock
        assert not ledger._backend.store._pool._busy
        with pytest.raises(BudgetExceeded):
            census.spend(ev.Laplace(0.5))


def test_those_who_wait_for_an_account_queue_up_before_they_ask_for_its_row(new_postgres, monkeypatch):
    """The queue only saves work: half of the processes do not use it, and totals stay right."""
    place = new_postgres()
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(10.0))

    def work(number):
        if number % 2:
            monkeypatch.setattr(postgres, "_CONTENDED", -1.0)
            monkeypatch.setattr(PreparedConnection, "contended", True)
        else:
            monkeypatch.setattr(postgres, "_CONTENDED", 1e9)
        sent = []
        send = PreparedConnection.send

        def recorded(self, statements):
            sent.extend(sql for sql, _ in statements)
            return send(self, statements)

        monkeypatch.setattr(PreparedConnection, "send", recorded)
        with opened(place, timeout=60) as ledger:
            for _ in range(40):
                ledger.account("census").spend(STEP)
        queued = sent.count(postgres._QUEUE)
        assert queued == sent.count(postgres._FLUSH) == (40 if number % 2 else 0)

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    with opened(place) as ledger:
        assert spent(ledger.account("census")) == Fraction(240, 64)
        assert ledger.verify()
