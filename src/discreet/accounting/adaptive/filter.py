"""Adaptive spending: filters that let an analyst choose what to ask next, and how dearly, until a budget is used up.

A filter is a value: `spend` returns the filter after a spend, or a `Refused` that says what was asked and what
remains, and leaves everything as it was. Prices and sums are exact rationals of upward-rounded prices, so no sequence
of small spends can slip under a budget. Why each rule is valid when events are chosen in view of earlier answers is
proved in docs/proofs/adaptive-filters.md. There is no filter for privacy loss distributions: composing them as one
goes and stopping at a budget is unsound (arXiv 2602.06756, 2602.15815).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from discreet import _check
from discreet.accounting.forms.conversions import order_limit
from discreet.accounting.forms.gdp import mu_squared, root_up
from discreet.accounting.forms.pure import exact_pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.forms.zcdp import exact_rho
from discreet.accounting.losses.claims import without_delta
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import float_down, float_up, reported

Price = tuple[Fraction | None, ...]

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
        return f"refused {self.asked!r}: {self.reason}; {self.remaining} remains"


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

        >>> from discreet.events import Gaussian, Laplace
        >>> account = AdaptiveFilter.start(PureDP(1.0))
        >>> account = account.spend(Laplace(2.0))
        >>> print(account.remaining())
        0.5-DP
        >>> print(account.spend(Laplace(1.0)))
        refused Laplace(noise_multiplier=1.0): it costs 1-DP; 0.5-DP remains
        """
        chosen: tuple[float, ...] = ()
        limits: tuple[Fraction, ...]
        match budget:
            case PureDP(epsilon):
                limits = (_finite(epsilon),)
            case ZCDP(rho):
                limits = (_finite(rho),)
            case GDP(mu):
                limits = (_finite(mu) ** 2,)
            case RDP(listed, epsilons):
                chosen, limits = listed, tuple(_finite(epsilon) for epsilon in epsilons)
            case ApproxDP(epsilon, delta):
                _finite(epsilon)
                kept = _check.nonnegative("aside", aside, "it is the part of δ for events that bring their own")
                rest = float_down(Fraction(_check.delta(delta)) - kept)
                _check.delta(rest, "delta - aside")
                chosen = default_orders(epsilon, rest) if orders is None else _orders(orders)
                if min(chosen) <= 1:
                    raise _check.fail("budget", "have a smaller ε", epsilon, "so large a one promises nothing")
                pairs = zip(chosen, shares(rest, len(chosen)), strict=True)
                limits = tuple(order_limit(order, epsilon, share) for order, share in pairs)
            case _:
                raise _check.fail("budget", "be a guarantee", budget, "use PureDP, ApproxDP, ZCDP, RDP or GDP")
        if aside and not isinstance(budget, ApproxDP):
            raise _check.fail("aside", "be 0", aside, "only an (ε, δ) budget has a δ to set aside")
        return cls(budget, relation, chosen, limits, (Fraction(0),) * len(limits), Fraction(aside))

    def price(self, event: Event) -> Price:
        """What `event` costs in each account, rounded up; None where it is infinite."""
        match self.budget:
            case PureDP():
                return (exact_pure(event, self.relation),)
            case ZCDP():
                return (exact_rho(event, self.relation),)
            case GDP():
                return (mu_squared(event, self.relation),)
            case _:
                return tuple(_exact(epsilon) for epsilon in rdp(event, self.orders, self.relation).epsilons)

    def spend(self, event: Event) -> AdaptiveFilter | Refused:
        """The filter after `event`, or `Refused`. An event that no theorem prices is refused as well."""
        plain, brought = without_delta(event, self.relation) if isinstance(self.budget, ApproxDP) else (event, _NOTHING)
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
        room = [total is not None and total <= limit for total, limit in zip(spent, self.limits, strict=True)]
        if any(room) if isinstance(self.budget, ApproxDP) else all(room):
            return replace(self, spent=spent, claimed=self.claimed + brought)
        shown = self._shown(price, up=True)
        return Refused(event, shown, self.remaining(), f"it costs {shown}")

    def remaining(self) -> Guarantee:
        """What may still be spent: in the budget's own form, or at each order for an (ε, δ) budget.

        For an (ε, δ) budget a spend fits when it fits at one of the orders; an order that is used up shows 0.
        """
        left = tuple(
            Fraction(0) if total is None else max(Fraction(0), limit - total)
            for limit, total in zip(self.limits, self.spent, strict=True)
        )
        return self._shown(left, up=False)

    def _shown(self, amounts: Price, *, up: bool) -> Guarantee:
        values = tuple(math.inf if a is None else _shown(float_up(a) if up else float_down(a), up=up) for a in amounts)
        match self.budget:
            case PureDP():
                return PureDP(values[0], protects=self.budget.protects)
            case ZCDP():
                return ZCDP(values[0], protects=self.budget.protects)
            case GDP():
                squared = amounts[0]
                root = root_up(squared)
                return GDP(_shown(root if up else math.nextafter(root, 0.0), up=up), protects=self.budget.protects)
            case _:
                return RDP(self.orders, values, protects=self.budget.protects)


def shares(delta: float, count: int) -> tuple[float, ...]:
    """How δ is divided among `count` orders: half for the first, the rest equally, never more than δ together."""
    whole = Fraction(delta)
    if count == 1:
        return (delta,)
    return (float_down(whole / 2), *(float_down(whole / (2 * (count - 1))) for _ in range(count - 1)))


def default_orders(epsilon: float, delta: float) -> tuple[float, ...]:
    """Nine orders for an (ε, δ) budget, the one that suits a budget spent on Gaussians first.

    At order α a budget spent in ρ-zCDP may reach ρ = limit(α)/α, and the first order is where that is largest. The
    others are spread around it, because sampled events are read at other orders, up to one so large that pure
    mechanisms lose only a thousandth of ε.
    """
    candidates = [1 + 10 ** (k / 50) for k in range(-150, 301)]
    best = max(candidates, key=lambda order: order_limit(order, epsilon, delta / 2) / Fraction(order)) - 1
    near = [1 + best * multiple for multiple in (1.0, 0.6, 0.72, 0.85, 1.2, 1.5, 2.0, 4.0)]
    far = 1 - 1000 * math.log(delta) / max(epsilon, 1e-3)
    # Integer orders are cheapest to price; below 16 they would lie too far apart.
    rounded = [float(round(a)) if a >= 16 else math.ceil(1000 * a) / 1000 for a in (*near, far)]
    return tuple(dict.fromkeys(min(1e6, order) for order in rounded))


def _orders(orders: Sequence[float]) -> tuple[float, ...]:
    chosen = tuple(float(_check.real("orders", order, "Rényi orders are finite")) for order in orders)
    if not chosen or min(chosen) <= 1 or len(set(chosen)) < len(chosen):
        raise _check.fail("orders", "be different and > 1, at least one", orders, "δ is divided among them")
    return chosen


def _finite(amount: float) -> Fraction:
    """A budget as the number that was written: 0.3 is three tenths, so that three spends of a tenth fit."""
    checked = _check.nonnegative("budget", amount, "an infinite budget filters nothing")
    return Fraction(repr(float(amount))) if isinstance(amount, float) else checked


def _shown(amount: float, *, up: bool) -> float:
    """An amount as a guarantee holds it: a cost is rounded up, what remains is rounded down."""
    return reported(amount) if up or amount >= 1e-150 else 0.0


def _exact(amount: float) -> Fraction | None:
    return None if math.isinf(amount) else Fraction(amount)


def _add(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    return None if left is None or right is None else left + right
