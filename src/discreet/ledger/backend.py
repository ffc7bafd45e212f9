"""What the accounts and reservations of one ledger share: the store, the clock, and the hook for tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from time import time_ns
from typing import TypeVar

from discreet.errors import LedgerUnavailable, NotALedger, TermsDiffer
from discreet.ledger import names
from discreet.ledger.chain import NOTHING, Entry
from discreet.ledger.history import HistoryCache
from discreet.ledger.stores import records
from discreet.ledger.stores.base import OnStep, Store, Transaction
from discreet.ledger.terms import Terms
from discreet.mechanisms import observation

T = TypeVar("T")


def now() -> datetime:
    """The time in UTC, by this machine's clock."""
    return datetime.now(UTC)


@lru_cache(maxsize=1)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Backend:
    """The way of accounts to the database. Users of the package see `Ledger` and `Account` only."""

    def __init__(
        self, store: Store, clock: Callable[[], datetime], on_step: OnStep, location: str, *, create: bool = True
    ) -> None:
        self.store = store
        self.location = location
        self.create = create
        self.on_step = on_step
        self.histories = HistoryCache()
        self._clock = clock

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the database."""
        return self.store.read(work)

    def write(self, work: Callable[[Transaction, str], T], *, keyed: bool = False) -> T:
        """Run `work` in a transaction, with the time that its entries carry, and commit it durably.

        For `keyed`, see `Store.write`.
        """
        time = self.timestamp()  # once, so that a retry writes the same text
        process = os.getpid()
        result = self.store.write(lambda transaction: work(transaction, time), keyed=keyed)
        self.on_step("returning")
        if os.getpid() != process:
            raise LedgerUnavailable(
                "this process was forked in the middle of a charge: the receipt belongs to the parent, and nothing may "
                "be released here for it"
            )
        return result

    def timestamp(self) -> str:
        """The time that entries carry, in ISO format with microseconds."""
        if self._clock is not now:
            return self._clock().isoformat(timespec="microseconds")
        # The same text. `isoformat` of a time with a zone takes 5 µs, which is 4% of a spend.
        seconds, microseconds = divmod(time_ns() // 1000, 1_000_000)
        return f"{_to_the_second(seconds)}.{microseconds:06d}+00:00"

    def find_terms(self, name: str) -> Terms | None:
        """The terms of an account, or None; an edited row is refused."""
        row = self.read(lambda transaction: records.find(transaction, name))
        if row is None:
            return None
        row.filter_state()
        return Terms.of_text(row.terms)

    def open(self, wanted: Terms, user: str | None = None) -> Terms:
        """Open an account under these terms, or reopen the one of this name; raise `TermsDiffer` if it has others."""
        stored = self._find_or_insert(wanted, user)
        same = (stored.budget, stored.aside, stored.neighbors) == (wanted.budget, wanted.aside, wanted.neighbors)
        if not same:
            raise TermsDiffer(
                f"account {wanted.name!r} must be reopened under its own terms: it has {stored}, and {wanted} was "
                "asked for; leave the budget out to reopen it as it is, or open another account"
            )
        return stored

    def _find_or_insert(self, wanted: Terms, user: str | None) -> Terms:

        def work(transaction: Transaction, time: str) -> Terms:
            # The parent is locked, so if two processes allot at once, the second finds what the first wrote.
            parent = records.held(transaction, wanted.parent) if wanted.parent is not None else None
            if transaction.lock_accounts:  # so that two processes cannot open look-alikes at once
                transaction.run(transaction.lock_accounts)
            existing = records.find(transaction, wanted.name)
            if existing is not None:
                existing.filter_state()
                return Terms.of_text(existing.terms)
            names.check_new(wanted.name, records.names(transaction))
            first = Entry(wanted.name, 0, "open", time, wanted.neighbors, NOTHING, terms=wanted.text(), user=user)
            records.insert_account(transaction, wanted, first)
            if parent is not None:
                allotment = Entry(
                    account=parent.name,
                    sequence=parent.sequence + 1,
                    kind="allot",
                    time=time,
                    neighbors=wanted.neighbors,
                    previous=parent.head,
                    terms=wanted.text(),
                    user=user,
                )
                records.append(transaction, parent, allotment, parent.filter_state())
            self.on_step("recorded")
            observation.opened(self.location, wanted.name)
            return wanted

        existing = self.find_terms(wanted.name)
        if existing is not None:
            return existing
        if wanted.parent is None and not self.create:
            meant = names.similar(wanted.name, self.read(records.names))
            raise TermsDiffer(
                f"account must exist, got {wanted.name!r}{meant}: the ledger was opened with create=False, which opens "
                "no new accounts"
            )
        try:
            return self.write(work, keyed=True)
        except NotALedger:
            # Two processes may have opened it at the same instant: the later one violates the primary key.
            existing = self.find_terms(wanted.name)
            if existing is None:
                raise
            return existing
