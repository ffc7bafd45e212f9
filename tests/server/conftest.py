"""A small curator for tests: one dataset, three roles and a second analyst, all in a temporary folder."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("ibis")

import pyarrow as pa
import pyarrow.parquet as pq

from discreet.apps.server.app import build
from discreet.apps.server.config import CuratorConfig, read_config
from discreet.apps.server.curator import Curator
from discreet.apps.server.starting import start

with warnings.catch_warnings():  # Starlette's test client names a class of anyio by its old name
    warnings.simplefilter("ignore", DeprecationWarning)
    from starlette.testclient import TestClient

ROWS = 200
CONFIG = """
ledger = "curator.ledger"

[accounts.census]
epsilon = 2.0
[accounts.census.shares]
ann = { epsilon = 1.0 }
bob = { epsilon = 1.0 }

[datasets.people]
source = "people.parquet"
account = "census"
description = "people and their hours"
[datasets.people.bounds]
hours = [0, 100]
[datasets.people.values]
sex = ["F", "M"]

[users.sam]
role = "steward"
[users.ann]
role = "analyst"
[users.bob]
role = "analyst"
[users.eve]
role = "auditor"

[limits]
answer_step = 0
requests_per_minute = 100000
"""
COUNT = {"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": 0.1}


def write_people(folder: Path) -> None:
    """The data: half women, hours from 0 to 99."""
    table = pa.table(
        {
            "sex": ["F", "M"] * (ROWS // 2),
            "hours": [float(i % 100) for i in range(ROWS)],
            "age": [20 + i % 50 for i in range(ROWS)],
        }
    )
    pq.write_table(table, folder / "people.parquet")


@dataclass
class World:
    """A running application, and a way to call it as each of its users."""

    curator: Curator
    client: TestClient
    tokens: dict[str, str]
    config: CuratorConfig
    folder: Path
    more: dict[str, Any] = field(default_factory=dict)

    def call(self, user: str | None, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One call as a user, or without a token."""
        if user is not None:
            headers["Authorization"] = f"Bearer {self.tokens.get(user, user)}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (
            self.client.request(method, path, json=body, headers=named)
            if body is not None
            else (self.client.request(method, path, headers=named))
        )

    def ask(self, user: str, body: Any = None, **headers: str) -> Any:
        """Ask a question about the people."""
        return self.call(user, "POST", "/v1/datasets/people/ask", COUNT if body is None else body, **headers)

    def spent(self, account: str) -> int:
        """How many charges an account has."""
        return self.curator.ledger.account(account).summary().charges


def make_world(folder: Path, text: str = CONFIG) -> Iterator[World]:
    """A world in a folder."""
    write_people(folder)
    config = read_config(folder / "curator.toml", text)
    started = start(config)
    tokens = {user: token for user, _, token in started.tokens}
    with TestClient(build(started.curator), raise_server_exceptions=False) as client:
        yield World(started.curator, client, tokens, config, folder)
    started.curator.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A fresh world for one test."""
    yield from make_world(tmp_path)
