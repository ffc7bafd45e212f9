"""What an account has to show: who spent what for what, and what that means, in two figures that say when they hold."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from discreet.accounting.adaptive.advice import room_words
from discreet.accounting.interval import Interval
from discreet.accounting.tight import epsilon
from discreet.codec import encode_tree
from discreet.errors import UnknownEvent
from discreet.events import Composed, Event, Repeated
from discreet.guarantees import RDP, ApproxDP, Guarantee
from discreet.ledger.chain import Entry
from discreet.ledger.terms import State, Terms, used

ADAPTIVE = "holds whatever is asked next, and even if earlier answers decided what was asked"
FIXED = "holds only if all of these events were fixed in advance; not for events chosen in view of earlier answers"

_DELTA = 1e-6


@dataclass(frozen=True)
class Line:
    """One charge of a statement."""

    sequence: int
    time: str
    by: str
    kind: str
    purpose: str
    event: Event
    charged: Guarantee
    share: float


@dataclass(frozen=True)
class Statement:
    """An account at one moment.

    Attributes:
        account: its name.
        budget: the filter's bound: what all spending together stays within. Valid for adaptive use.
        spent: what was spent, in the filter's own terms.
        remaining: what may still be spent.
        used: the share of the budget that is used, from 0 to 1.
        tight: ε at `delta` of the events so far, from both sides, as if they had been fixed in advance; or None.
        tight_note: why there is no tight figure, where there is none.
        delta: the δ of the tight figure.
        lines: the charges.
    """

    account: str
    budget: Guarantee
    spent: Guarantee
    remaining: Guarantee
    used: float
    tight: Interval | None
    tight_note: str
    delta: float
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        """The statement as text. Rényi orders are left to `to_json`: they tell a reader nothing."""
        rows = [
            ("#", "time", "by", "what", "share", "purpose", "event"),
            *(
                (
                    str(line.sequence),
                    line.time[:19],
                    line.by,
                    line.kind,
                    f"{100 * line.share:.2f}%",
                    line.purpose,
                    repr(line.event),
                )
                for line in self.lines
            ),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(
            [
                f"Account {self.account}: {self.budget}",
                f"  used: {100 * self.used:.2f}%" + ("" if isinstance(self.spent, RDP) else f"; spent {self.spent}"),
                f"  remaining: {self.room}",
                f"  bound: {self.budget}",
                f"    {ADAPTIVE}",
                f"  tight: {self._tight_words()}",
                f"    {FIXED}",
                *table,
            ]
        )

    @property
    def room(self) -> str:
        """What remains, in words: for an (ε, δ) budget, how large one more answer may be."""
        return room_words(self.remaining, self.budget)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each charge, for a table."""
        return [
            {
                "sequence": line.sequence,
                "time": line.time,
                "by": line.by,
                "kind": line.kind,
                "purpose": line.purpose,
                "event": repr(line.event),
                "charged": str(line.charged),
                "share": line.share,
            }
            for line in self.lines
        ]

    def to_json(self) -> str:
        """The statement as JSON, with events in the codec's tags."""
        tight = None if self.tight is None else {"lower": self.tight.lower, "upper": self.tight.upper}
        codes = [encode_tree(line.event) for line in self.lines]
        return json.dumps(
            {
                "account": self.account,
                "used": self.used,
                "spent": str(self.spent),
                "remaining": str(self.remaining),
                "room": self.room,
                "orders": by_order(self.spent, self.remaining),
                "bound": {"guarantee": str(self.budget), "valid": ADAPTIVE},
                "tight": {"epsilon": tight, "delta": self.delta, "valid": FIXED, "note": self.tight_note},
                "charges": [{**row, "code": code} for row, code in zip(self.rows(), codes, strict=True)],
            },
            ensure_ascii=False,
            indent=1,
        )

    def __str__(self) -> str:
        return self.text

    def _tight_words(self) -> str:
        if self.tight is None:
            return self.tight_note
        return f"ε between {self.tight.lower:.6g} and {self.tight.upper:.6g} at δ = {self.delta:g}"


def by_order(spent: Guarantee, remaining: Guarantee) -> list[dict[str, float | None]]:
    """What was spent and what remains at each Rényi order, where there are some; an infinite sum is None."""
    if not (isinstance(spent, RDP) and isinstance(remaining, RDP)):
        return []
    return [
        {"order": order, "spent": None if math.isinf(used) else used, "remaining": left}
        for order, used, left in zip(spent.orders, spent.epsilons, remaining.epsilons, strict=True)
    ]


def compose(terms: Terms, state: State, entries: Sequence[Entry], delta: float | None) -> Statement:
    """The statement of an account from its terms, totals and entries."""
    if delta is None:
        # An (ε, 0) budget has no δ to read ε at.
        delta = terms.budget.delta if isinstance(terms.budget, ApproxDP) else _DELTA
    standing = terms.filter(state)
    tight, note = _tight(events_of(entries), float(delta), terms)
    return Statement(
        account=terms.name,
        budget=standing.budget,
        spent=terms.shown(state.spent),
        remaining=standing.remaining(),
        used=used(terms, state),
        tight=tight,
        tight_note=note,
        delta=float(delta),
        lines=tuple(_line(terms, entry) for entry in entries if entry.event is not None),
    )


def events_of(entries: Sequence[Entry]) -> list[Event]:
    """What was run or may still run: a closed reservation counts as the steps that were started."""
    kept: dict[int, Event] = {}
    for entry in entries:
        if entry.event is None:
            continue
        if entry.kind == "close" and entry.reservation is not None:
            kept[entry.reservation] = entry.event
        else:
            kept[entry.sequence] = entry.event
    return list(kept.values())


def _tight(events: Sequence[Event], delta: float, terms: Terms) -> tuple[Interval | None, str]:
    counts = Counter(events)
    parts = tuple(event if count == 1 else Repeated(event, count) for event, count in counts.items())
    if not parts:
        return Interval(0.0, 0.0), ""
    try:
        return epsilon(Composed(parts), delta, terms.neighbors.relation), ""
    except UnknownEvent as error:
        return None, f"no tight figure is known: {error}"


def _line(terms: Terms, entry: Entry) -> Line:
    event = entry.event
    if event is None:
        raise TypeError("a line needs an event")
    positive = tuple(None if part is None else max(part, Fraction(0)) for part in entry.change)
    shares = [
        1.0 if part is None else float(part / limit) if limit else 0.0
        for part, limit in zip(entry.change, terms.limits, strict=True)
    ]
    share = min(shares) if isinstance(terms.budget, ApproxDP) else max(shares)
    if entry.kind == "close":
        share = max(shares)
    return Line(entry.sequence, entry.time, entry.by, entry.kind, entry.purpose, event, terms.shown(positive), share)
