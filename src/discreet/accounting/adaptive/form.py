"""What a form of budget answers: the questions whose answers depend on the kind of guarantee it is stated in.

`budgets` has one class for each kind. Filters, ledgers and reports ask the form of their budget and never look at its
class.
"""

from __future__ import annotations

import contextlib
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from discreet import _check
from discreet.accounting.adaptive.room import round_down
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.tight import epsilon
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import RDP, Guarantee
from discreet.neighbors import Neighbors, Relation
from discreet.numeric.rounding import float_down, float_up, reported, up

#: An amount at each order (a single one where the form has no orders), None where it is infinite.
Price = tuple[Fraction | None, ...]
#: Numerator and denominator. Integers are much cheaper to add and compare than `Fraction`.
Ratio = tuple[int, int]

#: The δ at which ε is read where a budget has none of its own.
READING_DELTA = 1e-6

# The smallest positive amount that a guarantee holds (see `reported`). Less than this remaining is shown as 0.
_SMALLEST_SHOWN = 1e-150

G = TypeVar("G", bound=Guarantee)


class Limits(NamedTuple):
    """What a budget allows: a limit at each of its orders, and the part of δ for events that bring their own."""

    orders: tuple[float, ...]
    amounts: tuple[Ratio, ...]
    aside: Fraction

    @classmethod
    def of(cls, orders: Iterable[float], amounts: Iterable[Fraction], aside: Fraction = Fraction(0)) -> Limits:
        """The limits of exact amounts."""
        return cls(tuple(orders), tuple(amount.as_integer_ratio() for amount in amounts), aside)


class SpentTotal(Protocol):
    """What was spent: a numerator (None if infinite) and a denominator at each order, and δ that events brought."""

    @property
    def numerators(self) -> tuple[int | None, ...]: ...

    @property
    def denominators(self) -> tuple[int, ...]: ...

    @property
    def claimed(self) -> Fraction: ...


