"""The terms of an account: what was agreed when it was opened, and what was spent since, as exact numbers.

The Rényi orders and their limits are part of the terms: they are fixed when an account is opened, so a later version
that would choose others cannot move a budget that is already in use.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from json.encoder import encode_basestring_ascii as quoted
from operator import add
from typing import Any, NamedTuple

from discreet import _check
from discreet.accounting.adaptive.filter import AdaptiveFilter, Price, Refused
from discreet.accounting.losses.claims import without_delta
from discreet.codec import (
    canonical,
    decode_budget,
    decode_neighbors,
    encode,
    encode_budget,
    encode_neighbors,
    neighbors_text,
    parse,
    sum_text,
    sum_value,
)
from discreet.errors import NotALedger
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import Neighbors

# Sums of floats never need more; sums of other rationals are rounded up to this many binary digits after the point,
# so that what is stored does not grow with history.
_BITS = 1200
# How many prices an account remembers.
_REMEMBERED = 256


Ratio = tuple[int, int]  # numerator and denominator: much cheaper to add than `Fraction`


class Grid(tuple[int, ...]):
    """The denominators of an account's totals, one for each order; 0 where the total is infinite."""

    @cached_property
    def exponents(self) -> tuple[int, ...] | None:
        """Their binary logarithms, where all of them are powers of two above 1, as those of sums of floats are."""
        plain = all(d > 1 and d.bit_count() == 1 for d in self)
        return tuple(d.bit_length() - 1 for d in self) if plain else None


