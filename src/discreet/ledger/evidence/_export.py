"""Everything that a ledger recorded, as JSON lines that an auditor's own programs can read and check."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from discreet.codec import canonical
from discreet.ledger.access import book
from discreet.ledger.backend import Backend
from discreet.ledger.ledger import Ledger
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction


def export(ledger: Ledger) -> Iterator[str]:
    """One line for each entry, each change of users and policies, and each refused attempt, as of now.

    The line of an entry or a change has its text as it was hashed (`body`) and its hash, the SHA-256 of the text. The
    text holds the hash of the one before. No line has the secret of a token.
    """
    backend = ledger.backend

    def standing(transaction: Transaction) -> tuple[dict[str, int], int | None]:
        ends = {name: records.existing(transaction, name).sequence for name in records.names(transaction)}
        return ends, book.head(transaction)[0] if book.exists(transaction) else None

    accounts, changes = backend.read(standing)
    yield canonical({"accounts": accounts, "changes": changes, "format": "discreet export 1", "kind": "header"})
    # Rows are only ever added, so pages that are read one after the other are one snapshot up to these ends.
    for name, end in accounts.items():
        for sequence, body, stored in _entries(backend, name, end):
            yield canonical({"account": name, "body": body, "hash": stored, "kind": "entry", "sequence": sequence})
    if changes is None:
        return
    for sequence, body, stored in backend.read(book.change_rows):
        if sequence <= changes:
            yield canonical({"body": body, "hash": stored, "kind": "change", "sequence": sequence})
    for refusal in backend.read(lambda transaction: book.refusals(transaction, None)):
        yield canonical({"kind": "refusal", **vars(refusal)})


def _entries(backend: Backend, name: str, end: int) -> Iterator[tuple[int, str, str]]:
    """The stored rows of an account up to `end`, in constant memory."""
    last = -1
    while last < end:
        rows = backend.read(partial(records.page, account=name, after=last))
        if not rows:
            return  # rows are missing: verify() says so
        yield from (row for row in rows if row[0] <= end)
        last = rows[-1][0]
