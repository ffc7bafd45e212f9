"""What a spend returns: proof that it was charged, to keep with the release, the checkpoint or in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from discreet.codec import canonical, parse
from discreet.errors import NotALedger
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger.chain import Entry, digest
from discreet.ledger.terms import Terms


@dataclass(frozen=True)
class Receipt:
    """A spend that is durably recorded. Keep it: its hash covers everything in the account up to it.

    Attributes:
        account: the account that was charged.
        sequence: the number of the entry in the account.
        event: what was charged.
        purpose: what it was for.
        key: the key with which a retry finds this receipt.
        time: when it was recorded, by the spender's clock.
        hash: the hash of the entry.
        body: the text of the entry, from which the hash is computed.
        terms: the terms of the account.
        replayed: whether an earlier call with the same key made this charge. One key pays for one release: if the
            earlier call may have released its answer already, draw no new noise.
    """

    account: str
    sequence: int
    event: Event
    purpose: str
    key: str | None
    time: str
    hash: str
    body: str = field(repr=False)
    terms: Terms = field(repr=False)
    replayed: bool = field(default=False, compare=False)

    @classmethod
    def of_entry(cls, terms: Terms, entry: Entry, stored: str, *, replayed: bool) -> Receipt:
        """The receipt for an entry that is in the ledger."""
        if entry.event is None:
            raise NotALedger(f"row {entry.sequence} of account {entry.account!r} charges no event: it was edited")
        return cls(
            account=entry.account,
            sequence=entry.sequence,
            event=entry.event,
            purpose=entry.purpose,
            key=entry.key,
            time=entry.time,
            hash=stored,
            body=entry.body(),
            terms=terms,
            replayed=replayed,
        )

    @cached_property
    def entry(self) -> Entry:
        """The whole row."""
        return Entry.of_body(self.body)

    @property
    def charged(self) -> Guarantee:
        """The price in the account's terms; zero for closing a reservation, which only hands back."""
        return self.terms.shown(
            tuple(None if amount is None else max(amount, Fraction(0)) for amount in self.entry.change)
        )

    def to_json(self) -> str:
        """The receipt as text, for a checkpoint or a file elsewhere; `anchor` reads it."""
        return canonical({"body": self.body, "hash": self.hash})

    def __str__(self) -> str:
        purpose = f" for {self.purpose}" if self.purpose else ""
        return f"{self.account} #{self.sequence}: {self.event!r}{purpose}, charged {self.charged}"


@dataclass(frozen=True)
class Anchor:
    """One entry's position and hash, kept outside of the ledger."""

    account: str
    sequence: int
    hash: str


def anchor(kept: Receipt | Anchor | str) -> Anchor:
    """The anchor of a receipt, or of a receipt's JSON."""
    if isinstance(kept, Anchor):
        return kept
    if isinstance(kept, Receipt):
        return Anchor(kept.account, kept.sequence, kept.hash)
    value: Any = parse(kept)
    if not isinstance(value, dict) or set(value) != {"body", "hash"} or digest(str(value["body"])) != value["hash"]:
        raise NotALedger("this is not a receipt as to_json() writes it: its hash does not match its text")
    entry = Entry.of_body(value["body"])
    return Anchor(entry.account, entry.sequence, value["hash"])
