"""The ledger: one durable privacy budget for each dataset, shared by processes and people, that cannot be overspent.

>>> import tempfile, discreet as dp
>>> folder = tempfile.TemporaryDirectory()
>>> with Ledger(f"{folder.name}/census.ledger") as ledger:
...     census = ledger.account("census", budget=dp.PureDP(1.0))
...     receipt = census.spend(dp.events.Laplace(4.0), purpose="age histogram")
...     print(census.remaining())
0.75-DP, add or remove one row
>>> folder.cleanup()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import time_ns
from types import TracebackType
from typing import Self

from discreet import _check
from discreet.codec import encode_budget
from discreet.errors import NotALedger, TermsDiffer
from discreet.guarantees import Guarantee
from discreet.ledger import records
from discreet.ledger.account import Account
from discreet.ledger.chain import NOTHING, Entry
from discreet.ledger.postgres import PostgresStore
from discreet.ledger.receipt import Receipt
from discreet.ledger.sqlite import SQLiteStore
from discreet.ledger.store import Step, Store, Transaction, no_step
from discreet.ledger.terms import Terms, checked_name
from discreet.ledger.verify import Verification, verify
from discreet.neighbors import ADD_REMOVE, Neighbors, Relation, Rows, Unit


def _now() -> datetime:
    return datetime.now(UTC)


class Ledger:
    """Who spent what: accounts with a budget each, in a file or in a database that a team shares.

    It may be used by threads, processes, forks and, on PostgreSQL, by several hosts at once. Every spend is one short
    transaction that is on disk before it returns. Entries are only ever added, and each is bound to the one before by
    a hash.

    Args:
        location: a path, where a SQLite file is opened or started, or a `postgresql://` URL of a database that exists.
        create: whether a ledger may be started where there is none. With False a wrong path is an error instead of a
            fresh budget: take it wherever the ledger must already be there.
        timeout: how many seconds to wait for others, or for a server that restarts, before giving up with an error.
        clock: tells the time that entries carry; for people, nothing depends on it.
        on_step: called with a name between the steps of a transaction; for tests that inject faults.

    Guarantee:
        Whatever is released only after `spend` has returned its receipt is within the budget of its account and of
        every account above it, under adaptive use, for the account's unit and relation. A crash at any instant may
        waste budget and never creates any. The ledger does not protect against someone who writes to its file or
        database by other means (`verify` detects what they leave inconsistent), nor against releases that are not
        charged.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        create: bool = True,
        timeout: float = 30.0,
        clock: Callable[[], datetime] = _now,
        on_step: Step = no_step,
    ) -> None:
        seconds = float(_check.positive("timeout", timeout, "it is how many seconds to wait for others"))
        self._clock = clock
        self._second = 0, ""
        self._on_step = on_step
        self._location = os.fspath(location)
        if self._location.startswith(("postgresql://", "postgres://")):
            self._store: Store = PostgresStore(self._location, create=create, timeout=seconds, on_step=on_step)
        elif not self._location or self._location == ":memory:" or "://" in self._location:
            remedy = "a budget must outlive the process: give a path, or a postgresql:// URL"
            raise _check.fail("location", "be a path or a postgresql:// URL", self._location, remedy)
        else:
            self._store = SQLiteStore(Path(self._location), create=create, timeout=seconds, on_step=on_step)

    def account(
        self,
        name: str,
        budget: Guarantee | None = None,
        unit: Unit | None = None,
        relation: Relation | None = None,
        *,
        aside: float = 0.0,
    ) -> Account:
        """Open an account, or reopen the one of this name.

        Args:
            name: what the account is called; "parent/child" reopens a sub-account that `Account.allot` made.
            budget: what may be spent in all: `PureDP`, `ApproxDP`, `ZCDP`, `RDP` or `GDP`. None reopens an account.
            unit: the unit of privacy, one row unless said otherwise.
            relation: which datasets are neighbors, add/remove unless said otherwise.
            aside: how much of an (ε, δ) budget's δ is kept for events that bring their own, such as `events.Claimed`.

        Raises:
            TermsDiffer: the account exists under other terms (both are shown), or does not exist and no budget is
                given.

        Guarantee:
            Terms are fixed when an account is opened and never change. Reopening cannot raise a budget.
        """
        if budget is None:
            found = self._existing(name)
            _same(found, None if unit is None else replace(found.neighbors, unit=unit))
            _same(found, None if relation is None else replace(found.neighbors, relation=relation))
            return self._opened(found)
        encode_budget(budget)
        stated = budget.protects or Neighbors(ADD_REMOVE, Rows())
        neighbors = Neighbors(stated.relation if relation is None else relation, stated.unit if unit is None else unit)
        if budget.protects is not None and budget.protects != neighbors:
            remedy = "leave unit and relation out, or give the same"
            raise _check.fail("budget", f"protect what the account does ({neighbors})", str(budget.protects), remedy)
        return self._open(Terms.start(checked_name(name), None, budget, neighbors, aside))

    def accounts(self) -> tuple[Account, ...]:
        """All accounts and sub-accounts, by name."""
        names = self._store.read(records.names)
        return tuple(self._opened(self._existing(name)) for name in names)

    def verify(self, receipts: Iterable[Receipt | str] = ()) -> Verification:
        """Recompute everything from the entries, and say where the first disagreement is, if there is one.

        Checks each row's hash and its place in the chain, the end of the chain against the account, the totals of the
        filter as exact sums, that each total fitted when it was charged, that no recorded price is below what the
        event costs today, that every sub-account's entry is in the accounts above and the other way round, and that
        every entry of `receipts` (or of their JSON), kept outside, is still there.

        Guarantee:
            Any edit, deletion or change of order that leaves the chain inconsistent is found. Someone who can write to
            the store may rewrite the whole chain after some row, or restore an old copy: only receipts kept elsewhere
            show that.
        """
        return verify(self._store, tuple(receipts))

    def close(self) -> None:
        """Close this process's connections; they open again when they are needed."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = self._location if "://" not in self._location else "postgresql://…"
        return f"Ledger({shown!r})"

    # What accounts need of their ledger.

    def _write_time(self) -> str:
        if self._clock is not _now:
            return self._clock().isoformat(timespec="microseconds")
        # The same text, of which only the end is new within a second.
        seconds, micro = divmod(time_ns() // 1000, 1_000_000)
        known = self._second
        if known[0] != seconds:
            known = self._second = seconds, datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
        return f"{known[1]}.{micro:06d}+00:00"

    def _existing(self, name: str) -> Terms:
        row = self._store.read(lambda transaction: records.find(transaction, str(name)))
        if row is None:
            raise TermsDiffer(f"account must exist, got {name!r}: give a budget to open it")
        row.filter_state()
        return Terms.of_text(row.terms)

    def _opened(self, terms: Terms) -> Account:
        path = [terms]
        while path[0].parent is not None:
            path.insert(0, self._existing(path[0].parent))
        return Account(self, tuple(path))

    def _open(self, wanted: Terms, above: tuple[Terms, ...] = ()) -> Account:
        """The account of these terms, opened if it is not there yet."""
        time = self._write_time()

        def work(transaction: Transaction) -> Terms:
            # The account above is locked, so that of two who allot at once the second finds what the first has made.
            row = records.held(transaction, wanted.parent) if wanted.parent is not None else None
            found = records.find(transaction, wanted.name)
            if found is not None:
                found.filter_state()
                return Terms.of_text(found.terms)
            first = Entry(wanted.name, 0, "open", time, wanted.neighbors, NOTHING, terms=wanted.text())
            records.insert_account(transaction, wanted, first)
            if row is not None:
                state = row.filter_state()
                noted = Entry(
                    account=row.name,
                    sequence=row.sequence + 1,
                    kind="allot",
                    time=time,
                    neighbors=wanted.neighbors,
                    previous=row.head,
                    terms=wanted.text(),
                )
                records.append(transaction, row, noted, state)
            self._on_step("recorded")
            return wanted

        known = self._store.read(lambda transaction: records.find(transaction, wanted.name))
        if known is None:
            try:
                found = self._store.write(work, keyed=True)
            except NotALedger:
                # Two may have opened it at the same instant, and the other was first.
                known = self._store.read(lambda transaction: records.find(transaction, wanted.name))
                if known is None:
                    raise
                found = Terms.of_text(known.terms)
        else:
            known.filter_state()
            found = Terms.of_text(known.terms)
        same = found.budget == wanted.budget and found.aside == wanted.aside and found.neighbors == wanted.neighbors
        if not same:
            raise TermsDiffer(
                f"account {wanted.name!r} must be reopened under its own terms: it has {found}, and {wanted} was asked "
                "for; leave the budget out to reopen it as it is, or open another account"
            )
        return Account(self, (*above, found))


def _same(found: Terms, wanted: Neighbors | None) -> None:
    if wanted is not None and wanted != found.neighbors:
        raise TermsDiffer(f"account {found.name!r} protects {found.neighbors}, and {wanted} was asked for")
