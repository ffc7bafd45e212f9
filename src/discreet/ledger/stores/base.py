"""What a database must do to keep a ledger, and a connection pool that is safe with threads and forks.

A store runs a piece of work inside one transaction. The work depends on the transaction alone, so a store may run it
again when it is certain that the first run left nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from discreet.errors import LedgerUnavailable

T = TypeVar("T")
C = TypeVar("C")

#: A hook that is called with the name of each step of a transaction. Tests use it to inject faults.
OnStep = Callable[[str], None]


def no_step(name: str) -> None:
    """The hook outside of tests: it does nothing."""


#: For each account the highest sequence number, with its hash, that this process saw in one ledger.
Seen = dict[str, tuple[int, str]]

# By the ledger's location, and shared by all `Ledger` objects of the process. It is never emptied: a process that
# forgot what it saw could be shown an older copy.
_seen_at: dict[str, Seen] = {}


def seen_at(location: str) -> Seen:
    """What this process saw in the ledger at `location`, as one object for all who ask."""
    return _seen_at.setdefault(location, {})


def remember(seen: Seen, account: str, sequence: int, head: str) -> None:
    """Record that a row is durably in a ledger.

    There is no lock, because a fork could copy it while it is held. If two threads record a row at the same instant,
    the lower one may stay until the next row; both were there.
    """
    before = seen.get(account)
    if before is None or before[0] < sequence:
        seen[account] = sequence, head


#: How a role that may not write to the tables locks an account: it calls a function that does.
GUARDED_LOCK = "discreet_locked(?)"


class Transaction(Protocol):
    """One open transaction. Every store takes the same SQL text, with ? for each value."""

    #: Suffix of a SELECT that locks the rows it returns until the transaction ends.
    for_update: str

    #: Statement that keeps others from opening accounts until the transaction ends; empty where nobody else can write.
    lock_accounts: str

    #: Whether the tables are written through functions of the database only (`guarded`).
    guarded: bool

    #: Query that has a row if the database has the table of the given name.
    table_exists: str

    #: Account rows (`records.AccountRow`) that are certain to be in the database as they stand here, by name, so they
    #: need not be read. Whoever changes a row puts the new one here.
    current: dict[str, Any]

    #: The highest row of each account that this process saw, and those that it saw before the transaction began. A
    #: ledger that shows less than the latter was rolled back.
    seen: Seen
    seen_before: Seen

    #: Account rows that this transaction wrote. After its commit, `remember` adds them to what this process saw.
    written: list[Any]

    #: Whether a committed row that others can read is certain to survive a crash.
    visible_is_durable: bool

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""

    def run(self, sql: str, *values: object) -> None:
        """Run a statement that changes something."""


class Store(Protocol):
    """A database that keeps a ledger."""

    def write(self, work: Callable[[Transaction], T], *, keyed: bool = False) -> T:
        """Run `work` in a transaction and commit it durably, or raise and change nothing.

        `keyed` says that `work` finds its own earlier commit by a key. The store may then run it again even when it
        does not know whether a commit succeeded. Without a key, an answer that is lost during a commit is an error.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent snapshot of the database, and change nothing."""

    def damage(self) -> str | None:
        """The first problem that the database's own check finds, or None."""

    def close(self) -> None:
        """Close this process's connections."""


class Pool(Generic[C]):
    """Idle connections. Each transaction takes one out, so two threads never share a connection.

    A fork must not copy an open connection. The child would write to the parent's socket. SQLite's locks belong to a
    process, so a child that inherits SQLite's bookkeeping would rely on locks that it does not hold. The parent
    therefore closes its idle connections before it forks. If a connection is in use at that moment, the child may not
    use any ledger.
    """

    def __init__(self, connect: Callable[[], C], disconnect: Callable[[C], None]) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._lock = threading.Lock()
        self._free: list[C] = []
        # Connections in use. They are weak references: an interrupt can drop a connection between the transaction and
        # `give_back`, and it then counts as in use only until the garbage collector closes it.
        self._busy: weakref.WeakSet[C] = weakref.WeakSet()
        self._connecting = 0
        # Counts calls to `close` and forks. A connection from an earlier epoch is closed when it is given back.
        self._epoch = 0
        _pools.add(self)

    def take(self) -> tuple[C, int]:
        """Take or make a connection that nobody else uses; also return its epoch, which `give_back` needs."""
        check_not_forked()
        with self._lock:
            if self._free:
                connection = self._free.pop()
                self._busy.add(connection)
                return connection, self._epoch
            self._connecting += 1
        try:
            connection = self._connect()
            with self._lock:
                self._busy.add(connection)
                return connection, self._epoch
        finally:
            with self._lock:
                self._connecting -= 1

    def give_back(self, connection: C, epoch: int) -> None:
        """Return a connection that is in order, with no transaction open."""
        with self._lock:
            if epoch == self._epoch:
                self._busy.discard(connection)
                self._free.append(connection)
                return
        self.discard(connection)

    def discard(self, connection: C) -> None:
        """Close a connection that may not be in order. One that a fork copied stays open: it is the parent's."""
        if _forked_in_use:
            _abandoned.append(connection)
            return
        with self._lock:
            self._busy.discard(connection)
        self._disconnect(connection)

    def close(self) -> None:
        """Close all idle connections; those in use are closed when they are given back."""
        with self._lock:
            free, self._free = self._free, []
            self._epoch += 1
        for connection in free:
            self._disconnect(connection)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # at interpreter exit, modules may already be gone
            self.close()

    def before_fork(self) -> None:
        """Close the idle connections, and block `take` until the fork is done."""
        self._lock.acquire()
        for connection in self._free:
            self._disconnect(connection)
        self._free = []

    def after_fork_in_parent(self) -> None:
        """Allow `take` again."""
        self._lock.release()

    def after_fork_in_child(self) -> bool:
        """Reset the pool; return whether a thread of the parent was using or opening a connection."""
        # A list, because len() of a WeakSet may count members that are already gone.
        in_use = self._connecting > 0 or bool(list(self._busy))
        self._lock = threading.Lock()
        self._busy, self._connecting = weakref.WeakSet(), 0
        self._epoch += 1
        return in_use


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()
_locked: list[Pool[Any]] = []  # strong references, so that the same pools are unlocked after the fork
_forked_in_use = False
_abandoned: list[Any] = []  # connections of the parent; the garbage collector must not close them either


def check_not_forked() -> None:
    """Raise if this process is the child of a fork that happened while a ledger was in use."""
    if _forked_in_use:
        raise LedgerUnavailable(
            "this process was forked while a ledger was in use: nothing may be charged from it; start a new process"
        )


def _before() -> None:
    _locked[:] = list(_pools)
    for pool in _locked:
        pool.before_fork()


def _in_parent() -> None:
    for pool in _locked:
        pool.after_fork_in_parent()
    _locked.clear()


def _in_child() -> None:
    global _forked_in_use
    for pool in _locked:
        _forked_in_use = pool.after_fork_in_child() or _forked_in_use
    _locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
