"""No sequence of spends, crashes, retries, sub-accounts and plans records less than was released or breaks the budget.

The machine keeps its own count of releases: a spend is released once its receipt is returned, a step of a plan once its
block was started. A crash is an error raised at a random step of the transaction, before or after the commit.
"""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import discreet as dp
from discreet import events as ev
from discreet.accounting.forms.gdp import mu_squared
from discreet.accounting.forms.rdp import rdp
from discreet.errors import BudgetExceeded, Exhausted, KeyReused
from discreet.ledger import Receipt
from tests.ledger.places import memory

STEPS = ["priced", "locked", "checked", "recorded", "recorded above", "committing", "committed", "returning"]
MULTIPLIERS = st.sampled_from([4.0, 7.0, 16.0, 64.0, 1000.0])
PURE_STEP, GAUSSIAN_STEP = ev.Laplace(50.0), ev.Gaussian(40.0)


class Crash(Exception):
    """To the caller, it looks as if the process died here."""


class Machine(RuleBasedStateMachine):
    """One dataset's budget, its sub-accounts, and everything that can happen to them."""

    budget = dp.PureDP(2.0)
    event = ev.Laplace
    step = PURE_STEP
    make_location = None

    def __init__(self):
        super().__init__()
        self.crash_at = None
        self.folder = tempfile.mkdtemp(dir=memory())
        self.location = type(self).make_location(self.folder)
        self.released = {}  # the event of each release, by the name of the release
        self.plans = {}  # key → [reservation, steps reserved, steps started]
        self.keys = {}
        self.number = 0
        self.last = []

    def teardown(self):
        self.ledger.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @initialize()
    def begin(self):
        self.open()

    def open(self):
        self.ledger = dp.Ledger(self.location, on_step=self.on_step)
        census = self.ledger.account("census", budget=self.budget)
        self.parts = {None: census}
        for name in ("ann", "bob"):
            self.parts[name] = census.allot(name, self.budget)

    def on_step(self, name):
        if name == self.crash_at:
            self.crash_at = None
            raise Crash(name)

    def attempt(self, crash, work):
        """Run `work`, which may crash at the step `crash`; None if no receipt was returned, so nothing is released."""
        self.crash_at = crash
        try:
            return work()
        except (Crash, BudgetExceeded, Exhausted):
            return None
        finally:
            self.crash_at = None

    @rule(part=st.sampled_from([None, "ann", "bob"]), multiplier=MULTIPLIERS, crash=st.none() | st.sampled_from(STEPS))
    def spend(self, part, multiplier, crash):
        event = self.event(multiplier)
        self.number += 1
        if (receipt := self.attempt(crash, lambda: self.parts[part].spend(event))) is not None:
            self.released[self.number] = event
            self.last = [receipt] if isinstance(receipt, Receipt) else []

    @rule(
        part=st.sampled_from([None, "ann", "bob"]),
        multiplier=MULTIPLIERS,
        key=st.sampled_from("abcdef"),
        crash=st.none() | st.sampled_from(STEPS),
    )
    def spend_with_a_key(self, part, multiplier, key, crash):
        """A retry may come at any time, and it releases the same answer."""
        event = self.event(multiplier)
        try:
            receipt = self.attempt(crash, lambda: self.parts[part].spend(event, key=key))
        except KeyReused:
            assert self.keys.get((part, key)) != event
            return
        self.keys.setdefault((part, key), event if receipt else None)
        if receipt is not None:
            assert receipt.event == event
            self.released[part, key] = event
            self.keys[part, key] = event
        else:
            # It is not known whether the key was recorded.
            self.keys[part, key] = self.released.get((part, key))

    @rule(part=st.sampled_from([None, "ann"]), count=st.integers(1, 12), crash=st.none() | st.sampled_from(STEPS))
    def reserve(self, part, count, crash):
        key = f"plan {len(self.plans)}"
        work = lambda: self.parts[part].reserve(ev.Repeated(self.step, count), key=key)  # noqa: E731
        plan = self.attempt(crash, work)
        if plan is None and crash is not None:
            plan = self.attempt(None, work)  # the retry finds the reservation, or makes it now
        if plan is not None:
            self.plans[key] = [plan, count, 0]

    @rule(data=st.data(), steps=st.integers(1, 5), crash=st.none() | st.sampled_from(STEPS))
    def start(self, data, steps, crash):
        if self.plans:
            plan = self.plans[data.draw(st.sampled_from(sorted(self.plans)))]
            if self.attempt(crash, lambda: plan[0].start_block(steps)) is not None:
                plan[2] += steps

    @rule(data=st.data(), crash=st.none() | st.sampled_from(STEPS))
    def close(self, data, crash):
        if self.plans:
            plan = self.plans[data.draw(st.sampled_from(sorted(self.plans)))]
            self.attempt(crash, plan[0].close)

    @rule()
    def restart(self):
        self.ledger.close()
        self.open()
        for key, (plan, count, started) in self.plans.items():
            part = plan.receipt.account.partition("/")[2] or None
            again = self.parts[part].reserve(ev.Repeated(self.step, count), key=key)
            assert again.receipt.replayed
            assert again.started() >= started
            self.plans[key][0] = again

    @invariant()
    def the_total_covers_what_was_released_and_fits_the_budget(self):
        if not hasattr(self, "ledger"):
            return
        census = self.parts[None]
        standing = census._terms.filter(census._standing()[-1])
        left = [*self.released.values(), *(ev.Repeated(self.step, started) for _, _, started in self.plans.values())]
        totals = [Fraction(0)] * len(standing.limits)
        for event in left:
            for i, price in enumerate(self.prices(event, standing)):
                totals[i] += price
        alive = []
        for total, recorded, limit in zip(totals, standing.spent, standing.limits, strict=True):
            if recorded is not None:
                assert total <= recorded
                alive.append(recorded <= limit)
        assert any(alive) if isinstance(self.budget, dp.ApproxDP) else all(alive)

    @invariant()
    def the_ledger_agrees_with_itself(self):
        if hasattr(self, "ledger") and self.number % 5 == 0:
            verification = self.ledger.verify(self.last)
            assert verification, str(verification)

    @staticmethod
    def prices(event, standing):
        """The price of an event, computed without the ledger: the price of one repetition, times the count."""
        count, one = (event.count, event.event) if isinstance(event, ev.Repeated) else (1, event)
        match standing.budget:
            case dp.PureDP():
                single = [Fraction(1) / Fraction(one.noise_multiplier)]
            case dp.GDP():
                single = [mu_squared(one)]
            case _:
                single = [Fraction(e) for e in rdp(one, standing.orders).epsilons]
        return [count * price for price in single]


class GaussianMachine(Machine):
    budget = dp.ApproxDP(1.0, 1e-6)
    event = ev.Gaussian
    step = GAUSSIAN_STEP


class GDPMachine(Machine):
    budget = dp.GDP(0.5)
    event = ev.Gaussian
    step = GAUSSIAN_STEP


def play(machine, location, examples, steps, *, shrink=True):
    machine.make_location = staticmethod(location)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        ),
    )


MACHINES = [Machine, GaussianMachine, GDPMachine]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.__name__)
def test_no_sequence_breaks_the_ledger(machine):
    play(machine, lambda folder: f"{folder}/x.ledger", 6, 25)


def test_no_sequence_breaks_the_ledger_in_postgres(new_postgres):
    play(GaussianMachine, lambda folder: new_postgres().location, 3, 25)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.__name__)
def test_no_long_sequence_breaks_the_ledger(machine):
    play(machine, lambda folder: f"{folder}/x.ledger", 120, 50)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.__name__)
def test_no_long_sequence_breaks_the_ledger_in_postgres(machine, new_postgres):
    play(machine, lambda folder: new_postgres().location, 30, 40)