class Amounts(tuple[Fraction | None, ...]):
    """A price that remembers its text and its integers: the same few events are charged again and again."""

    _on: tuple[Grid, tuple[int, ...] | None] | None = None

    @cached_property
    def text(self) -> str:
        return price_text(tuple(self))

    @cached_property
    def ratios(self) -> tuple[Ratio | None, ...]:
        return tuple(None if part is None else part.as_integer_ratio() for part in self)

    def on(self, grid: Grid) -> tuple[int, ...] | None:
        """The numerators of this price over the denominators of `grid`; None where one is not a whole number."""
        last = self._on  # read once: another thread may put another grid there
        if last is not None and last[0] is grid:
            return last[1]
        whole = [m * (d // e) for (m, e), d in self._pairs(grid) if d and not d % e]
        found = tuple(whole) if len(whole) == len(self) else None
        self._on = grid, found
        return found

    def _pairs(self, grid: Grid) -> list[tuple[Ratio, int]]:
        return [(part, d) for part, d in zip(self.ratios, grid, strict=True) if part is not None]


class Priced(NamedTuple):
    """What an event costs an account, and the part of an entry's text that says so."""

    change: Amounts
    brought: Fraction
    text: str


class State(NamedTuple):
    """What an account has spent: at each order (None where nothing is left of it), and of the δ set aside.

    Numerators and denominators need not be in lowest terms; the text is.
    """

    numerators: tuple[int | None, ...]
    grid: Grid
    claimed: Fraction

    @classmethod
    def of_ratios(cls, ratios: Sequence[Ratio | None], claimed: Fraction) -> State:
        """The state of its totals as numerators and denominators."""
        parts = [(None, 0) if part is None else part for part in ratios]
        return cls(tuple([n for n, _ in parts]), Grid([d for _, d in parts]), claimed)

    @property
    def ratios(self) -> list[Ratio | None]:
        """What was spent at each order, as numerators and denominators."""
        return [None if n is None else (n, d) for n, d in zip(self.numerators, self.grid, strict=True)]

    @property
    def spent(self) -> Price:
        """What was spent at each order."""
        return tuple(None if part is None else Fraction(*part) for part in self.ratios)

    def changed(self, change: Price, claimed: Fraction) -> State:
        """The state after adding `change`, rounded up where it would grow too long."""
        price = change if isinstance(change, Amounts) else Amounts(change)
        whole = price.on(self.grid)
        if whole is not None:  # no denominator changes, so none grows too long
            state = State(tuple(map(add, self.numerators, whole)), self.grid, self.claimed)
        else:
            pairs = zip(self.ratios, price.ratios, strict=True)
            # Over the larger denominator, so that the next sum finds this price on its grid.
            ratios = [
                None if old is None or new is None else _over(max(old[1], new[1]), settled(added(old, new)))
                for old, new in pairs
            ]
            state = State.of_ratios(ratios, self.claimed)
        if not claimed:
            return state
        total = settled(added(self.claimed.as_integer_ratio(), claimed.as_integer_ratio()))
        return state._replace(claimed=Fraction(*total))

    def text(self) -> str:
        """The state as canonical text."""
        claimed = sum_text(self.claimed) if self.claimed else "0/1"
        return f'{{"claimed":"{claimed}","spent":[{self._spent_text()}]}}'

    def _spent_text(self) -> str:
        """The totals as `price_text` would write them, but quick where denominators are powers of two."""
        numbers: list[int] = []
        for n, exponent in zip(self.numerators, self.grid.exponents or (), strict=False):
            if not n:
                break
            zeros = 0 if n & 1 else (n & -n).bit_length() - 1
            if zeros >= exponent:
                break
            numbers += (n >> zeros, exponent - zeros) if zeros else (n, exponent)
        if len(numbers) == 2 * len(self.numerators):
            return _form(len(self.numerators)) % tuple(numbers)
        return ",".join("null" if part is None else f'"{sum_text(part)}"' for part in self.spent)

    @classmethod
    def of_text(cls, text: str) -> State:
        """The state of its canonical text; any other text is refused."""
        found = _STATE.fullmatch(text) if isinstance(text, str) else None
        if found is not None:
            with contextlib.suppress(ValueError):
                made = cls.of_ratios([_total(part) for part in found[2].split(",")], sum_value(found[1]))
                if made.text() == text:
                    return made
        raise NotALedger("an account's totals are not readable: the ledger was edited")


_STATE = re.compile(r'\{"claimed":"([^"]*)","spent":\[([^\]]*)\]\}')


@cache
def _form(count: int) -> str:
    return ",".join(('"%x/2^%d"',) * count)


def _total(text: str) -> Ratio | None:
    """A total of its JSON; whoever calls it compares the text of what it finds, so it need not be strict."""
    if text == "null":
        return None
    n, _, exponent = text[1:-1].partition("/2^")
    if not exponent:
        return sum_value(text[1:-1]).as_integer_ratio()
    if len(exponent) > 4:  # totals are rounded long before
        raise ValueError(exponent)
    return int(n, 16), 1 << int(exponent)


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


def _over(denominator: int, ratio: Ratio) -> Ratio:
    """The same number over a larger denominator, where that is possible and not too long."""
    n, d = ratio
    fits = not denominator % d and denominator.bit_length() <= _BITS + 1
    return (n * (denominator // d), denominator) if fits else ratio


def price_text(price: Price) -> str:
    """A price as canonical JSON; null is infinite."""
    if isinstance(price, Amounts):
        return price.text
    parts = ["null" if part is None else f'"{sum_text(part)}"' for part in price]
    return f"[{','.join(parts)}]"


def charge_text(account: str, change: Price, claimed: Fraction, event: Event | None) -> str:
    """Who was charged what for which event, as an entry's text says it."""
    code = "null" if event is None else encode(event)
    return f'"account":{quoted(account)},"change":{price_text(change)},"claimed":"{sum_text(claimed)}","event":{code}'


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
        return State.of_ratios([(0, 1)] * len(self.limits), Fraction(0))

    @cached_property
    def _one_is_enough(self) -> bool:
        return isinstance(self.budget, ApproxDP)

    @cached_property
    def _limits(self) -> tuple[Ratio, ...]:
        return tuple(limit.as_integer_ratio() for limit in self.limits)

    @cached_property
    def _known(self) -> dict[Event, Priced]:
        return {}

    @cached_property
    def neighbors_text(self) -> str:
        """The unit and the relation as entries state them."""
        return neighbors_text(self.neighbors)

    def price(self, event: Event) -> tuple[Price, Fraction]:
        """What `event` adds to the totals and to the δ that is set aside; raises where no theorem prices it."""
        return self.priced(event)[:2]

    def priced(self, event: Event) -> Priced:
        """The price of `event` with its text, which are remembered; raises where no theorem prices it."""
        known = self._known.get(event)
        if known is not None:
            return known
        relation = self.neighbors.relation
        plain, brought = without_delta(event, relation) if isinstance(self.budget, ApproxDP) else (event, Fraction(0))
        price = AdaptiveFilter(self.promise, relation, self.orders, (), ()).price(plain)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        change = Amounts(price)
        text = charge_text(self.name, change, brought, event)
        return self._known.setdefault(event, Priced(change, brought, text))

    def fits(self, state: State) -> bool:
        """Whether an account may stand like this: at some order for an (ε, δ) budget, at all of them for others."""
        if state.claimed and state.claimed > self.aside:
            return False
        enough = self._one_is_enough
        for n, d, limit in zip(state.numerators, state.grid, self._limits, strict=True):
            if (n is not None and n * limit[1] <= limit[0] * d) is enough:
                return enough
        return not enough

    def after(self, state: State, priced: Priced) -> State | None:
        """The state after an event of this price, as it would be stored, or None where it does not fit."""
        if len(state.numerators) != len(self.limits):
            raise self._mismatch()
        after = state.changed(priced.change, priced.brought)
        return after if self.fits(after) else None

    def charged(self, state: State, event: Event) -> State | Refused:
        """The state after `event`, as it would be stored; what does not fit, or fits only before rounding, is refused.

        The filter of `accounting` decides by the same comparison on the totals before they are rounded up, and is asked
        only for its words.
        """
        after = self.after(state, self.priced(event))
        if after is not None:
            return after
        standing = self.filter(state)
        found = standing.spend(event)
        if isinstance(found, Refused):
            return found
        reason = "its exact total is too long to be stored and does not fit rounded"
        return Refused(event, None, standing.remaining(), reason)

    def filter(self, state: State) -> AdaptiveFilter:
        """The filter of `accounting` as it stands after `state`."""
        if len(state.numerators) != len(self.limits):
            raise self._mismatch()
        return AdaptiveFilter(
            self.promise, self.neighbors.relation, self.orders, self.limits, state.spent, self.aside, state.claimed
        )

    def _mismatch(self) -> NotALedger:
        return NotALedger(f"the totals of account {self.name!r} do not match its terms: the ledger was edited")

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
        if made.text() != text or made.aside < 0:
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
    if isinstance(text, str) and len(text) <= longest and "\0" not in text:
        if text.isascii():
            return text
        rule = "be valid Unicode"
        with contextlib.suppress(UnicodeEncodeError):
            text.encode()
            return text
    else:
        rule = "be a text"
    remedy = f"it is stored with the entry: a text of at most {longest} characters without NUL"
    raise _check.fail(what, rule, text, remedy)
