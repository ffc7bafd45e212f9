"""An odometer: what an analyst without a budget has spent so far, valid whenever they stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from discreet import _check
from discreet.accounting.forms.conversions import order_epsilon
from discreet.accounting.forms.rdp import rdp
from discreet.events import Event
from discreet.guarantees import RDP, ApproxDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import float_down, reported

#: Orders for an odometer that was given none: dense where Gaussians are read, with a few for nearly pure events.
ORDERS: tuple[float, ...] = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0, 1024.0)

# The ladder starts at 2^-100. A lower level would not lower any reading, because its share of δ is smaller still.
_LOWEST_LEVEL = -200


@dataclass(frozen=True)
class Odometer:
    """The running total of adaptively chosen events, at each of a fixed set of Rényi orders.

    For each order there is a ladder of levels τ = 2^{j/2}, j = …, −1, 0, 1, …, and a share of δ for each level. The
    reading takes the first level that covers what was spent, so it is the reading of a filter with that budget: the
    union bound over orders and levels makes it valid whenever the analyst stops (docs/proofs/adaptive-filters.md). An
    ordinary conversion of the running total would not be: the analyst may stop because of what the answers were.
    """

    delta: float
    relation: Relation
    orders: tuple[float, ...]
    spent: tuple[Fraction | None, ...]

    @classmethod
    def start(cls, delta: float, relation: Relation = ADD_REMOVE, orders: Sequence[float] = ORDERS) -> Odometer:
        """An odometer at zero; `delta` is the δ of all of its readings."""
        delta = float_down(_check.delta(delta))
        chosen = tuple(float(_check.real("orders", order, "Rényi orders are finite")) for order in orders)
        RDP(chosen, (0.0,) * len(chosen))  # refuses orders that are not above 1
        return cls(delta, relation, chosen, (Fraction(0),) * len(chosen))

    def spend(self, event: Event) -> Odometer:
        """The odometer after `event`; raises `UnknownEvent` if no theorem prices it."""
        prices = rdp(event, self.orders, self.relation).epsilons
        spent = tuple(
            None if before is None or math.isinf(price) else before + Fraction(price)
            for before, price in zip(self.spent, prices, strict=True)
        )
        return replace(self, spent=spent)

    def reading(self) -> ApproxDP:
        """What the events so far cost together.

        >>> from discreet.events import Gaussian
        >>> print(Odometer.start(1e-6).spend(Gaussian(10.0)).reading())
        (0.594422, 1e-06)-DP
        """
        if all(total == 0 for total in self.spent):
            return ApproxDP(0.0, self.delta)
        readings = [
            _reading(order, total, self.delta, len(self.orders))
            for order, total in zip(self.orders, self.spent, strict=True)
        ]
        return ApproxDP(reported(min(readings)), self.delta)


def share(delta: float, level: int, orders: int) -> float:
    """The part of δ for one level of one order: ½ for level 0 and 1/(4j(j+1)) for levels ±j, which sum to 1."""
    weight = Fraction(1, 2) if level == 0 else Fraction(1, 4 * abs(level) * (abs(level) + 1))
    return float_down(Fraction(delta) * weight / orders)


def _reading(order: float, total: Fraction | None, delta: float, orders: int) -> float:
    if total is None:
        return math.inf
    # Levels are exact: the square of 2^{j/2} is a power of two, so spent ≤ level is decided on squares.
    level = _LOWEST_LEVEL if total == 0 else max(_LOWEST_LEVEL, math.ceil(2 * math.log2(total)) - 1)
    while Fraction(2) ** level < total**2:
        level += 1
    reached = math.nextafter(2.0 ** (level / 2), math.inf)
    return order_epsilon(order, reached, share(delta, level, orders))
