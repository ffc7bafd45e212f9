"""The statement of an account: who spent how much for what, and two figures for the total that say when they hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.interval import Interval
from discreet.accounting.tight import epsilon
from discreet.codec import encode_tree
from discreet.errors import UnknownEvent
from discreet.events import Composed, Event, Repeated
from discreet.guarantees import Guarantee
from discreet.ledger.chain import Entry
from discreet.ledger.terms import Terms
from discreet.ledger.totals import Totals

ADAPTIVE = "holds whatever is asked next, and even if earlier answers decided what was asked"
FIXED = "holds only if all of these events were fixed in advance; not for events chosen in view of earlier answers"


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One charge of a statement."""

    sequence: int
    time: str
    by: str
    kind: str
    purpose: str
    event: Event
    charged: Guarantee
    share: float
    part: str = ""
    user: str = ""

    @property
    def who(self) -> str:
        """The account that spent, and the user who asked for it, if an entry names one that the account does not."""
        named = not self.user or self.by.rpartition("/")[2] == self.user
        return self.by if named else f"{self.by} ({self.user})"

    @property
    def description(self) -> str:
        """The purpose, and the part of a partition that was charged, if it was one."""
        return f"{self.purpose} [{self.part}]" if self.part else self.purpose


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
    lines: tuple[StatementLine, ...]

    @property
    def text(self) -> str:
        """The statement as text. Amounts at Rényi orders are left to `to_json`: they tell a reader nothing."""
        spent = f"; spent {self.spent}" if form_of(self.budget).readable else ""
        rows = [
            ("#", "time", "by", "what", "share", "purpose", "event"),
            *(
                (
                    str(line.sequence),
                    line.time[:19],
                    line.who,
                    line.kind,
                    f"{100 * line.share:.2f}%",
                    line.description,
                    str(line.event),
                )
                for line in self.lines
            ),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(
            [
                f"Account {self.account}: {self.budget}",
                f"  used: {100 * self.used:.2f}%{spent}",
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
        return form_of(self.budget).room_words(self.remaining)

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
                **({"part": line.part} if line.part else {}),
                **({"user": line.user} if line.user else {}),
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
                "orders": form_of(self.budget).by_order(self.spent, self.remaining),
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


@dataclass(frozen=True)
class Summary:
    """How an account stands.

    Attributes:
        used: the share of the budget that is used, from 0 to 1.
        remaining: what may still be spent.
        room: the same in words: for an (ε, δ) budget, how large one more answer may be.
        charges: how many charges there were.
    """

    used: float
    remaining: Guarantee
    room: str
    charges: int


#: A tight figure, or None and why there is none.
Tight = tuple[Interval | None, str]


def compose(terms: Terms, totals: Totals, lines: tuple[StatementLine, ...], figure: Tight, delta: float) -> Statement:
    """The statement of an account from its terms, its totals, its charges, and the tight figure at `delta`."""
    standing = terms.filter(totals)
    if totals.divided is not None:
        figure = None, "no tight figure is known: charges to parts of partitions do not add up as events do"
    return Statement(
        account=terms.name,
        budget=standing.budget,
        spent=terms.shown(totals.spent),
        remaining=standing.remaining(),
        used=terms.used(totals),
        tight=figure[0],
        tight_note=figure[1],
        delta=delta,
        lines=lines,
    )


def events_of(entries: Iterable[Entry], earlier: Mapping[int, Event] | None = None) -> dict[int, Event]:
    """What has run or may still run, by the entry that charged it.

    A closed reservation counts as the steps that started. `earlier` is the same of the entries before.
    """
    by_sequence: dict[int, Event] = dict(earlier or {})
    for entry in entries:
        if entry.event is None:
            continue
        if entry.kind == "close" and entry.reservation is not None:
            by_sequence[entry.reservation] = entry.event
        else:
            by_sequence[entry.sequence] = entry.event
    return by_sequence


def tight(events: Collection[Event], delta: float, terms: Terms) -> Tight:
    """The ε at `delta` of events that were fixed in advance."""
    # Equal charges of a ledger are one object, whose identity is much quicker to count by than its fields.
    objects = {id(event): event for event in events}
    counts: Counter[Event] = Counter()
    for number, count in Counter(map(id, events)).items():
        counts[objects[number]] += count
    parts = tuple(event if count == 1 else Repeated(event, count) for event, count in counts.items())
    if not parts:
        return Interval(0.0, 0.0), ""
    try:
        return epsilon(Composed(parts), delta, terms.neighbors.relation), ""
    except UnknownEvent as error:
        return None, f"no tight figure is known: {error}"
