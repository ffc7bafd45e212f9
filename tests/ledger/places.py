"""Where the tests keep a ledger: a SQLite file, or a database of a PostgreSQL that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from dataclasses import dataclass

from tests.ledger.server import Server


@dataclass(frozen=True)
class Place:
    """A location, with a back door that no ledger knows of."""

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
    """A folder in memory, where forcing to disk costs nothing; a killed process loses nothing there either."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def in_child(work) -> int:
    """Run `work` in a forked process; its wait status. Nothing of the test's own clean-up runs in the child."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killer(step: str):
    """A hook that kills the process at the named step."""

    def kill(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill
