"""Charges to parts of partitions: the costliest ones count, at each order, whatever the order of the charges."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, InvalidArgument, KeyReused, NotALedger, TermsDiffer
from discreet.ledger import Part, partitions
from discreet.ledger.terms import Terms
from discreet.neighbors import Neighbors

JAN, FEB, MAR = (Part("month", month, 1, "by month") for month in ("jan", "feb", "mar"))
BUDGETS = [dp.PureDP(10.0), dp.ZCDP(5.0), dp.GDP(4.0), dp.ApproxDP(8.0, 1e-6), dp.RDP((2.0, 8.0), (5.0, 50.0))]
PERSON = dp.person("who", max_rows=3)


def wide(key, partition="month"):
    return Part(partition, key, 2, f"by {partition}")


@pytest.fixture
def ledger(tmp_path):
    with dp.Ledger(tmp_path / "a.ledger") as opened:
        yield opened


@pytest.fixture
def account(ledger):
    return ledger.account("a", dp.PureDP(1.0))


def ledger_with(path, *parts):
    """A ledger whose account paid a quarter of its budget for each of `parts`; where it lies."""
    with dp.Ledger(path) as ledger:
        account = ledger.account("a", dp.PureDP(1.0))
        for part in parts:
            account.spend(ev.Laplace(4.0), part=part)
    return path


def edit(path, column, where, old, new):
    """Replace text in a column behind the ledger's back; what it was before."""
    with sqlite3.connect(path) as raw:
        (before,) = raw.execute(f"SELECT {column} FROM {where}").fetchone()
        table, _, condition = where.partition(" WHERE ")
        raw.execute(f"UPDATE {table} SET {column} = ? WHERE {condition or 1}", [before.replace(old, new)])
    return before


def event_of(budget, size):
    return ev.Laplace(float(size)) if isinstance(budget, dp.PureDP) else ev.Gaussian(float(size))


def brute(terms, charges, most):
    """At each order, the largest sum that one unit can be in: over all choices of parts, by hand."""
    by_part: dict = {}
    for part, event in charges:
        name = (None, None) if part is None else (part.partition, part.key)
        by_part.setdefault(name, []).append(terms.price(event)[0])
    totals = []
    for order in range(len(terms.limits)):
        sums = {name: sum((price[order] for price in prices), Fraction(0)) for name, prices in by_part.items()}
        total = sums.pop((None, None), Fraction(0))
        for partition in {name for name, _ in sums}:
            own = [amount for (name, _), amount in sums.items() if name == partition]
            total += max(sum(chosen, Fraction(0)) for n in range(most + 1) for chosen in combinations(own, n))
        totals.append(total)
    return totals


charge = st.tuples(
    st.one_of(st.none(), st.builds(wide, st.sampled_from("abcd"), st.sampled_from(["month", "ward"]))),
    st.integers(30, 60),
)


@pytest.mark.parametrize("relation", [dp.ADD_REMOVE, dp.REPLACE_ONE])
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda budget: type(budget).__name__)
@given(charges=st.lists(charge, max_size=8))
@settings(max_examples=10, deadline=None)
def test_totals_are_the_largest_that_one_unit_can_be_in(budget, relation, charges):
    terms = Terms.start("a", None, budget, Neighbors(relation, PERSON))
    events = [(part, event_of(budget, size)) for part, size in charges]
    totals = terms.beginning()
    for part, event in events:
        after = terms.after(totals, terms.priced(event), part)
        assert after is not None
        counted = terms.filter(totals, part).spend(event)
        assert counted, "the filter for a part decides as the account does"
        totals = partitions.totals_of_text(after.text())
        assert totals.text() == after.text()
    assert list(totals.spent) == brute(terms, events, 2 if relation is dp.ADD_REMOVE else 4)


def test_the_costliest_part_may_be_another_one_at_each_order(ledger):
    account = ledger.account("a", dp.ApproxDP(8.0, 1e-6))
    account.spend(ev.Gaussian(4.0), part=JAN)
    account.spend(ev.Laplace(1.9), part=FEB)
    terms = account._terms
    first, second = (terms.price(event)[0] for event in (ev.Gaussian(4.0), ev.Laplace(1.9)))
    assert account._standing()[-1].spent == tuple(max(pair) for pair in zip(first, second, strict=True))
    assert first[0] < second[0] or first[-1] > second[-1]
    assert ledger.verify()


def test_sub_accounts_share_the_parts_of_the_account_above(ledger, account):
    ann, bob = (account.allot(name, dp.PureDP(1.0)) for name in ("ann", "bob"))
    ann.spend(ev.Laplace(4.0), part=JAN)
    bob.spend(ev.Laplace(4.0), part=FEB)
    assert account.remaining().epsilon == 0.75
    bob.spend(ev.Laplace(4.0), part=JAN)
    assert account.remaining().epsilon == 0.5
    assert bob.remaining().epsilon == 0.75
    assert ledger.verify()


