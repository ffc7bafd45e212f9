"""Where a ledger is kept: what a database must do for it, and connections that no fork and no two threads share.

A store runs a piece of work inside one transaction. The work is a function of the transaction alone, so a store may run
it again when it is certain that the first run left nothing behind.
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

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """What happens between the steps of a transaction: nothing. Tests of faults put a fault here."""


class Transaction(Protocol):
    """One open transaction. SQL is the same text for every store, with ? for each value."""

    #: What a SELECT ends with to lock the rows that it finds.
    for_update: str

    #: Rows of accounts that are certain to be in the database as they stand here, by the account's name: this
    #: connection wrote them last, and no other has written anything since. Whoever changes one puts it here.
    known: dict[str, Any]

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a query finds."""

    def run(self, sql: str, *values: object) -> None:
        """Change something."""


class Store(Protocol):
    """A database that keeps a ledger."""

    def write(self, work: Callable[[Transaction], T], *, keyed: bool = False) -> T:
        """Run `work` in a transaction and commit it durably, or raise and change nothing.

        `keyed` says that `work` finds its own earlier commit by a key, so that it may be run again even when it is not
        known whether a commit arrived. Without it, an answer lost in the middle of a commit is an error.
        """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on one consistent picture of the database, and change nothing."""

    def damage(self) -> str | None:
        """What the database itself says is broken, or None."""

    def close(self) -> None:
        """Close the connections of this process."""


class Pool(Generic[C]):
    """Connections at rest. One is taken out for each transaction, so no two threads ever share one.

    A fork must not copy an open connection: the child would speak on the parent's socket, and SQLite's locks belong to
    a process, so that a child that inherits its book-keeping believes in locks that it does not hold. So connections at
    rest are closed before a fork, in the parent. Where one is in use at that moment, the child may not use ledgers.
    """

    def __init__(self, connect: Callable[[], C], disconnect: Callable[[C], None]) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._lock = threading.Lock()
        self._free: list[C] = []
        # Those in use. One that an interrupt let fall is in use until it is collected, which closes it.
        self._busy: weakref.WeakSet[C] = weakref.WeakSet()
        self._connecting = 0
        self._epoch = 0
        _pools.add(self)

    def take(self) -> tuple[C, int]:
        """A connection that nobody else uses, and the epoch in which it was made."""
        if _torn:
            raise LedgerUnavailable(
                "this process was forked while a ledger was in use: nothing may be charged from it; start a new process"
            )
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
        """Put a connection that is in order back to rest."""
        with self._lock:
            if epoch == self._epoch:
                self._busy.discard(connection)
                self._free.append(connection)
                return
        self.discard(connection)

    def discard(self, connection: C) -> None:
        """Close a connection that may not be in order."""
        with self._lock:
            self._busy.discard(connection)
        self._disconnect(connection)

    def close(self) -> None:
        """Close all connections at rest; those in use are closed when they are given back."""
        with self._lock:
            free, self._free = self._free, []
            self._epoch += 1
        for connection in free:
            self._disconnect(connection)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.close()

    def before_fork(self) -> None:
        """Close what is at rest, and let nobody take a connection until the fork is done."""
        self._lock.acquire()
        for connection in self._free:
            self._disconnect(connection)
        self._free = []

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> bool:
        """Start anew; whether a connection was in use, by a thread that does not exist here."""
        torn = self._connecting > 0 or bool(list(self._busy))  # their number counts those that are gone, at times
        self._lock = threading.Lock()
        self._busy, self._connecting = weakref.WeakSet(), 0
        self._epoch += 1
        return torn


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()
_held: list[Pool[Any]] = []
_torn = False


def _before() -> None:
    _held[:] = list(_pools)
    for pool in _held:
        pool.before_fork()


def _in_parent() -> None:
    for pool in _held:
        pool.after_fork_in_parent()
    _held.clear()


def _in_child() -> None:
    global _torn
    for pool in _held:
        _torn = pool.after_fork_in_child() or _torn
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
