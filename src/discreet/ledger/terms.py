"""The terms of an account: what was agreed when it was opened, and what was spent since, as exact numbers.

The Rényi orders and their limits are part of the terms: they are fixed when an account is opened, so a later version
that would choose others cannot move a budget that is already in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
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
    ratio_sum_text,
    sum_text,
    sum_value,
)
from discreet.neighbors import Neighbors

# Sums of floats never need more; sums of other rationals are rounded up to this many binary digits after the point,
# so that what is stored does not grow with history.
_BITS = 1200


Ratio = tuple[int, int]  # numerator and denominator in lowest terms: much cheaper to add than `Fraction`


class Amounts(tuple[Fraction | None, ...]):
    """A price that remembers its text and its integers: the same few events are charged again and again."""

    @cached_property
    def text(self) -> str:
        return price_text(tuple(self))

    @cached_property
    def ratios(self) -> tuple[Ratio | None, ...]:
        return tuple(None if part is None else part.as_integer_ratio() for part in self)


@dataclass(frozen=True)
class State:
    """What an account has spent: at each order (None where nothing is left of it), and of the δ set aside."""

    ratios: tuple[Ratio | None, ...]
    claimed: Fraction

    @cached_property
    def spent(self) -> Price:
        """What was spent at each order."""
        return tuple(None if part is None else Fraction(*part) for part in self.ratios)

    def changed(self, change: Price, claimed: Fraction) -> State:
        """The state after adding `change`, rounded up where it would grow too long."""
        more = change.ratios if isinstance(change, Amounts) else Amounts(change).ratios
        ratios = tuple(
            None if old is None or new is None else settled(added(old, new))
            for old, new in zip(self.ratios, more, strict=True)
        )
        if not claimed:
            return State(ratios, self.claimed)
        total = settled(added(self.claimed.as_integer_ratio(), claimed.as_integer_ratio()))
        return State(ratios, Fraction(*total))

    def text(self) -> str:
        """The state as canonical text, which is remembered for the next spend."""
        parts = ["null" if part is None else f'"{ratio_sum_text(*part)}"' for part in self.ratios]
        text = f'{{"claimed":"{sum_text(self.claimed)}","spent":[{",".join(parts)}]}}'
        if len(_states) >= _REMEMBERED:
            _states.clear()
        _states[text] = self
        return text

    @classmethod
    def of_text(cls, text: str) -> State:
        """The state of its canonical text."""
        known = _states.get(text)
        if known is not None:
            return known
        value = parse(text)
        if not isinstance(value, dict) or set(value) != {"claimed", "spent"}:
            raise NotALedger("an account's totals are not readable: the ledger was edited")
        return cls(Amounts(price_of_list(value["spent"])).ratios, sum_value(value["claimed"]))


# What this process wrote last is what it reads next, most of the time.
_states: dict[str, State] = {}
_REMEMBERED = 256


def added(one: Ratio, two: Ratio) -> Ratio:
    """The sum in lowest terms; where both denominators are powers of two, as those of floats are, by shifts alone."""
    (n, d), (m, e) = one, two
    if d & (d - 1) or e & (e - 1):
        return (Fraction(n, d) + Fraction(m, e)).as_integer_ratio()
    if d < e:
        n, d = n * (e // d), e
    total = n + m * (d // e)
    if total & 1 or d == 1:
        return total, d
    factor = min(total & -total, d) if total else d
    return total // factor, d // factor


def settled(total: Ratio) -> Ratio:
    """`total`, or the next larger number with a denominator of 2^1200 where its own is longer."""
    n, d = total
    if d.bit_length() <= _BITS + 1:
        return total
    return Fraction(-((-n << _BITS) // d), 1 << _BITS).as_integer_ratio()


def price_text(price: Price) -> str:
    """A price as canonical JSON; null is infinite."""
    if isinstance(price, Amounts):
        return price.text
    parts = ["null" if part is None else f'"{sum_text(part)}"' for part in price]
    return f"[{','.join(parts)}]"


def price_of_list(value: Any) -> Price:
    """The price of plain JSON values."""
    if not isinstance(value, list):
        raise NotALedger("a price is not readable: the ledger was edited")
    return tuple(None if part is None else sum_value(part) for part in value)


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
        return State(((0, 1),) * len(self.limits), Fraction(0))

    @cached_property
    def _limits(self) -> tuple[Ratio, ...]:
        return tuple(limit.as_integer_ratio() for limit in self.limits)

    @cached_property
    def _known(self) -> dict[Event, tuple[Price, Fraction]]:
        return {}

    def price(self, event: Event) -> tuple[Price, Fraction]:
        """What `event` adds to the totals and to the δ that is set aside; raises where no theorem prices it."""
        known = self._known.get(event)
        if known is not None:
            return known
        relation = self.neighbors.relation
        plain, brought = without_delta(event, relation) if isinstance(self.budget, ApproxDP) else (event, Fraction(0))
        price = AdaptiveFilter(self.promise, relation, self.orders, (), ()).price(plain)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(event, (Amounts(price), brought))

    def fits(self, state: State) -> bool:
        """Whether an account may stand like this: at some order for an (ε, δ) budget, at all of them for others."""
        pairs = zip(state.ratios, self._limits, strict=True)
        room = (part is not None and part[0] * limit[1] <= limit[0] * part[1] for part, limit in pairs)
        return (any(room) if isinstance(self.budget, ApproxDP) else all(room)) and state.claimed <= self.aside

    def charged(self, state: State, event: Event) -> State | Refused:
        """The state after `event`, as it would be stored; what does not fit, or fits only before rounding, is refused.

        The filter of `accounting` decides by the same comparison on the totals before they are rounded up, and is asked
        only for its words.
        """
        self._match(state)
        after = state.changed(*self.price(event))
        if self.fits(after):
            return after
        standing = self.filter(state)
        found = standing.spend(event)
        if isinstance(found, Refused):
            return found
        reason = "its exact total is too long to be stored and does not fit rounded"
        return Refused(event, None, standing.remaining(), reason)

    def filter(self, state: State) -> AdaptiveFilter:
        """The filter of `accounting` as it stands after `state`."""
        self._match(state)
        return AdaptiveFilter(
            self.promise, self.neighbors.relation, self.orders, self.limits, state.spent, self.aside, state.claimed
        )

    def _match(self, state: State) -> None:
        if len(state.ratios) != len(self.limits):
            raise NotALedger(f"the totals of account {self.name!r} do not match its terms: the ledger was edited")

    def shown(self, price: Price) -> Guarantee:
        """A price in the words of the budget, rounded up."""
        made = self.filter(self.beginning())
        return made._shown(price, up=True)

    def tree(self) -> dict[str, Any]:
        """The terms as plain JSON values."""
        return {
            "aside": sum_text(self.aside),
            "budget": encode_budget(self.budget),
            "limits": [sum_text(limit) for limit in self.limits],
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
                limits=tuple(sum_value(limit) for limit in value["limits"]),
                aside=sum_value(value["aside"]),
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