def test_a_refusal_says_what_the_part_has_left_and_changes_nothing(account):
    account.spend(ev.Laplace(2.0), part=JAN)
    assert account.remaining(FEB).epsilon == 1.0
    assert account.would_afford(ev.Laplace(1.0), part=FEB)
    assert not account.would_afford(ev.Laplace(1.0))
    with pytest.raises(BudgetExceeded) as refused:
        account.spend(ev.Repeated(ev.Laplace(4.0), 5), part=FEB)
    assert refused.value.fits == ev.Repeated(ev.Laplace(4.0), 4)
    assert account.remaining().epsilon == 0.5
    account.spend(ev.Laplace(1.0), part=FEB)
    assert account.remaining().epsilon == 0.0
    assert account.remaining_after(ev.Laplace(2.0), JAN).epsilon == 0.0


def test_the_delta_of_the_costliest_part_counts(ledger):
    account = ledger.account("a", dp.ApproxDP(8.0, 1e-5), aside=3e-6)
    for part in (JAN, FEB, JAN, FEB):
        account.spend(ev.Claimed(0.1, 1e-6), part=part)
    account.spend(ev.Claimed(0.1, 1e-6))
    with pytest.raises(BudgetExceeded, match="aside"):
        account.spend(ev.Claimed(0.1, 1e-6), part=FEB)
    account.spend(ev.Claimed(0.1, 1e-6), part=MAR)
    assert account._standing()[-1].claimed == 3 * Fraction(repr(1e-6)) or account._standing()[-1].claimed <= 3e-6


def test_a_name_stands_for_one_definition(ledger):
    account = ledger.account("a", dp.PureDP(1.0), unit=PERSON)
    account.spend(ev.Laplace(4.0), part=JAN)
    for other in (Part("month", "jan", 1, "otherwise"), Part("month", "feb", 2, "by month")):
        with pytest.raises(TermsDiffer, match="another definition"):
            account.spend(ev.Laplace(4.0), part=other)
    assert account.remaining().epsilon == 0.75
    assert len(account.history()) == 2


def test_a_row_lies_in_one_part(account):
    with pytest.raises(InvalidArgument, match="rows are protected"):
        account.spend(ev.Laplace(4.0), part=wide("jan"))
    with pytest.raises(InvalidArgument, match="part of a partition"):
        account.spend(ev.Laplace(4.0), part="jan")


def test_a_key_pays_for_one_part(account):
    first = account.spend(ev.Laplace(4.0), key="monday", part=JAN)
    assert account.spend(ev.Laplace(4.0), key="monday", part=JAN) == first
    assert first.entry.part == JAN
    for other in (FEB, None):
        with pytest.raises(KeyReused):
            account.spend(ev.Laplace(4.0), key="monday", part=other)
    assert account.remaining().epsilon == 0.75


def test_reservations_and_parts_add_up(ledger, account):
    account.spend(ev.Laplace(4.0), part=JAN)
    plan = account.reserve(ev.Repeated(ev.Laplace(16.0), 4), key="plan")
    assert account.remaining().epsilon == 0.5
    plan.start_block(1)
    plan.close()
    assert account.remaining().epsilon == pytest.approx(0.6875)
    assert ledger.verify()
    assert account.statement().lines[0].part == "month: jan"


def test_an_edit_of_parts_is_found(tmp_path):
    path = ledger_with(tmp_path / "a.ledger", JAN, FEB)
    state = edit(path, "state", "discreet_account", '"feb"', '"mar"')
    with dp.Ledger(path) as ledger:
        assert "totals" in str(ledger.verify()) or "seal" in str(ledger.verify())
    with pytest.raises(NotALedger):
        partitions.totals_of_text(state.replace('"most":1', '"most":0'))


def test_a_charge_moved_to_another_part_breaks_the_chain(tmp_path):
    path = ledger_with(tmp_path / "a.ledger", JAN, JAN)
    edit(path, "body", "discreet_entry WHERE sequence = 2", '"jan"', '"feb"')
    with dp.Ledger(path) as ledger:
        assert not ledger.verify()


def test_a_mutant_that_counts_one_part_under_replace_one_is_caught(monkeypatch):
    monkeypatch.setattr(partitions, "counted_parts", lambda max_parts, relation: max_parts)
    terms = Terms.start("a", None, BUDGETS[0], Neighbors(dp.REPLACE_ONE, dp.rows()))
    charges = [(JAN, ev.Laplace(4.0)), (FEB, ev.Laplace(4.0))]
    totals = terms.beginning()
    for part, event in charges:
        totals = terms.after(totals, terms.priced(event), part)
    assert list(totals.spent) != brute(terms, charges, 2)
