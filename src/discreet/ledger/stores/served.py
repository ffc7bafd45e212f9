"""The tables that a server keeps in the ledger's database beside the ledger's own: what it registered and answered.

They are defined here, and not in the server, because the owner of a guarded database creates them for it.
"""

from __future__ import annotations

from discreet.ledger.stores.base import Transaction

ITEMS, ANSWERS = "discreet_server_item", "discreet_server_answer"
_TABLES = (
    f"""CREATE TABLE IF NOT EXISTS {ITEMS} (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    )""",
    f"""CREATE TABLE IF NOT EXISTS {ANSWERS} (
        owner TEXT NOT NULL,
        key TEXT NOT NULL,
        question TEXT NOT NULL,
        time TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (owner, key)
    )""",
)


def create(transaction: Transaction, time: str) -> None:
    """Create the tables, if they are not there; a server's role in a guarded database may not create any."""
    if transaction.lock_accounts:
        transaction.run(transaction.lock_accounts)
    if all(transaction.rows(transaction.table_exists, table) for table in (ITEMS, ANSWERS)):
        return
    for statement in _TABLES:
        transaction.run(statement)
