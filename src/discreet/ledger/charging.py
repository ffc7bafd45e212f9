"""One transaction that charges an event to an account and to every account above it, or changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple, Protocol

from discreet.accounting.adaptive.filter import AdaptiveFilter, Refused
from discreet.accounting.adaptive.form import Price
from discreet.codec import canonical, encode
from discreet.errors import Exhausted, KeyReused, NotALedger
from discreet.events import Event, Repeated
from discreet.ledger.chain import Entry, Origin, entry_text
from discreet.ledger.partitions import Part
from discreet.ledger.receipt import Receipt
from discreet.ledger.stores import records
from discreet.ledger.stores.base import OnStep, Transaction
from discreet.ledger.stores.records import AccountRow
from discreet.ledger.terms import Terms


class Request(NamedTuple):
    """What is to be charged: a "spend" at once, or a "reserve" of a number of steps."""

    kind: str
    event: Event
    purpose: str
    key: str | None
    steps: int | None = None
    part: Part | None = None
    user: str | None = None


class Guard(Protocol):
    """A condition of charges beyond the budget, such as a policy. It raises to refuse."""

    def prepare(self, path: Sequence[Terms], request: Request) -> None:
        """Called before the accounts are locked, for what takes time."""

    def __call__(self, transaction: Transaction, path: Sequence[Terms], request: Request, time: str) -> None:
        """Called inside the transaction of the charge, while the accounts are locked."""


class NoRoom(Exception):
    """A charge that does not fit, with the filters as they stood; the transaction is rolled back."""

    def __init__(self, terms: Terms, refused: Refused, standing: Sequence[AdaptiveFilter]) -> None:
        super().__init__(str(refused))
        self.terms = terms
        self.refused = refused
        self.standing = tuple(standing)


def charge(
    transaction: Transaction,
    path: Sequence[Terms],
    request: Request,
    time: str,
    on_step: OnStep,
    guard: Guard | None = None,
) -> Receipt:
    """Charge `request` to the last account of `path` and to all above it, which are locked from the top down.

    A `guard` is asked while the accounts are locked. A retry that finds its own earlier charge does not ask it again.
    """
    rows = [records.held(transaction, terms.name) for terms in path]
    on_step("locked")
    mine, event = path[-1], request.event
    if request.key is not None and (earlier := records.by_key(transaction, mine.name, request.key)) is not None:
        return _replayed(mine, earlier, request)
    if guard is not None:
        guard(transaction, path, request, time)
    after = []
    for terms, row in zip(path, rows, strict=True):
        totals = terms.after(row.filter_state(), terms.priced(event), request.part)
        if totals is None:
            raise _no_room(path, rows, terms, request)
        after.append(totals)
    on_step("checked")
    above = "[]" if len(path) == 1 else canonical([(row.name, row.sequence + 1) for row in rows[:-1]])
    body = _body(mine, rows[-1], request, time, above, request.key, "null")
    stored = records.append_text(transaction, rows[-1], body, request.key, None, after[-1])
    on_step("recorded")
    sequence = rows[-1].sequence + 1
    for terms, row, totals in zip(path[:-1], rows[:-1], after[:-1], strict=True):
        origin = canonical([mine.name, sequence, stored])
        repeated = _body(terms, row, request, time, "[]", None, origin)
        records.append_text(transaction, row, repeated, None, None, totals)
        on_step("recorded above")
    return Receipt(mine.name, sequence, event, request.purpose, request.key, time, stored, body, mine)


def _no_room(path: Sequence[Terms], rows: Sequence[AccountRow], terms: Terms, request: Request) -> NoRoom:
    """Why an account has no room, with all filters as they stand."""
    totals, part = [row.filter_state() for row in rows], request.part
    refused = terms.charged(totals[path.index(terms)], request.event, part)
    if not isinstance(refused, Refused):
        raise NotALedger(f"the terms of account {terms.name!r} changed while they were read")
    return NoRoom(terms, refused, [account.filter(spent, part) for account, spent in zip(path, totals, strict=True)])


def _body(terms: Terms, row: AccountRow, request: Request, time: str, above: str, key: str | None, origin: str) -> str:
    """The text of the entry that charges `request` to an account."""
    return entry_text(
        above,
        terms.priced(request.event).text,
        "null" if key is None else quoted(key),
        request.kind,
        terms.neighbors_text,
        origin,
        row.head,
        quoted(request.purpose),
        "null",
        row.sequence + 1,
        "null" if request.steps is None else str(request.steps),
        "null",
        time,
        request.part,
        request.user,
    )


def _replayed(terms: Terms, earlier: tuple[Entry, str], request: Request) -> Receipt:
    """The receipt of the spend that a key already names; raises if the key names another one."""
    entry, stored = earlier
    told = entry.kind, entry.part, entry.user
    same = entry.event is not None and told == (request.kind, request.part, request.user)
    if entry.event is None or not same or encode(entry.event) != encode(request.event):
        raise KeyReused(
            f"key must name one spend, got {request.key!r}: it already names the {entry.kind} in row "
            f"{entry.sequence}{f' ({entry.purpose})' if entry.purpose else ''}; a retry asks for the same event, "
            "another spend takes another key"
        )
    return Receipt.of_entry(terms, entry, stored, replayed=True)


# --- reservations


def start(
    transaction: Transaction,
    terms: Terms,
    reservation: int,
    steps: int,
    time: str,
    on_step: OnStep,
    user: str | None = None,
    mark: str = "",
) -> int:
    """Record that `steps` more steps of a reservation are about to run; return how many have started in all."""
    row = records.held(transaction, terms.name)
    on_step("locked")
    reserved, latest = _reserved(transaction, terms, reservation)
    total = (latest.steps or 0 if latest is not None else 0) + steps
    if latest is not None and latest.kind == "close":
        raise Exhausted(f"reservation {reservation} of {terms.name!r} is closed: no more of its steps may run")
    if total > (reserved.steps or 0):
        raise Exhausted(
            f"steps must stay within the {reserved.steps} that were reserved, got {total}: "
            "steps that ran twice count twice; reserve or spend for more"
        )
    entry = Entry(
        account=row.name,
        sequence=row.sequence + 1,
        kind="start",
        time=time,
        neighbors=terms.neighbors,
        previous=row.head,
        change=(Fraction(0),) * len(terms.limits),
        purpose=mark,
        reservation=reservation,
        steps=total,
        user=user,
    )
    records.append(transaction, row, entry, row.filter_state())
    on_step("recorded")
    return total


def close(
    transaction: Transaction,
    path: Sequence[Terms],
    reservation: int,
    step: Event,
    time: str,
    on_step: OnStep,
    user: str | None = None,
) -> Receipt:
    """Replace the price of the reserved steps by the price of those that started, here and in all accounts above.

    Why this is valid although the choice to stop may depend on what was released: docs/decisions/0003.
    """
    rows = [records.held(transaction, terms.name) for terms in path]
    on_step("locked")
    mine = path[-1]
    reserved, latest = _reserved(transaction, mine, reservation)
    if latest is not None and latest.kind == "close":
        closed = records.by_sequence(transaction, mine.name, latest.sequence)
        return Receipt.of_entry(mine, latest, closed[1] if closed else "", replayed=True)
    ran = 0 if latest is None else latest.steps or 0
    event = Repeated(step, ran)
    above = tuple((row.name, row.sequence + 1) for row in rows[:-1])
    reserved_at = {mine.name: reservation, **dict(reserved.above)}  # the reservation's row in each account
    written: tuple[Entry, str] | None = None
    for terms, row in reversed(list(zip(path, rows, strict=True))):
        origin = None if written is None else Origin(mine.name, written[0].sequence, written[1])
        paid = records.by_sequence(transaction, terms.name, reserved_at[terms.name])
        if paid is None or paid[0].kind != "reserve":
            raise NotALedger(f"the reservation's row of account {terms.name!r} is missing: the ledger was edited")
        change, brought = handed_back(terms, paid[0], step, ran)
        entry = Entry(
            account=row.name,
            sequence=row.sequence + 1,
            kind="close",
            time=time,
            neighbors=terms.neighbors,
            previous=row.head,
            event=event,
            change=change,
            claimed=brought,
            purpose=reserved.purpose,
            origin=origin,
            above=above if origin is None else (),
            reservation=reserved_at[terms.name],
            steps=ran,
            user=user,
        )
        stored = records.append(transaction, row, entry, row.filter_state().changed(change, brought))
        on_step("recorded")
        written = written or (entry, stored)
    if written is None:
        raise NotALedger("an account must be on its own path")
    return Receipt.of_entry(mine, *written, replayed=False)


def handed_back(terms: Terms, reserved: Entry, step: Event, ran: int) -> tuple[Price, Fraction]:
    """What closing adds to the totals, never more than 0: the price of what ran less the price that was charged.

    Steps are handed back only at an order where they were priced one by one: the price of n steps is at least n times
    the price of one, before and after. Elsewhere, and where a price is infinite, nothing comes back.
    """
    count = reserved.steps or 0
    step_price, step_delta = terms.price(step)
    ran_price, ran_delta = terms.price(Repeated(step, ran))
    nothing = Fraction(0)
    change: list[Fraction | None] = []
    for charged, single, after in zip(reserved.change, step_price, ran_price, strict=True):
        if charged is None or single is None or after is None or charged < count * single or after < ran * single:
            change.append(nothing)
        else:
            change.append(min(nothing, after - charged))
    delta = ran_delta - reserved.claimed
    return tuple(change), delta if delta < 0 and reserved.claimed >= count * step_delta else nothing


def _reserved(transaction: Transaction, terms: Terms, reservation: int) -> tuple[Entry, Entry | None]:
    """The entry of a reservation, and the last entry that belongs to it, if there is one."""
    reserved = records.by_sequence(transaction, terms.name, reservation)
    if reserved is None or reserved[0].kind != "reserve" or reserved[0].origin is not None:
        raise NotALedger(f"row {reservation} of account {terms.name!r} is not a reservation of its own")
    latest = records.latest_of(transaction, terms.name, reservation)
    return reserved[0], None if latest is None else latest[0]
