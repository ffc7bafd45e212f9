"""Split what remains of a budget over several wishes, and say what is achievable. Spends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.adaptive.filter import AdaptiveFilter
from discreet.accounting.adaptive.form import Price
from discreet.accounting.forms.pure import pure
from discreet.accounting.tight import epsilon
from discreet.accounting.wishes import Wish
from discreet.errors import MissingExtra, UnknownEvent
from discreet.events import Composed, Event
from discreet.guarantees import RDP, Guarantee
from discreet.neighbors import ADD_REMOVE, Neighbors, Relation

# The common factor on the errors is found to within this, relatively.
_CLOSE = 1e-4
# The search ends at these factors: what does not fit with a billion times the error fits with none.
_MOST, _LEAST = 2.0**30, 2.0**-30


class HasRoom(Protocol):
    """What a plan can be made for, such as an account of a ledger."""

    @property
    def budget(self) -> Guarantee:
        """All that may be spent."""

    @property
    def neighbors(self) -> Neighbors:
        """Whom the budget protects."""

    def remaining(self) -> Guarantee:
        """What may still be spent; of an (ε, δ) budget, what remains at each of its orders."""

    def would_afford(self, event: Event) -> bool:
        """Whether an event fits now."""


@dataclass(frozen=True)
class AllocatedWish:
    """One wish in a plan.

    Attributes:
        wish: what is wanted.
        event: what would run.
        reached: the error, or the noise multiplier, that the plan reaches.
        epsilon: what the event costs by itself: its pure ε if the budget is pure, and ε at the budget's δ otherwise.
        share: the share of what remains that it uses.
    """

    wish: Wish
    event: Event
    reached: float
    epsilon: float
    share: float

    @property
    def met(self) -> bool:
        """Whether the error is the one that was wanted."""
        return self.reached <= self.wish.error


@dataclass(frozen=True)
class Allocation:
    """A plan for what remains of a budget; prints as a table.

    Attributes:
        budget: the whole budget.
        room: what remains of it, in words.
        delta: the δ at which ε is shown; 0 for a pure budget.
        parts: the wishes with what they get, in the order in which they were given.
        factor: 1 if all wishes are met. Otherwise the factor on the error of a wish of weight 1: a wish of weight w has
            its error multiplied by 1 + (factor − 1)/w. inf if no factor suffices.
        best: the factor on all errors at which everything just fits; below 1, all wishes could be that much better.
    """

    budget: Guarantee
    room: str
    delta: float
    parts: tuple[AllocatedWish, ...]
    factor: float
    best: float

    @property
    def met(self) -> bool:
        """Whether every wish is met."""
        return all(allocated.met for allocated in self.parts)

    @property
    def event(self) -> Event:
        """The whole plan as one event, to be charged before it runs."""
        return Composed(tuple(allocated.event for allocated in self.parts))

    @property
    def words(self) -> str:
        """What is achievable, in one sentence."""
        if self.met:
            better = f"; every error could be {self.best:.3g} of what is wanted" if self.best < 1 - _CLOSE else ""
            return f"All wishes fit{better}."
        return (
            f"Not all wishes fit: errors are multiplied by {self.factor:.4g} at weight 1, and by less at a larger one."
        )

    def rows(self) -> list[dict[str, object]]:
        """One dictionary for each wish, for a table."""
        return [
            {
                "wish": allocated.wish.name,
                "what": allocated.wish.quantity,
                "wanted": allocated.wish.error,
                "reached": allocated.reached,
                "met": allocated.met,
                "epsilon": allocated.epsilon,
                "share": allocated.share,
                "weight": allocated.wish.weight,
                "event": repr(allocated.event),
            }
            for allocated in self.parts
        ]

    def __str__(self) -> str:
        heads = ("wish", "what", "wanted", "reached", "met", "epsilon", "share")
        table = [heads] + [
            (
                allocated.wish.name,
                allocated.wish.quantity,
                f"{allocated.wish.error:.5g}",
                f"{allocated.reached:.5g}",
                "yes" if allocated.met else "no",
                f"{allocated.epsilon:.4g}",
                f"{100 * allocated.share:.1f}%",
            )
            for allocated in self.parts
        ]
        widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        return "\n".join([f"{self.budget}; what remains is {self.room}", "", *lines, "", self.words])

    def plot(self, axes: Any = None) -> Any:
        """Draw the share of each wish, and how its error compares with the one that is wanted; return the axes."""
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as missing:
                raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
            axes = Figure(figsize=(7.0, 1.2 + 0.4 * len(self.parts)), layout="constrained").subplots()
        names = [allocated.wish.name for allocated in self.parts]
        colors = ["#2a9d8f" if allocated.met else "#e76f51" for allocated in self.parts]
        bars = axes.barh(range(len(names)), [100 * allocated.share for allocated in self.parts], color=colors)
        labels = [f"{allocated.reached:.4g} (wanted {allocated.wish.error:.4g})" for allocated in self.parts]
        axes.bar_label(bars, labels, padding=3, fontsize=8)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.margins(x=0.35)
        axes.set(xlabel="share of what remains, %")
        axes.set_title(self.words, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def allocate(room: Guarantee | AdaptiveFilter | HasRoom, wishes: Sequence[Wish]) -> Allocation:
    """Split what remains of a budget over `wishes`, and say what is achievable. Spends nothing.

    If all wishes fit, each gets what it wants, and the plan says how much better all of them could be. If not, all
    give way: the error of a wish of weight w is multiplied by 1 + (f − 1)/w, with the least f at which all fit.

    Args:
        room: an unspent budget, a filter, or an account of a ledger.
        wishes: what is wanted; the classes are in `accounting.wishes`.

    >>> from discreet import PureDP
    >>> from discreet.accounting.wishes import CountWish, SelectionWish
    >>> plan = allocate(PureDP(1.0), [CountWish("rows", 10.0), SelectionWish("color", 40.0, candidates=8)])
    >>> plan.met, round(plan.best, 2)
    (True, 0.55)
    """
    wanted = tuple(wishes)
    for wish in wanted:
        if not isinstance(wish, Wish):
            raise _check.fail("wishes", "be wishes", wish, "use the classes of accounting.wishes, such as CountWish")
    if not wanted or len({wish.name for wish in wanted}) < len(wanted):
        names = [wish.name for wish in wanted]
        raise _check.fail("wishes", "be at least one, each with a name of its own", names, "tables show the names")
    remaining = _Remainder.of(room)
    for wish in wanted:
        remaining.check(wish)

    def events(factor: float) -> list[tuple[float, Event]]:
        errors = [wish.error * (1 + (factor - 1) / wish.weight if factor > 1 else factor) for wish in wanted]
        return [(error, wish.at(error)) for wish, error in zip(wanted, errors, strict=True)]

    def fits(factor: float) -> bool:
        return remaining.fits(Composed(tuple(event for _, event in events(factor))))

    least = _least(fits)
    factor = max(1.0, least)
    if math.isinf(factor):
        raise _check.fail(
            "wishes", "fit with some error", [wish.name for wish in wanted], f"what remains is {remaining.words}"
        )
    chosen = events(factor)
    shares = remaining.shares([event for _, event in chosen])
    allocated = tuple(
        AllocatedWish(wish, event, error, remaining.epsilon(event), share)
        for wish, (error, event), share in zip(wanted, chosen, shares, strict=True)
    )
    return Allocation(remaining.budget, remaining.words, remaining.delta, allocated, factor, least)


def _least(fits: Callable[[float], bool]) -> float:
    """The least factor that fits, to within `_CLOSE` and on the safe side; inf if none does."""
    if fits(1.0):
        low, high = 0.5, 1.0
        while low > _LEAST and fits(low):
            low, high = low / 2, low
    else:
        low, high = 1.0, 2.0
        while not fits(high):
            low, high = high, 2 * high
            if high > _MOST:
                return math.inf
    while high - low > _CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class _Remainder:
    """What remains, and how it decides."""

    budget: Guarantee
    relation: Relation
    left: Guarantee
    fits: Callable[[Event], bool]

    @classmethod
    def of(cls, room: Guarantee | AdaptiveFilter | HasRoom) -> _Remainder:
        if isinstance(room, Guarantee):
            room = AdaptiveFilter.start(room, ADD_REMOVE if room.protects is None else room.protects.relation)
        if isinstance(room, AdaptiveFilter):
            standing = room
            return cls(
                room.budget,
                room.relation,
                room.remaining(),
                lambda event: isinstance(standing.spend(event), AdaptiveFilter),
            )
        if not callable(getattr(room, "would_afford", None)):
            raise _check.fail("room", "be a budget, a filter or an account", room, "it is what the plan may spend")
        return cls(room.budget, room.neighbors.relation, room.remaining(), room.would_afford)

    @property
    def words(self) -> str:
        return form_of(self.budget).room_words(self.left)

    @property
    def delta(self) -> float:
        return form_of(self.budget).stated_delta

    @property
    def _orders(self) -> tuple[float, ...]:
        return self.left.orders if isinstance(self.left, RDP) else ()

    def _price(self, event: Event) -> Price:
        form = form_of(self.budget)
        return form.price(form.split(event, self.relation)[0], self.relation, self._orders)

    def check(self, wish: Wish) -> None:
        """Refuse a wish that costs an infinite amount of this kind of budget, however large its error."""
        if all(amount is None for amount in self._price(wish.at(wish.error))):
            remedy = "its noise has no finite price there; use another noise or an (ε, δ) budget"
            raise _check.fail("wishes", f"have a price in {self.budget}", wish.name, remedy)

    def shares(self, events: Sequence[Event]) -> list[float]:
        """The share of what remains that each event uses, at the order that decides about all of them."""
        left = form_of(self.budget).amounts(self.left)
        prices = [self._price(event) for event in events]
        totals = [
            math.inf
            if any(price[at] is None for price in prices) or not left[at]
            else float(sum((price[at] or Fraction(0) for price in prices), Fraction(0)) / left[at])
            for at in range(len(left))
        ]
        decides = min if form_of(self.budget).any_order else max
        at = totals.index(decides(totals))
        return [
            math.inf if price[at] is None or not left[at] else float((price[at] or 0) / left[at]) for price in prices
        ]

    def epsilon(self, event: Event) -> float:
        """What an event costs by itself, as an ε."""
        if not form_of(self.budget).has_delta:
            return pure(event, self.relation).epsilon
        try:
            return epsilon(event, self.delta, self.relation).upper
        except UnknownEvent:
            return math.inf
