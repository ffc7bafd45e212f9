"""The tables of a ledger, as numbered steps that run when it is opened; a schema from the future is refused.

All SQL here is understood by SQLite and by PostgreSQL alike. Numbers are kept as text, because they are exact.
"""

from __future__ import annotations

from discreet.errors import NotALedger
from discreet.ledger.store import Transaction

#: Each step is a list of statements. A step that was released never changes: a new need is a new step.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE discreet_account (
            name TEXT PRIMARY KEY,
            parent TEXT,
            terms TEXT NOT NULL,
            state TEXT NOT NULL,
            sequence BIGINT NOT NULL,
            head TEXT NOT NULL,
            seal TEXT NOT NULL
        )""",
        """CREATE TABLE discreet_entry (
            account TEXT NOT NULL REFERENCES discreet_account (name),
            sequence BIGINT NOT NULL,
            key TEXT,
            reservation BIGINT,
            body TEXT NOT NULL,
            hash TEXT NOT NULL,
            PRIMARY KEY (account, sequence)
        )""",
        "CREATE UNIQUE INDEX discreet_entry_key ON discreet_entry (account, key) WHERE key IS NOT NULL",
        """CREATE INDEX discreet_entry_reservation ON discreet_entry (account, reservation, sequence)
            WHERE reservation IS NOT NULL""",
    ),
)


def version(transaction: Transaction) -> int:
    """The number of the last step that was taken; the table of steps must be there."""
    return int(transaction.rows("SELECT COALESCE(MAX(number), 0) FROM discreet_schema")[0][0])


def check(found: int) -> None:
    """Refuse a schema that this version does not know."""
    if found > len(MIGRATIONS):
        raise NotALedger(
            f"this ledger has schema {found}, and this version of Discreet knows schemas up to {len(MIGRATIONS)}: "
            "open it with a newer version; it was not touched"
        )


def migrate(transaction: Transaction) -> None:
    """Take the steps that are missing, inside the given transaction."""
    transaction.run("CREATE TABLE IF NOT EXISTS discreet_schema (number BIGINT PRIMARY KEY)")
    found = version(transaction)
    check(found)
    for number in range(found + 1, len(MIGRATIONS) + 1):
        for statement in MIGRATIONS[number - 1]:
            transaction.run(statement)
        transaction.run("INSERT INTO discreet_schema (number) VALUES (?)", number)
