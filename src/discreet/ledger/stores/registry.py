"""Which store keeps the ledger at a location.

To add a store, write one module with a class that satisfies `base.Store`, and register it in `SERVERS`. To run the
ledger's tests on it, add a fixture beside `new_sqlite` in tests/ledger/conftest.py.
"""

from __future__ import annotations

from typing import Protocol

from discreet import _check
from discreet.ledger.stores.base import OnStep, Store
from discreet.ledger.stores.postgres import PostgresStore
from discreet.ledger.stores.sqlite import SQLiteStore


class OpenStore(Protocol):
    """How a store class is called."""

    def __call__(self, location: str, *, create: bool, timeout: float, on_step: OnStep) -> Store: ...


#: The store for each URL scheme. A location without a scheme is the path of a SQLite file.
SERVERS: dict[str, OpenStore] = {"postgresql": PostgresStore, "postgres": PostgresStore}


def open_store(location: str, *, create: bool, timeout: float, on_step: OnStep) -> Store:
    """Open the store at `location`; `timeout` is in seconds."""
    scheme, separator, _ = location.partition("://")
    chosen = SERVERS.get(scheme) if separator else SQLiteStore
    if chosen is None or location in {"", ":memory:"}:
        remedy = "a budget must outlive the process: give a path, or a postgresql:// URL"
        raise _check.fail("location", "be a path or a postgresql:// URL", location, remedy)
    return chosen(location, create=create, timeout=timeout, on_step=on_step)
