"""Entries of an account, and the chain of hashes that binds each to the one before.

An entry's hash is the SHA-256 of its canonical text. The text contains the hash of the entry before it, the account,
the sequence number and everything that was recorded. So anyone who keeps the last hash can find the row at which
entries were edited, deleted or reordered.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from discreet.accounting.adaptive.form import Price
from discreet.codec import (
    canonical,
    decode_neighbors,
    decode_tree,
    neighbors_text,
    parse,
)
from discreet.errors import NotALedger
from discreet.events import Event
from discreet.ledger.partitions import Part
from discreet.ledger.totals import charge_text, price_of_list
from discreet.neighbors import Neighbors
from discreet.numeric.texts import sum_value

#: Stands for the previous hash in an account's first entry.
NOTHING = "0" * 64

KINDS = ("open", "allot", "spend", "reserve", "start", "close", "attest")

# What an entry says about its charge. Equal charges have equal texts, and reading one takes most of reading an entry.
_CHARGE_FIELDS = {"change", "claimed", "event"}
# Charges that are kept parsed, some 10 KB each. Accounts charge the same few events again and again.
_CHARGES_KEPT = 4096
# Texts of neighbors that are kept parsed; an account has one.
_NEIGHBORS_KEPT = 64

_OTHER_FIELDS = {
    "above",
    "account",
    "key",
    "kind",
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
    """The entry of a sub-account that was also charged to an account above it."""

    account: str
    sequence: int
    hash: str


class _Charge(NamedTuple):
    change: Price
    claimed: Fraction
    event: Event | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of an account, written once and never changed.

    Attributes:
        account: the account that the row belongs to.
        sequence: the number of the row in its account: 0 for the row that opens it.
        kind: "open", "allot", "spend", "reserve", "start" (a block of reserved steps), "close" (a reservation) or
            "attest" (the result of an audit, which costs nothing).
        time: when it was written, by the writer's clock; it is for people, and nothing depends on it.
        neighbors: what the account protects.
        previous: the hash of the row before.
        event: what was charged; for "close" the steps that were started, which replace those that were reserved.
        change: what was added to the account's totals, exactly; negative for "close", None where infinite.
        claimed: what was added to the total of the δ that events bring themselves.
        purpose: what it was for, in the spender's words; for "start" the mark of the block, if it has one.
        key: the key by which a retry finds this row.
        origin: the row of a sub-account that was charged here as well.
        above: the row in each account above that was written together with this one.
        reservation: the row of the reservation that "start" and "close" belong to.
        steps: the steps that were reserved ("reserve"), started so far ("start") or started in total ("close").
        terms: the terms, as text, for "open"; the name and terms of a sub-account for "allot"; the attestation, as
            text, for "attest".
        part: the part of a partition that was charged, if it was one; `change` and `claimed` were added to its totals.
        user: who asked for it, if a server authenticated them (`Account.acting_for`).
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
    part: Part | None = None
    user: str | None = None

    @property
    def by(self) -> str:
        """The account that spent: this one, or the sub-account on whose behalf it was charged."""
        return self.account if self.origin is None else self.origin.account

    def body(self) -> str:
        """The canonical text that is stored and hashed."""
        origin = self.origin
        return entry_text(
            canonical(self.above) if self.above else "[]",
            charge_text(self.account, self.change, self.claimed, self.event),
            _quoted_or_null(self.key),
            self.kind,
            neighbors_text(self.neighbors),
            "null" if origin is None else canonical([origin.account, origin.sequence, origin.hash]),
            self.previous,
            quoted(self.purpose),
            "null" if self.reservation is None else str(self.reservation),
            self.sequence,
            "null" if self.steps is None else str(self.steps),
            _quoted_or_null(self.terms),
            self.time,
            self.part,
            self.user,
        )

    @classmethod
    def of_body(cls, body: str) -> Entry:
        """Parse an entry from its stored text; any other text is refused."""
        try:
            value, charge = _parsed(body)
            return cls(
                account=_text(value["account"]),
                sequence=_integer(value["sequence"]),
                kind=value["kind"],
                time=_text(value["time"]),
                neighbors=value["neighbors"],
                previous=_text(value["previous"]),
                event=charge.event,
                change=charge.change,
                claimed=charge.claimed,
                purpose=_text(value["purpose"]),
                key=None if value["key"] is None else _text(value["key"]),
                origin=None if value["origin"] is None else Origin(*value["origin"]),
                above=tuple((_text(name), _integer(number)) for name, number in value["above"]),
                reservation=None if value["reservation"] is None else _integer(value["reservation"]),
                steps=None if value["steps"] is None else _integer(value["steps"]),
                terms=None if value["terms"] is None else _text(value["terms"]),
                part=Part.of_list(value["part"]) if "part" in value else None,
                user=_text(value["user"]) if "user" in value else None,
            )
        except (TypeError, ValueError) as error:
            raise NotALedger("a row is not readable as an entry: the ledger was edited") from error


def _parsed(body: str) -> tuple[dict[str, Any], _Charge]:
    """An entry's fields, with its neighbors decoded, and its charge. Equal charges are parsed once and are one object.

    A quotation mark inside of a JSON string is escaped, so `"change":` and `,"key":` are names. An entry that a ledger
    wrote has its charge between the two, and what it protects between two others. Any other text is parsed as a whole.
    """
    begin = body.find('"change":')
    end = body.find(',"key":', begin)
    protects = body.find(',"neighbors":', end)
    origin = body.find(',"origin":', protects)
    if 0 < begin < end < protects < origin:
        try:
            charge, neighbors = _charge(body[begin:end]), _neighbors(body[protects + 1 : origin])
            value = parse(body[:begin] + body[end + 1 : protects] + body[origin:])
        except NotALedger:
            value = None  # the whole text says what is wrong with it
        if _is_entry(value, _OTHER_FIELDS):
            value["neighbors"] = neighbors
            return value, charge
    whole = parse(body)
    fields = _OTHER_FIELDS | _CHARGE_FIELDS | {"neighbors"}
    if not _is_entry(whole, fields):
        raise NotALedger("a row is not an entry: the ledger was edited, or written by something else")
    whole["neighbors"] = decode_neighbors(whole["neighbors"])
    return whole, _charge_of(whole)


def _is_entry(value: Any, fields: Set[str]) -> bool:
    """Whether a value has the fields of an entry.

    A charge to a part of a partition names the part as well, and an entry for an authenticated user names the user.
    """
    if not isinstance(value, dict):
        return False
    extra = value.keys() - fields - {"user"}
    is_known = value.keys() >= fields and value["kind"] in KINDS
    return is_known and (not extra or (extra == {"part"} and value["kind"] == "spend"))


@lru_cache(maxsize=_CHARGES_KEPT)
def _charge(members: str) -> _Charge:
    value = parse(f"{{{members}}}")
    if set(value) != _CHARGE_FIELDS:
        raise NotALedger("a row is not an entry: the ledger was edited, or written by something else")
    return _charge_of(value)


def _charge_of(value: dict[str, Any]) -> _Charge:
    event = None if value["event"] is None else decode_tree(value["event"])
    return _Charge(price_of_list(value["change"]), sum_value(value["claimed"]), event)


@lru_cache(maxsize=_NEIGHBORS_KEPT)
def _neighbors(member: str) -> Neighbors:
    value = parse(f"{{{member}}}")
    if value.keys() != {"neighbors"}:
        raise NotALedger("a row is not an entry: the ledger was edited, or written by something else")
    return decode_neighbors(value["neighbors"])


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
    part: Part | None = None,
    user: str | None = None,
) -> str:
    """The canonical text of an entry. All arguments are JSON already, except the kind, the hash and the time.

    The fields are written out in alphabetical order, because every spend waits for this; a test compares the result
    with `canonical`. Only a charge to a part of a partition has the field "part", and only an entry that was written
    for an authenticated user has the field "user".
    """
    in_part = "" if part is None else f'"part":{part.text()},'
    for_user = "" if user is None else f',"user":{quoted(user)}'
    return (
        f'{{"above":{above},{charge},"key":{key},"kind":"{kind}","neighbors":{neighbors},"origin":{origin},'
        f'{in_part}"previous":{quoted(previous)},"purpose":{purpose},"reservation":{reservation},"sequence":{sequence},'
        f'"steps":{steps},"terms":{terms},"time":{quoted(time)}{for_user}}}'
    )


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def seal(name: str, parent: str | None, terms: str, state: str, sequence: int, head: str) -> str:
    """One hash over an account's row, so that the next spend notices an edit of its totals."""
    # Line breaks separate the fields unambiguously: names are printable, and the texts are canonical JSON.
    return digest("\n".join((name, parent or "", terms, state, str(sequence), head)))


def _quoted_or_null(text: str | None) -> str:
    return "null" if text is None else quoted(text)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value
