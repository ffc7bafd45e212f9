"""Waiting for others, or for a server, has a limit, and the error says what is known about the spend."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dp
from discreet.errors import LedgerBusy, LedgerUnavailable
from discreet.ledger.stores import postgres, sqlite
from tests.ledger.faults import STEP, at, at_rest, contend, hooked, opened, spent


class Clock:
    """The `time` module of a store, in which sleeping takes no time."""

    perf_counter_ns, time_ns = time.perf_counter_ns, time.time_ns

    def __init__(self):
        self.slept = []

    def monotonic(self):
        return sum(self.slept)

    def sleep(self, seconds):
        self.slept.append(seconds)


def test_a_busy_sqlite_file_waits_with_a_limit_and_then_says_so(new_sqlite, monkeypatch):
    place = new_sqlite()
    with opened(place, timeout=3) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        other = sqlite3.connect(place.location, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        clock = Clock()
        monkeypatch.setattr(sqlite, "time", clock)
        with pytest.raises(LedgerBusy, match="held by others"):
            census.spend(STEP)
        assert 3 <= sum(clock.slept) < 3.1
        assert census.remaining().epsilon == 1.0  # readers do not wait for writers
        other.execute("ROLLBACK")
        other.close()
        census.spend(STEP)


def test_a_busy_account_in_postgres_waits_with_a_limit_and_then_says_so(new_postgres):
    import psycopg

    place = new_postgres()
    with opened(place, timeout=0.3) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        survey = ledger.account("survey", budget=dp.PureDP(1.0))
        with psycopg.connect(place.location) as other:
            other.execute("SELECT * FROM discreet_account WHERE name = 'census' FOR UPDATE")
            with pytest.raises(LedgerBusy, match="held by others"):
                census.spend(STEP)
            survey.spend(STEP)  # each account has a lock of its own
            assert census.remaining().epsilon == 1.0
        census.spend(STEP)


def test_a_server_that_stays_away_is_waited_for_with_a_limit(new_postgres):
    place = new_postgres()
    with opened(place, timeout=0.5) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        place.server.stop("fast")
        try:
            with pytest.raises(LedgerUnavailable, match="could not be reached"):
                census.spend(STEP, key="k")
        finally:
            place.server.start()
        assert not census.spend(STEP, key="k").replayed


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc to find the server's processes in")
@pytest.mark.parametrize(("key", "words"), [(None, "not known"), ("k", "could not be reached")])
def test_a_frozen_server_is_waited_for_with_a_limit(new_postgres, monkeypatch, key, words):
    """The server stops before it reads the commit. It may still carry it out when it goes on."""
    monkeypatch.setattr(postgres, "_GRACE", 1)
    place = new_postgres()
    with opened(place, timeout=0.5) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        hooked(ledger, at("committing", lambda: place.server.signal(signal.SIGSTOP)))
        try:
            with pytest.raises(LedgerUnavailable, match=words):
                census.spend(STEP, key=key)
        finally:
            place.server.signal(signal.SIGCONT)
    with opened(place) as ledger:  # with a longer timeout, for a server that comes back slowly
        census = ledger.account("census")
        if key is not None:
            census.spend(STEP, key=key)
            assert spent(census) == Fraction(1, 64)
        assert spent(census) <= Fraction(1, 64)
        assert ledger.verify()


# --- errors that retrying cannot fix


@pytest.fixture
def clock(monkeypatch):
    installed = Clock()
    monkeypatch.setattr(postgres, "time", installed)
    return installed


@pytest.mark.parametrize("wrong", ["database", "role", "option"])
def test_a_server_that_refuses_the_connection_is_asked_only_twice(server, clock, wrong):
    url = {
        "database": server.url("nowhere"),
        "role": server.url().replace("discreet@", "nobody@"),
        "option": server.url() + "&nonsense=1",
    }[wrong]
    with pytest.raises(LedgerUnavailable, match="cannot be opened"):
        dp.Ledger(url)
    assert clock.slept == [postgres._REFUSED_PAUSE]


def test_a_refusal_is_recognized_in_any_language(server, clock, monkeypatch):
    """Where the server can translate its messages, it does; elsewhere the driver's message is replaced."""
    import psycopg

    connect = psycopg.connect

    def translated(*arguments, **options):
        try:
            return connect(*arguments, **options)
        except psycopg.OperationalError as error:
            raise psycopg.OperationalError("Verbindung fehlgeschlagen: Datenbank »nowhere« existiert nicht") from error

    monkeypatch.setattr(psycopg, "connect", translated)
    with pytest.raises(LedgerUnavailable, match=r"cannot be opened .*existiert nicht"):
        dp.Ledger(server.url("nowhere"))
    assert clock.slept == [postgres._REFUSED_PAUSE]


def test_a_server_that_comes_up_after_the_first_attempt_is_used(new_postgres, clock, monkeypatch):
    """Its answer to the ping then looks like a refusal."""
    import psycopg

    place = new_postgres()
    connect, failures = psycopg.connect, [True]

    def late(*arguments, **options):
        if failures:
            failures.pop()
            raise psycopg.OperationalError("connection failed: Connection refused")
        return connect(*arguments, **options)

    monkeypatch.setattr(psycopg, "connect", late)
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).spend(STEP)
    assert clock.slept == [postgres._REFUSED_PAUSE]


@pytest.mark.parametrize("code", ["28P01", "28000", "3D000", "42501"])
def test_an_error_with_a_code_that_retrying_cannot_fix_is_raised_at_once(new_postgres, clock, monkeypatch, code):
    """Also after the first connection, and whatever the message says."""
    import psycopg

    with opened(new_postgres()) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        ledger.close()

        def fail(*arguments, **options):
            raise psycopg.errors.lookup(code)("le serveur a refusé la connexion")

        with monkeypatch.context() as patched:
            patched.setattr(psycopg, "connect", fail)
            with pytest.raises(LedgerUnavailable, match="cannot be opened"):
                census.spend(STEP)
        assert clock.slept == []
        census.spend(STEP)


def test_a_server_that_has_no_free_connection_is_waited_for(new_postgres, clock, monkeypatch):
    """Too many connections look like a refusal, so this holds once a connection was made."""
    import psycopg

    with opened(new_postgres(), timeout=300) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        ledger.close()
        connect, failures = psycopg.connect, [True] * 50

        def crowded(*arguments, **options):
            if failures:
                failures.pop()
                raise psycopg.OperationalError("connection failed: trop de clients sont déjà connectés")
            return connect(*arguments, **options)

        monkeypatch.setattr(psycopg, "connect", crowded)
        assert census.spend(STEP).sequence == 1
        assert len(clock.slept) == 50


# --- limits of others


@pytest.mark.parametrize("contended", [False, True])
def test_a_limit_of_the_servers_own_is_not_taken_for_ours(new_postgres, contended):
    import psycopg

    place = new_postgres()
    with opened(place) as ledger, psycopg.connect(place.location) as other:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        [session] = ledger._backend.store._pool._free
        session.execute("SET statement_timeout = 200")
        other.execute("SELECT * FROM discreet_account FOR UPDATE")
        contend(ledger, contended)
        with pytest.raises(LedgerBusy, match=r"statement timeout.*nothing was charged"):
            census.spend(STEP)
        session.execute("SET statement_timeout = 0")  # a busy machine may take longer for anything
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
    thread = threading.Thread(target=work, daemon=True)  # if it waits for its timeout, it must not block the exit
    thread.start()
    thread.join(60)
    assert answers == [1]
