"""Processes, threads and forks that share a ledger never spend the same budget twice."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from fractions import Fraction

import pytest

import discreet as dp
from discreet.errors import BudgetExceeded, LedgerUnavailable
from discreet.ledger.stores.base import Pool
from tests.ledger.faults import STEP, hooked, in_child, opened, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def spend_with_others(location, name, count, barrier, results):
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
        context.Process(target=spend_with_others, args=(place.location, names[i % 3], 25, barrier, results))
        for i in range(8)
    ]
    for worker in workers:
        worker.start()
    accepted = sum(results.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    assert accepted == 77
    with opened(place) as ledger:
        assert ledger.account("census").remaining().epsilon == 0
        assert len([e for e in ledger.account("census").history() if e.event]) == 77
        assert ledger.verify()


def test_processes_that_share_nothing_spend_from_one_ledger(place):
    """Two separate interpreters, not forks."""
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
    output = "".join(process.communicate(timeout=120)[0] for process in started)
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
    sequences, errors = [], []

    def work():
        try:
            with opened(place) as ledger:
                sequences.append(ledger.account("census", budget=dp.PureDP(1.0)).spend(STEP).sequence)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(sequences) == [1, 2, 3, 4, 5, 6]
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


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a connection that is dropped unclosed
def test_a_connection_that_an_interrupt_dropped_is_not_in_use_forever(place, monkeypatch):
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
            connect = ledger._backend.store._pool._connect
            monkeypatch.setattr(ledger._backend.store._pool, "_connect", lambda: fork() or connect())
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


def spend_all(account):
    """Spend until nothing is left; return the number of spends."""
    for count in range(1000):
        try:
            account.spend(STEP)
        except BudgetExceeded:
            return count
    raise AssertionError("the budget never ends")


def test_a_child_goes_on_spending_after_its_parent_closed_and_nothing_is_lost(new_sqlite):
    """The parent's close must not remove the log that the child writes to."""
    place = new_sqlite()
    ledger = opened(place)
    account = ledger.account("census", budget=dp.PureDP(10 / 64))
    account.spend(STEP)
    to_child, from_child = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            account.spend(STEP)
            os.write(from_child[1], b"1")
            os.read(to_child[0], 1)
            os.write(from_child[1], bytes([spend_all(account)]))
        finally:
            os._exit(0)
    os.read(from_child[0], 1)
    ledger.close()
    script = "import sys, discreet as dp; ledger = dp.Ledger(sys.argv[1]); print(bool(ledger.verify())); ledger.close()"
    assert subprocess.check_output([sys.executable, "-c", script, place.location], text=True) == "True\n"
    os.write(to_child[1], b"1")
    assert os.read(from_child[0], 1) == bytes([8])
    os.waitpid(child, 0)
    for end in (*to_child, *from_child):
        os.close(end)
    with opened(place) as again:
        assert spend_all(again.account("census")) == 0
