"""Every test of the ledger runs on both stores, unless it is about one of them."""

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

    made = []

    def make() -> Place:
        made.append(f"test{next(_numbers)}")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {made[-1]}")
        return Place(server.url(made[-1]), server)

    yield make
    # A crash recovery looks at every file of every database.
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for name in made:
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
