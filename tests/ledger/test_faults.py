"""Faults: whatever breaks, at whatever instant, the ledger holds at least what was released and at most the budget."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, LedgerBusy, LedgerError, LedgerUnavailable
from discreet.ledger import postgres
from discreet.ledger.postgres import PostgresStore
from discreet.ledger.session import Session
from discreet.ledger.sqlite import SQLiteStore
from discreet.ledger.store import Pool
from tests.ledger.places import in_child, killer

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

STEP = ev.Laplace(64.0)
BEFORE = ["priced", "locked", "checked", "recorded", "recorded above", "committing"]
AFTER = ["committed", "returning"]


def opened(place, **options):
    return dp.Ledger(place.location, **options)


def spent(account):
    return account.budget.epsilon - Fraction(account.remaining().epsilon)


@pytest.fixture
def part(place):
    """The name of a part of a budget of 1000/64, reached through its own connections."""
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1000 / 64)).allot("ann", dp.PureDP(500 / 64))
    return "census/ann"


# --- kill -9


@pytest.mark.parametrize("step", BEFORE + AFTER)
def test_a_kill_at_any_step_leaves_all_or_nothing(place, part, step):
    for attempt in range(4):
        key = f"{step} {attempt}"

        def victim(key=key):
            with opened(place, on_step=killer(step)) as ledger:
                ledger.account(part).spend(STEP, key=key)
            os._exit(99)  # would be a release

        status = in_child(victim)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        with opened(place) as ledger:
            ann, census = ledger.account(part), ledger.account("census")
            assert spent(ann) == spent(census) == Fraction(attempt + (step in AFTER), 64)
            receipt = ann.spend(STEP, key=key)
            assert receipt.replayed == (step in AFTER)
            assert spent(ann) == spent(census) == Fraction(attempt + 1, 64)
            assert ledger.verify([receipt])


@pytest.mark.parametrize("step", ["locked", "recorded", "committing", "committed", "returning"])
def test_a_kill_while_a_plan_runs_never_loses_a_started_step(place, part, step):
    with opened(place) as ledger:
        ledger.account(part).reserve(ev.Repeated(STEP, 100), key="plan")

    def start():
        with opened(place) as ledger:
            plan = ledger.account(part).reserve(ev.Repeated(STEP, 100), key="plan")
            ledger._on_step = killer(step)
            ledger._store._on_step = killer(step)
            plan.start_block(10)
        os._exit(99)

    def close():
        with opened(place) as ledger:
            plan = ledger.account(part).reserve(ev.Repeated(STEP, 100), key="plan")
            ledger._on_step = killer(step)
            ledger._store._on_step = killer(step)
            plan.close()
        os._exit(99)

    assert os.WIFSIGNALED(in_child(start))
    with opened(place) as ledger:
        plan = ledger.account(part).reserve(ev.Repeated(STEP, 100), key="plan")
        assert plan.started() == (10 if step in AFTER else 0)
        ran = plan.start_block(5)
        assert spent(ledger.account(part)) == Fraction(100, 64)
        assert os.WIFSIGNALED(in_child(close))
        closed = step in AFTER
        assert spent(ledger.account(part)) == Fraction(ran if closed else 100, 64)
        plan.close()
        assert spent(ledger.account(part)) == spent(ledger.account("census")) == Fraction(ran, 64)
        assert ledger.verify()


@pytest.mark.parametrize("step", ["built", "linked"])
def test_a_kill_while_a_ledger_is_started_leaves_a_whole_one_or_none(new_sqlite, step):
    place = new_sqlite()
    assert os.WIFSIGNALED(in_child(lambda: opened(place, on_step=killer(step))))
    assert Path(place.location).exists() == (step == "linked")
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).spend(STEP)
        assert ledger.verify()


@pytest.mark.parametrize("step", ["recorded", "committing", "committed"])
def test_a_kill_while_an_account_is_opened_leaves_a_whole_one_or_none(place, step):
    with opened(place):
        pass

    def victim():
        with opened(place, on_step=killer(step)) as ledger:
            ledger.account("census", budget=dp.PureDP(1.0))

    assert os.WIFSIGNALED(in_child(victim))
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).spend(STEP)
        assert ledger.verify()


def spender(place, name, log):
    """Spend for ever; write a byte to `log` for each release, which only follows a receipt."""
    with opened(place) as ledger:
        account = ledger.account(name)
        while True:
            account.spend(STEP)
            os.write(log, b"x")


@pytest.mark.parametrize("attempt", [pytest.param(range(12)), pytest.param(range(12, 150), marks=pytest.mark.slow)])
def test_a_kill_at_a_random_moment_never_loses_a_release(place, attempt):
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(10000.0)).allot("ann", dp.PureDP(10000.0))
    generator = random.Random(attempt.start)
    released = 0
    for number in attempt:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                spender(place, "census/ann", write)
            finally:
                os._exit(1)
        os.close(write)
        time.sleep(generator.uniform(0.02, 0.12))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while chunk := os.read(read, 65536):
            released += len(chunk)
        os.close(read)
        with opened(place) as ledger:
            recorded = spent(ledger.account("census")) * 64
            assert released <= recorded <= released + number - attempt.start + 1
            assert spent(ledger.account("census/ann")) * 64 == recorded
    with opened(place) as ledger:
        assert ledger.verify()
    assert released > 0


# --- many at once


def contend(location, name, count, barrier, results):
    with dp.Ledger(location) as ledger:
        account = ledger.account(name)
        barrier.wait()
        accepted = 0
        for _ in range(count):
            try:
                account.spend(STEP)
                accepted += 1
            except BudgetExceeded:
                pass
        results.put(accepted)


def test_of_two_hundred_spends_for_the_last_drop_exactly_those_that_fit_succeed(place):
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(77 / 64))
        census.allot("ann", dp.PureDP(70 / 64))
        census.allot("bob", dp.PureDP(70 / 64))
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(8), context.Queue()
    names = ["census", "census/ann", "census/bob"]
    workers = [
        context.Process(target=contend, args=(place.location, names[i % 3], 25, barrier, results)) for i in range(8)
    ]
    for worker in workers:
        worker.start()
    accepted = sum(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    assert accepted == 77
    with opened(place) as ledger:
        assert ledger.account("census").remaining().epsilon == 0
        assert len([e for e in ledger.account("census").history() if e.event]) == 77
        assert ledger.verify()


def test_processes_that_share_nothing_spend_from_one_ledger(place):
    """Two interpreters of their own, not forks."""
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(30 / 64))
    code = (
        "import sys, discreet as dp\n"
        "account = dp.Ledger(sys.argv[1]).account('census')\n"
        "for i in range(20):\n"
        "    try:\n"
        "        account.spend(dp.events.Laplace(64.0))\n"
        "        print('released')\n"
        "    except dp.errors.BudgetExceeded:\n"
        "        pass\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, place.location], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    output = "".join(process.communicate(timeout=60)[0] for process in started)
    assert output.count("released") == 30
    with opened(place) as ledger:
        assert ledger.verify()


def test_threads_share_a_ledger(place):
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(50 / 64))
        accepted, refused = [], []

        def work():
            for _ in range(10):
                try:
                    accepted.append(census.spend(STEP).sequence)
                except BudgetExceeded:
                    refused.append(1)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(accepted) == list(range(1, 51))
        assert len(refused) == 30
        assert ledger.verify()


def test_threads_that_open_the_same_ledger_and_account_at_once_agree(place):
    found, wrong = [], []

    def work():
        try:
            with opened(place) as ledger:
                found.append(ledger.account("census", budget=dp.PureDP(1.0)).spend(STEP).sequence)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    with opened(place) as ledger:
        assert ledger.verify()


def test_a_fork_takes_no_connection_with_it(place):
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        census.spend(STEP)
        child = os.fork()
        if child == 0:
            try:
                for _ in range(10):
                    census.spend(STEP)
                ledger.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        for _ in range(10):
            census.spend(STEP)
        assert os.waitpid(child, 0)[1] == 0
        census.spend(STEP)
        assert spent(census) == Fraction(22, 64)
        assert ledger.verify()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a connection that is let fall
def test_a_connection_that_an_interrupt_let_fall_is_not_in_use_for_ever(place, monkeypatch):
    def interrupted(self, connection, epoch):
        raise KeyboardInterrupt

    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        with monkeypatch.context() as patched:
            patched.setattr(Pool, "give_back", interrupted)
            with contextlib.suppress(KeyboardInterrupt):
                census.spend(STEP)
        gc.collect()
        assert in_child(lambda: census.spend(STEP)) == 0
        assert spent(census) == Fraction(2, 64)


@pytest.mark.parametrize("step", ["connecting", "locked"])
def test_a_child_that_was_forked_while_a_connection_was_made_or_used_may_charge_nothing(place, monkeypatch, step):
    with opened(place, timeout=3) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        forked, children = [], []

        def refused():
            with pytest.raises(LedgerUnavailable, match="forked while"):
                census.spend(STEP)

        def fork(name=step):
            if name == step and not forked:
                forked.append(1)
                children.append(in_child(refused))

        if step == "connecting":
            connect = ledger._store._pool._connect
            monkeypatch.setattr(ledger._store._pool, "_connect", lambda: fork() or connect())
            ledger.close()
        else:
            hooked(ledger, fork)
        census.spend(STEP)
        assert children == [0]
        assert spent(census) == Fraction(1, 64)


def test_a_closed_ledger_opens_again_when_needed(place):
    ledger = opened(place)
    census = ledger.account("census", budget=dp.PureDP(1.0))
    ledger.close()
    census.spend(STEP)
    ledger.close()
    assert spent(census) == Fraction(1, 64)
    ledger.close()


# --- waiting


def test_a_busy_sqlite_file_waits_with_a_limit_and_then_says_so(new_sqlite):
    place = new_sqlite()
    with opened(place, timeout=0.3) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        other = sqlite3.connect(place.location, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(LedgerBusy, match="held by others"):
            census.spend(STEP)
        assert 0.2 < time.monotonic() - start < 5
        assert census.remaining().epsilon == 1.0  # reading waits for nobody
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
            survey.spend(STEP)  # another account is another lock
            assert census.remaining().epsilon == 1.0
        census.spend(STEP)


# --- disks


def until_refused(account):
    """How many spends were accepted before the store failed, and how it did."""
    for accepted in range(10_000):
        try:
            account.spend(STEP)
        except LedgerUnavailable as error:
            return accepted, error
    raise AssertionError("the store never failed")


@pytest.mark.parametrize("step", BEFORE + AFTER)
def test_an_error_at_any_step_charges_all_or_nothing(place, part, step):
    class Broken(Exception):
        pass

    failing = [True]

    def on_step(name):
        if name == step and failing[0]:
            raise Broken

    with opened(place) as ledger:
        ann = ledger.account(part)
        ledger._on_step = on_step
        ledger._store._on_step = on_step
        with pytest.raises(Broken):
            ann.spend(STEP, key="k")
        failing[0] = False
        assert spent(ann) == spent(ledger.account("census")) == (Fraction(1, 64) if step in AFTER else 0)
        assert ann.spend(STEP, key="k").replayed == (step in AFTER)
        assert spent(ann) == spent(ledger.account("census")) == Fraction(1, 64)
        assert ledger.verify()


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
    """The operating system itself refuses to write more; what was returned before is kept."""
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

    from discreet.ledger.postgres import PostgresTransaction

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


def test_a_read_only_file_says_so(monkeypatch):
    """Root may write to anything, so as root the attempt is made by somebody else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.ledger"
        with dp.Ledger(path) as ledger:
            ledger.account("census", budget=dp.PureDP(1.0))
        path.chmod(0o444)
        os.chmod(folder, 0o555)
        before = path.read_bytes()

        def attempt():
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
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
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            try:
                dp.Ledger(Path(folder) / "x.ledger")
            except LedgerUnavailable:
                os._exit(7)
            os._exit(9)

        assert os.waitstatus_to_exitcode(in_child(attempt)) == 7
        os.chmod(folder, 0o755)


