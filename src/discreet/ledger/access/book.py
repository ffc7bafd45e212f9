"""The tables beside the ledger's own: what holds now, every change that led to it, and what was refused.

What holds now (users, tokens, policies, approvals) is one row for each, as canonical JSON. Every change of it is
appended to a chain of its own, with who made it and when; each change holds the hash of the one before it. The state is
what the last change of each thing says, which `disagreement` checks.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from discreet.codec import canonical, parse
from discreet.errors import NotALedger
from discreet.ledger.chain import NOTHING, digest
from discreet.ledger.stores.base import Transaction

_TABLES = (
    """CREATE TABLE IF NOT EXISTS discreet_access_state (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    )""",
    """CREATE TABLE IF NOT EXISTS discreet_access_change (
        sequence BIGINT PRIMARY KEY,
        body TEXT NOT NULL,
        hash TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS discreet_access_refusal (
        id TEXT PRIMARY KEY,
        time TEXT NOT NULL,
        actor TEXT NOT NULL,
        token TEXT NOT NULL,
        action TEXT NOT NULL,
        reason TEXT NOT NULL
    )""",
)
_STATE = "SELECT body FROM discreet_access_state WHERE kind = ? AND name = ?"
_PUT = (
    "INSERT INTO discreet_access_state (kind, name, body) VALUES (?, ?, ?) "
    "ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body"
)
# The row of the state that holds the end of the chain. Whoever appends to the chain locks it first.
_HEAD = ("head", "")
# Rows per query when all changes are read.
_PAGE = 2000
# Characters of a refusal's texts that are kept: clients choose some of them.
_LONGEST_REFUSAL = 500
# Numbers refusals of this process, so that those of the same moment keep their order.
_refused = count()


@dataclass(frozen=True)
class Change:
    """One change of users, tokens, policies or approvals.

    Attributes:
        sequence: its number, from 1.
        time: when it was made, by the writer's clock.
        by: who made it.
        kind: what was changed: "user", "token", "policy", "approval", "renewal", "alert" or "dataset".
        name: which one.
        body: what it says from then on.
    """

    sequence: int
    time: str
    by: str
    kind: str
    name: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """One attempt that was refused."""

    time: str
    user: str
    token: str
    action: str
    reason: str


def exists(transaction: Transaction) -> bool:
    """Whether the tables are there."""
    return bool(transaction.rows(transaction.table_exists, "discreet_access_refusal"))


def create(transaction: Transaction) -> None:
    """Create the tables, if another process has not done so meanwhile."""
    if transaction.lock_accounts:
        transaction.run(transaction.lock_accounts)
    if not exists(transaction):
        for statement in _TABLES:
            transaction.run(statement)
        transaction.run(_PUT, *_HEAD, canonical({"hash": NOTHING, "sequence": 0}))


def get(transaction: Transaction, kind: str, name: str, *, shared: bool = False) -> dict[str, Any] | None:
    """What holds now for one thing; None if there is no such thing.

    With `shared` nobody changes it until the transaction ends. In SQLite a transaction that writes is alone anyway.
    """
    lock = " FOR SHARE" if shared and transaction.for_update else ""
    rows = transaction.rows(_STATE + lock, kind, name)
    return _object(rows[0][0]) if rows else None


def every(transaction: Transaction, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """All things of a kind with what holds for them, by name."""
    rows = transaction.rows("SELECT name, body FROM discreet_access_state WHERE kind = ? ORDER BY name", kind)
    return [(name, _object(body)) for name, body in rows]


def put(transaction: Transaction, time: str, by: str, kind: str, name: str, body: dict[str, Any]) -> None:
    """Say what holds from now on, and record the change. What holds already is not recorded again."""
    [(text,)] = transaction.rows(_STATE + transaction.for_update, *_HEAD)
    if get(transaction, kind, name) == body:
        return
    head = _object(text)
    sequence = head["sequence"] + 1
    change = canonical({"body": body, "by": by, "kind": kind, "name": name, "previous": head["hash"], "time": time})
    transaction.run(
        "INSERT INTO discreet_access_change (sequence, body, hash) VALUES (?, ?, ?)", sequence, change, digest(change)
    )
    transaction.run(_PUT, kind, name, canonical(body))
    transaction.run(_PUT, *_HEAD, canonical({"hash": digest(change), "sequence": sequence}))


def changes(transaction: Transaction) -> list[Change]:
    """All changes, oldest first."""
    return [
        Change(sequence, value["time"], value["by"], value["kind"], value["name"], value["body"])
        for sequence, body, _ in _pages(transaction)
        for value in [_object(body)]
    ]


def change_rows(transaction: Transaction) -> list[tuple[int, str, str]]:
    """All changes as they are stored: sequence, body and hash."""
    return list(_pages(transaction))


def change_hash(transaction: Transaction, sequence: int) -> str | None:
    """The hash of one change as it is stored, if it is still the hash of its text."""
    rows = transaction.rows("SELECT body, hash FROM discreet_access_change WHERE sequence = ?", sequence)
    return rows[0][1] if rows and digest(rows[0][0]) == rows[0][1] else None


def head(transaction: Transaction) -> tuple[int, str]:
    """The number and the hash of the last change."""
    value = get(transaction, *_HEAD)
    if value is None:
        raise NotALedger("the end of the record of changes is missing: the ledger was edited")
    return value["sequence"], value["hash"]


def disagreement(transaction: Transaction) -> str:
    """The first place where the record of changes is not a chain, or does not lead to what holds now; or ""."""
    previous, expected = NOTHING, 1
    holds: dict[tuple[str, str], Any] = {}
    for sequence, body, stored in _pages(transaction):
        value = _object(body)
        if sequence != expected or value.get("previous") != previous or digest(body) != stored:
            return f"change {expected} is missing or was edited"
        holds[value["kind"], value["name"]] = value["body"]
        previous, expected = stored, sequence + 1
    if head(transaction) != (expected - 1, previous):
        return f"the last change is not the one that the record names: changes after {expected - 1} are missing"
    kinds_now = transaction.rows("SELECT kind, name, body FROM discreet_access_state")
    now = {(kind, name): _object(body) for kind, name, body in kinds_now if kind != _HEAD[0]}
    for key in sorted(holds.keys() | now.keys()):
        if holds.get(key) != now.get(key):
            return f"{key[0]} {key[1]!r} is not what its last change says: it was edited"
    return ""


def refuse(transaction: Transaction, time: str, user: str, token: str, action: str, reason: str) -> None:
    """Log a refused attempt."""
    texts = [_printable(text) for text in (user, token, action, reason)]
    transaction.run(
        "INSERT INTO discreet_access_refusal (id, time, actor, token, action, reason) VALUES (?, ?, ?, ?, ?, ?)",
        f"{time} {next(_refused):012d} {secrets.token_hex(8)}",
        time,
        *texts,
    )


def refusals(transaction: Transaction, most: int | None) -> list[Refusal]:
    """The newest refused attempts, newest first; all of them if `most` is None."""
    query = "SELECT time, actor, token, action, reason FROM discreet_access_refusal ORDER BY id DESC"
    rows = transaction.rows(query) if most is None else transaction.rows(f"{query} LIMIT ?", most)
    return [Refusal(*row) for row in rows]


def _pages(transaction: Transaction) -> Iterator[tuple[int, str, str]]:
    last = 0
    while True:
        rows = transaction.rows(
            "SELECT sequence, body, hash FROM discreet_access_change "
            f"WHERE sequence > ? ORDER BY sequence LIMIT {_PAGE}",
            last,
        )
        yield from ((row[0], row[1], row[2]) for row in rows)
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]


def _object(text: str) -> dict[str, Any]:
    value = parse(text)
    if not isinstance(value, dict):
        raise NotALedger("a row of the access tables is not readable: the ledger was edited")
    return value


def _printable(text: str) -> str:
    """A text from outside on one line, without what a terminal or a store would misread."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)[:_LONGEST_REFUSAL]
