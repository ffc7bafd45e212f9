"""What an account promises: fixed terms, spends that fit, keys that count once, and sub-accounts bound by the whole."""

from __future__ import annotations

import json
import pickle
import sys
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import discreet as dp
from discreet import events as ev
from discreet.accounting.adaptive.filter import AdaptiveFilter, Refused
from discreet.accounting.tight import epsilon
from discreet.errors import (
    BudgetExceeded,
    DiscreetError,
    Exhausted,
    InvalidArgument,
    KeyReused,
    LedgerUnavailable,
    MissingExtra,
    TermsDiffer,
    UnknownEvent,
)
from discreet.ledger.totals import added, settled

QUARTER = ev.Laplace(4.0)
BUDGETS = [
    dp.PureDP(1.0),
    dp.ApproxDP(3.0, 1e-6),
    dp.ZCDP(0.5),
    dp.GDP(1.5),
    dp.RDP((2.0, 8.0), (1.0, 4.0)),
]


@pytest.fixture
def ledger(place):
    with dp.Ledger(place.location) as opened:
        yield opened


@pytest.fixture
def census(ledger):
    return ledger.account("census", budget=dp.PureDP(1.0))


def spent(account):
    return Fraction(1) - Fraction(account.remaining().epsilon)


# --- opening


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_an_account_reopens_under_its_own_terms(ledger, place, budget):
    opened = ledger.account("census", budget=budget, unit=dp.person("id", max_rows=3), relation=dp.REPLACE_ONE)
    opened.spend(ev.Laplace(100.0))
    with dp.Ledger(place.location, create=False) as again:
        reopened = again.account("census")
        same = again.account("census", budget=budget, unit=dp.person("id", max_rows=3), relation=dp.REPLACE_ONE)
        assert reopened.budget == opened.budget == same.budget
        assert reopened.neighbors == dp.Neighbors(dp.REPLACE_ONE, dp.person("id", max_rows=3))
        assert reopened.remaining() == opened.remaining()
        assert len(reopened.history()) == 2
        assert again.verify()


@pytest.mark.parametrize(
    "terms",
    [
        {"budget": dp.PureDP(2.0)},
        {"budget": dp.ApproxDP(1.0, 1e-6)},
        {"budget": dp.PureDP(1.0), "unit": dp.person("id", max_rows=1)},
        {"budget": dp.PureDP(1.0), "relation": dp.REPLACE_ONE},
        {"unit": dp.person("id", max_rows=1)},
        {"relation": dp.ZERO_OUT},
    ],
    ids=str,
)
def test_other_terms_are_an_error_that_shows_both(ledger, census, terms):
    with pytest.raises(TermsDiffer) as caught:
        ledger.account("census", **terms)
    assert "1-DP" in str(caught.value) or "one row" in str(caught.value)
    assert ledger.account("census").budget == census.budget


def test_an_account_that_is_not_there_needs_a_budget(ledger):
    with pytest.raises(TermsDiffer, match="give a budget"):
        ledger.account("nobody")
    assert ledger.accounts() == ()


def test_accounts_lists_all_of_them(ledger, census):
    census.allot("ann", dp.PureDP(0.5)).allot("intern", dp.PureDP(0.1))
    ledger.account("survey", budget=dp.ZCDP(1.0))
    assert [a.name for a in ledger.accounts()] == ["census", "census/ann", "census/ann/intern", "survey"]


def test_a_budget_that_says_whom_it_protects_opens_such_an_account(ledger):
    neighbors = dp.Neighbors(dp.REPLACE_ONE, dp.rows())
    account = ledger.account("a", budget=dp.PureDP(1.0).protecting(neighbors))
    assert account.neighbors == neighbors
    with pytest.raises(InvalidArgument, match="protect"):
        ledger.account("b", budget=dp.PureDP(1.0).protecting(neighbors), relation=dp.ADD_REMOVE)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "a\0b", "x" * 201, None, 3, "\ud800"], ids=ascii)
