"""Mistakes that a ledger could make. The tests must fail on each of them, or they would prove nothing."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis.errors import Flaky

import discreet as dp
from discreet.errors import BudgetExceeded, DiscreetError
from discreet.ledger import account, charging, terms, totals, verify
from discreet.ledger.chain import digest
from discreet.ledger.stores import records
from discreet.ledger.stores.sqlite import SQLiteStore, SQLiteTransaction
from tests.ledger import test_accounts, test_machine, test_verify

# Flaky: the mutant also broke hypothesis' replay of the failure, so it was caught.
# LookupError: code looked for what the mutant left out.
FAILURES = (AssertionError, DiscreetError, pytest.fail.Exception, Flaky, LookupError)


def the_machine(kind=test_machine.Machine, examples=300):
    """Play random histories up to four times; the first failure ends the check."""

    def check(place, ledger):
        for _ in range(4):
            test_machine.play(kind, lambda folder: f"{folder}/x.ledger", examples, 30, shrink=False)

    return check


def one_too_many(account):
    for _ in range(10):
        account.spend(dp.events.Laplace(10.0))
    with pytest.raises(BudgetExceeded):
        account.spend(dp.events.Laplace(10.0))


def with_census(check):
    return lambda place, ledger: check(ledger.account("census", budget=dp.PureDP(1.0)))


def tampered(kind):
    def check(place, ledger):
        fill(ledger)
        test_verify.test_tampering_is_found_where_it_was_done(ledger, place, kind)

    return check


def fill(ledger):
    census = ledger.account("census", budget=dp.PureDP(8.0))
    for purpose in ("ages", "hours", "wages", "towns"):
        census.spend(dp.events.Laplace(4.0), purpose=purpose, key=purpose.upper())
    ann = census.allot("ann", dp.PureDP(2.0))
    ann.spend(dp.events.Laplace(8.0), purpose="model")
    plan = ann.reserve(dp.events.Repeated(dp.events.Laplace(100.0), 50), key="plan")
    plan.start_block(20)
    plan.close()


def charge_after_release(patch):
    """Return the receipt first, and charge at the next call, if there is one."""
    pending = []
    spend = account.Account.spend

    def late(self, event, purpose="", key=None, neighbors=None):
        for work in pending:
            work()
        pending[:] = [lambda: spend(self, event, purpose, key, neighbors)]
        return test_machine  # anything that is not None lets the caller release

    patch.setattr(account.Account, "spend", late)


def key_ignored(patch):
    request = account.Account._request
    patch.setattr(
        account.Account,
        "_request",
        lambda self, kind, event, purpose, key, steps: request(self, kind, event, purpose, None, steps),
    )


def parent_not_charged(patch):
    charge = charging.charge
    patch.setattr(
        charging,
        "charge",
        lambda transaction, path, *rest: charge(transaction, path[-1:], *rest),
    )


def hash_not_checked(patch):
    class Same(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            return True

        def __ne__(self, other):
            return False

    patch.setattr(verify, "digest", lambda body: Same(digest(body)))


def seal_not_checked(patch):
    patch.setattr(records.AccountRow, "intact", lambda self: True)


def float_sums(patch):
    patch.setattr(totals, "settled", lambda total: Fraction(float(Fraction(*total))).as_integer_ratio())


def all_steps_handed_back(patch):
    handed_back = charging.handed_back
    patch.setattr(charging, "handed_back", lambda terms, reserved, step, ran: handed_back(terms, reserved, step, 0))


def steps_not_counted(patch):
    patch.setattr(charging, "start", lambda transaction, terms, reservation, steps, *rest: steps)


def refusal_ignored(patch):
    patch.setattr(terms.Terms, "fits", lambda self, state: True)


def commit_forgotten(patch):
    """Roll back every seventh transaction, like a commit that never reached the disk."""

    def write(self, work, *, keyed=False):
        connection, epoch = self._pool.take()
        connection.execute("BEGIN IMMEDIATE")
        try:
            return work(SQLiteTransaction(connection))
        finally:
            connection.execute("ROLLBACK")
            self._pool.give_back(connection, epoch)

    real = SQLiteStore.write
    calls = []

    def sometimes(self, work, *, keyed=False):
        calls.append(1)
        return (write if len(calls) % 7 == 0 else real)(self, work, keyed=keyed)

    patch.setattr(SQLiteStore, "write", sometimes)


def rounded_down(patch):
    patch.setattr(totals, "settled", lambda total: Fraction(int(Fraction(*total) * 64), 64).as_integer_ratio())


small_spends = test_accounts.test_many_small_spends_cannot_slip_under_the_budget

MUTANTS = {
    "charge after release": (charge_after_release, the_machine()),
    "key ignored": (key_ignored, with_census(test_accounts.test_a_key_counts_once)),
    "key ignored, by any history": (key_ignored, the_machine()),
    "parent not charged": (parent_not_charged, the_machine()),
    "parent not charged, two parts": (
        parent_not_charged,
        with_census(test_accounts.test_two_parts_cannot_double_the_whole),
    ),
    "hash not checked": (hash_not_checked, tampered("edited text")),
    "seal not checked": (seal_not_checked, tampered("seal")),
    "float sums": (float_sums, lambda place, ledger: small_spends(lambda: beside(place))),
    "all steps handed back": (
        all_steps_handed_back,
        lambda place, ledger: test_accounts.test_closing_leaves_the_price_of_the_steps_that_started(
            ledger, dp.PureDP(1.0)
        ),
    ),
    "all steps handed back, Gaussian": (
        all_steps_handed_back,
        lambda place, ledger: test_accounts.test_closing_leaves_the_price_of_the_steps_that_started(
            ledger, dp.ApproxDP(3.0, 1e-6)
        ),
    ),
    "steps not counted": (steps_not_counted, the_machine()),
    "refusal ignored": (refusal_ignored, with_census(one_too_many)),
    "commit forgotten": (commit_forgotten, the_machine()),
    "totals rounded down": (rounded_down, the_machine(test_machine.GDPMachine)),
}


def beside(place):
    """Another file next to the test's own."""
    return type(place)(place.location + ".other")


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(new_sqlite, monkeypatch, name):
    mutate, check = MUTANTS[name]
    place = new_sqlite()
    with dp.Ledger(place.location) as ledger, monkeypatch.context() as patch:
        mutate(patch)
        with pytest.raises(BaseException) as caught:
            check(place, ledger)
    assert isinstance(caught.value, FAILURES), caught.value


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_mutation_the_same_check_passes(new_sqlite, name):
    place = new_sqlite()
    with dp.Ledger(place.location) as ledger:
        if "machine" not in MUTANTS[name][1].__qualname__:
            MUTANTS[name][1](place, ledger)
