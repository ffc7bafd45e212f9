"""The forms of budget, one class for each kind of guarantee that a budget can be stated in.

A form answers every question whose answer depends on that kind: the limits of a budget, the price of an event, whether
a total fits, how much is used, how amounts read, and what several budgets promise together (`form`). Filters, ledgers
and reports ask the form of their budget and never look at its class. To add a form, write the guarantee in
`guarantees`, its form here, and a tag in `codec` if ledgers may store it.

Why each rule is valid for adaptively chosen events is proved in docs/proofs/adaptive-filters.md.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from scipy import special

from discreet import _check
from discreet.accounting.adaptive.form import (
    Form,
    Limits,
    OrdersForm,
    Price,
    SingleForm,
    finite,
    held,
    refuse_aside,
    rounded,
)
from discreet.accounting.adaptive.orders import checked_orders, default_orders, shares
from discreet.accounting.adaptive.room import Room
from discreet.accounting.forms.conversions import (
    gdp_delta,
    order_limit,
    rdp_delta,
    rdp_epsilon,
    variation_of,
    zcdp_delta,
)
from discreet.accounting.forms.gdp import mu_squared, mu_up
from discreet.accounting.forms.pure import exact_pure, pure
from discreet.accounting.forms.zcdp import exact_rho
from discreet.accounting.losses.claims import without_delta
from discreet.accounting.tight import epsilon
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP, strength
from discreet.neighbors import Neighbors, Relation
from discreet.numeric.rounding import float_down, float_root_up, times_up, up

# A pure ε is stated without a δ if the δ would save at most this factor: a caller who asked for ε = 0.2 reads that it
# costs 0.2.
_DELTA_SAVES_LITTLE = 1.01
# Limits at Rényi orders contain logarithms. Another processor may compute other last digits of them, and a ledger from
# there must open here. So an edited limit may be larger by this share of ε, and not by more.
_LAST_DIGITS = Fraction(1, 10**12)
# Larger than any number of trials can use up between two restarts, and small enough for every formula; and for μ, whose
# square is what adds up.
_PLENTY, _PLENTY_MU = 1e9, 1e4


@dataclass(frozen=True)
class PureForm(SingleForm[PureDP]):
    """ε-DP: the ε add up."""

    rule = "the sum of the ε, as exact fractions"
    takes_gaussian = False
    has_delta = False

    def _limit(self) -> Fraction:
        return finite(self.budget.epsilon)

    def price(self, event: Event, relation: Relation, orders: Sequence[float]) -> Price:
        return (exact_pure(event, relation),)

    def shown(self, amounts: Price, orders: Sequence[float], protects: Neighbors | None, *, up: bool) -> Guarantee:
        return PureDP(rounded(amounts[0], up=up), protects=protects)

    def amounts(self, left: Guarantee) -> list[Fraction]:
        assert isinstance(left, PureDP)  # as `shown` gives it
        return [Fraction(left.epsilon)]

    def over(self, count: int) -> PureDP:
        return replace(self.budget, epsilon=times_up(count, self.budget.epsilon))

    def generous(self) -> PureDP:
        return PureDP(_PLENTY)

    def headline(self) -> tuple[str, str]:
        return f"ε = {self.budget.epsilon:g}", f"pure DP · {strength(self.budget.epsilon)} protection"

    def profile(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        return [(self.budget.epsilon, 0.0)]


@dataclass(frozen=True)
class ZCDPForm(SingleForm[ZCDP]):
    """ρ-zCDP: the ρ add up."""

    rule = "the sum of the ρ, as exact fractions"

    def _limit(self) -> Fraction:
        return finite(self.budget.rho)

    def price(self, event: Event, relation: Relation, orders: Sequence[float]) -> Price:
        return (exact_rho(event, relation),)

    def shown(self, amounts: Price, orders: Sequence[float], protects: Neighbors | None, *, up: bool) -> Guarantee:
        return ZCDP(rounded(amounts[0], up=up), protects=protects)

    def amounts(self, left: Guarantee) -> list[Fraction]:
        assert isinstance(left, ZCDP)  # as `shown` gives it
        return [Fraction(left.rho)]

    def over(self, count: int) -> ZCDP:
        return replace(self.budget, rho=times_up(count, self.budget.rho))

    def generous(self) -> ZCDP:
        return ZCDP(_PLENTY)

    def total_variation(self) -> float:
        return variation_of(float(self.budget.rho))

    def profile(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        return [(loss, zcdp_delta(self.budget, loss)) for loss in epsilons]


@dataclass(frozen=True)
class GDPForm(SingleForm[GDP]):
    """μ-GDP: the μ² add up, so amounts are μ²."""

    rule = "the sum of the μ², as exact fractions"

    def _limit(self) -> Fraction:
        return finite(self.budget.mu) ** 2

    def price(self, event: Event, relation: Relation, orders: Sequence[float]) -> Price:
        return (mu_squared(event, relation),)

    def shown(self, amounts: Price, orders: Sequence[float], protects: Neighbors | None, *, up: bool) -> Guarantee:
        root = mu_up(amounts[0])
        return GDP(held(root if up else math.nextafter(root, 0.0), up=up), protects=protects)

    def amounts(self, left: Guarantee) -> list[Fraction]:
        assert isinstance(left, GDP)  # as `shown` gives it
        return [Fraction(left.mu) ** 2]

    def over(self, count: int) -> GDP:
        return replace(self.budget, mu=float_root_up(count * Fraction(self.budget.mu) ** 2))

    def generous(self) -> GDP:
        return GDP(_PLENTY_MU)

    def total_variation(self) -> float:
        mu = float(self.budget.mu)
        return min(1.0, up(2 * float(special.ndtr(mu / 2)) - 1), variation_of(mu**2 / 2))

    def profile(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        return [(loss, gdp_delta(self.budget, loss)) for loss in epsilons]


@dataclass(frozen=True)
class RDPForm(OrdersForm[RDP]):
    """Rényi DP: the divergences add up at each order, and every order must have room."""

    rule = "the sum at every Rényi order"

    def limits(self, orders: Sequence[float] | None = None, aside: float = 0.0) -> Limits:
        refuse_aside(aside)
        return Limits.of(self.budget.orders, (finite(loss) for loss in self.budget.epsilons))

    def over(self, count: int) -> RDP:
        return replace(self.budget, epsilons=tuple(times_up(count, loss) for loss in self.budget.epsilons))

    def generous(self) -> RDP:
        return RDP(self.budget.orders, tuple(_PLENTY for _ in self.budget.orders))

    def total_variation(self) -> float:
        # The divergence of order 1 is at most that of any larger order.
        return variation_of(min(float(loss) for loss in self.budget.epsilons))

    def headline(self) -> tuple[str, str]:
        return "Rényi DP", str(self.budget)

    def profile(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        return [(loss, rdp_delta(self.budget, loss)) for loss in epsilons]


@dataclass(frozen=True)
class ApproxForm(OrdersForm[ApproxDP]):
    """(ε, δ)-DP: a Rényi filter at a fixed set of orders, with δ divided among them; one order with room is enough."""

    rule = "a Rényi filter at a fixed set of orders, with δ divided among them"
    any_order = True
    takes_delta = True

    @property
    def reading_delta(self) -> float:
        return self.budget.delta

    def limits(self, orders: Sequence[float] | None = None, aside: float = 0.0) -> Limits:
        budget = self.budget
        finite(budget.epsilon)
        kept = _check.nonnegative("aside", aside, "it is the part of δ for events that bring their own")
        rest = float_down(Fraction(_check.delta(budget.delta)) - kept)
        _check.delta(rest, "delta - aside")
        chosen = default_orders(budget.epsilon, rest) if orders is None else checked_orders(orders)
        if min(chosen) <= 1:
            raise _check.fail("budget", "have a smaller ε", budget.epsilon, "so large a one promises nothing")
        pairs = zip(chosen, shares(rest, len(chosen)), strict=True)
        amounts = (order_limit(order, budget.epsilon, share) for order, share in pairs)
        return Limits.of(chosen, amounts, kept)

    def _at_most(self, limit: Fraction) -> Fraction:
        return limit + _LAST_DIGITS * (abs(limit) + Fraction(self.budget.epsilon))

    def split(self, event: Event, relation: Relation) -> tuple[Event, Fraction]:
        return without_delta(event, relation)

    def room_words(self, left: Guarantee) -> str:
        assert isinstance(left, RDP)  # as `shown` gives it
        return str(Room.of(left, self.budget.delta))

    def price_words(self, price: Guarantee, event: Event, relation: Relation) -> str:
        assert isinstance(price, RDP)  # as `shown` gives it
        with contextlib.suppress(UnknownEvent):
            whole, tight = pure(event, relation), epsilon(event, self.budget.delta, relation).upper
            saves_little = whole.epsilon <= _DELTA_SAVES_LITTLE * tight
            return str(whole if saves_little else ApproxDP(tight, self.budget.delta))
        return str(ApproxDP(rdp_epsilon(price, self.budget.delta), self.budget.delta))

    @property
    def most_pure(self) -> float:
        return self.budget.epsilon

    @property
    def _largest_pure(self) -> float:
        return _DELTA_SAVES_LITTLE * self.budget.epsilon

    def over(self, count: int) -> ApproxDP:
        delta = min(1.0, times_up(count, self.budget.delta))
        return replace(self.budget, epsilon=times_up(count, self.budget.epsilon), delta=delta)

    def generous(self) -> ApproxDP:
        return ApproxDP(_PLENTY, self.budget.delta)

    def headline(self) -> tuple[str, str]:
        loss, delta = self.budget.epsilon, self.budget.delta
        return f"ε = {loss:g}", f"δ = {delta:g} · {strength(loss, delta)} protection"

    def profile(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        return [(self.budget.epsilon, self.budget.delta)]


#: The form of each kind of budget.
FORMS: dict[type[Guarantee], type[Form[Any]]] = {
    PureDP: PureForm,
    ApproxDP: ApproxForm,
    ZCDP: ZCDPForm,
    RDP: RDPForm,
    GDP: GDPForm,
}


def form_of(budget: Guarantee) -> Form[Any]:
    """The form of `budget`.

    >>> form_of(ZCDP(0.5)).rule
    'the sum of the ρ, as exact fractions'
    """
    form = FORMS.get(type(budget))
    if form is None:
        *names, last = (kind.__name__ for kind in FORMS)
        raise _check.fail("budget", "be a guarantee", budget, f"use {', '.join(names)} or {last}")
    return form(budget)
