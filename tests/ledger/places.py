"""Where the tests keep a ledger: a SQLite file, or a database on a PostgreSQL server that they start."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass

from tests.ledger.server import Server


@dataclass(frozen=True)
class Place:
    """A location, with direct access to its database that bypasses the ledger."""

    location: str
    server: Server | None = None

    def execute(self, *statements: str) -> None:
        """Change the database behind the ledger's back."""
        if self.server is None:
            with contextlib.closing(sqlite3.connect(self.location)) as connection:
                for statement in statements:
                    connection.execute(statement)
                connection.commit()
        else:
            import psycopg

            with psycopg.connect(self.location) as connection:
                for statement in statements:
                    connection.execute(statement)

    def query(self, statement: str) -> list[tuple]:
        """Read the database behind the ledger's back."""
        if self.server is None:
            with contextlib.closing(sqlite3.connect(self.location)) as connection:
                return connection.execute(statement).fetchall()
        import psycopg

        with psycopg.connect(self.location) as connection:
            return connection.execute(statement).fetchall()


def memory() -> str | None:
    """A folder in memory, where a flush costs nothing; what a killed process wrote there is kept as well."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
