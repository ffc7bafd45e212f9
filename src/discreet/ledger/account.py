"""An account: a budget for one dataset, and the only way to spend it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from discreet import _check
from discreet.accounting.adaptive import advice
from discreet.accounting.adaptive.filter import AdaptiveFilter
from discreet.attestation import Attestation
from discreet.codec import encode
from discreet.errors import BudgetExceeded, InvalidArgument, UnknownEvent
from discreet.events import Event, NonPrivate, Repeated, is_secure
from discreet.guarantees import Guarantee
from discreet.ledger import charging, history
from discreet.ledger.backend import Backend
from discreet.ledger.chain import Entry
from discreet.ledger.charging import Guard, NoRoom, Request
from discreet.ledger.history import AccountHistory
from discreet.ledger.names import checked_name, checked_text
from discreet.ledger.partitions import Part
from discreet.ledger.receipt import Anchor, Receipt
from discreet.ledger.reservation import Reservation
from discreet.ledger.statement import Statement, Summary, compose
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction
from discreet.ledger.streaming import UNLIMITED_STEPS, LedgerStream
from discreet.ledger.terms import Terms
from discreet.ledger.totals import Totals
from discreet.mechanisms import observation
from discreet.mechanisms.continual import Counter, Doubling
from discreet.neighbors import Neighbors


class Account:
    """One budget. Made by `Ledger.account` and `Account.allot`; all of its state is in the ledger."""

    def __init__(
        self, backend: Backend, path: tuple[Terms, ...], user: str | None = None, guard: Guard | None = None
    ) -> None:
        self._backend = backend
        self._path = path  # from the dataset's account down to this one
        self._user = user
        self._guard = guard

    @property
    def name(self) -> str:
        """The account's name; a sub-account's begins with the names above it."""
        return self._terms.name

    @property
    def path(self) -> tuple[Terms, ...]:
        """The terms of every account that a charge goes to, from the dataset's own down to this one."""
        return self._path

    @property
    def budget(self) -> Guarantee:
        """The guarantee that all spending together stays within, and whom it protects."""
        return self._terms.budget.protecting(self._terms.neighbors)

    @property
    def neighbors(self) -> Neighbors:
        """The unit of privacy and the neighboring relation that every spend must share."""
        return self._terms.neighbors

    def is_same(self, other: Account) -> bool:
        """Whether both are one account of one ledger, however they were opened."""
        here, there = (account._backend.read(lambda transaction: transaction.seen) for account in (self, other))
        return here is there and self.name == other.name

    def acting_for(self, user: str, guard: Guard | None = None) -> Account:
        """The same account, whose entries from here on name `user` as the one who asked.

        Args:
            user: whom a server authenticated. The ledger takes the caller's word for it.
            guard: a further condition of each charge, asked while the accounts are locked; it raises to refuse.
        """
        return Account(self._backend, self._path, checked_name(user), guard)

    def spend(
        self,
        event: Event,
        purpose: str = "",
        key: str | None = None,
        neighbors: Neighbors | None = None,
        part: Part | None = None,
    ) -> Receipt:
        """Charge `event`, durably, before anything is computed; or raise, and change nothing.

        Args:
            event: what is about to be run.
            purpose: what it is for, in words that others may read.
            key: a name for this one release. A retry with the same key and event returns the same receipt (marked
                `replayed`) and charges nothing more.
            neighbors: the unit and relation of the event; None means the account's own.
            part: the part of a partition that the event is about, if it looks at no other rows: then only the most
                expensive parts count, as many as one unit can be in.

        Raises:
            BudgetExceeded: it does not fit here or in an account above; the message says what was asked, what remains
                and what would fit.
            KeyReused: the key belongs to another event.
            UnknownEvent: no theorem prices the event in this account's terms.

        Guarantee:
            When it returns, the charge is on disk, here and in every account above, and survives a crash. The check
            and the charge are one transaction under a lock, so no two spends use the same budget. The order in which
            events are chosen may depend on earlier releases. One receipt pays for one release: noise drawn twice for
            one receipt is not covered.
        """
        if part is not None and not isinstance(part, Part):
            raise _check.fail("part", "be a part of a partition", part, "Private.partition makes them")
        return self._charge(self._request("spend", event, purpose, key, None)._replace(part=part), neighbors)

    def reserve(
        self,
        event: Event,
        key: str,
        purpose: str = "",
        neighbors: Neighbors | None = None,
        *,
        steps: int | None = None,
    ) -> Reservation:
        """Charge a whole plan before it begins; if it ends early, steps that never started can be handed back.

        Args:
            event: the plan; the steps of `events.Repeated(step, n)` are counted, any other event is a single step.
            key: a name for the plan. The same key and event find the same reservation again, after a crash as well.
            purpose: what it is for.
            neighbors: the unit and relation of the event; None means the account's own.
            steps: for an event that is one price for many steps, such as correlated noise, how many steps to count;
                nothing of it is handed back.

        Guarantee:
            The price of all steps is charged, durably, before this returns. `Reservation.start_block` must be called
            before each block of steps runs: only steps that were never started are ever handed back.
        """
        if key is None:
            raise _check.fail("key", "be given", key, "it finds the reservation again after a crash")
        if steps is not None and isinstance(event, Repeated):
            raise _check.fail("steps", "be None for repeated events", steps, "their number is part of the event")
        counted = _check.integer("steps", steps, "it is how many steps the event covers") if steps is not None else 1
        counted = event.count if isinstance(event, Repeated) else counted
        receipt = self._charge(self._request("reserve", event, purpose, key, counted), neighbors)
        return Reservation(self._backend, self._path, receipt.sequence, counted, receipt, self._user)

    def stream(self, counter: Counter | Doubling, path: str | Path, *, key: str, purpose: str = "") -> LedgerStream:
        """Charge a whole stream and open it, or continue the one of this key.

        Args:
            counter: what runs, such as `continual.best_for(1000, 1.0, 1e-6).counter`.
            path: a file for the state, which is secret; it is created with mode 0600.
            key: a name for the stream. The same key and counter find the same stream again, after a crash as well.
            purpose: what it is for.

        Guarantee:
            The event of all steps is charged, durably, before this returns, and once for each key; a file that cannot
            hold the state is refused before that. Every step is recorded before it is released, together with a random
            mark of its state. A state that is older than the record is refused, and so is one with another mark: no
            step is released twice with different noise, and no noise is used for two releases, whenever a process is
            killed and whatever copy of the file is restored.
        """
        given: object = counter
        if not isinstance(given, Counter | Doubling):
            remedy = "see discreet.mechanisms.continual"
            raise _check.fail("counter", "be a counter", type(counter).__name__, remedy)
        if key is None:
            raise _check.fail("key", "be given", key, "it finds the stream again after a crash")
        steps = counter.stream.steps if isinstance(counter, Counter) else UNLIMITED_STEPS
        request = self._request("reserve", counter.event, purpose, key, steps)

        def charge() -> Reservation:
            receipt = self._charge(request, counter.stream.neighbors)
            return Reservation(self._backend, self._path, receipt.sequence, steps, receipt, self._user)

        return LedgerStream(counter, Path(path), [self.name, key], charge)

    def would_afford(self, event: Event, neighbors: Neighbors | None = None, part: Part | None = None) -> bool:
        """Whether `spend` would be accepted now, here and in all accounts above. Charges and reserves nothing."""
        try:
            self._check(event, neighbors)
            for terms in self._path:
                terms.price(event)
        except (InvalidArgument, UnknownEvent):
            return False
        pairs = zip(self._path, self._standing(), strict=True)
        return all(isinstance(terms.charged(state, event, part), Totals) for terms, state in pairs)

    def remaining(self, part: Part | None = None) -> Guarantee:
        """What this account may still spend, rounded down; an (ε, δ) budget is shown at each Rényi order.

        With `part` it is what may still be spent on that part of a partition.

        `statement().room` says the same as the ε and δ of one more answer. The account above a sub-account may have
        less left: `would_afford` checks both.
        """
        return self._terms.filter(self._standing()[-1], part).remaining()

    def remaining_after(self, event: Event, part: Part | None = None) -> Guarantee | None:
        """What this account could still spend after `event`; None if `event` does not fit. Charges nothing."""
        if not self.would_afford(event, part=part):
            return None
        after = self._terms.charged(self._standing()[-1], event, part)
        return self._terms.filter(after, part).remaining() if isinstance(after, Totals) else None

    def allot(self, name: str, budget: Guarantee, *, aside: float = 0.0) -> Account:
        """Open or reopen a sub-account with a budget of its own, for example one for each analyst.

        Guarantee:
            Whatever a sub-account spends is charged to this account, and to all above, in the same transaction. The
            budgets of sub-accounts may add up to more than this account's; this account's budget still holds. So a
            sub-account opens no fresh budget, and `create=False` of the ledger allows it.
        """
        full_name = f"{self.name}/{checked_name(name)}"
        if budget.protects is not None and budget.protects != self.neighbors:
            remedy = "a sub-account has the unit and relation of the account above it"
            raise _check.fail("budget", f"protect {self.neighbors}", str(budget.protects), remedy)
        terms = Terms.start(full_name, self.name, budget, self.neighbors, aside)
        return Account(self._backend, (*self._path, self._backend.open(terms, self._user)), self._user, self._guard)

    def attest(self, attestation: Attestation) -> Anchor:
        """Record the result of an audit in this account's chain, beside the charges. It costs nothing.

        Returns where it is recorded, with its hash, which covers everything in the account up to it.

        Guarantee: the totals stay as they are, and `Ledger.verify` covers the attestation like any other entry. What it
        says is the auditor's word: the ledger does not repeat the audit.
        """
        given: object = attestation
        if not isinstance(given, Attestation):
            remedy = "Audit.attestation() makes one"
            raise _check.fail("attestation", "be an Attestation", type(given).__name__, remedy)
        terms, text = self._terms, attestation.text()

        def work(transaction: Transaction, time: str) -> Anchor:
            row = records.held(transaction, terms.name)
            entry = Entry(
                account=row.name,
                sequence=row.sequence + 1,
                kind="attest",
                time=time,
                neighbors=terms.neighbors,
                previous=row.head,
                purpose=attestation.subject,
                terms=text,
                user=self._user,
            )
            head = records.append(transaction, row, entry, row.filter_state())
            self._backend.on_step("recorded")
            return Anchor(entry.account, entry.sequence, head)

        return self._backend.write(work)

    def attestations(self) -> tuple[tuple[Entry, Attestation], ...]:
        """The audits that were recorded here, oldest first, each with its entry."""
        attested = [(entry, entry.terms) for entry in self.history() if entry.kind == "attest"]
        return tuple((entry, Attestation.of_text(text)) for entry, text in attested if text is not None)

    def history(self) -> tuple[Entry, ...]:
        """All entries of this account, oldest first, including what its sub-accounts were charged."""

        def work(transaction: Transaction) -> tuple[Entry, ...]:
            records.existing(transaction, self.name)  # refuses a ledger that was rolled back
            return tuple(_entries(transaction, self.name))

        return self._backend.read(work)

    def statement(self, delta: float | None = None) -> Statement:
        """Who spent how much on what, the bound that holds for adaptive use, and the tight figure beside it.

        `delta` is the δ of the tight figure. By default it is the δ of an (ε, δ) budget, and 1e-6 for other budgets.
        What this process has read before is not read again; only new charges are.
        """

        terms = self._terms
        reading_delta = float(terms.form.reading_delta if delta is None else delta)

        def work(transaction: Transaction) -> tuple[Totals, AccountHistory]:
            row = records.existing(transaction, self.name)
            return row.filter_state(), history.read(transaction, row, terms, self._backend.histories.get(self.name))

        totals, read = self._backend.read(work)
        self._backend.histories.put(self.name, read)
        return compose(terms, totals, read.lines, read.tight(reading_delta, terms), reading_delta)

    def summary(self) -> Summary:
        """How much is used, what remains and how many charges there were, without reading the charges."""

        def work(transaction: Transaction) -> tuple[Totals, int]:
            return records.existing(transaction, self.name).filter_state(), records.charges(transaction, self.name)

        totals, charges = self._backend.read(work)
        left = self._terms.filter(totals).remaining()
        return Summary(self._terms.used(totals), left, self._terms.form.room_words(left), charges)

    def __repr__(self) -> str:
        return f"Account({self.name!r}, {self._terms})"

    @property
    def _terms(self) -> Terms:
        return self._path[-1]

    def _request(self, kind: str, event: Event, purpose: str, key: str | None, steps: int | None) -> Request:
        checked_text("purpose", purpose)
        if key is not None and not checked_text("key", key, 200):
            raise _check.fail("key", "not be empty", key, "it names one release; without retries, give None")
        return Request(kind, event, purpose, key, steps, user=self._user)

    def _check(self, event: Event, neighbors: Neighbors | None) -> None:
        if not isinstance(event, Event):
            raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
        _check_chargeable(event)
        if neighbors is not None and neighbors != self.neighbors:
            remedy = "an account adds up spends for one unit and one relation; open another account for this one"
            raise _check.fail("neighbors", f"be those of the account ({self.neighbors})", str(neighbors), remedy)

    def _charge(self, request: Request, neighbors: Neighbors | None) -> Receipt:
        self._check(request.event, neighbors)
        observation.admit(self._backend.location, self._path[0].name)
        observation.charge(request.event)
        for terms in self._path:  # `terms` remembers its prices: nobody waits for one while the account is locked
            terms.priced(request.event)
        backend, path, guard = self._backend, self._path, self._guard
        if guard is not None:
            guard.prepare(path, request)
        backend.on_step("priced")
        try:
            return backend.write(
                lambda transaction, time: charging.charge(transaction, path, request, time, backend.on_step, guard),
                keyed=request.key is not None,
            )
        except NoRoom as refusal:
            raise _exceeded(refusal, request.event, self.name) from None

    def _standing(self) -> list[Totals]:
        def work(transaction: Transaction) -> list[Totals]:
            return [records.existing(transaction, terms.name).filter_state() for terms in self._path]

        return self._backend.read(work)