@dataclass(frozen=True)
class Form(ABC, Generic[G]):
    """The rules and the words of one form of budget."""

    budget: G

    #: How the budget adds up what is spent, as a phrase.
    rule: ClassVar[str]
    #: Whether a total fits as soon as one order has room; otherwise every order must have room.
    any_order: ClassVar[bool] = False
    #: Whether the budget can pay for events that bring a δ of their own.
    takes_delta: ClassVar[bool] = False
    #: Whether Gaussian noise has a finite price.
    takes_gaussian: ClassVar[bool] = True
    #: Whether amounts mean something to a reader. Amounts at Rényi orders do not.
    readable: ClassVar[bool] = True
    #: Whether the ε of a charge is read at a δ. In a pure ε budget it is not.
    has_delta: ClassVar[bool] = True

    @property
    def reading_delta(self) -> float:
        """The δ at which ε is read for this budget."""
        return READING_DELTA

    @property
    def stated_delta(self) -> float:
        """The δ at which the ε of a charge is stated: 0 if the budget is pure ε."""
        return self.reading_delta if self.has_delta else 0.0

    @property
    def most_pure(self) -> float:
        """The largest pure ε that policies compare as it is. A larger one is read at `reading_delta`."""
        return math.inf

    # --- rules

    @abstractmethod
    def limits(self, orders: Sequence[float] | None = None, aside: float = 0.0) -> Limits:
        """The limits of a new filter or account. `orders` and `aside` are for (ε, δ) budgets alone."""

    def grants(self, stored: Limits) -> bool:
        """Whether stored limits are no larger than what this budget allows at the orders that are stored with them.

        The orders are not chosen again: a version that would choose others must still accept those in use.
        """
        allowed = self.limits(stored.orders or None, float(stored.aside))
        if (allowed.orders, allowed.aside, len(allowed.amounts)) != (stored.orders, stored.aside, len(stored.amounts)):
            return False
        pairs = zip(stored.amounts, allowed.amounts, strict=True)
        return all(Fraction(*amount) <= self._at_most(Fraction(*largest)) for amount, largest in pairs)

    def _at_most(self, limit: Fraction) -> Fraction:
        """The largest stored limit that counts as this one: itself, where limits are exact."""
        return limit

    @abstractmethod
    def price(self, event: Event, relation: Relation, orders: Sequence[float]) -> Price:
        """What `event` costs, rounded up; raises `UnknownEvent` if no theorem prices it."""

    def split(self, event: Event, relation: Relation) -> tuple[Event, Fraction]:
        """The event that has to be priced, and the δ that it brings in addition."""
        return event, Fraction(0)

    def fits(self, total: SpentTotal, limits: Limits) -> bool:
        """Whether a filter or an account may stand like this. This is the only place where that is decided."""
        if total.claimed and total.claimed > limits.aside:
            return False
        enough = self.any_order
        for n, d, (limit, unit) in zip(total.numerators, total.denominators, limits.amounts, strict=True):
            # n/d <= limit/unit. One order with room settles `any_order`; one without settles the rest.
            if (n is not None and n * unit <= limit * d) is enough:
                return enough
        return not enough

    def used(self, spent: Price, limits: Sequence[Fraction]) -> float:
        """The share of the budget that is used, from 0 to 1. For an (ε, δ) budget, at the order with most room."""
        pairs = self._with_room(spent, limits)
        taken = [1.0 if amount is None else float(min(Fraction(1), amount / limit)) for amount, limit in pairs]
        if taken:
            return min(taken) if self.any_order else max(taken)
        return float(any(amount is None or amount > 0 for amount in spent))

    def share(self, change: Price, limits: Sequence[Fraction], *, refund: bool = False) -> float:
        """The share of the budget that one charge took, or that one refund gave back (which is negative)."""
        pairs = self._with_room(change, limits)
        taken = [1.0 if amount is None else float(amount / limit) for amount, limit in pairs]
        if not taken:
            return 0.0
        return min(taken) if self.any_order and not refund else max(taken)

    @abstractmethod
    def amounts(self, left: Guarantee) -> list[Fraction]:
        """What remains, as exact amounts; `left` is the remainder as `shown` gives it."""

    @abstractmethod
    def over(self, count: int) -> G:
        """What `count` budgets like this one promise together, each spent in view of the earlier answers."""

    @abstractmethod
    def generous(self) -> G:
        """A budget of this form with room for everything, so that a trial is planned like the real question."""

    def total_variation(self) -> float:
        """A bound on the total variation distance between results on neighbors, rounded up: δ at ε = 0."""
        pairs = [(float(loss), float(delta)) for loss, delta in self.profile([0.0])]
        return min(1.0, *(up(delta + (1 - delta) * math.tanh(loss / 2)) for loss, delta in pairs))

    def _with_room(self, amounts: Price, limits: Sequence[Fraction]) -> list[tuple[Fraction | None, Fraction]]:
        """Amounts beside their limits, without the orders that never had room."""
        return [(amount, limit) for amount, limit in zip(amounts, limits, strict=True) if limit > 0]

    # --- words

    @abstractmethod
    def shown(self, amounts: Price, orders: Sequence[float], protects: Neighbors | None, *, up: bool) -> Guarantee:
        """Amounts as a guarantee: costs are rounded up, what remains is rounded down."""

    def room_words(self, left: Guarantee) -> str:
        """What remains, as a person reads it; `left` is the remainder as `shown` gives it."""
        return str(left)

    def price_words(self, price: Guarantee, event: Event, relation: Relation) -> str:
        """What `event` costs, as a person reads it; `price` is the cost as `shown` gives it."""
        return str(price)

    def size_words(self, event: Event, relation: Relation) -> str:
        """How large `event` is, as the ε to ask for: rounded down, so that asking for this much fits if `event` does.

        It is the pure ε of an event that has a finite one (for an (ε, δ) budget, one within its ε); otherwise the ε at
        `reading_delta`. Empty if no theorem gives a finite one.
        """
        with contextlib.suppress(UnknownEvent):
            loss = pure(event, relation).epsilon
            if loss <= self._largest_pure:
                return f"ε = {round_down(loss):g}"
        with contextlib.suppress(UnknownEvent):
            loss = epsilon(event, self.reading_delta, relation).upper
            if not math.isinf(loss):
                return f"ε = {round_down(loss):g} at δ = {self.reading_delta:g}"
        return ""

    @property
    def _largest_pure(self) -> float:
        """The largest pure ε that is stated without a δ."""
        return sys.float_info.max

    def headline(self) -> tuple[str, str]:
        """The budget as a large figure and a few words."""
        return str(self.budget).partition(",")[0], "the budget"

    @abstractmethod
    def profile(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        """Pairs (ε, δ) that the budget promises; at each of `epsilons` if it promises a δ for every ε."""

    def by_order(self, spent: Guarantee, remaining: Guarantee) -> list[dict[str, float | None]]:
        """What was spent and what remains at each Rényi order, if the form has orders; None is infinite."""
        return []


@dataclass(frozen=True)
class SingleForm(Form[G]):
    """A form with a single amount and no orders."""

    def limits(self, orders: Sequence[float] | None = None, aside: float = 0.0) -> Limits:
        refuse_aside(aside)
        return Limits.of((), (self._limit(),))

    @abstractmethod
    def _limit(self) -> Fraction: ...


@dataclass(frozen=True)
class OrdersForm(Form[G]):
    """A form with an amount at each of a fixed set of Rényi orders."""

    readable = False

    def price(self, event: Event, relation: Relation, orders: Sequence[float]) -> Price:
        losses = rdp(event, orders, relation).epsilons
        return tuple(None if math.isinf(loss) else Fraction(loss) for loss in losses)

    def shown(self, amounts: Price, orders: Sequence[float], protects: Neighbors | None, *, up: bool) -> Guarantee:
        return RDP(tuple(orders), tuple(rounded(amount, up=up) for amount in amounts), protects=protects)

    def amounts(self, left: Guarantee) -> list[Fraction]:
        assert isinstance(left, RDP)  # as `shown` gives it
        return [Fraction(loss) for loss in left.epsilons]

    def by_order(self, spent: Guarantee, remaining: Guarantee) -> list[dict[str, float | None]]:
        assert isinstance(spent, RDP)  # as `shown` gives it
        assert isinstance(remaining, RDP)
        return [
            {"order": order, "spent": None if math.isinf(used) else used, "remaining": left}
            for order, used, left in zip(spent.orders, spent.epsilons, remaining.epsilons, strict=True)
        ]


def refuse_aside(aside: float) -> None:
    if aside:
        raise _check.fail("aside", "be 0", aside, "only an (ε, δ) budget has a δ to set aside")


def finite(amount: float) -> Fraction:
    """A budget as the number that was written: 0.3 is three tenths, so that three spends of a tenth fit."""
    checked = _check.nonnegative("budget", amount, "an infinite budget filters nothing")
    return Fraction(repr(float(amount))) if isinstance(amount, float) else checked


def rounded(amount: Fraction | None, *, up: bool) -> float:
    if amount is None:
        return math.inf
    return held(float_up(amount) if up else float_down(amount), up=up)


def held(amount: float, *, up: bool) -> float:
    """An amount as a guarantee holds it: neither too small nor too large for one."""
    return reported(amount) if up or amount >= _SMALLEST_SHOWN else 0.0
