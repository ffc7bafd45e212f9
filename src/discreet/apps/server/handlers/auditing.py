"""The auditor's calls: who spent what, whether the record holds, and all of it as lines. No call here reads data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from discreet.apps.server.calls import AllowedRequest, Lines
from discreet.apps.server.problems import Problem, not_found
from discreet.errors import TermsDiffer
from discreet.ledger import Account
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction

#: Entries that are read at once: an account of any length is sent in constant memory.
_PAGE = 1000
#: Sequence numbers start at 0.
_BEFORE_ALL = -1


def accounts(call: AllowedRequest) -> Any:
    """All accounts and how they stand."""
    return {"accounts": [call.curator.standing(account) for account in call.curator.ledger.accounts()]}


def statement(call: AllowedRequest) -> Any:
    """Who spent how much on what from one account, as JSON."""
    return json.loads(_account(call).statement().to_json())


def verify(call: AllowedRequest) -> Any:
    """Recompute everything from the entries; the receipts in the body must still be there."""
    receipts = call.fields(receipts=list)["receipts"] or []
    if not all(isinstance(receipt, str) for receipt in receipts):
        raise Problem(400, "invalid", "receipts must be texts, as to_json() of a receipt writes them")
    verification = call.curator.ledger.verify(receipts)
    changes = call.curator.access.disagreement()
    return {
        "ok": not verification.problem and not changes,
        "accounts": verification.accounts,
        "entries": verification.entries,
        "account": verification.account,
        "sequence": verification.sequence,
        "problem": verification.problem,
        "changes": changes,
    }


def export(call: AllowedRequest) -> Lines:
    """All entries of all accounts as JSON lines, each with its hash."""
    return Lines(_entries(call))


def refusals(call: AllowedRequest) -> Any:
    """The newest refused attempts."""
    listed = call.curator.access.refusals(_most(call))
    return {"refusals": [vars(refusal) for refusal in listed]}


def changes(call: AllowedRequest) -> Any:
    """Every change of users, tokens, policies and approvals, without the digests of tokens."""
    listed = []
    for change in call.curator.access.changes():
        body = {name: value for name, value in change.body.items() if name != "digest"}
        listed.append({**vars(change), "body": body})
    return {"changes": listed}


def _most(call: AllowedRequest) -> int:
    text = call.query.get("most", "1000")
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 10_000:
        raise Problem(400, "invalid", "most must be a whole number from 1 to 10000: it limits the list")
    return int(text)


def _account(call: AllowedRequest) -> Account:
    name = call.names["account"]
    try:
        return call.curator.ledger.account(name)
    except TermsDiffer:
        raise not_found("account", name) from None


def _entries(call: AllowedRequest) -> Iterator[str]:
    """Entries are only ever added, so pages that are read one after another are those of one snapshot."""
    ledger = call.curator.ledger
    for name in ledger.read(records.names):
        last, more = _BEFORE_ALL, True
        while more:
            rows = ledger.read(_page(name, last))
            for sequence, body, stored in rows:
                yield json.dumps({"account": name, "sequence": sequence, "hash": stored, "body": body}) + "\n"
                last = sequence
            more = len(rows) == _PAGE


def _page(name: str, after: int) -> Callable[[Transaction], list[tuple[int, str, str]]]:
    def work(transaction: Transaction) -> list[tuple[int, str, str]]:
        rows = islice(records.pages(transaction, name, after), _PAGE)
        return [(sequence, body, stored) for sequence, _, _, body, stored in rows]

    return work
