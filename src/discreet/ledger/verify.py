"""Recompute everything in a ledger from its entries, and report the row of the first disagreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from discreet.accounting.adaptive.form import Price
from discreet.attestation import Attestation
from discreet.codec import encode
from discreet.errors import DiscreetError, NotALedger, UnknownEvent
from discreet.events import Repeated
from discreet.ledger import charging
from discreet.ledger.chain import NOTHING, Entry, digest
from discreet.ledger.receipt import Anchor, Receipt, anchor
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Store, Transaction
from discreet.ledger.stores.records import AccountRow
from discreet.ledger.terms import Terms

# Another processor may compute other last digits for the same formula, so a recorded price may be smaller than today's
# by this factor.
_TOLERANCE = 1 + Fraction(1, 10**9)


@dataclass(frozen=True)
class Verification:
    """The result of a verification. It is true if everything agrees.

    Attributes:
        accounts: how many accounts were checked.
        entries: how many entries were checked.
        account: the account with the first disagreement, or "".
        sequence: the row of that account, or None if it is the account's own row.
        problem: what disagrees, or "".
    """

    accounts: int
    entries: int
    account: str = ""
    sequence: int | None = None
    problem: str = ""

    def __bool__(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        if self:
            return f"{self.entries} entries of {self.accounts} accounts agree with each other"
        where = f"row {self.sequence}" if self.sequence is not None else "the account's own row"
        prefix = f"account {self.account!r}, {where}: " if self.account else ""
        return f"{prefix}{self.problem}"


class _Disagreement(Exception):
    """The first disagreement; it ends the verification."""

    def __init__(self, account: str, sequence: int | None, problem: str) -> None:
        super().__init__(problem)
        self.account = account
        self.sequence = sequence
        self.problem = problem


Position = tuple[str, int]  # an account and a sequence number
Link = tuple[str, int, str, str]  # a sub-account, a sequence number, a hash, and the codes of the event and its part


@dataclass
class _Seen:
    """What the accounts say about each other, to be compared after all of them are read."""

    #: For a row of an account above: the sub-account's row that names it, and the one that it names itself.
    below: dict[Position, Link] = field(default_factory=dict)
    above: dict[Position, Link] = field(default_factory=dict)
    #: The terms of each account, and those under which each sub-account was allotted, with the row that says so.
    terms: dict[str, str] = field(default_factory=dict)
    allotted: dict[str, tuple[str, Position]] = field(default_factory=dict)
    #: Hashes from receipts whose rows were not read yet.
    wanted: dict[Position, str] = field(default_factory=dict)
    #: Hashes of rows that this process saw before, until they are read again; and those that have another hash now.
    remembered: dict[Position, str] = field(default_factory=dict)
    changed: list[Position] = field(default_factory=list)
    entries: int = 0


def verify(store: Store, receipts: Sequence[Receipt | Anchor | str] = ()) -> Verification:
    """Check a whole ledger on one consistent snapshot."""
    damage = store.damage()
    if damage is not None:
        return Verification(0, 0, problem=f"the database is damaged: {damage}")
    seen = _Seen(wanted={(kept.account, kept.sequence): kept.hash for kept in map(anchor, receipts)})

    def work(transaction: Transaction) -> int:
        saw = transaction.seen_before.items()
        seen.remembered = {(name, sequence): head for name, (sequence, head) in saw}
        names = records.names(transaction)
        for name in records.owners(transaction):
            if name not in names:
                raise _Disagreement(str(name), None, "the account has vanished; its entries are still there")
        for name in names:
            _account(transaction, name, seen)
        _between(seen)
        return len(names)

    try:
        accounts = store.read(work)
    except _Disagreement as first:
        return Verification(len(seen.terms), seen.entries, first.account, first.sequence, first.problem)
    except (NotALedger, TypeError) as error:
        return Verification(len(seen.terms), seen.entries, problem=f"the ledger cannot be read: {error}")
    return Verification(accounts, seen.entries)


def _account(transaction: Transaction, name: str, seen: _Seen) -> None:
    row = records.stored(transaction, name)
    if row is None:
        raise _Disagreement(name, None, "the account has vanished")
    try:
        terms = Terms.of_text(row.terms)
    except DiscreetError as error:
        raise _Disagreement(name, None, str(error)) from error
    if terms.name != name or terms.parent != row.parent:
        raise _Disagreement(name, None, "the terms belong to another account")
    seen.terms[name] = row.terms
    chain = _Chain(terms, row, seen)
    for sequence, key, reservation, body, stored in records.pages(transaction, name):
        try:
            chain.row(sequence, key, reservation, body, stored)
        except (DiscreetError, ValueError, TypeError, AttributeError) as error:  # TypeError: a column of another type
            raise _Disagreement(name, sequence, str(error)) from error
        seen.entries += 1
    chain.end()


class _Chain:
    """The entries of one account, read from the first to the last."""

    def __init__(self, terms: Terms, row: AccountRow, seen: _Seen) -> None:
        self._terms = terms
        self._stored = row
        self._seen = seen
        self._next = 0
        self._head = NOTHING
        self._state = terms.beginning()
        self._reserved: dict[int, Entry] = {}
        self._started: dict[int, int] = {}
        self._closed: set[int] = set()

    def row(self, sequence: int, key: str | None, reservation: int | None, body: str, stored: str) -> None:
        name = self._terms.name
        if sequence != self._next:
            raise _Disagreement(name, self._next, f"the row is missing; row {sequence} comes next")
        if digest(body) != stored:
            raise _Disagreement(name, sequence, "the text does not have the hash that is stored with it: it was edited")
        entry = Entry.of_body(body)
        if entry.account != name or entry.sequence != sequence:
            raise _Disagreement(name, sequence, f"the text belongs to row {entry.sequence} of {entry.account!r}")
        if entry.previous != self._head:
            raise _Disagreement(name, sequence, "the row does not follow the one before it: the chain is broken here")
        if entry.key != key or entry.reservation != reservation:
            raise _Disagreement(name, sequence, "the key or reservation beside the text is not the one inside it")
        if entry.neighbors != self._terms.neighbors:
            raise _Disagreement(name, sequence, "the row has other neighbors than the account")
        self._contents(entry)
        self._between(entry, stored)
        if self._seen.wanted.pop((name, sequence), stored) != stored:
            raise _Disagreement(name, sequence, "the row does not match the receipt: history was rewritten")
        if self._seen.remembered.pop((name, sequence), stored) != stored:
            self._seen.changed.append((name, sequence))  # the last thing to report: other disagreements say more
        self._next, self._head = sequence + 1, stored

    def end(self) -> None:
        name, row = self._terms.name, self._stored
        if row.sequence != self._next - 1:
            raise _Disagreement(name, self._next, f"the row is missing: the account counts rows up to {row.sequence}")
        if row.head != self._head:
            raise _Disagreement(name, row.sequence, "the last row is not the head that the account's row names")
        if row.state != self._state.text():
            raise _Disagreement(name, None, "the account's totals are not the sums of its entries")
        if not row.intact():
            raise _Disagreement(name, None, "the account's seal is broken: the row was edited")

    def _contents(self, entry: Entry) -> None:
        """Check the kind, the price and the totals of one entry."""
        name, terms = self._terms.name, self._terms
        if (entry.kind == "open") != (entry.sequence == 0):
            raise _Disagreement(name, entry.sequence, "an account is opened by its first row and by no other")
        if entry.kind == "open" and entry.terms != self._stored.terms:
            raise _Disagreement(name, entry.sequence, "the account was opened under other terms than it has now")
        if entry.kind in {"spend", "reserve"}:
            self._charge(entry)
        elif entry.kind == "start" and entry.reservation is not None:
            self._start(entry)
        elif entry.kind == "close" and entry.reservation is not None:
            self._close(entry)
        elif entry.kind == "allot" and entry.terms is not None:
            self._seen.allotted[Terms.of_text(entry.terms).name] = entry.terms, (name, entry.sequence)
        elif entry.kind == "attest" and entry.terms is not None and entry.event is None:
            Attestation.of_text(entry.terms)  # refuses what no audit wrote
        elif entry.kind != "open":
            raise _Disagreement(name, entry.sequence, f"a row of kind {entry.kind!r} lacks what belongs to it")
        if entry.kind in {"open", "allot", "start", "attest"}:
            if any(entry.change) or entry.claimed or None in entry.change:
                raise _Disagreement(name, entry.sequence, f"a row of kind {entry.kind!r} changes the totals")
            return
        if len(entry.change) != len(terms.limits):
            raise _Disagreement(name, entry.sequence, "the price does not have as many parts as the budget")
        self._state = terms.changed(self._state, entry.change, entry.claimed, entry.part)
        if entry.kind != "close" and not terms.fits(self._state):
            raise _Disagreement(name, entry.sequence, "the charge did not fit the budget")

    def _charge(self, entry: Entry) -> None:
        if entry.event is None:
            raise _Disagreement(self._terms.name, entry.sequence, "a charge without an event")
        try:
            price, brought = self._terms.price(entry.event)
        except UnknownEvent as error:
            raise _Disagreement(self._terms.name, entry.sequence, f"the event has no price: {error}") from error
        if not _covers(entry.change, price) or entry.claimed * _TOLERANCE < brought:
            raise _Disagreement(self._terms.name, entry.sequence, "the charge is below what the event costs")
        if entry.kind == "reserve":
            self._reserved[entry.sequence] = entry
            self._started[entry.sequence] = 0

    def _start(self, entry: Entry) -> None:
        number = entry.reservation or 0
        reserved = self._reserved.get(number)
        if reserved is None or number in self._closed or entry.steps is None:
            raise _Disagreement(self._terms.name, entry.sequence, "steps of a reservation that is not open")
        if not self._started[number] < entry.steps <= (reserved.steps or 0):
            raise _Disagreement(self._terms.name, entry.sequence, "the steps are not within those reserved")
        self._started[number] = entry.steps

    def _close(self, entry: Entry) -> None:
        number = entry.reservation or 0
        name, reserved, event = self._terms.name, self._reserved.get(number), entry.event
        if reserved is None or number in self._closed or reserved.event is None or not isinstance(event, Repeated):
            raise _Disagreement(name, entry.sequence, "the end of a reservation that is not open")
        step = reserved.event.event if isinstance(reserved.event, Repeated) else reserved.event
        # "start" is recorded in the sub-account only; for accounts above, `_between` compares the two "close" rows.
        counted = entry.origin is not None or entry.steps == self._started[number]
        if event.event != step or event.count != entry.steps or not counted:
            raise _Disagreement(name, entry.sequence, "the steps handed back are not those that never started")
        least, brought = charging.handed_back(self._terms, reserved, step, event.count)
        for change, allowed in zip(entry.change, least, strict=True):
            if change is None or allowed is None or change < allowed * _TOLERANCE:
                raise _Disagreement(name, entry.sequence, "more was handed back than the steps that never started")
        if entry.claimed < brought:
            raise _Disagreement(name, entry.sequence, "more δ was handed back than the steps that never started")
        self._closed.add(number)

    def _between(self, entry: Entry, stored: str) -> None:
        name = self._terms.name
        code = "" if entry.event is None or not (entry.above or entry.origin) else encode(entry.event)
        code += "" if entry.part is None else entry.part.text()
        code += "" if entry.user is None else f" for {entry.user}"  # a user's name has no line break or slash
        for account, sequence in entry.above:
            self._seen.below[account, sequence] = name, entry.sequence, stored, code
        if entry.origin is not None:
            origin = entry.origin
            self._seen.above[name, entry.sequence] = origin.account, origin.sequence, origin.hash, code
        elif entry.kind in {"spend", "reserve", "close"} and (self._terms.parent is not None) != bool(entry.above):
            raise _Disagreement(name, entry.sequence, "the charge does not name its rows in the accounts above")


def _between(seen: _Seen) -> None:
    """Compare what the accounts say about each other."""
    for position in sorted(seen.below.keys() | seen.above.keys()):
        if seen.below.get(position) != seen.above.get(position):
            raise _Disagreement(*position, "this row and the sub-account's row that it belongs to disagree")
    for name, terms in seen.terms.items():
        if Terms.of_text(terms).parent is not None and seen.allotted.get(name, ("",))[0] != terms:
            raise _Disagreement(name, None, "the account above did not allot this sub-account under these terms")
    for name, (_, position) in seen.allotted.items():
        if name not in seen.terms:
            raise _Disagreement(*position, f"sub-account {name!r} has vanished")
    for (name, sequence), _ in sorted(seen.wanted.items()):
        raise _Disagreement(name, sequence, "the row of a receipt is missing: history was cut off or replaced")
    for position in seen.changed:
        raise _Disagreement(*position, "the row is not the one that this process saw: history was rewritten")
    for position in sorted(seen.remembered):
        raise _Disagreement(*position, "this process saw a row that is missing now: an older copy was restored")


def _covers(charged: Price, price: Price) -> bool:
    """Whether a recorded price is at least today's, up to rounding of the last digits."""
    return charged == price or (
        len(charged) == len(price)
        and all(
            paid is None or (cost is not None and paid * _TOLERANCE >= cost)
            for paid, cost in zip(charged, price, strict=True)
        )
    )
