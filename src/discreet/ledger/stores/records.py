"""The SQL of a ledger, and the rows that it reads and writes. The same text serves every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from discreet.errors import NotALedger
from discreet.ledger.chain import Entry, digest, seal
from discreet.ledger.partitions import totals_of_text
from discreet.ledger.stores import schema
from discreet.ledger.stores.base import GUARDED_LOCK, Transaction, remember
from discreet.ledger.terms import Terms
from discreet.ledger.totals import Totals

# Rows per query when a whole account is read: an account of any length is read in constant memory.
_PAGE = 2000
# Below every sequence number, also of rows that someone moved to a negative one.
_BEFORE_ALL = -(2**62)

_ACCOUNT = "name, parent, terms, state, sequence, head, seal"
# The schema's number comes with each row: another process may have migrated the ledger since it was opened here.
_FIND = f"SELECT {_ACCOUNT}, (SELECT MAX(number) FROM discreet_schema) FROM discreet_account WHERE name = ?"
_APPEND = "INSERT INTO discreet_entry (account, sequence, key, reservation, body, hash) VALUES (?, ?, ?, ?, ?, ?)"
# The same through the functions of `guarded.sql`, for a role that may not write to the tables.
_LOCK_GUARDED = f"SELECT {_ACCOUNT}, (SELECT MAX(number) FROM discreet_schema) FROM {GUARDED_LOCK}"
_APPEND_GUARDED = "SELECT discreet_append(?, ?, ?, ?, ?)"
_OPEN_GUARDED = "SELECT discreet_open(?, ?, ?)"
_ADVANCE = "UPDATE discreet_account SET state = ?, sequence = ?, head = ?, seal = ? WHERE name = ?"


class AccountRow(NamedTuple):
    """An account's row as stored: its terms, its totals and the end of its chain."""

    name: str
    parent: str | None
    terms: str
    state: str
    sequence: int
    head: str
    seal: str

    def intact(self) -> bool:
        """Whether the seal matches the rest of the row, as a ledger wrote it."""
        return self.seal == seal(self.name, self.parent, self.terms, self.state, self.sequence, self.head)

    def filter_state(self) -> Totals:
        """The totals; an edited row is refused."""
        checked = _checked.get(self.name)
        if checked is not None and checked[0] == self:
            return checked[1]
        if not self.intact():
            raise NotALedger(
                f"the row of account {self.name!r} was edited: nothing can be charged to it; verify() says more"
            )
        totals = totals_of_text(self.state)
        _remember(self, totals)
        return totals


# The last row of each account that this process wrote or found intact, with its parsed totals. It says nothing about
# what is in the database: if the row there equals this one in all fields, it need not be hashed and parsed again, which
# takes about half as long as all the rest of a spend.
_checked: dict[str, tuple[AccountRow, Totals]] = {}
# Accounts to remember. The dictionary is emptied when it is full, which bounds its memory without any bookkeeping.
_MOST_CHECKED = 256


def _remember(row: AccountRow, totals: Totals) -> None:
    if len(_checked) >= _MOST_CHECKED:
        _checked.clear()
    _checked[row.name] = row, totals


def find(transaction: Transaction, name: str, *, lock: bool = False) -> AccountRow | None:
    """The row of an account, or None; with `lock`, it stays locked until the transaction ends.

    Refused if it shows less than this process saw before: an older copy of the ledger has budget that was spent since.
    """
    before = transaction.seen_before.get(name)  # before the query: another thread may commit after it
    row = stored(transaction, name, lock=lock)
    if before is not None and (row is None or row.sequence < before[0]):
        shown = "no row" if row is None else f"rows up to {row.sequence}"
        raise NotALedger(
            f"account {name!r} shows {shown}, and this process saw row {before[0]}: an older copy was restored, or the "
            "ledger was edited; nothing can be charged to it from this process"
        )
    if row is not None:
        if before is not None and row.sequence == before[0] and row.head != before[1]:
            raise NotALedger(
                f"row {row.sequence} of account {name!r} is not the one that this process saw: an older copy was "
                "restored and continued, or the ledger was edited; nothing can be charged to it from this process"
            )
        row.filter_state()  # an edited row is refused before it is remembered
        if transaction.visible_is_durable:
            remember(transaction.seen, name, row.sequence, row.head)
    return row


def existing(transaction: Transaction, name: str) -> AccountRow:
    """The row of an account that must exist."""
    row = find(transaction, name)
    if row is None:
        raise _vanished(name)
    return row


def _vanished(name: str) -> NotALedger:
    return NotALedger(f"account {name!r} has vanished from the ledger: it was edited")


def stored(transaction: Transaction, name: str, *, lock: bool = False) -> AccountRow | None:
    """The row of an account as it is stored, whatever this process saw before; `verify` compares both itself."""
    query = _FIND
    if lock:
        query = _LOCK_GUARDED if transaction.guarded else _FIND + transaction.for_update
    rows = transaction.rows(query, name)
    if not rows:
        return None
    *fields, version = rows[0]
    schema.check(int(version))
    return AccountRow._make(fields)


def held(transaction: Transaction, name: str) -> AccountRow:
    """The row of an account that must exist, locked."""
    row = transaction.current.get(name) or find(transaction, name, lock=True)
    if row is None:
        raise _vanished(name)
    return row


