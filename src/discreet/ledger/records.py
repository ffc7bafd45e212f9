"""The few sentences of SQL that a ledger speaks, and the rows that they find. The same text serves every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from discreet.errors import NotALedger
from discreet.ledger import schema
from discreet.ledger.chain import Entry, digest, seal
from discreet.ledger.store import Transaction
from discreet.ledger.terms import Terms
from discreet.ledger.totals import Totals

_PAGE = 2000

_ACCOUNT = "name, parent, terms, state, sequence, head, seal"
_FIND = f"SELECT {_ACCOUNT}, (SELECT MAX(number) FROM discreet_schema) FROM discreet_account WHERE name = ?"
_APPEND = "INSERT INTO discreet_entry (account, sequence, key, reservation, body, hash) VALUES (?, ?, ?, ?, ?, ?)"
_ADVANCE = "UPDATE discreet_account SET state = ?, sequence = ?, head = ?, seal = ? WHERE name = ?"


class AccountRow(NamedTuple):
    """An account as it stands: its terms, its totals and the end of its chain, as stored."""

    name: str
    parent: str | None
    terms: str
    state: str
    sequence: int
    head: str
    seal: str
    totals: Totals | None = None  # those of `state`, of a row that was written here or found intact

    def intact(self) -> bool:
        """Whether the row is as a ledger wrote it."""
        return self.seal == seal(self.name, self.parent, self.terms, self.state, self.sequence, self.head)

    def filter_state(self) -> Totals:
        """What was spent; an edited row is refused."""
        if self.totals is not None:
            return self.totals
        known = _checked.get(self.name)
        if known is not None and known.totals is not None and known[:7] == self[:7]:
            return known.totals
        if not self.intact():
            raise NotALedger(
                f"the row of account {self.name!r} was edited: nothing can be charged to it; verify() says more"
            )
        totals = Totals.of_text(self.state)
        _remember(self._replace(totals=totals))
        return totals


# The last row of each account that was written here or found intact. It says nothing of what is in the database, only
# that this very row, if it is there, need not be hashed and read once more.
_checked: dict[str, AccountRow] = {}
_REMEMBERED = 256


def _remember(row: AccountRow) -> AccountRow:
    if len(_checked) >= _REMEMBERED:
        _checked.clear()
    _checked[row.name] = row
    return row


def find(transaction: Transaction, name: str, *, lock: bool = False) -> AccountRow | None:
    """The row of an account, locked until the end of the transaction if asked, or None."""
    found = transaction.rows(_FIND + transaction.for_update if lock else _FIND, name)
    if not found:
        return None
    schema.check(int(found[0][7]))
    return AccountRow(*found[0][:7])


def held(transaction: Transaction, name: str) -> AccountRow:
    """The row of an account that must be there, locked."""
    row = transaction.known.get(name) or find(transaction, name, lock=True)
    if row is None:
        raise NotALedger(f"account {name!r} has vanished from the ledger: it was edited")
    return row


def names(transaction: Transaction) -> list[str]:
    """The names of all accounts."""
    return sorted(row[0] for row in transaction.rows("SELECT name FROM discreet_account"))


def owners(transaction: Transaction) -> list[str]:
    """The accounts that entries belong to."""
    return [row[0] for row in transaction.rows("SELECT DISTINCT account FROM discreet_entry")]


def insert_account(transaction: Transaction, terms: Terms, entry: Entry) -> None:
    """A new account with its first entry."""
    body = entry.body()
    head, text, state = digest(body), terms.text(), terms.beginning().text()
    transaction.run(
        f"INSERT INTO discreet_account ({_ACCOUNT}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        terms.name,
        terms.parent,
        text,
        state,
        0,
        head,
        seal(terms.name, terms.parent, text, state, 0, head),
    )
    transaction.run(_APPEND, entry.account, entry.sequence, entry.key, entry.reservation, body, head)


def append(transaction: Transaction, row: AccountRow, entry: Entry, state: Totals) -> str:
    """Write `entry` after the last one of a locked account, with the totals that follow it; its hash."""
    return append_text(transaction, row, entry.body(), entry.key, entry.reservation, state)


def append_text(
    transaction: Transaction, row: AccountRow, body: str, key: str | None, reservation: int | None, state: Totals
) -> str:
    """Write an entry's text after the last one of a locked account, with the totals that follow it; its hash."""
    name, parent, terms = row[:3]
    head, text, sequence = digest(body), state.text(), row.sequence + 1
    sealed = seal(name, parent, terms, text, sequence, head)
    transaction.run(_APPEND, name, sequence, key, reservation, body, head)
    transaction.run(_ADVANCE, text, sequence, head, sealed, name)
    after = AccountRow(name, parent, terms, text, sequence, head, sealed, state)
    transaction.known[name] = _remember(after)
    return head


def by_key(transaction: Transaction, account: str, key: str) -> tuple[Entry, str] | None:
    """The entry that a key stands for, with its hash."""
    return _one(
        transaction.rows("SELECT body, hash FROM discreet_entry WHERE account = ? AND key = ?", account, key), account
    )


def by_sequence(transaction: Transaction, account: str, sequence: int) -> tuple[Entry, str] | None:
    """The entry at a place of an account, with its hash."""
    found = transaction.rows(
        "SELECT body, hash FROM discreet_entry WHERE account = ? AND sequence = ?", account, sequence
    )
    return _one(found, account)


def latest_of(transaction: Transaction, account: str, reservation: int) -> tuple[Entry, str] | None:
    """The last entry that belongs to a reservation: a start, a close, or None before the first."""
    found = transaction.rows(
        "SELECT body, hash FROM discreet_entry WHERE account = ? AND sequence = "
        "(SELECT MAX(sequence) FROM discreet_entry WHERE account = ? AND reservation = ?)",
        account,
        account,
        reservation,
    )
    return _one(found, account)


def _one(found: list[tuple[Any, ...]], account: str) -> tuple[Entry, str] | None:
    if not found:
        return None
    body, stored = found[0]
    if digest(body) != stored:
        raise NotALedger(f"a row of account {account!r} was edited; verify() says which")
    return Entry.of_body(body), stored


def pages(transaction: Transaction, account: str) -> Iterator[tuple[int, str | None, int | None, str, str]]:
    """All stored rows of an account in order, as (sequence, key, reservation, body, hash)."""
    last = -(2**62)
    while True:
        found = transaction.rows(
            "SELECT sequence, key, reservation, body, hash FROM discreet_entry "
            f"WHERE account = ? AND sequence > ? ORDER BY sequence LIMIT {_PAGE}",
            account,
            last,
        )
        yield from ((row[0], row[1], row[2], row[3], row[4]) for row in found)
        if len(found) < _PAGE:
            return
        last = found[-1][0]