def test_a_read_only_database_says_so(new_postgres):
    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        place.execute("ALTER TABLE discreet_entry RENAME TO kept", "CREATE VIEW discreet_entry AS SELECT 1 AS account")
        with pytest.raises(LedgerError):
            census.spend(STEP)
        place.execute("DROP VIEW discreet_entry", "ALTER TABLE kept RENAME TO discreet_entry")
        assert spent(census) == 0


# --- servers


def at(step, action):
    """A hook that acts once, at the named step."""
    done = []

    def on_step(name):
        if name == step and not done:
            done.append(1)
            action()

    return on_step


def hooked(ledger, hook):
    ledger._on_step = hook
    ledger._store._on_step = hook


@pytest.mark.parametrize("mode", ["immediate", pytest.param("fast", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", ["priced", "locked", "recorded", "committing"])
def test_a_server_that_restarts_in_the_middle_of_a_spend(new_postgres, step, mode):
    place = new_postgres()

    def restart():
        place.server.stop(mode)
        place.server.start()

    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        hooked(ledger, at(step, restart))
        if step == "committing":
            with pytest.raises(LedgerUnavailable, match="not known"):
                census.spend(STEP)
            assert spent(census) == 0
            hooked(ledger, at(step, restart))
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


def returned_spends_survive(place):
    """The server crashes right after a spend returned; its own log writer sleeps, so nothing else saves the spend."""
    import psycopg

    def setting(statement):
        with psycopg.connect(place.location, autocommit=True) as connection:
            connection.execute(statement)

    setting("ALTER SYSTEM SET wal_writer_delay = '10s'")
    try:
        place.server.stop("fast")
        place.server.start()
        with opened(place) as ledger:
            census = ledger.account("census", budget=dp.PureDP(1.0))
            census.spend(STEP)
            place.server.stop("immediate")
            place.server.start()
            assert spent(census) == Fraction(1, 64)
            assert ledger.verify()
    finally:
        setting("ALTER SYSTEM RESET wal_writer_delay")


def test_a_spend_that_returned_survives_a_crash_of_the_server(new_postgres):
    returned_spends_survive(new_postgres())


def is_lost(new_postgres):
    """Whether a crash loses a spend; on a busy machine something else may save it now and then, so thrice."""
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


@pytest.fixture
def crowded(monkeypatch):
    """Every account seems to be wanted by others."""
    monkeypatch.setattr(postgres, "_CROWDED", -1.0)
    monkeypatch.setattr(Session, "crowded", True)


def test_a_spend_from_a_crowded_account_survives_a_crash_of_the_server(new_postgres, crowded):
    returned_spends_survive(new_postgres())


def test_a_crowded_spend_that_is_not_forced_to_disk_would_be_lost(new_postgres, crowded, monkeypatch):
    monkeypatch.setattr(postgres, "_MARK", "SELECT 1")
    assert is_lost(new_postgres)


def test_a_row_that_is_found_by_its_key_is_on_disk_before_it_is_returned(new_postgres, crowded, monkeypatch):
    import psycopg

    mark = postgres._MARK

    def lose():
        monkeypatch.setattr(postgres, "_MARK", mark)
        raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    place = new_postgres()
    with psycopg.connect(place.location, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
    try:
        place.server.stop("fast")
        place.server.start()
        with opened(place) as ledger:
            census = ledger.account("census", budget=dp.PureDP(1.0))
            monkeypatch.setattr(postgres, "_MARK", "SELECT 1")  # the row is committed, and not on disk
            hooked(ledger, at("committed", lose))
            assert census.spend(STEP, key="k").replayed
            place.server.stop("immediate")
            place.server.start()
            assert spent(census) == Fraction(1, 64)
    finally:
        with psycopg.connect(place.location, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET wal_writer_delay")


def test_those_who_wait_for_an_account_queue_up_before_they_ask_for_its_row(new_postgres, monkeypatch):
    """The queue is a courtesy: someone who does not know of it takes the row's lock, and totals stay right."""
    place = new_postgres()
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(10.0))

    def work(number):
        if number % 2:
            monkeypatch.setattr(postgres, "_CROWDED", -1.0)
            monkeypatch.setattr(Session, "crowded", True)
        else:
            monkeypatch.setattr(postgres, "_CROWDED", 1e9)
        sent = []
        send = Session.send
        monkeypatch.setattr(Session, "send", lambda self, all: sent.extend(sql for sql, _ in all) or send(self, all))
        with opened(place, timeout=60) as ledger:
            for _ in range(40):
                ledger.account("census").spend(STEP)
        queued = sent.count(postgres._QUEUE)
        assert queued == sent.count(postgres._MARK) == (40 if number % 2 else 0)

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with opened(place) as ledger:
        assert spent(ledger.account("census")) == Fraction(240, 64)
        assert ledger.verify()


def test_a_failure_after_a_crowded_commit_is_not_taken_for_a_refusal(new_postgres, crowded, monkeypatch):
    with opened(new_postgres()) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        monkeypatch.setattr(postgres, "_MARK", "SELECT 1 / 0")
        with pytest.raises(LedgerUnavailable, match="not known"):
            census.spend(STEP)
        assert spent(census) == Fraction(1, 64)


def test_a_role_that_may_not_write_marks_waits_for_each_commit(new_postgres, crowded, monkeypatch):
    monkeypatch.setattr(postgres, "_MARK", "SELECT 1")  # which would lose the spend, if it were sent
    monkeypatch.setattr(postgres, "_MAY_QUEUE", "SELECT false")
    returned_spends_survive(new_postgres())


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
    """Frozen before it hears of the commit, which it takes for good when it is thawed."""
    monkeypatch.setattr(postgres, "_SILENT", 1)
    place = new_postgres()
    with opened(place, timeout=0.5) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        frozen = at("committing", lambda: place.server.signal(signal.SIGSTOP))
        hooked(ledger, frozen)
        try:
            with pytest.raises(LedgerUnavailable, match=words):
                census.spend(STEP, key=key)
        finally:
            place.server.signal(signal.SIGCONT)
        hooked(ledger, lambda step: None)
        if key is not None:
            census.spend(STEP, key=key)
            assert spent(census) == Fraction(1, 64)
        assert spent(census) <= Fraction(1, 64)
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
        place.server.stop(mode)
        place.server.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    with opened(place) as ledger:
        assert spent(ledger.account("census")) == Fraction(160, 64)
        assert ledger.verify()


def test_a_wrong_password_or_database_is_not_waited_for(server):
    start = time.monotonic()
    with pytest.raises(LedgerUnavailable, match="does not exist"):
        dp.Ledger(server.url("nowhere"))
    assert time.monotonic() - start < 10


def test_an_error_that_comes_when_the_message_ends_is_not_lost(new_postgres, crowded, monkeypatch):
    import psycopg

    place = new_postgres()
    with opened(place) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        with psycopg.connect(place.location, autocommit=True) as connection:
            connection.execute("CREATE TABLE late (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        monkeypatch.setattr(postgres, "_MARK", "INSERT INTO late VALUES (1), (1)")  # refused by its own commit
        with pytest.raises(LedgerUnavailable, match="not known"):
            census.spend(STEP)
        census.spend(STEP)  # marks are not tried again where one failed
        assert spent(census) == Fraction(2, 64)


def test_prepared_statements_that_were_dropped_are_prepared_again(new_postgres):
    with opened(new_postgres()) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        census.spend(STEP)
        session, epoch = ledger._store._pool.take()
        session.execute("DEALLOCATE ALL")
        ledger._store._pool.give_back(session, epoch)
        census.spend(STEP)
        assert spent(census) == Fraction(2, 64)


def test_a_name_with_a_nul_is_no_other_name(new_place):
    with opened(new_place()) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0))
        with pytest.raises(dp.errors.DiscreetError):
            ledger.account("census\0evil")


# --- what durability rests on


def test_a_log_index_that_was_removed_beneath_a_process_is_noticed_before_it_writes(new_sqlite):
    """Else it writes over what others wrote since: their receipts would stand for nothing."""
    place = new_sqlite()
    with opened(place) as first:
        mine = first.account("census", budget=dp.PureDP(1.0))
        mine.spend(STEP)
        time.sleep(0.3)
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
    other.communicate(timeout=60)
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
    monkeypatch.setattr("discreet.ledger.sqlite._MOUNTS", mounts)
    with pytest.raises(LedgerUnavailable, match="mount its folder"):
        opened(place).__enter__()


def test_every_sqlite_commit_is_forced_to_disk(new_sqlite):
    with opened(new_sqlite()) as ledger:
        found = {
            name: ledger._store.read(lambda t, name=name: t.rows(f"PRAGMA {name}"))[0][0]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_every_postgres_commit_is_forced_to_disk_whatever_the_database_prefers(new_postgres):
    place = new_postgres()
    name = place.query("SELECT current_database()")[0][0]
    place.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    with opened(place) as ledger:
        assert ledger._store.read(lambda t: t.rows("SHOW synchronous_commit")) == [("on",)]
    returned_spends_survive(place)