def names(transaction: Transaction) -> list[str]:
    """The names of all accounts."""
    return sorted(row[0] for row in transaction.rows("SELECT name FROM discreet_account"))


def owners(transaction: Transaction) -> list[str]:
    """The accounts that entries belong to."""
    return [row[0] for row in transaction.rows("SELECT DISTINCT account FROM discreet_entry")]


def insert_account(transaction: Transaction, terms: Terms, entry: Entry) -> None:
    """Write a new account with its first entry."""
    body = entry.body()
    head, text, state = digest(body), terms.text(), terms.beginning().text()
    sealed = seal(terms.name, terms.parent, text, state, 0, head)
    row = AccountRow(terms.name, terms.parent, text, state, 0, head, sealed)
    if transaction.guarded:
        transaction.run(_OPEN_GUARDED, text, state, body)
    else:
        transaction.run(f"INSERT INTO discreet_account ({_ACCOUNT}) VALUES (?, ?, ?, ?, ?, ?, ?)", *row)
        transaction.run(_APPEND, entry.account, entry.sequence, entry.key, entry.reservation, body, head)
    transaction.written.append(row)


def append(transaction: Transaction, row: AccountRow, entry: Entry, state: Totals) -> str:
    """Write `entry` after the last entry of a locked account, with the totals after it; return its hash."""
    return append_text(transaction, row, entry.body(), entry.key, entry.reservation, state)


def append_text(
    transaction: Transaction, row: AccountRow, body: str, key: str | None, reservation: int | None, state: Totals
) -> str:
    """Write an entry's text after the last entry of a locked account, with the totals after it; return its hash."""
    name, parent, terms = row[:3]
    head, text, sequence = digest(body), state.text(), row.sequence + 1
    sealed = seal(name, parent, terms, text, sequence, head)
    if transaction.guarded:
        transaction.run(_APPEND_GUARDED, name, key, reservation, body, text)
    else:
        transaction.run(_APPEND, name, sequence, key, reservation, body, head)
        transaction.run(_ADVANCE, text, sequence, head, sealed, name)
    after = AccountRow(name, parent, terms, text, sequence, head, sealed)
    transaction.current[name] = after
    transaction.written.append(after)
    _remember(after, state)  # safe before the commit: it is only ever compared with a row of the database
    return head


def by_key(transaction: Transaction, account: str, key: str) -> tuple[Entry, str] | None:
    """The entry with this key, and its hash."""
    return _entry(
        transaction.rows("SELECT body, hash FROM discreet_entry WHERE account = ? AND key = ?", account, key), account
    )


def by_sequence(transaction: Transaction, account: str, sequence: int) -> tuple[Entry, str] | None:
    """The entry with this sequence number, and its hash."""
    rows = transaction.rows(
        "SELECT body, hash FROM discreet_entry WHERE account = ? AND sequence = ?", account, sequence
    )
    return _entry(rows, account)


def latest_of(transaction: Transaction, account: str, reservation: int) -> tuple[Entry, str] | None:
    """The last "start" or "close" entry of a reservation, and its hash; None before the first."""
    rows = transaction.rows(
        "SELECT body, hash FROM discreet_entry WHERE account = ? AND sequence = "
        "(SELECT MAX(sequence) FROM discreet_entry WHERE account = ? AND reservation = ?)",
        account,
        account,
        reservation,
    )
    return _entry(rows, account)


def _entry(rows: list[tuple[Any, ...]], account: str) -> tuple[Entry, str] | None:
    if not rows:
        return None
    body, stored = rows[0]
    if digest(body) != stored:
        raise NotALedger(f"a row of account {account!r} was edited; verify() says which")
    return Entry.of_body(body), stored


def charges(transaction: Transaction, account: str) -> int:
    """How many entries of an account have an event. A text inside of an entry has its quotation marks escaped."""
    counted = "SELECT COUNT(*) FROM discreet_entry WHERE account = ? AND body NOT LIKE ?"
    [(count,)] = transaction.rows(counted, account, '%,"event":null,%')
    return int(count)


def page(transaction: Transaction, account: str, after: int) -> list[tuple[int, str, str]]:
    """Some stored rows of an account `after` a sequence number, in order, as (sequence, body, hash)."""
    rows = transaction.rows(
        "SELECT sequence, body, hash FROM discreet_entry "
        f"WHERE account = ? AND sequence > ? ORDER BY sequence LIMIT {_PAGE}",
        account,
        after,
    )
    return [(row[0], row[1], row[2]) for row in rows]


def pages(
    transaction: Transaction, account: str, after: int = _BEFORE_ALL
) -> Iterator[tuple[int, str | None, int | None, str, str]]:
    """The stored rows of an account `after` a sequence number, as (sequence, key, reservation, body, hash)."""
    last = after
    while True:
        rows = transaction.rows(
            "SELECT sequence, key, reservation, body, hash FROM discreet_entry "
            f"WHERE account = ? AND sequence > ? ORDER BY sequence LIMIT {_PAGE}",
            account,
            last,
        )
        yield from ((row[0], row[1], row[2], row[3], row[4]) for row in rows)
        if len(rows) < _PAGE:
            return
        last = rows[-1][0]
