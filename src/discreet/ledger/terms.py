"""The terms of an account: what was agreed when it was opened, and what was spent since, as exact numbers.

The Rényi orders and their limits are part of the terms: they are fixed when an account is opened, so a later version
that would choose others cannot move a budget that is already in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from discreet import _check
from discreet.accounting.claims import without_delta
from discreet.accounting.filters import AdaptiveFilter, Price, Refused
from discreet.errors import NotALedger
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.ledger.codec import (
    canonical,
    decode_budget,
    decode_neighbors,
    encode_budget,
    encode_neighbors,
    parse,
    ratio_text,
    ratio_value,
)
from discreet.neighbors import Neighbors, Relation

# Sums of floats never need more; sums of other rationals are rounded up to this many binary digits after the point,
# so that what is stored does not grow with history.
_BITS = 1200


@dataclass(frozen=True)
class PricedFilter(AdaptiveFilter):
    """The filter of `accounting`, with prices remembered within the process. It decides nothing by itself."""

    def price(self, event: Event) -> Price:
        """What `event` costs in each account, as `AdaptiveFilter.price` says."""
        return _price(self.budget, self.relation, self.orders, event)

    def spend(self, event: Event) -> AdaptiveFilter | Refused:
        """As `AdaptiveFilter.spend`, for totals as they are stored: what only fits before rounding up is refused."""
        after = AdaptiveFilter.spend(self, event)
        if isinstance(after, Refused):
            return after
        stored = State.after(after)
        room = [total is not None and total <= limit for total, limit in zip(stored.spent, self.limits, strict=True)]
        fits = any(room) if isinstance(self.budget, ApproxDP) else all(room)
        if fits and stored.claimed <= self.aside:
            return after
        return Refused(
            event, None, self.remaining(), "its exact total is too long to be stored and does not fit rounded"
        )


@lru_cache(maxsize=4096)
def _price(budget: Guarantee, relation: Relation, orders: tuple[float, ...], event: Event) -> Price:
    return AdaptiveFilter(budget, relation, orders, (), ()).price(event)


@dataclass(frozen=True)
class State:
    """What an account has spent: at each order (None where nothing is left of it), and of the δ set aside."""

    spent: Price
    claimed: Fraction

    def changed(self, change: Price, claimed: Fraction) -> State:
        """The state after adding `change`, rounded up where it would grow too long."""
        spent = tuple(
            None if before is None or more is None else settled(before + more)
            for before, more in zip(self.spent, change, strict=True)
        )
        return State(spent, settled(self.claimed + claimed))

    def text(self) -> str:
        """The state as canonical text, which is remembered for the next spend."""
        text = f'{{"claimed":"{ratio_text(self.claimed)}","spent":{price_text(self.spent)}}}'
        if len(_states) >= _REMEMBERED:
            _states.clear()
        _states[text] = self
        return text

    @classmethod
    def after(cls, standing: AdaptiveFilter) -> State:
        """The state that a filter has reached, rounded up where it would grow too long."""
        spent = tuple(None if total is None else settled(total) for total in standing.spent)
        return cls(spent, settled(standing.claimed))

    @classmethod
    def of_text(cls, text: str) -> State:
        """The state of its canonical text."""
        known = _states.get(text)
        if known is not None:
            return known
        value = parse(text)
        if not isinstance(value, dict) or set(value) != {"claimed", "spent"}:
            raise NotALedger("an account's totals are not readable: the ledger was edited")
        return cls(price_of_list(value["spent"]), ratio_value(value["claimed"]))


# What this process wrote last is what it reads next, most of the time.
_states: dict[str, State] = {}
_REMEMBERED = 256


def settled(total: Fraction) -> Fraction:
    """`total`, or the next larger number with a denominator of 2^1200 where its own is longer."""
    if total.denominator.bit_length() <= _BITS + 1:
        return total
    return Fraction(-((-total.numerator << _BITS) // total.denominator), 1 << _BITS)


def price_text(price: Price) -> str:
    """A price as canonical JSON; null is infinite."""
    parts = ["null" if part is None else f'"{part.numerator}/{part.denominator}"' for part in price]
    return f"[{','.join(parts)}]"


def price_of_list(value: Any) -> Price:
    """The price of plain JSON values."""
    if not isinstance(value, list):
        raise NotALedger("a price is not readable: the ledger was edited")
    return tuple(None if part is None else ratio_value(part) for part in value)


@dataclass(frozen=True)
class Terms:
    """What an account was opened with. It never changes."""

    name: str
    parent: str | None
    budget: Guarantee
    neighbors: Neighbors
    orders: tuple[float, ...]
    limits: tuple[Fraction, ...]
    aside: Fraction

    @classmethod
    def start(cls, name: str, parent: str | None, budget: Guarantee, neighbors: Neighbors, aside: float = 0.0) -> Terms:
        """The terms of a new account; the filter of `accounting` chooses orders and limits."""
        encode_budget(budget)
        plain = replace(budget, protects=None)
        made = AdaptiveFilter.start(plain, neighbors.relation, aside=aside)
        orders = tuple(float(order) for order in made.orders)
        return cls(name, parent, plain, neighbors, orders, made.limits, made.aside)

    @cached_property
    def promise(self) -> Guarantee:
        """The budget, saying whom it protects."""
        return self.budget.protecting(self.neighbors)

    def beginning(self) -> State:
        """Nothing spent."""
        return State((Fraction(0),) * len(self.limits), Fraction(0))

    def price(self, event: Event) -> tuple[Price, Fraction]:
        """What `event` adds to the totals and to the δ that is set aside; raises where no theorem prices it."""
        relation = self.neighbors.relation
        plain, brought = without_delta(event, relation) if isinstance(self.budget, ApproxDP) else (event, Fraction(0))
        return _price(self.promise, relation, self.orders, plain), brought

    def filter(self, state: State) -> PricedFilter:
        """The filter that decides what fits after `state`."""
        if len(state.spent) != len(self.limits):
            raise NotALedger(f"the totals of account {self.name!r} do not match its terms: the ledger was edited")
        return PricedFilter(
            self.promise, self.neighbors.relation, self.orders, self.limits, state.spent, self.aside, state.claimed
        )

    def shown(self, price: Price) -> Guarantee:
        """A price in the words of the budget, rounded up."""
        made = self.filter(self.beginning())
        return made._shown(price, up=True)

    def tree(self) -> dict[str, Any]:
        """The terms as plain JSON values."""
        return {
            "aside": ratio_text(self.aside),
            "budget": encode_budget(self.budget),
            "limits": [ratio_text(limit) for limit in self.limits],
            "name": self.name,
            "neighbors": encode_neighbors(self.neighbors),
            "orders": [order.hex() for order in self.orders],
            "parent": self.parent,
        }

    def text(self) -> str:
        """The terms as canonical text."""
        return canonical(self.tree())

    @classmethod
    def of_text(cls, text: str) -> Terms:
        """The terms of their canonical text."""
        value = parse(text)
        try:
            made = cls(
                name=value["name"],
                parent=value["parent"],
                budget=decode_budget(value["budget"]),
                neighbors=decode_neighbors(value["neighbors"]),
                orders=tuple(float.fromhex(order) for order in value["orders"]),
                limits=tuple(ratio_value(limit) for limit in value["limits"]),
                aside=ratio_value(value["aside"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NotALedger("an account's terms are not readable: the ledger was edited") from error
        if made.text() != text:
            raise NotALedger(f"the terms of account {made.name!r} are not in their one form: the ledger was edited")
        return made

    def __str__(self) -> str:
        kept = f", {float(self.aside):.6g} of δ set aside" if self.aside else ""
        return f"{self.budget}{kept}, {self.neighbors}"


def used(terms: Terms, state: State) -> float:
    """The share of the budget that is used, from 0 to 1: for an (ε, δ) budget at the order with most room."""
    shares = [
        1.0 if total is None else float(min(Fraction(1), total / limit)) if limit else float(total > 0)
        for total, limit in zip(state.spent, terms.limits, strict=True)
    ]
    exhaustive = isinstance(terms.budget, PureDP | ZCDP | GDP | RDP)
    return max(shares) if exhaustive else min(shares)


def checked_name(name: object, what: str = "name") -> str:
    """A name of an account: a short text without slashes or control characters."""
    remedy = "names are texts of 1 to 200 printable characters without '/', which parts accounts from sub-accounts"
    if not isinstance(name, str) or not 1 <= len(name) <= 200 or "/" in name or not name.isprintable():
        raise _check.fail(what, "be a plain name", name, remedy)
    return checked_text(what, name)


def checked_text(what: str, text: object, longest: int = 2000) -> str:
    """A text that every store can keep: no NUL, no half of a surrogate pair, not too long."""
    remedy = f"it is stored with the entry: a text of at most {longest} characters without NUL"
    if not isinstance(text, str) or len(text) > longest or "\0" in text:
        raise _check.fail(what, "be a text", text, remedy)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _check.fail(what, "be valid Unicode", text, remedy) from None
    return text
