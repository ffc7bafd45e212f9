"""Adaptive spending: filters that let an analyst choose what to ask next, and at what price, until a budget is used up.

A filter is a value: `spend` returns the filter after a spend, or a `Refused` that says what was asked and what
remains, and leaves everything as it was. Prices and sums are exact rationals of upward-rounded prices, so no sequence
of small spends can slip under a budget. The rules are those of the budget's form (`budgets`); why each is valid when
events are chosen in view of earlier answers is proved in docs/proofs/adaptive-filters.md. There is no filter for
privacy loss distributions: composing them as one goes and stopping at a budget is unsound (arXiv 2602.06756,
2602.15815).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.adaptive.form import Form, Limits, Price
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import float_down, float_up

_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Refused:
    """A spend that the budget does not allow. The filter it was asked of is unchanged and may be asked for less."""

    asked: Event
    price: Guarantee | None
    remaining: Guarantee
    reason: str

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"refused: {self.reason}; {self.remaining} remains"


@dataclass(frozen=True)
class AdaptiveFilter:
    """How much of `budget` is left; made by `start`, changed only by `spend`.

    One account is kept for each of `limits`: a single one for pure, zCDP and GDP budgets (in ε, ρ and μ²), and one for
    each Rényi order for RDP and (ε, δ) budgets. A spend fits an RDP budget when every order has room, and an (ε, δ)
    budget when some order has room, for which δ was divided among the orders in advance. `aside` is the part of δ for
    events that bring a δ of their own, of which `claimed` is used.
    """

    budget: Guarantee
    relation: Relation
    orders: tuple[float, ...]
    limits: tuple[Fraction, ...]
    spent: tuple[Fraction | None, ...]
    aside: Fraction = _NOTHING
    claimed: Fraction = _NOTHING

    @classmethod
    def start(
        cls,
        budget: Guarantee,
        relation: Relation = ADD_REMOVE,
        orders: Sequence[float] | None = None,
        aside: float = 0.0,
    ) -> AdaptiveFilter:
        """A filter with nothing spent.

        `orders` are the Rényi orders of an (ε, δ) budget, fixed here once and for all; half of δ goes to the first and
        the rest is shared equally by the others. Without them `default_orders` chooses. `aside` is how much of an
        (ε, δ) budget's δ is kept for events that bring their own, such as `events.Claimed`; without it they don't fit.

        >>> from discreet.events import Laplace
        >>> from discreet.guarantees import PureDP
        >>> account = AdaptiveFilter.start(PureDP(1.0))
        >>> account = account.spend(Laplace(2.0))
        >>> print(account.remaining())
        0.5-DP
        >>> print(account.spend(Laplace(1.0)))
        refused: it costs 1-DP; 0.5-DP remains
        """
        chosen = form_of(budget).limits(orders, aside)
        limits = tuple(Fraction(*amount) for amount in chosen.amounts)
        return cls(budget, relation, chosen.orders, limits, (_NOTHING,) * len(limits), chosen.aside)

    @property
    def form(self) -> Form[Any]:
        """The rules and the words of this kind of budget."""
        return form_of(self.budget)

    def price(self, event: Event) -> Price:
        """What `event` costs in each account, rounded up; None where it is infinite."""
        return self.form.price(event, self.relation, self.orders)

    def spend(self, event: Event) -> AdaptiveFilter | Refused:
        """The filter after `event`, or `Refused`. An event that no theorem prices is refused as well."""
        plain, brought = self.form.split(event, self.relation)
        if self.claimed + brought > self.aside:
            left = float_down(self.aside - self.claimed) + 0.0  # not -0
            reason = (
                f"it brings δ = {float_up(brought):.6g} of its own, and {left:.6g} is left of what was set aside "
                "for that when the budget was opened (aside)"
            )
            return Refused(event, None, self.remaining(), reason)
        try:
            price = self.price(plain)
        except UnknownEvent as error:
            return Refused(event, None, self.remaining(), str(error))
        spent = tuple(_add(before, cost) for before, cost in zip(self.spent, price, strict=True))
        after = replace(self, spent=spent, claimed=self.claimed + brought)
        if self.form.fits(_Total.of(after), Limits.of(self.orders, self.limits, self.aside)):
            return after
        shown = self.shown(price, up=True)
        return Refused(event, shown, self.remaining(), f"it costs {shown}")

    def remaining(self) -> Guarantee:
        """What may still be spent: in the budget's own form, or at each order for an (ε, δ) budget.

        For an (ε, δ) budget a spend fits when it fits at one of the orders; an order that is used up shows 0.
        """
        left = tuple(
            _NOTHING if total is None else max(_NOTHING, limit - total)
            for limit, total in zip(self.limits, self.spent, strict=True)
        )
        return self.shown(left, up=False)

    def shown(self, amounts: Price, *, up: bool) -> Guarantee:
        """Amounts as a guarantee in the budget's form: costs are rounded up, what remains is rounded down."""
        return self.form.shown(amounts, self.orders, self.budget.protects, up=up)


class _Total(NamedTuple):
    """What a filter has spent, in the terms that a form compares."""

    numerators: tuple[int | None, ...]
    denominators: tuple[int, ...]
    claimed: Fraction

    @classmethod
    def of(cls, standing: AdaptiveFilter) -> _Total:
        ratios = [(None, 1) if amount is None else amount.as_integer_ratio() for amount in standing.spent]
        return cls(tuple(n for n, _ in ratios), tuple(d for _, d in ratios), standing.claimed)


def _add(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    return None if left is None or right is None else left + right
