"""The tables of a ledger, as numbered migrations that run when it is opened; a newer schema is refused.

All SQL here works in SQLite and in PostgreSQL. Exact numbers are stored as text.
"""

from __future__ import annotations

from discreet.errors import NotALedger
from discreet.ledger.stores.base import Transaction

#: Each migration is a list of statements. A released migration never changes: to change the schema, add another one.
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
    """The number of the last migration that ran; the table discreet_schema must exist."""
    return int(transaction.rows("SELECT COALESCE(MAX(number), 0) FROM discreet_schema")[0][0])


def check(number: int) -> None:
    """Refuse a schema that this version does not know."""
    if number > len(MIGRATIONS):
        raise NotALedger(
            f"this ledger has schema {number}, and this version of Discreet knows schemas up to {len(MIGRATIONS)}: "
            "open it with a newer version; it was not changed"
        )


def migrate(transaction: Transaction) -> None:
    """Run the missing migrations inside the given transaction."""
    transaction.run("CREATE TABLE IF NOT EXISTS discreet_schema (number BIGINT PRIMARY KEY)")
    current = version(transaction)
    check(current)
    for number in range(current + 1, len(MIGRATIONS) + 1):
        for statement in MIGRATIONS[number - 1]:
            transaction.run(statement)
        transaction.run("INSERT INTO discreet_schema (number) VALUES (?)", number)
