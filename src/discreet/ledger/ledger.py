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

import copy
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from discreet import _check
from discreet.codec import encode_budget
from discreet.errors import TermsDiffer
from discreet.guarantees import Guarantee
from discreet.ledger.account import Account
from discreet.ledger.backend import Backend, now
from discreet.ledger.names import checked_name, similar
from discreet.ledger.receipt import Anchor, Receipt
from discreet.ledger.stores import records
from discreet.ledger.stores.base import OnStep, Transaction, no_step
from discreet.ledger.stores.registry import open_store
from discreet.ledger.terms import Terms
from discreet.ledger.verify import Verification, verify
from discreet.neighbors import ADD_REMOVE, Client, Neighbors, Relation, Rows, Unit

T = TypeVar("T")


class Ledger:
    """Who spent what: accounts with a budget each, in a file or in a database that a team shares.

    Threads, processes, forks and, on PostgreSQL, several hosts may use it at once. Every spend is one short transaction
    that is on disk before it returns. Entries are only ever added, and a hash binds each to the one before.

    Args:
        location: the path of a SQLite file, which is created if needed, or the `postgresql://` URL of an existing
            database.
        create: whether a ledger may be created if there is none, and accounts in it. With False a wrong path or a
            mistyped account is an error instead of a fresh budget: use it wherever they must already exist.
        timeout: how many seconds to wait for others, or for a server that restarts, before raising an error.
        clock: gives the time that entries carry; it is for people, and nothing depends on it.
        on_step: called with the name of each step of a transaction; for tests that inject faults.

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
        clock: Callable[[], datetime] = now,
        on_step: OnStep = no_step,
    ) -> None:
        seconds = float(_check.positive("timeout", timeout, "it is how many seconds to wait for others"))
        self._location = os.fspath(location)
        store = open_store(self._location, create=create, timeout=seconds, on_step=on_step)
        self._backend = Backend(store, clock, on_step, self._location, create=create)
        self._user: str | None = None

    def acting_for(self, user: str) -> Ledger:
        """The same ledger, whose entries from here on name `user` as the one who asked; see `Account.acting_for`."""
        same = copy.copy(self)
        same._user = checked_name(user)
        return same

    def account(
        self,
        name: str,
        budget: Guarantee | None = None,
        unit: Unit | Client | None = None,
        relation: Relation | None = None,
        *,
        aside: float = 0.0,
    ) -> Account:
        """Open an account, or reopen the one of this name.

        Args:
            name: what the account is called; "parent/child" reopens a sub-account that `Account.allot` made. A new
                name must be in normal form (Unicode NFKC, single spaces), and must differ from the names that exist by
                more than case, spaces and look-alike letters.
            budget: what may be spent in total: `PureDP`, `ApproxDP`, `ZCDP`, `RDP` or `GDP`. None reopens an account.
            unit: the unit of privacy, one row by default.
            relation: which datasets are neighbors, add/remove by default.
            aside: how much of an (ε, δ) budget's δ is reserved for events with a δ of their own, such as
                `events.Claimed`.

        Raises:
            TermsDiffer: the account exists under other terms (both are shown), or does not exist and no budget is
                given or `create` is False.

        Guarantee:
            Terms are fixed when an account is opened and never change. Reopening cannot raise a budget.
        """
        if budget is None:
            terms = self._existing(name)
            if unit is not None:
                _check_neighbors(terms, replace(terms.neighbors, unit=unit))
            if relation is not None:
                _check_neighbors(terms, replace(terms.neighbors, relation=relation))
            return self._reopened(terms)
        encode_budget(budget)
        stated = budget.protects or Neighbors(ADD_REMOVE, Rows())
        neighbors = Neighbors(stated.relation if relation is None else relation, stated.unit if unit is None else unit)
        if budget.protects is not None and budget.protects != neighbors:
            remedy = "leave unit and relation out, or give the same ones"
            raise _check.fail("budget", f"protect what the account does ({neighbors})", str(budget.protects), remedy)
        terms = Terms.start(checked_name(name), None, budget, neighbors, aside)
        return Account(self._backend, (self._backend.open(terms, self._user),), self._user)

    def accounts(self) -> tuple[Account, ...]:
        """All accounts and sub-accounts, by name."""
        names = self._backend.read(records.names)
        return tuple(self._reopened(self._existing(name)) for name in names)

    @property
    def backend(self) -> Backend:
        """The transactions of the store, for code that keeps its own tables beside the ledger's."""
        return self._backend

    def read(self, work: Callable[[Transaction], T]) -> T:
        """What `work` reads from one consistent snapshot of the store, for exports and evidence."""
        return self._backend.read(work)

    def verify(self, receipts: Iterable[Receipt | Anchor | str] = ()) -> Verification:
        """Recompute everything from the entries, and report the first disagreement, if there is one.

        It checks each row's hash and its position in the chain, the end of the chain against the account, the totals of
        the filter as exact sums, that each total fitted when it was charged, that no recorded price is below what the
        event costs today, that no stored limit is above what the budget allows, that every sub-account's entry is in
        the accounts above and vice versa, and that every entry of `receipts` (or of their JSON), kept outside, is still
        there, as well as the last entries that this process saw.

        Guarantee:
            Any edit, deletion or change of order that leaves the chain inconsistent is found. The hashes have no
            secret: someone who can write to the store may compute the whole chain again after some row, or restore an
            old copy. Only receipts kept elsewhere, or a process that saw more, reveal that.
        """
        return verify(self._backend.store, tuple(receipts))

    def close(self) -> None:
        """Close this process's connections; they are reopened when needed."""
        self._backend.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = self._location if "://" not in self._location else "postgresql://…"
        return f"Ledger({shown!r})"

    def _existing(self, name: str) -> Terms:
        terms = self._backend.find_terms(str(name))
        if terms is None:
            meant = similar(str(name), self._backend.read(records.names))
            remedy = "give a budget to open it" if self._backend.create else "this ledger was opened with create=False"
            raise TermsDiffer(f"account must exist, got {name!r}{meant}: {remedy}")
        return terms

    def _reopened(self, terms: Terms) -> Account:
        path = [terms]
        while path[0].parent is not None:
            path.insert(0, self._existing(path[0].parent))
        return Account(self._backend, tuple(path), self._user)


def _check_neighbors(terms: Terms, wanted: Neighbors) -> None:
    if wanted != terms.neighbors:
        raise TermsDiffer(f"account {terms.name!r} protects {terms.neighbors}, and {wanted} was asked for")
