"""A PostgreSQL server that restarts, fails or forgets in the middle of a spend never makes the ledger wrong."""

from __future__ import annotations

import multiprocessing
import threading
import time
from fractions import Fraction

import pytest

import discreet as dp
from discreet.errors import LedgerUnavailable
from discreet.ledger.stores import postgres
from tests.ledger.faults import STEP, at, configured, contend, hooked, opened, restart, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.mark.parametrize("mode", ["immediate", pytest.param("fast", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", ["priced", "locked", "recorded", "committing"])
def test_a_server_that_restarts_in_the_middle_of_a_spend(new_postgres, step, mode):
    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        hooked(ledger, at(step, lambda: restart(place, mode)))
        if step == "committing":
            with pytest.raises(LedgerUnavailable, match="not known"):
                census.spend(STEP)
            assert spent(census) == 0
            hooked(ledger, at(step, lambda: restart(place, mode)))
        census.spend(STEP, key="k")
        assert spent(census) == Fraction(1, 64)
        assert census.spend(STEP, key="k").replayed
        assert ledger.verify()


def test_an_answer_lost_after_the_commit_is_found_by_its_key(new_postgres):
    import psycopg

    def lose():
        raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    with opened(new_postgres()) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        hooked(ledger, at("committed", lose))
        receipt = census.spend(STEP, key="k")
        assert receipt.replayed
        hooked(ledger, at("committed", lose))
        with pytest.raises(LedgerUnavailable, match="give a key"):
            census.spend(STEP)
        assert spent(census) == Fraction(2, 64)  # wasted, not leaked
        assert ledger.verify()


def test_spends_from_many_processes_survive_restarts(new_postgres):
    place = new_postgres()
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(10.0))

    def work(number):
        with opened(place, timeout=60) as ledger:
            account = ledger.account("census")
            for i in range(40):
                account.spend(STEP, key=f"{number} {i}")

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for mode in ("fast", "immediate"):
        time.sleep(0.15)
        restart(place, mode)
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    with opened(place) as ledger:
        assert spent(ledger.account("census")) == Fraction(160, 64)
        assert ledger.verify()


def test_an_error_that_comes_when_the_message_ends_is_not_lost(new_postgres, always_contended, monkeypatch):
    import psycopg

    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        with psycopg.connect(place.location, autocommit=True) as connection:
            connection.execute("CREATE TABLE late (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        monkeypatch.setattr(postgres, "_FLUSH", "INSERT INTO late VALUES (1), (1)")  # fails at its own commit
        with pytest.raises(LedgerUnavailable, match="not known"):
            census.spend(STEP)
        census.spend(STEP)  # after one failure, no further flush is sent
        assert spent(census) == Fraction(2, 64)


def test_prepared_statements_that_were_dropped_are_prepared_again(new_postgres):
    with opened(new_postgres()) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        census.spend(STEP)
        session, epoch = ledger._backend.store._pool.take()
        session.execute("DEALLOCATE ALL")
        ledger._backend.store._pool.give_back(session, epoch)
        census.spend(STEP)
        assert spent(census) == Fraction(2, 64)


def test_a_name_with_a_nul_is_no_other_name(new_place):
    with opened(new_place()) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0))
        with pytest.raises(dp.errors.DiscreetError):
            ledger.account("census\0evil")


@pytest.mark.parametrize("contended", [False, True])
def test_a_deadlock_is_known_to_have_charged_nothing_and_is_tried_again(new_postgres, contended):
    """Another client locks the entries first and then waits for the accounts: the opposite of our order."""
    import psycopg

    place = new_postgres()
    with opened(place) as ledger, psycopg.connect(place.location) as other:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        other.execute("SET deadlock_timeout = '100s'")  # so that the server aborts the spend, not this client
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

        hooked(ledger, meddle)
        contend(ledger, contended)
        census.spend(STEP)
        threads[0].join(60)
        assert spent(census) == Fraction(1, 64)
        assert ledger.verify()


def test_a_server_that_does_not_flush_is_refused(new_postgres):
    place = new_postgres()
    with opened(place) as ledger:
        account = ledger.account("census", budget=dp.PureDP(1.0))
        account.spend(STEP)
        ledger.close()
        with configured(place, "fsync", "off"):
            with pytest.raises(LedgerUnavailable, match=r"fsync = off.*set fsync = on"):
                opened(place)
            with pytest.raises(LedgerUnavailable, match="fsync = off"):  # a new connection of a ledger that is open
                account.spend(STEP)
        assert account.spend(STEP).sequence == 2
