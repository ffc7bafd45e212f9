"""What an attacker can do: the trade-off between false alarms and misses that nobody can beat."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet import accounting
from discreet.accounting._trade_off import supporting_lines
from discreet.accounting.adaptive.budgets import form_of
from discreet.errors import UnknownEvent
from discreet.events import Composed, Event, Repeated
from discreet.guarantees import Guarantee
from discreet.neighbors import Relation

#: The rates of false alarms at which the curve is drawn.
_FALSE_ALARMS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: The rate that sentences speak of, the usual one of a statistical test.
_USUAL = 0.05


@dataclass(frozen=True)
class ReportTradeOff:
    """The least share of misses of any attacker at each rate of false alarms.

    `promised` follows from the budget and holds for adaptive use. `so_far` is the tight curve of what was charged, as
    if it had been fixed in advance; None if no theorem prices it.
    """

    false_alarms: tuple[float, ...]
    promised: tuple[float, ...]
    so_far: tuple[float, ...] | None

    def recognized(self, curve: Sequence[float]) -> float:
        """The largest share of people that an attacker with 5% false alarms recognizes."""
        return 1.0 - curve[self.false_alarms.index(_USUAL)]


def trade_off(budget: Guarantee, events: Sequence[Event], relation: Relation) -> ReportTradeOff:
    """The curves of a budget and of the events that were charged to it."""
    alarms = np.array(_FALSE_ALARMS)
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 200)])
    epsilons, deltas = np.array(form_of(budget).profile([float(e) for e in epsilons])).T
    promised = supporting_lines(alarms, epsilons, deltas)
    so_far: tuple[float, ...] | None
    try:
        # What was charged fits into the budget, so the budget's curve holds for it as well.
        so_far = _floats(np.maximum(_tight(alarms, events, relation), promised))
    except UnknownEvent:
        so_far = None
    return ReportTradeOff(_FALSE_ALARMS, _floats(promised), so_far)


def _tight(alarms: Any, events: Sequence[Event], relation: Relation) -> Any:
    """The curve of the events that no attacker beats."""
    if not events:
        return 1.0 - alarms
    counts = Counter(events)
    composed = Composed(tuple(event if n == 1 else Repeated(event, n) for event, n in counts.items()))
    return accounting.trade_off(composed, relation).lower(alarms)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) if math.isfinite(value) else 0.0 for value in values)
