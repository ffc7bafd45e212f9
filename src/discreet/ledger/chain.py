"""Entries of an account and the chain of hashes that binds each to the one before.

An entry's hash is the SHA-256 of its canonical text, and the text holds the hash of the entry before it, the account,
the sequence number and all that was recorded. So an edit, a deletion or a change of order shows at the row where it
was made, to anyone who keeps the last hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from discreet.accounting.adaptive.budgets import Price
from discreet.codec import (
    canonical,
    decode_neighbors,
    decode_tree,
    neighbors_text,
    parse,
    sum_value,
)
from discreet.errors import NotALedger
from discreet.events import Event
from discreet.ledger.totals import charge_text, price_of_list
from discreet.neighbors import Neighbors

#: The hash before the first entry.
NOTHING = "0" * 64

KINDS = ("open", "allot", "spend", "reserve", "start", "close")

_FIELDS = {
    "above",
    "account",
    "change",
    "claimed",
    "event",
    "key",
    "kind",
    "neighbors",
    "origin",
    "previous",
    "purpose",
    "reservation",
    "sequence",
    "steps",
    "terms",
    "time",
}


@dataclass(frozen=True)
class Origin:
    """The entry of a sub-account that an entry of an account above it repeats."""

    account: str
    sequence: int
    hash: str


@dataclass(frozen=True)
class Entry:
    """One row of an account, written once and never changed.

    Attributes:
        account: the account that the row belongs to.
        sequence: its place in the account: 0 opens it, each later row counts one more.
        kind: "open", "allot", "spend", "reserve", "start" (a block of reserved steps) or "close" (a reservation).
        time: when it was written by the writer's clock; for people, nothing depends on it.
        neighbors: what the account protects.
        previous: the hash of the row before.
        event: what was charged; for "close" the steps that were started, in place of those that were reserved.
        change: what was added to the account's totals, exactly; negative for "close", None where infinite.
        claimed: what was added to the part of δ that events brought themselves.
        purpose: what it was for, in the spender's words.
        key: the key that makes a retry find this row.
        origin: the row of a sub-account that was charged here as well.
        above: which row of each account above was written together with this one.
        reservation: the row of the reservation that "start" and "close" belong to.
        steps: reserved steps ("reserve"), steps that were started so far ("start"), or were started at all ("close").
        terms: the terms, as text, for "open"; the name and terms of a sub-account for "allot".
    """

    account: str
    sequence: int
    kind: str
    time: str
    neighbors: Neighbors
    previous: str
    event: Event | None = None
    change: Price = ()
    claimed: Fraction = Fraction(0)
    purpose: str = ""
    key: str | None = None
    origin: Origin | None = None
    above: tuple[tuple[str, int], ...] = ()
    reservation: int | None = None
    steps: int | None = None
    terms: str | None = None

    @property
    def by(self) -> str:
        """The account that asked: this one, or the sub-account that it was charged for."""
        return self.account if self.origin is None else self.origin.account

    def body(self) -> str:
        """The canonical text that is stored and hashed."""
        origin = self.origin
        return entry_text(
            canonical(self.above) if self.above else "[]",
            charge_text(self.account, self.change, self.claimed, self.event),
            _maybe(self.key),
            self.kind,
            neighbors_text(self.neighbors),
            "null" if origin is None else canonical([origin.account, origin.sequence, origin.hash]),
            self.previous,
            quoted(self.purpose),
            "null" if self.reservation is None else str(self.reservation),
            self.sequence,
            "null" if self.steps is None else str(self.steps),
            _maybe(self.terms),
            self.time,
        )

    @classmethod
    def of_body(cls, body: str) -> Entry:
        """The entry of its stored text; a text that is not one is refused."""
        value = parse(body)
        if not isinstance(value, dict) or set(value) != _FIELDS or value["kind"] not in KINDS:
            raise NotALedger("a row is not an entry: the ledger was edited, or written by something else")
        try:
            return cls(
                account=_text(value["account"]),
                sequence=_whole(value["sequence"]),
                kind=value["kind"],
                time=_text(value["time"]),
                neighbors=decode_neighbors(value["neighbors"]),
                previous=_text(value["previous"]),
                event=None if value["event"] is None else decode_tree(value["event"]),
                change=price_of_list(value["change"]),
                claimed=sum_value(value["claimed"]),
                purpose=_text(value["purpose"]),
                key=None if value["key"] is None else _text(value["key"]),
                origin=None if value["origin"] is None else Origin(*value["origin"]),
                above=tuple((_text(name), _whole(number)) for name, number in value["above"]),
                reservation=None if value["reservation"] is None else _whole(value["reservation"]),
                steps=None if value["steps"] is None else _whole(value["steps"]),
                terms=None if value["terms"] is None else _text(value["terms"]),
            )
        except (TypeError, ValueError) as error:
            raise NotALedger("a row is not readable as an entry: the ledger was edited") from error


def entry_text(
    above: str,
    charge: str,
    key: str,
    kind: str,
    neighbors: str,
    origin: str,
    previous: str,
    purpose: str,
    reservation: str,
    sequence: int,
    steps: str,
    terms: str,
    time: str,
) -> str:
    """The canonical text of an entry whose parts are JSON already, but for its kind, its hash and its time.

    Written out in the order of the names, because every spend waits for it; a test compares it with `canonical`.
    """
    return (
        f'{{"above":{above},{charge},"key":{key},"kind":"{kind}","neighbors":{neighbors},"origin":{origin},'
        f'"previous":{quoted(previous)},"purpose":{purpose},"reservation":{reservation},"sequence":{sequence},'
        f'"steps":{steps},"terms":{terms},"time":{quoted(time)}}}'
    )


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def seal(name: str, parent: str | None, terms: str, state: str, sequence: int, head: str) -> str:
    """One hash over an account's row, so that an edit of its totals is seen before the next spend."""
    # None of these holds a line break: names are printable and the texts are canonical JSON.
    return digest("\n".join((name, parent or "", terms, state, str(sequence), head)))


def _maybe(text: str | None) -> str:
    return "null" if text is None else quoted(text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value