def test_a_name_that_is_not_plain_is_refused(ledger, name):
    with pytest.raises(InvalidArgument, match="name must"):
        ledger.account(name, budget=dp.PureDP(1.0))


@pytest.mark.parametrize("budget", [1.0, "PureDP", dp.PureDP(float("inf")), dp.ApproxDP(1.0, 0.0)], ids=str)
def test_what_cannot_be_a_budget_is_refused(ledger, budget):
    with pytest.raises(InvalidArgument):
        ledger.account("census", budget=budget)
    assert ledger.accounts() == ()


@pytest.mark.parametrize("location", ["", ":memory:", "mysql://x/y", "sqlite:///x"])
def test_a_location_that_cannot_keep_a_budget_is_refused(location):
    with pytest.raises(InvalidArgument, match="location must"):
        dp.Ledger(location)


def test_a_missing_ledger_is_not_started_where_that_was_not_asked_for(place):
    with pytest.raises(LedgerUnavailable, match="create=True"):
        dp.Ledger(place.location, create=False)
    assert place.server or list(Path(place.location).parent.iterdir()) == []


# --- spending


def test_a_spend_is_recorded_before_it_returns(census, place):
    receipt = census.spend(QUARTER, purpose="ages", key="k")
    assert (receipt.account, receipt.sequence, receipt.event, receipt.key) == ("census", 1, QUARTER, "k")
    assert receipt.charged.epsilon == 0.25
    with dp.Ledger(place.location) as other:
        entry = other.account("census").history()[-1]
    assert (entry.event, entry.purpose, entry.key, entry.change) == (QUARTER, "ages", "k", (Fraction(1, 4),))
    assert spent(census) == Fraction(1, 4)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_ledger_accepts_what_the_filter_of_accounting_accepts(ledger, budget):
    account, plain = ledger.account("a", budget=budget), AdaptiveFilter.start(budget)
    for event in (ev.Gaussian(3.0), ev.Laplace(4.0), ev.Repeated(ev.Laplace(8.0), 3), ev.Gaussian(2.0)) * 3:
        after = plain.spend(event)
        assert account.would_afford(event) == bool(after)
        if isinstance(after, Refused):
            with pytest.raises(BudgetExceeded):
                account.spend(event)
        else:
            account.spend(event)
            plain = after
        left = account.remaining()
        assert left.protecting(None) == plain.remaining()
    assert ledger.verify()


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize(
    "event",
    [
        ev.Gaussian(0.01),
        ev.Laplace(0.01),
        ev.Repeated(ev.Laplace(10.0), 10**6),
        ev.Repeated(ev.Gaussian(5.0), 10**6),
        ev.DiscreteLaplace(3, Fraction(1, 7)),
        ev.DiscreteGaussian(9, Fraction(1, 7)),
        ev.Exponential(Fraction(100)),
        ev.SparseVector(Fraction(100), 3),
        ev.PoissonSampled(0.5, ev.Laplace(0.01)),
        ev.Composed((ev.Laplace(0.1), ev.Exponential(Fraction(90)))),
        ev.Claimed(1000.0),
        ev.L2Laplace(0.01, 0.02, (99.0,)),
        ev.Group(ev.Laplace(0.1), 3),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_refused_spend_changes_nothing_and_says_what_would_fit(new_sqlite, budget, event):
    with dp.Ledger(new_sqlite().location) as ledger:
        account = ledger.account("a", budget=budget)
        account.spend(ev.Laplace(5.0))
        before = account.history(), account.remaining()
        try:
            with pytest.raises(BudgetExceeded) as caught:
                account.spend(event)
        except UnknownEvent:
            return  # no theorem prices the event in this form of budget: that is a valid refusal too
        assert (account.history(), account.remaining()) == before
        error = caught.value
        assert error.asked == event
        assert error.account == "a"
        assert error.remaining == account.remaining()
        assert "Nothing was charged" in str(error)
        if error.fits is None:
            assert "no amount" in str(error)
            assert isinstance(budget, dp.PureDP) or isinstance(event, ev.Claimed)
            return
        assert type(error.fits) is type(event)
        assert account.would_afford(error.fits)
        if isinstance(event, ev.Repeated) and error.fits.event == event.event:
            assert not account.would_afford(ev.Repeated(event.event, error.fits.count + 1))
        if isinstance(event, ev.Laplace | ev.Gaussian):
            assert not account.would_afford(type(event)(error.fits.noise_multiplier * (1 - 1e-5)))
        account.spend(error.fits)


def test_the_refusal_travels_between_processes(census):
    with pytest.raises(BudgetExceeded) as caught:
        census.spend(ev.Laplace(0.5))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.fits == caught.value.fits == ev.Laplace(1.0)


def test_many_small_spends_cannot_slip_under_the_budget(new_sqlite):
    """In floats, 0.1 + 0.1 + 0.1 > 0.3 and ten times 0.1 is below 1; here, sums are exact."""
    with dp.Ledger(new_sqlite().location) as ledger:
        account = ledger.account("a", budget=dp.PureDP(1.0))
        tiny = ev.Claimed(2.0**-60)
        account.spend(ev.Claimed(1.0 - 2.0**-53))
        for _ in range(128):
            account.spend(tiny)
        assert not account.would_afford(tiny)  # a float sum would not have moved at all


def test_what_fits_only_before_it_is_rounded_for_storage_is_refused(ledger):
    account = ledger.account("c", budget=dp.PureDP(0.3))
    event = ev.Exponential(Fraction(3, 10) - Fraction(1, 3**1000))
    assert not account.would_afford(event)
    with pytest.raises(BudgetExceeded):
        account.spend(event)
    assert ledger.verify()


@pytest.mark.parametrize(
    "event",
    [
        ev.NonPrivate(),
        ev.Insecure(ev.Laplace(1000.0)),
        ev.Repeated(ev.PoissonSampled(0.1, ev.Insecure(ev.Gaussian(10.0))), 3),
        ev.Composed((ev.Laplace(1000.0), ev.NonPrivate())),
    ],
    ids=repr,
)
def test_an_insecure_or_non_private_event_is_refused(census, event):
    assert not census.would_afford(event)
    for attempt in (lambda: census.spend(event), lambda: census.reserve(event, key="k")):
        with pytest.raises(InvalidArgument, match="event must"):
            attempt()
    assert len(census.history()) == 1


def test_an_event_for_another_unit_or_relation_is_refused(census):
    census.spend(QUARTER, neighbors=dp.Neighbors(dp.ADD_REMOVE, dp.rows()))
    for other in (
        dp.Neighbors(dp.REPLACE_ONE, dp.rows()),
        dp.Neighbors(dp.ADD_REMOVE, dp.person("id", max_rows=2)),
    ):
        assert not census.would_afford(QUARTER, neighbors=other)
        with pytest.raises(InvalidArgument, match="neighbors must"):
            census.spend(QUARTER, neighbors=other)
    assert len(census.history()) == 2


def test_an_event_without_a_price_is_refused_by_name(ledger):
    account = ledger.account("a", budget=dp.GDP(1.0))
    event = ev.PoissonSampled(0.1, ev.Gaussian(1.0))
    assert not account.would_afford(event)
    with pytest.raises(UnknownEvent, match="Gaussian"):
        account.spend(event)


def test_events_that_bring_their_own_delta_need_a_part_set_aside(ledger):
    plain = ledger.account("plain", budget=dp.ApproxDP(3.0, 1e-6))
    with pytest.raises(BudgetExceeded, match="brings δ"):
        plain.spend(ev.Claimed(0.5, 1e-7))
    kept = ledger.account("kept", budget=dp.ApproxDP(3.0, 1e-6), aside=2e-7)
    kept.spend(ev.Claimed(0.5, 1e-7))
    kept.spend(ev.Claimed(0.1, 1e-7))
    with pytest.raises(BudgetExceeded, match="brings δ"):
        kept.spend(ev.Claimed(0.01, 1e-12))
    with pytest.raises(TermsDiffer, match="set aside"):
        ledger.account("kept", budget=dp.ApproxDP(3.0, 1e-6))
    assert ledger.verify()


@pytest.mark.parametrize("bad", ["x" * 2001, "a\0b", "\udc00", 3, None], ids=ascii)
def test_a_purpose_that_no_store_can_keep_is_refused(census, bad):
    with pytest.raises(InvalidArgument, match="purpose must"):
        census.spend(QUARTER, purpose=bad)
    assert len(census.history()) == 1


def test_any_other_text_is_kept_as_it_is(ledger):
    account = ledger.account("Zählung ' \" ? %s", budget=dp.PureDP(1.0))
    account.spend(QUARTER, purpose="?; DROP TABLE discreet_entry; -- %s é \u202e", key="' ? %s")
    assert account.spend(QUARTER, key="' ? %s").replayed
    assert account.history()[-1].purpose.startswith("?; DROP TABLE")
    assert ledger.verify()


# --- keys


def test_a_key_counts_once(census):
    first = census.spend(QUARTER, purpose="ages", key="k")
    again = census.spend(ev.Laplace(4), purpose="said otherwise", key="k")
    assert again == first
    assert again.replayed
    assert not first.replayed
    assert spent(census) == Fraction(1, 4)


def test_a_key_that_stands_for_another_event_is_an_error(census):
    census.spend(QUARTER, key="k")
    with pytest.raises(KeyReused, match="another key"):
        census.spend(ev.Laplace(8.0), key="k")
    with pytest.raises(KeyReused):
        census.reserve(QUARTER, key="k")
    assert spent(census) == Fraction(1, 4)


def test_a_key_is_found_even_when_nothing_is_left(census):
    first = census.spend(ev.Laplace(1.0), key="all")
    assert census.spend(ev.Laplace(1.0), key="all") == first


def test_a_key_belongs_to_its_account(census):
    part = census.allot("ann", dp.PureDP(1.0))
    assert not part.spend(QUARTER, key="k").replayed
    assert not census.spend(QUARTER, key="k").replayed
    assert spent(census) == Fraction(1, 2)


@pytest.mark.parametrize("key", ["", "x" * 201, 3, "a\0"], ids=ascii)
def test_a_key_that_is_no_name_is_refused(census, key):
    with pytest.raises(InvalidArgument, match="key must"):
        census.spend(QUARTER, key=key)


# --- parts


def test_a_part_is_charged_to_the_whole(census, ledger):
    ann = census.allot("ann", dp.PureDP(0.5))
    intern = ann.allot("intern", dp.ApproxDP(1.0, 1e-6))
    receipt = intern.spend(QUARTER, purpose="ages")
    assert receipt.account == "census/ann/intern"
    assert spent(census) == Fraction(1, 4)
    assert ann.remaining().epsilon == 0.25
    assert [entry.by for entry in census.history() if entry.event] == ["census/ann/intern"]
    assert ledger.verify()


def test_two_parts_cannot_double_the_whole(census):
    ann, bob = census.allot("ann", dp.PureDP(1.0)), census.allot("bob", dp.PureDP(1.0))
    ann.spend(ev.Laplace(2.0))
    bob.spend(ev.Laplace(2.0))
    for part in (ann, bob):
        assert part.remaining().epsilon == 0.5
        assert not part.would_afford(ev.Laplace(1000.0))
        with pytest.raises(BudgetExceeded, match="'census', which 'census/") as caught:
            part.spend(ev.Laplace(1000.0))
        assert caught.value.account == "census"


def test_a_part_is_bound_by_its_own_budget(census):
    ann = census.allot("ann", dp.PureDP(0.25))
    ann.spend(QUARTER)
    with pytest.raises(BudgetExceeded, match="'census/ann'"):
        ann.spend(ev.Laplace(1000.0))
    census.spend(QUARTER)


def test_a_part_reopens_and_keeps_its_terms(census, ledger):
    made = census.allot("ann", dp.PureDP(0.25))
    made.spend(QUARTER)
    assert census.allot("ann", dp.PureDP(0.25)).remaining().epsilon == 0
    assert ledger.account("census/ann").remaining().epsilon == 0
    with pytest.raises(BudgetExceeded):
        ledger.account("census/ann").spend(QUARTER)
    with pytest.raises(TermsDiffer):
        census.allot("ann", dp.PureDP(0.5))
    with pytest.raises(InvalidArgument):
        census.allot("bob", dp.PureDP(0.5).protecting(dp.Neighbors(dp.REPLACE_ONE)))


# --- reservations

STEP = ev.PoissonSampled(0.01, ev.Gaussian(1.0))
STEPS = {
    dp.PureDP: ev.Laplace(400.0),
    dp.ApproxDP: STEP,
    dp.ZCDP: ev.Gaussian(20.0),
    dp.GDP: ev.Gaussian(30.0),
    dp.RDP: STEP,
}


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_closing_leaves_the_price_of_the_steps_that_started(ledger, budget):
    account, other = ledger.account("a", budget=budget), ledger.account("b", budget=budget)
    step = STEPS[type(budget)]
    for one in (account, other):
        one.spend(ev.Laplace(50.0))
    plan = account.reserve(ev.Repeated(step, 100), key="plan", purpose="training")
    held = account.remaining()
    assert plan.start_block(10) == 10
    assert plan.start_block(7) == 17
    assert account.remaining() == held
    receipt = plan.close()
    assert receipt.event == ev.Repeated(step, 17)
    other.spend(ev.Repeated(step, 17))
    assert account.remaining() == other.remaining()
    assert plan.close() == receipt
    assert account.remaining() == other.remaining()
    assert account.statement().tight == other.statement().tight
    assert ledger.verify()


def test_a_reservation_is_found_again_by_its_key(census, place):
    census.reserve(ev.Repeated(ev.Laplace(100.0), 50), key="plan").start_block(20)
    with dp.Ledger(place.location) as other:
        plan = other.account("census").reserve(ev.Repeated(ev.Laplace(100.0), 50), key="plan")
        assert plan.receipt.replayed
        assert plan.started() == 20
        plan.start_block(30)
    with pytest.raises(Exhausted, match="50 that were reserved"):
        census.reserve(ev.Repeated(ev.Laplace(100.0), 50), key="plan").start_block()


def test_no_step_starts_after_closing_and_none_beyond_the_plan(census):
    plan = census.reserve(ev.Repeated(ev.Laplace(100.0), 5), key="plan")
    with pytest.raises(Exhausted):
        plan.start_block(6)
    assert plan.started() == 0
    plan.start_block(2)
    plan.close()
    with pytest.raises(Exhausted, match="closed"):
        plan.start_block()
    with pytest.raises(InvalidArgument):
        plan.start_block(0)
    assert census.spend(ev.Laplace(100.0)).sequence == 4


def test_a_plan_that_is_not_repeated_is_one_step(census):
    plan = census.reserve(QUARTER, key="a")
    assert plan.steps == 1
    plan.start_block()
    plan.close()
    assert spent(census) == Fraction(1, 4)
    census.reserve(QUARTER, key="b").close()
    assert spent(census) == Fraction(1, 4)


def test_a_part_hands_back_to_the_whole_as_well(census, ledger):
    ann = census.allot("ann", dp.ApproxDP(1.0, 1e-6))
    plan = ann.reserve(ev.Repeated(ev.Laplace(64.0), 32), key="plan")
    assert spent(census) == Fraction(1, 2)
    plan.start_block(8)
    plan.close()
    assert spent(census) == Fraction(1, 8)
    assert ledger.verify()


def test_a_claimed_delta_is_handed_back_with_its_steps(ledger):
    account = ledger.account("a", budget=dp.ApproxDP(3.0, 1e-6), aside=1.01e-7)
    plan = account.reserve(ev.Repeated(ev.Claimed(0.01, 1e-8), 10), key="plan")
    assert not account.would_afford(ev.Claimed(0.01, 1e-8))
    plan.start_block(3)
    plan.close()
    assert account.would_afford(ev.Repeated(ev.Claimed(0.01, 1e-8), 6))
    assert ledger.verify()


def test_where_steps_have_no_finite_price_at_an_order_nothing_comes_back_there(ledger):
    account = ledger.account("a", budget=dp.ApproxDP(3.0, 1e-6))
    huge = ev.Gaussian(1e-140)
    assert not account.would_afford(ev.Repeated(huge, 2))


# --- statements


def test_a_statement_shows_both_figures_and_when_each_holds(ledger):
    account = ledger.account("a", budget=dp.ApproxDP(3.0, 1e-6))
    account.spend(ev.Gaussian(10.0), purpose="ages")
    account.spend(ev.Gaussian(10.0), purpose="hours")
    account.allot("ann", dp.ApproxDP(3.0, 1e-6)).spend(STEP, purpose="model")
    statement = account.statement()
    tight = epsilon(ev.Composed((ev.Repeated(ev.Gaussian(10.0), 2), STEP)), 1e-6)
    assert statement.tight == tight
    assert statement.tight.upper < 3.0
    assert 0 < statement.used < 1
    for words in (
        "whatever is asked next",
        "fixed in advance",
        "ages",
        "a/ann",
        "(3, 1e-06)-DP",
    ):
        assert words in statement.text
    content = json.loads(statement.to_json())
    assert content["tight"]["epsilon"]["upper"] == tight.upper
    assert [charge["code"]["tag"] for charge in content["charges"]] == ["gaussian", "gaussian", "poisson-sampled"]
    assert [row["by"] for row in statement.rows()] == ["a", "a", "a/ann"]
    assert str(statement) == statement.text


def test_a_statement_of_nothing_and_of_what_has_no_tight_figure(ledger):
    account = ledger.account("a", budget=dp.PureDP(3.0))
    assert account.statement().tight.upper == 0
    assert account.statement(delta=1e-9).delta == 1e-9
    account.spend(ev.Shuffled(100, ev.Laplace(10.0))) if account.would_afford(
        ev.Shuffled(100, ev.Laplace(10.0))
    ) else account.spend(ev.Group(ev.PoissonSampled(0.1, ev.Laplace(10.0)), 3))
    statement = account.statement()
    assert (statement.tight is None) == ("no tight figure" in statement.text)


def test_the_clock_is_for_people_alone(place):
    times = iter([2030, 2020, 1999, 2025])
    with dp.Ledger(place.location, clock=lambda: datetime(next(times), 1, 1, tzinfo=UTC)) as ledger:
        account = ledger.account("a", budget=dp.PureDP(1.0))
        for _ in range(3):
            account.spend(QUARTER)
        assert [entry.time[:4] for entry in account.history()] == ["2030", "2020", "1999", "2025"]
        assert [entry.sequence for entry in account.history()] == [0, 1, 2, 3]
        assert ledger.verify()


def test_every_error_is_a_discreet_error_and_holds_no_password():
    with pytest.raises(DiscreetError) as caught:
        dp.Ledger("postgresql://user:secret@127.0.0.1:1/none", timeout=0.2)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value)


def test_without_psycopg_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'discreet\[ledger\]'"):
        dp.Ledger("postgresql://db/privacy")


@given(st.fractions(), st.fractions())
def test_sums_are_those_of_fractions(one, two):
    for a, b in ((one, two), (Fraction(float(one)), Fraction(float(two))), (one, -one)):
        assert added(a.as_integer_ratio(), b.as_integer_ratio()) == (a + b).as_integer_ratio()


def test_totals_do_not_grow_without_bound():
    total = Fraction(0)
    for k in range(3, 2000, 2):
        exact = total + Fraction(1, k**2)
        total = Fraction(*settled(exact.as_integer_ratio()))
        assert exact <= total <= exact + Fraction(1, 2**1200)
    assert total.denominator.bit_length() <= 1201
