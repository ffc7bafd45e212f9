"""Forms of budget: one for each guarantee, whose rule is the comparison of exact amounts."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import events as ev
from discreet import guarantees
from discreet.accounting.adaptive.budgets import FORMS, form_of
from discreet.accounting.adaptive.filter import AdaptiveFilter
from discreet.accounting.adaptive.form import READING_DELTA, Limits
from discreet.errors import InvalidArgument
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP

BUDGETS: list[Guarantee] = [PureDP(1.0), ApproxDP(1.0, 1e-6), ZCDP(0.5), RDP((2.0, 8.0), (1.0, 4.0)), GDP(1.0)]

amounts = st.one_of(
    st.none(), st.just(Fraction(0)), st.fractions(0, 3, max_denominator=60), st.floats(0, 3).map(Fraction)
)


class Total(NamedTuple):
    """A total whose ratios are not in lowest terms."""

    numerators: tuple[int | None, ...]
    denominators: tuple[int, ...]
    claimed: Fraction = Fraction(0)


def test_every_guarantee_has_a_form():
    kinds = {kind for kind in vars(guarantees).values() if isinstance(kind, type) and issubclass(kind, Guarantee)}
    assert set(FORMS) == kinds - {Guarantee}
    assert {type(budget) for budget in BUDGETS} == set(FORMS)
    with pytest.raises(InvalidArgument, match="use PureDP, ApproxDP, ZCDP, RDP or GDP"):
        form_of(Guarantee())


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@given(st.lists(st.tuples(amounts, st.fractions(-1, 3, max_denominator=60)), min_size=1, max_size=4), st.integers(1, 9))
def test_a_total_fits_if_one_or_all_of_its_amounts_are_within_their_limits(budget, pairs, factor):
    form = form_of(budget)
    total = Total(
        tuple(None if spent is None else factor * spent.numerator for spent, _ in pairs),
        tuple(0 if spent is None else factor * spent.denominator for spent, _ in pairs),
    )
    room = [spent is not None and spent <= limit for spent, limit in pairs]
    limits = Limits.of((), [limit for _, limit in pairs])
    assert form.fits(total, limits) is (any(room) if isinstance(budget, ApproxDP) else all(room))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_no_more_delta_is_claimed_than_was_set_aside(budget):
    form, aside = form_of(budget), Fraction(1, 10**7)
    limits = Limits.of((), [Fraction(1)], aside)
    assert form.fits(Total((0,), (1,), aside), limits)
    assert not form.fits(Total((0,), (1,), aside + Fraction(1, 10**30)), limits)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@given(st.lists(st.tuples(amounts, st.fractions(-1, 3, max_denominator=60)), min_size=1, max_size=4))
def test_the_share_that_is_used_lies_between_none_and_all(budget, pairs):
    spent, limits = tuple(spent for spent, _ in pairs), [limit for _, limit in pairs]
    assert 0.0 <= form_of(budget).used(spent, limits) <= 1.0
    assert form_of(budget).used((Fraction(0),) * len(limits), limits) == 0.0


def test_orders_that_never_had_room_have_no_say_in_what_is_used():
    form, spent = form_of(ApproxDP(1.0, 1e-6)), (Fraction(1, 4), Fraction(1, 2))
    assert form.used(spent, [Fraction(-1), Fraction(1)]) == 0.5
    assert form.share(spent, [Fraction(0), Fraction(1)]) == 0.5
    assert form.used(spent, [Fraction(-1), Fraction(0)]) == 1.0


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_form_agrees_with_the_filter_and_speaks(budget):
    form, account = form_of(budget), AdaptiveFilter.start(budget)
    price = form.price(ev.Laplace(10.0), account.relation, account.orders)
    assert price == account.price(ev.Laplace(10.0))
    after = account.spend(ev.Laplace(10.0))
    assert isinstance(after, AdaptiveFilter)
    assert after.spent == price
    assert 0 < form.used(price, account.limits) < 1
    assert form.room_words(after.remaining())
    assert "0.1" in form.size_words(ev.Laplace(10.0), account.relation)
    assert all(form.headline())
    assert form.rule
    assert form.reading_delta == (budget.delta if isinstance(budget, ApproxDP) else READING_DELTA)
    assert all(0 <= delta <= 1 for _, delta in form.profile([0.1, 1.0, 3.0]))
