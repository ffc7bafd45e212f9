"""Opens the data: each thread has connections of its own, and a question that runs too long can be stopped.

A connection of DuckDB serves one thread at a time. With one for each thread, several questions run side by side, and
interrupting one leaves the others alone.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from discreet.analytics import Private
from discreet.analytics.table.source import engine_table
from discreet.apps.server.config import Dataset
from discreet.apps.wire.questions import Asked
from discreet.ledger import Account


class Work:
    """One question in a thread: the engines that it uses, so that they can be stopped from outside."""

    def __init__(self) -> None:
        self._engines: list[Any] = []
        self.cancelled = False

    def uses(self, engine: Any) -> None:
        """Remember an engine before it is asked anything."""
        self._engines.append(engine)

    def cancel(self) -> None:
        """Stop what the engines do now. Whoever waits for them sees that the engine failed."""
        self.cancelled = True
        for engine in self._engines:
            with contextlib.suppress(Exception):  # an engine that cannot be stopped runs to its end
                engine.con.interrupt() if engine.name == "duckdb" else engine.con.cancel()


class Tables:
    """The datasets' tables, opened once for each thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    def private(self, dataset: Dataset, account: Account, work: Work) -> Private:
        """A dataset as a private table whose releases are charged to `account`."""
        opened: dict[str, tuple[Dataset, Any]] = self._local.__dict__.setdefault("tables", {})
        cached = opened.get(dataset.name)
        if cached is None or cached[0] != dataset:
            cached = opened[dataset.name] = dataset, engine_table(dataset.source)
        table = cached[1]
        work.uses(table.get_backend())
        return Private(table, account=account, bounds=dataset.bounds, person=dataset.person, name=dataset.name)

    def schema(self, dataset: Dataset) -> dict[str, str]:
        """The names and types of a dataset's columns, which are public."""
        return {name: str(kind) for name, kind in engine_table(dataset.source).schema().items()}


def mentioned(asked: Asked, datasets: dict[str, Dataset], main: Dataset) -> list[Dataset]:
    """The other datasets of the same account that a query's text mentions, for its joins."""
    sql = asked.body.get("sql")
    if not isinstance(sql, str):
        return []
    text = sql.lower()
    return [
        dataset
        for dataset in datasets.values()
        if dataset.name != main.name and dataset.account == main.account and dataset.name.lower() in text
    ]
