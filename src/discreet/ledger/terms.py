"""The terms of an account: what was agreed when it was opened. They never change.

The Rényi orders and their limits are part of the terms: they are fixed when an account is opened, so a later version
that would choose others cannot move a budget that is already in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.adaptive.filter import AdaptiveFilter, Refused
from discreet.accounting.adaptive.form import Form, Limits, Price
from discreet.codec import (
    canonical,
    decode_budget,
    decode_neighbors,
    encode_budget,
    encode_neighbors,
    neighbors_text,
    parse,
)
from discreet.errors import DiscreetError, NotALedger
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger.partitions import Part, after_charge, counted_for
from discreet.ledger.totals import Amounts, Totals, charge_text
from discreet.neighbors import Neighbors
from discreet.numeric.texts import sum_text, sum_value

# How many events an account keeps the price of. Pricing may take milliseconds, all the rest of a spend some tens of
# microseconds.
_PRICES_KEPT = 2048


class Priced(NamedTuple):
    """What an event costs an account, and the part of an entry's text that says so."""

    change: Amounts
    brought: Fraction
    text: str


@dataclass(frozen=True)
class Terms:
    """What an account was opened with."""

    name: str
    parent: str | None
    budget: Guarantee
    neighbors: Neighbors
    orders: tuple[float, ...]
    limits: tuple[Fraction, ...]
    aside: Fraction

    @classmethod
    def start(cls, name: str, parent: str | None, budget: Guarantee, neighbors: Neighbors, aside: float = 0.0) -> Terms:
        """The terms of a new account; the form of the budget chooses orders and limits."""
        encode_budget(budget)  # refuses what cannot be stored
        plain = replace(budget, protects=None)
        limits = form_of(plain).limits(aside=aside)
        orders = tuple(float(order) for order in limits.orders)
        amounts = tuple(Fraction(*amount) for amount in limits.amounts)
        return cls(name, parent, plain, neighbors, orders, amounts, limits.aside)

    @cached_property
    def promise(self) -> Guarantee:
        """The budget, saying whom it protects."""
        return self.budget.protecting(self.neighbors)

    @cached_property
    def form(self) -> Form[Any]:
        """The rules and the words of this kind of budget."""
        return form_of(self.budget)

    @cached_property
    def _limits(self) -> Limits:
        return Limits.of(self.orders, self.limits, self.aside)

    @cached_property
    def _prices(self) -> dict[Event, Priced]:
        return {}

    @cached_property
    def neighbors_text(self) -> str:
        """The unit and the relation as entries state them. Cached, because every entry does."""
        return neighbors_text(self.neighbors)

    def beginning(self) -> Totals:
        """Nothing spent."""
        return Totals.of_ratios([(0, 1)] * len(self.limits), Fraction(0))

    def price(self, event: Event) -> tuple[Price, Fraction]:
        """What `event` adds to the totals and to the δ that is set aside; raises if no theorem prices it."""
        return self.priced(event)[:2]

    def priced(self, event: Event) -> Priced:
        """The price of `event` with its text, both cached; raises if no theorem prices it."""
        cached = self._prices.get(event)
        if cached is not None:
            return cached
        relation = self.neighbors.relation
        plain, brought = self.form.split(event, relation)
        change = Amounts(self.form.price(plain, relation, self.orders))
        if len(self._prices) >= _PRICES_KEPT:
            self._prices.clear()
        text = charge_text(self.name, change, brought, event)
        return self._prices.setdefault(event, Priced(change, brought, text))

    def fits(self, totals: Totals) -> bool:
        """Whether an account may stand like this."""
        return self.form.fits(totals, self._limits)

    def changed(self, totals: Totals, change: Price, brought: Fraction, part: Part | None = None) -> Totals:
        """The totals after a charge, to all rows or to a part of a partition, whether they fit or not."""
        if part is None:
            return totals.changed(change, brought)
        part.require_unit(self.neighbors)
        return after_charge(totals, part, self.neighbors.relation, change, brought)

    def after(self, totals: Totals, priced: Priced, part: Part | None = None) -> Totals | None:
        """The totals after an event of this price, as they would be stored, or None if they do not fit."""
        self._check_orders(totals)
        after = self.changed(totals, priced.change, priced.brought, part)
        return after if self.fits(after) else None

    def charged(self, totals: Totals, event: Event, part: Part | None = None) -> Totals | Refused:
        """The totals after `event`, as they would be stored, or why it is refused.

        An event that fits only before its total is rounded up is refused as well. The filter of `accounting` decides by
        the same rule on totals that are not rounded, and is asked only for its words.
        """
        after = self.after(totals, self.priced(event), part)
        if after is not None:
            return after
        standing = self.filter(totals, part)
        refused = standing.spend(event)
        if isinstance(refused, Refused):
            return refused
        reason = "its exact total is too long to be stored and does not fit rounded"
        return Refused(event, None, standing.remaining(), reason)

    def filter(self, totals: Totals, part: Part | None = None) -> AdaptiveFilter:
        """The filter of `accounting` that has spent `totals`, or what counts of them for a part of a partition."""
        self._check_orders(totals)
        counted = totals
        if part is not None:
            counted = counted_for(totals, part, self.neighbors.relation, self.limits)
        return AdaptiveFilter(
            self.promise, self.neighbors.relation, self.orders, self.limits, counted.spent, self.aside, counted.claimed
        )

    def _check_orders(self, totals: Totals) -> None:
        if len(totals.numerators) != len(self.limits):
            raise NotALedger(f"the totals of account {self.name!r} do not match its terms: the ledger was edited")

    def shown(self, price: Price) -> Guarantee:
        """A price in the form of the budget, rounded up."""
        return self.form.shown(price, self.orders, self.neighbors, up=True)

    def used(self, totals: Totals) -> float:
        """The share of the budget that is used, from 0 to 1."""
        return self.form.used(totals.spent, self.limits)

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
            terms = cls(
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
        if terms.text() != text or terms.aside < 0:
            raise NotALedger(f"the terms of account {terms.name!r} are not in canonical form: the ledger was edited")
        terms._check_limits()
        return terms

    def _check_limits(self) -> None:
        """Refuse limits above what the budget allows. Hashes cannot show that: anyone can compute them again."""
        try:
            granted = self.form.grants(self._limits)
        except DiscreetError:  # orders or a part of δ that no account can have
            granted = False
        if not granted:
            raise NotALedger(
                f"the limits of account {self.name!r} are not those of its budget ({self.budget}): the ledger was "
                "edited, and nothing can be charged to it"
            )

    def __str__(self) -> str:
        kept = f", {float(self.aside):.6g} of δ set aside" if self.aside else ""
        return f"{self.budget}{kept}, {self.neighbors}"