# Cached, because the same few events are charged again and again: a hit takes a sixth of the time of the checks.
@lru_cache(maxsize=4096)
def _check_chargeable(event: Event) -> None:
    """Refuse an event that no account may ever be charged for."""
    encode(event)
    if not is_secure(event):
        raise _check.fail(
            "event", "be run with the operating system's randomness", event, "leave insecure_seed out to release"
        )
    if any(isinstance(inner, NonPrivate) for inner in event.walk()):
        raise _check.fail("event", "be private", event, "a release without noise has no finite price")


def _entries(transaction: Transaction, name: str) -> list[Entry]:
    return [Entry.of_body(body) for _, _, _, body, _ in records.pages(transaction, name)]


def _fits(standing: Sequence[AdaptiveFilter], event: Event) -> bool:
    return all(isinstance(before.spend(event), AdaptiveFilter) for before in standing)


def _exceeded(refusal: NoRoom, event: Event, asked_of: str) -> BudgetExceeded:
    """The refusal in words, with the largest amount that would fit in every account on the path."""
    amount = advice.largest(event, lambda smaller: _fits(refusal.standing, smaller))
    refused, terms = refusal.refused, refusal.terms
    whose = f"account {terms.name!r}"
    if terms.name != asked_of:
        whose += f", which {asked_of!r} is a part of,"
    reason = refused.reason
    if refused.price is not None:
        reason = f"it costs {terms.form.price_words(refused.price, event, terms.neighbors.relation)}"
    room = terms.form.room_words(refused.remaining)
    where = "what remains" if terms.name == asked_of else "what remains there"  # the sub-account itself may have less
    return BudgetExceeded(
        f"{whose} has no room for this: {reason}, and {where} is {room}. Nothing was charged; "
        f"{advice.words(event, amount, terms.budget, terms.neighbors.relation)}",
        account=terms.name,
        asked=event,
        price=refused.price,
        remaining=refused.remaining,
        fits=amount,
    )
