"""A crash or an error at any instant loses no release, and leaves a whole entry or none."""

from __future__ import annotations

import os
import random
import signal
import time
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dp
from discreet import events as ev
from tests.ledger.faults import AFTER, BEFORE, STEP, hooked, in_child, killer, opened, spent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def part(place):
    """The name of a sub-account with a budget of 500/64, in an account with 1000/64."""
    with opened(place) as ledger:
        ledger.account("census", budget=dp.PureDP(1000 / 64)).allot("ann", dp.PureDP(500 / 64))
    return "census/ann"


@pytest.mark.parametrize("step", BEFORE + AFTER)
def test_a_kill_at_any_step_leaves_all_or_nothing(place, part, step):
    for attempt in range(4):
        key = f"{step} {attempt}"

        def victim(key=key):
            with opened(place, on_step=killer(step)) as ledger:
                ledger.account(part).spend(STEP, key=key)
            os._exit(99)  # here the release would follow

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
            hooked(ledger, killer(step))
            plan.start_block(10)
        os._exit(99)

    def close():
        with opened(place) as ledger:
            plan = ledger.account(part).reserve(ev.Repeated(STEP, 100), key="plan")
            hooked(ledger, killer(step))
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
    """Spend forever; write a byte to `log` for each release, which always follows a receipt."""
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
        if number % 2:  # kill it while it spends; otherwise perhaps while it opens the ledger
            released += len(os.read(read, 1))
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
        hooked(ledger, on_step)
        with pytest.raises(Broken):
            ann.spend(STEP, key="k")
        failing[0] = False
        assert spent(ann) == spent(ledger.account("census")) == (Fraction(1, 64) if step in AFTER else 0)
        assert ann.spend(STEP, key="k").replayed == (step in AFTER)
        assert spent(ann) == spent(ledger.account("census")) == Fraction(1, 64)
        assert ledger.verify()
