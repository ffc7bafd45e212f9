"""What people are told of a budget: what remains and what would fit, true and not much less than the truth."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

import discreet as dp
from discreet import events as ev
from discreet.accounting.adaptive.advice import largest, room_words, words
from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.adaptive.filter import AdaptiveFilter
from discreet.accounting.adaptive.room import Room
from discreet.accounting.closed_forms import gaussian_noise_multiplier

BUDGETS = [dp.ApproxDP(e, d) for e, d in ((3.0, 1e-6), (0.1, 1e-9), (40.0, 1e-5), (1e-3, 1e-10), (0.0, 1e-6))]
BEFORE = [
    (),
    (ev.Laplace(4000.0),),
    (ev.Gaussian(2000.0), ev.Laplace(9000.0)),
    (ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(20.0)), 20),),
]


@pytest.mark.parametrize("before", BEFORE, ids=len)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_room_that_is_said_is_there_and_a_hundredth_more_is_not(budget, before):
    account = AdaptiveFilter.start(budget)
    for event in before:
        account = account.spend(event) or account
    room = Room.of(account.remaining(), budget.delta)
    assert room.epsilon > 0
    assert account.spend(ev.Claimed(room.epsilon))
    assert account.spend(ev.Repeated(ev.Laplace(7 / room.epsilon), 7))
    assert not account.spend(ev.Claimed(1.01 * room.epsilon))
    if room.gaussian.epsilon > 0:
        assert account.spend(ev.Gaussian(gaussian_noise_multiplier(room.gaussian.epsilon, budget.delta)))
        assert not account.spend(ev.Gaussian(gaussian_noise_multiplier(1.01 * room.gaussian.epsilon, budget.delta)))


def test_an_empty_account_has_room_for_nothing():
    assert room_words(dp.RDP((2.0, 8.0), (0.0, 0.0)), dp.ApproxDP(1.0, 1e-6)) == "nothing"


@pytest.mark.parametrize("left", [dp.PureDP(0.5), dp.ZCDP(0.5), dp.GDP(0.5), dp.RDP((2.0,), (1.0,))], ids=str)
def test_other_budgets_say_what_remains_in_their_own_terms(left):
    assert room_words(left, left) == str(left)
    assert form_of(left).price_words(left, ev.Laplace(1.0), dp.ADD_REMOVE) == str(left)


def test_a_price_is_the_epsilon_that_was_asked_for():
    budget = dp.ApproxDP(3.0, 1e-6)

    def said(event):
        return form_of(budget).price_words(dp.accounting.rdp(event), event, dp.ADD_REMOVE)

    assert said(ev.Composed((ev.Laplace(0.1), ev.Laplace(0.1)))) == "20-DP"
    noise = gaussian_noise_multiplier(20.0, 1e-6)
    assert said(ev.Gaussian(noise)) == "(20, 1e-06)-DP"
    # Many small losses cost less together than their sum.
    small = ev.Repeated(ev.Laplace(20.0), 400)
    assert said(small).startswith("(")
    assert math.isclose(
        dp.accounting.epsilon(small, delta=1e-6).upper, float(said(small)[1:].split(",")[0]), rel_tol=1e-5
    )


REFUSED = [
    (dp.PureDP(1.0), ev.DiscreteLaplace(10240, Fraction(1024)), r"about ε = 1$"),
    (dp.ApproxDP(1.0, 1e-6), ev.DiscreteLaplace(10240, Fraction(1024)), r"about ε = 0\.\d+$"),
    (dp.ApproxDP(1.0, 1e-6), ev.Gaussian(0.1), r"about ε = 0\.\d+ at δ = 1e-06$"),
    (dp.ZCDP(0.5), ev.DiscreteGaussian(4, Fraction(1), 2), r"about ε = \d\.\d+ at δ = 1e-06$"),
    (dp.GDP(1.0), ev.Laplace(0.01), r"about ε = \d\.\d+$"),
    (dp.RDP((2.0, 8.0), (0.1, 0.4)), ev.Gaussian(0.5), r"about ε = \d\.\d+ at δ = 1e-06$"),
    (dp.ApproxDP(1.0, 1e-6), ev.Repeated(ev.Gaussian(40.0), 600), r"73 of these 600 repetitions$"),
]


@pytest.mark.parametrize(("budget", "event", "said"), REFUSED, ids=str)
def test_a_refusal_says_in_epsilon_what_would_fit_and_names_no_event(budget, event, said, tmp_path):
    with dp.Ledger(tmp_path / "a.ledger") as ledger:
        account = ledger.account("a", budget=budget)
        with pytest.raises(dp.errors.BudgetExceeded, match=f"the largest that fits is {said}") as refused:
            account.spend(event)
        assert f"{type(event).__name__}(" not in str(refused.value)
        assert account.would_afford(refused.value.fits)


@pytest.mark.parametrize("budget", [dp.PureDP(1.0), *BUDGETS[:4]], ids=str)
def test_the_epsilon_that_is_said_to_fit_fits(budget):
    account = AdaptiveFilter.start(budget)
    asked = ev.Laplace(1e-3)
    advised = words(asked, largest(asked, lambda event: bool(account.spend(event))), budget)
    epsilon = float(advised.rpartition("ε = ")[2])
    assert account.spend(ev.Laplace(1 / epsilon))
    assert not account.spend(ev.Laplace(1 / (1.01 * epsilon)))


def test_no_amount_fits_an_empty_budget():
    account = AdaptiveFilter.start(dp.PureDP(0.0))
    asked = ev.Laplace(1.0)
    amount = largest(asked, lambda event: bool(account.spend(event)))
    assert words(asked, amount, dp.PureDP(0.0)) == "no amount of it fits"


def test_a_refusal_from_above_does_not_say_that_so_much_remains_here(tmp_path):
    with dp.Ledger(tmp_path / "a.ledger") as ledger:
        whole = ledger.account("whole", budget=dp.ApproxDP(1.0, 1e-6))
        part = whole.allot("part", dp.ApproxDP(2.0, 1e-6))
        with pytest.raises(
            dp.errors.BudgetExceeded, match=r"which 'whole/part' is a part of, .* what remains there is one"
        ):
            part.spend(ev.Laplace(2 / 3))
        with pytest.raises(dp.errors.BudgetExceeded, match=r"and what remains is one more answer of up to ε = 0\.9995"):
            whole.spend(ev.Laplace(2 / 3))
