"""Filters: adaptive spending never passes the budget, and a refusal changes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import events as ev
from discreet.accounting.adaptive.filter import AdaptiveFilter, Refused
from discreet.accounting.adaptive.orders import default_orders, shares
from discreet.accounting.forms.conversions import order_delta, rdp_epsilon, zcdp_epsilon
from discreet.accounting.forms.rdp import rdp
from discreet.errors import InvalidArgument
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import REPLACE_ONE, ZERO_OUT

BUDGETS: list[Guarantee] = [
    PureDP(1.0),
    ZCDP(0.5),
    GDP(1.0),
    RDP((2.0, 8.0), (1.0, 4.0)),
    ApproxDP(1.0, 1e-6),
]


@dataclass(frozen=True)
class Novel(ev.Event):
    """An event that no accountant has met."""


def _spend(account: AdaptiveFilter, event: ev.Event) -> AdaptiveFilter:
    after = account.spend(event)
    assert isinstance(after, AdaptiveFilter), str(after)
    return after


def _most(account: AdaptiveFilter, event: ev.Event, limit: int = 100_000) -> int:
    for count in range(limit):
        after = account.spend(event)
        if isinstance(after, Refused):
            return count
        account = after
    raise AssertionError("the filter never refuses")


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_refused_spend_leaves_the_filter_as_it_was(budget: Guarantee) -> None:
    account = _spend(AdaptiveFilter.start(budget), ev.Laplace(10.0))
    before = account.remaining()
    refusal = account.spend(ev.Laplace(0.01))
    assert isinstance(refusal, Refused)
    assert not refusal
    assert refusal.asked == ev.Laplace(0.01)
    assert refusal.remaining == before == account.remaining()
    assert "refused" in str(refusal)
    assert isinstance(account.spend(ev.Laplace(100.0)), AdaptiveFilter)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("event", [ev.NonPrivate(), ev.Insecure(ev.Laplace(1e9)), ev.Claimed(0.0, 1e-12)])
def test_what_has_no_price_is_refused_at_any_budget(budget: Guarantee, event: ev.Event) -> None:
    assert isinstance(AdaptiveFilter.start(budget).spend(event), Refused)


@pytest.mark.parametrize("budget", BUDGETS)
def test_what_no_theorem_prices_is_refused_by_name(budget: Guarantee) -> None:
    refusal = AdaptiveFilter.start(budget).spend(ev.Composed((ev.Laplace(1e9), Novel())))
    assert isinstance(refusal, Refused)
    assert "Novel" in refusal.reason
    assert refusal.price is None


def test_ten_tenths_of_a_budget_do_not_fit_because_a_tenth_is_more_than_a_tenth() -> None:
    account = AdaptiveFilter.start(PureDP(1.0))
    assert _most(account, ev.Claimed(0.1)) == 9
    assert Fraction(0.1) * 10 > 1
    assert _most(account, ev.Exponential(Fraction(1, 8))) == 8


def test_a_drop_is_never_lost_beside_a_large_spend() -> None:
    account = _spend(AdaptiveFilter.start(PureDP(1e16)), ev.Claimed(1e16 - 2))
    assert _most(account, ev.Claimed(0.25)) == 8
    account = _spend(AdaptiveFilter.start(ZCDP(2.0**53)), ev.Gaussian(2.0**-27))
    assert _most(account, ev.Gaussian(2.0**20), 10) == 0


def test_a_zcdp_budget_is_a_sum_and_may_be_spent_to_the_end() -> None:
    account = AdaptiveFilter.start(ZCDP(0.5))
    assert _most(account, ev.Gaussian(2.0)) == 4
    rest = _spend(account, ev.Gaussian(2.0)).remaining()
    assert isinstance(rest, ZCDP)
    assert rest.rho == 0.375


def test_a_gdp_budget_is_a_sum_of_squares_and_takes_gdp_events_alone() -> None:
    account = AdaptiveFilter.start(GDP(1.0))
    assert _most(account, ev.Gaussian(2.0)) == 4
    assert _most(AdaptiveFilter.start(GDP(3.0)), ev.Gaussian(2.0)) == 36
    assert isinstance(account.spend(ev.PoissonSampled(1e-6, ev.Gaussian(100.0))), Refused)
    assert isinstance(account.spend(ev.Laplace(10.0)), AdaptiveFilter)
    rest = _spend(account, ev.Gaussian(2.0)).remaining()
    assert isinstance(rest, GDP)
    assert 0 <= Fraction(3, 4) - Fraction(rest.mu) ** 2 < Fraction(1, 10**12)


def test_an_rdp_budget_needs_room_at_every_order() -> None:
    account = AdaptiveFilter.start(RDP((2.0, 8.0), (1.0, 1.0)))
    assert isinstance(account.spend(ev.Gaussian(2.0)), AdaptiveFilter)
    assert isinstance(account.spend(ev.Gaussian(1.9)), Refused)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.05, 1e-6), (1.0, 1e-6), (3.0, 1e-9), (20.0, 1e-5), (1.0, 1e-30)])
@pytest.mark.parametrize("orders", [None, (5.0,), (2.0, 8.0, 64.0)])
def test_the_orders_together_use_all_of_delta_and_no_more(
    epsilon: float, delta: float, orders: tuple[float, ...] | None
) -> None:
    account = AdaptiveFilter.start(ApproxDP(epsilon, delta), orders=orders)
    with mpmath.workdps(50):
        used = mpmath.mpf(0)
        for order, limit in zip(account.orders, account.limits, strict=True):
            a = mpmath.mpf(order)
            gap = mpmath.mpf(limit.numerator) / limit.denominator - mpmath.mpf(epsilon)
            used += mpmath.exp((a - 1) * gap) * (1 - 1 / a) ** a / (a - 1)
        assert used <= mpmath.mpf(delta)
        assert used >= mpmath.mpf(delta) * mpmath.mpf("0.999999")


@given(st.floats(1e-30, 0.5), st.integers(1, 40))
def test_shares_of_delta_never_exceed_it(delta: float, count: int) -> None:
    parts = shares(delta, count)
    assert len(parts) == count
    assert sum(Fraction(part) for part in parts) <= Fraction(delta)
    assert sum(Fraction(part) for part in parts) >= Fraction(delta) * Fraction(999999, 1000000)


def test_an_approximate_budget_lasts_while_one_order_has_room() -> None:
    account = AdaptiveFilter.start(ApproxDP(1.0, 1e-6), orders=(20.0, 1000.0))
    account = _spend(account, ev.Laplace(1.1))
    assert any(total > limit for total, limit in zip(account.spent, account.limits, strict=True) if total is not None)
    assert any(total <= limit for total, limit in zip(account.spent, account.limits, strict=True) if total is not None)
    left = account.remaining()
    assert isinstance(left, RDP)
    assert 0.0 in left.epsilons
    assert max(left.epsilons) > 0


@pytest.mark.parametrize(
    ("event", "share"),
    [
        (ev.Gaussian(20.0), 0.94),
        (ev.Laplace(40.0), 0.94),
        (ev.Laplace(2.2), 0.90),
        (ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(4.0)), 200), 0.9),
    ],
)
def test_an_approximate_budget_comes_close_to_a_plan_made_in_advance(event: ev.Event, share: float) -> None:
    budget = ApproxDP(1.0, 1e-6)
    count = _most(AdaptiveFilter.start(budget), event)
    planned = rdp_epsilon(rdp(ev.Repeated(event, count)), budget.delta)
    assert planned <= budget.epsilon
    assert planned >= share * budget.epsilon


@given(st.lists(st.sampled_from([3.0, 7.0, 20.0, 60.0]), max_size=60), st.integers(0, 2**30))
@settings(max_examples=30, deadline=None)
def test_whatever_is_accepted_is_within_the_budget_at_the_surviving_order(noises: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    budget = ApproxDP(1.0, 1e-6)
    account = AdaptiveFilter.start(budget)
    accepted: list[ev.Event] = []
    for noise in noises:
        event = ev.Gaussian(noise) if rng.random() < 0.5 else ev.Laplace(noise)
        after = account.spend(event)
        if isinstance(after, AdaptiveFilter):
            account = after
            accepted.append(event)
    curve = rdp(ev.Composed(tuple(accepted)), account.orders)
    parts = shares(budget.delta, len(account.orders))
    fits = [
        order_delta(order, spent, budget.epsilon) <= part * (1 + 1e-9)
        for order, spent, part in zip(curve.orders, curve.epsilons, parts, strict=True)
    ]
    assert any(fits)


def test_switching_orders_as_one_goes_does_not_outspend_delta() -> None:
    """The exact δ of the worst two-step strategy that picks its second step by the first answer stays below δ.

    The first answer decides which order the second step saturates: this is what dividing δ among orders is for.
    """
    budget = ApproxDP(0.5, 0.05)
    account = AdaptiveFilter.start(budget, orders=(3.0, 40.0))
    first = _spend(account, ev.RandomizedResponse(Fraction(1, 5)))
    losses = [Fraction(k, 400) for k in range(1, 400)]
    rest = [float(e) for e in losses if isinstance(first.spend(ev.RandomizedResponse(e)), AdaptiveFilter)]
    biggest = max(rest)

    def law(loss: float, bit: int) -> tuple[float, float]:
        keep = 1 / (1 + math.exp(-loss))
        return (keep, 1 - keep) if bit == 0 else (1 - keep, keep)

    worst = 0.0
    for after_zero in (0.0, biggest):
        for after_one in (0.0, biggest):
            used = 0.0
            for answer, loss in enumerate((after_zero, after_one)):
                for second in range(2):
                    left = law(0.2, 0)[answer] * law(loss, 0)[second]
                    right = law(0.2, 1)[answer] * law(loss, 1)[second]
                    used += max(0.0, left - math.exp(budget.epsilon) * right)
            worst = max(worst, used)
    assert worst <= budget.delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 1e-9), (0.1, 1e-6), (3.0, 1e-6), (50.0, 0.01)])
def test_default_orders_are_different_and_suit_gaussians(epsilon: float, delta: float) -> None:
    orders = default_orders(epsilon, delta)
    assert len(set(orders)) == len(orders)
    assert min(orders) > 1
    low, high = 1e-12, 100.0
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if zcdp_epsilon(ZCDP(middle), delta) <= epsilon else (low, middle)
    best = rdp_epsilon(RDP((orders[0],), (low * orders[0],)), delta)
    assert best <= epsilon * 1.05


def test_the_relation_is_fixed_at_the_start() -> None:
    epoch = ev.ShuffledEpoch(10, 100, ev.Gaussian(20.0))
    assert isinstance(AdaptiveFilter.start(ZCDP(1.0)).spend(epoch), Refused)
    assert isinstance(AdaptiveFilter.start(ZCDP(1.0), ZERO_OUT).spend(epoch), AdaptiveFilter)
    sample = ev.PoissonSampled(0.1, ev.Laplace(1.0))
    assert _most(AdaptiveFilter.start(PureDP(2.0), REPLACE_ONE), sample) == 2


@pytest.mark.parametrize(
    ("budget", "orders"),
    [
        (PureDP(math.inf), None),
        (ApproxDP(math.inf, 1e-6), None),
        (ApproxDP(1.0, 0.0), None),
        (ApproxDP(1.0, 1e-6), ()),
        (ApproxDP(1.0, 1e-6), (1.0,)),
        (ApproxDP(1.0, 1e-6), (2.0, 2.0)),
        (Guarantee(), None),
    ],
)
def test_budgets_that_filter_nothing_are_refused(budget: Guarantee, orders: tuple[float, ...] | None) -> None:
    with pytest.raises(InvalidArgument):
        AdaptiveFilter.start(budget, orders=orders)


def test_events_that_bring_a_delta_use_what_was_set_aside_for_them() -> None:
    account = AdaptiveFilter.start(ApproxDP(1.0, 1e-6), aside=4e-7)
    claim = ev.Claimed(0.05, 1.25e-7)
    assert _most(account, claim) == 3
    once = _spend(account, ev.Composed((ev.Laplace(50.0), claim)))
    assert once.claimed == Fraction(1.25e-7)
    assert isinstance(once.spend(ev.Repeated(claim, 2)), AdaptiveFilter)
    refusal = once.spend(ev.Repeated(claim, 3))
    assert isinstance(refusal, Refused)
    assert "set aside" in refusal.reason
    assert isinstance(once.spend(ev.PoissonSampled(0.1, claim)), Refused)
    assert once.spend(ev.Gaussian(50.0))


def test_disjoint_claims_use_the_largest_delta_once() -> None:
    parts = ev.Parallel((ev.Claimed(0.05, 1e-7), ev.Claimed(0.05, 3e-7)))
    account = AdaptiveFilter.start(ApproxDP(1.0, 1e-6), aside=3e-7)
    assert _spend(account, parts).claimed == Fraction(3e-7)
    assert isinstance(AdaptiveFilter.start(ApproxDP(1.0, 1e-6), REPLACE_ONE, aside=3e-7).spend(parts), Refused)


def test_what_is_set_aside_is_taken_from_the_orders() -> None:
    whole = AdaptiveFilter.start(ApproxDP(1.0, 1e-6), orders=(8.0,))
    rest = AdaptiveFilter.start(ApproxDP(1.0, 1e-6), orders=(8.0,), aside=5e-7)
    half = AdaptiveFilter.start(ApproxDP(1.0, 5e-7), orders=(8.0,))
    assert rest.limits == half.limits
    assert rest.limits[0] < whole.limits[0]
    for wrong in (1e-6, 2e-6, -1e-9):
        with pytest.raises(InvalidArgument):
            AdaptiveFilter.start(ApproxDP(1.0, 1e-6), aside=wrong)
    with pytest.raises(InvalidArgument, match="aside"):
        AdaptiveFilter.start(ZCDP(1.0), aside=1e-7)


@pytest.mark.parametrize(
    ("budget", "event", "times"),
    [
        (PureDP(1.0), ev.DiscreteLaplace(1, Fraction(10)), 10),
        (PureDP(1.0), ev.Laplace(10.0), 10),
        (PureDP(0.3), ev.NoisyMax(Fraction(1, 10)), 3),
        (PureDP(0.7), ev.DiscreteLaplace(7, Fraction(70)), 7),
        (ZCDP(0.5), ev.DiscreteGaussian(1, Fraction(10)), 10),
        (ZCDP(0.3), ev.DiscreteGaussian(1, Fraction(5)), 3),
        (GDP(1.0), ev.Gaussian(10.0), 100),
    ],
    ids=str,
)
def test_equal_parts_that_add_up_to_the_budget_all_fit_and_no_more(budget, event, times) -> None:
    account = AdaptiveFilter.start(budget)
    for _ in range(times):
        after = account.spend(event)
        assert isinstance(after, AdaptiveFilter)
        account = after
    assert isinstance(account.spend(event), Refused)
