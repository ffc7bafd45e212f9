"""What the server must not forget: datasets and models that were registered, stored answers, and jobs.

It lies in the ledger's own database, so that a backup, a restart or a second worker finds all of it or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from discreet.codec import canonical
from discreet.ledger import Ledger
from discreet.ledger.backend import Backend
from discreet.ledger.stores import served
from discreet.ledger.stores.base import Transaction

_PUT_ITEM = (
    "INSERT INTO discreet_server_item (kind, name, body) VALUES (?, ?, ?) "
    "ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body"
)
_PUT_ANSWER = (
    "INSERT INTO discreet_server_answer (owner, key, question, time, body) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (owner, key) DO NOTHING"
)


@dataclass(frozen=True)
class Answered:
    """A stored answer: the digest of the question that it belongs to, and its JSON text."""

    question: str
    body: str


class ServerState:
    """The server's tables beside the ledger's own, created on first use."""

    def __init__(self, ledger: Ledger) -> None:
        self._backend: Backend = ledger.backend
        self._backend.write(served.create)

    def items(self, kind: str) -> list[tuple[str, Any]]:
        """All things of a kind, by name, as JSON."""
        return [(name, _json(body)) for name, body in self._backend.read(lambda transaction: _items(transaction, kind))]

    def item(self, kind: str, name: str) -> Any | None:
        """One thing, as JSON; None if there is none of this name."""
        sql = "SELECT body FROM discreet_server_item WHERE kind = ? AND name = ?"
        rows = self._backend.read(lambda transaction: transaction.rows(sql, kind, name))
        return _json(rows[0][0]) if rows else None

    def put(self, kind: str, name: str, body: Any) -> None:
        """Store a thing, in place of what had its name."""
        text = canonical(body)
        self._backend.write(lambda transaction, time: transaction.run(_PUT_ITEM, kind, name, text))

    def change(self, kind: str, name: str, change: Callable[[Any | None], Any | None]) -> Any | None:
        """Replace a thing by what `change` makes of it, in one transaction; None leaves it as it is.

        Returns what `change` returned. Of two processes that do this at once, the second sees what the first wrote.
        """

        def work(transaction: Transaction, time: str) -> Any | None:
            if transaction.lock_accounts:
                transaction.run("LOCK TABLE discreet_server_item IN SHARE ROW EXCLUSIVE MODE")
            rows = transaction.rows("SELECT body FROM discreet_server_item WHERE kind = ? AND name = ?", kind, name)
            after = change(_json(rows[0][0]) if rows else None)
            if after is not None:
                transaction.run(_PUT_ITEM, kind, name, canonical(after))
            return after

        return self._backend.write(work)

    def answer(self, owner: str, key: str) -> Answered | None:
        """The stored answer of a user's key."""
        sql = "SELECT question, body FROM discreet_server_answer WHERE owner = ? AND key = ?"
        rows = self._backend.read(lambda transaction: transaction.rows(sql, owner, key))
        return Answered(*rows[0]) if rows else None

    def keep_answer(self, owner: str, key: str, question: str, body: str) -> None:
        """Store an answer before it is sent; the first one of a key stays."""
        self._backend.write(lambda transaction, time: transaction.run(_PUT_ANSWER, owner, key, question, time, body))

    def forget_answers(self, before: str) -> None:
        """Remove answers that were stored before a time. Their keys stay spent: the ledger knows them."""
        sql = "DELETE FROM discreet_server_answer WHERE time < ?"
        self._backend.write(lambda transaction, time: transaction.run(sql, before))


def _items(transaction: Transaction, kind: str) -> list[tuple[Any, ...]]:
    return transaction.rows("SELECT name, body FROM discreet_server_item WHERE kind = ? ORDER BY name", kind)


def _json(text: str) -> Any:
    return json.loads(text)
