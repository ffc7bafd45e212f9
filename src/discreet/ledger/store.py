"""Where a ledger is kept: what a database must do for it, and connections that no fork and no two threads share.

A store runs a piece of work inside one transaction. The work is a function of the transaction alone, so a store may run
it again when it is certain that the first run left nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
C = TypeVar("C")

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """What happens between the steps of a transaction: nothing. Tests of faults put a fault here."""


class Transaction(Protocol):
    """One open transaction. SQL is the same text for every store, with ? for each value."""

    #: What a SELECT ends with to lock the rows that it finds.
    for_update: str

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

    After a fork the child starts with an empty pool and never touches the connections of its parent, not even to close
    them: it would speak on the parent's socket, or drop the parent's locks.
    """

    def __init__(self, connect: Callable[[], C], disconnect: Callable[[C], None]) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._lock = threading.Lock()
        self._free: list[C] = []
        self._epoch = 0
        _pools.add(self)

    def take(self) -> tuple[C, int]:
        """A connection that nobody else uses, and the epoch in which it was made."""
        with self._lock:
            if self._free:
                return self._free.pop(), self._epoch
        return self._connect(), self._epoch

    def give_back(self, connection: C, epoch: int) -> None:
        """Put a connection that is in order back to rest."""
        with self._lock:
            if epoch == self._epoch:
                self._free.append(connection)
                return
        self.discard(connection)

    def discard(self, connection: C) -> None:
        """Close a connection that may not be in order."""
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

    def after_fork(self) -> None:
        """Forget the parent's connections without closing them."""
        self._lock = threading.Lock()
        for connection in self._free:
            # One reference too many: the interpreter's end in the child must not close it either.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._free = []
        self._epoch += 1


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
