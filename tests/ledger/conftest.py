"""Fixtures of the ledger's tests. A test that uses `place` runs on every store; add new stores to `new_place`."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest

from tests.ledger.places import Place, memory
from tests.ledger.server import Server, programs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server():
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: initdb was not found")
    pytest.importorskip("psycopg", reason="psycopg is not installed (the ledger extra has it)")
    started = Server(durable=False)
    yield started
    started.remove()


@pytest.fixture
def new_postgres(server):
    import psycopg

    names = []

    def make() -> Place:
        names.append(f"test{next(_numbers)}")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {names[-1]}")
        return Place(server.url(names[-1]), server)

    yield make
    # Crash recovery reads the files of all databases, so leftovers would slow down the tests that crash the server.
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def new_sqlite():
    with tempfile.TemporaryDirectory(dir=memory(), prefix="discreet-") as folder:
        yield lambda: Place(str(Path(folder) / f"test{next(_numbers)}.ledger"))


@pytest.fixture(params=["sqlite", "postgres"])
def new_place(request):
    return request.getfixturevalue(f"new_{request.param}")


@pytest.fixture
def place(new_place):
    return new_place()


@pytest.fixture
def always_contended(monkeypatch):
    """Every session of PostgreSQL believes that others contend for the account."""
    from discreet.ledger.stores import postgres
    from discreet.ledger.stores.session import PreparedConnection

    monkeypatch.setattr(postgres, "_CONTENDED", -1.0)
    monkeypatch.setattr(PreparedConnection, "contended", True)
