"""Public dummy data with the schema of a dataset: made from column names, types, bounds and public values alone.

An analyst tries a question on it before paying for one. It never looks at a row of the data, and it is the same for
everybody, so it tells nothing about anyone.
"""

from __future__ import annotations

import datetime as dt
import math
import tempfile
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from discreet.accounting.adaptive.budgets import form_of
from discreet.analytics import Private
from discreet.apps.server.config import Dataset
from discreet.ledger import Account, Ledger

#: How many rows the dummy data have.
ROWS = 1000
#: Where bounds are not declared.
_STANDARD_BOUNDS = (0.0, 100.0)
_WORDS = ("alpha", "beta", "gamma", "delta")
_FIRST_DAY = dt.date(2024, 1, 1)


def columns(private: Private, dataset: Dataset) -> dict[str, pa.Array]:
    """One Arrow array for each column of a private table, made of its schema. No chance is involved."""
    schema = private.schema()
    return {name: _column(name, kind, dataset, spread(index)) for index, (name, kind) in enumerate(schema.items())}


def spread(index: int) -> NDArray[np.float64]:
    """Numbers that fill [0, 1) evenly, and unlike those of any other column: multiples of a square root, mod 1."""
    step = math.sqrt((index + 1) * (index + 2) + 1)  # never a whole number
    return np.asarray(np.mod(np.arange(1, ROWS + 1) * step, 1.0), dtype=np.float64)


def _column(name: str, kind: Any, dataset: Dataset, where: NDArray[np.float64]) -> pa.Array:
    if name in dataset.values:
        return _chosen(dataset.values[name], where)
    low, high = dataset.bounds.get(name, _STANDARD_BOUNDS)
    if kind.is_boolean():
        return _chosen((False, True), where)
    if kind.is_integer():
        first, last = round(low), max(round(low), round(high))
        return pa.array([first + int(share * (last - first + 1)) for share in where.tolist()], pa.int64())
    if kind.is_numeric():
        return pa.array(low + where * (high - low))
    if kind.is_date():
        return pa.array([_FIRST_DAY + dt.timedelta(days=int(366 * share)) for share in where], pa.date32())
    if kind.is_timestamp():
        start = dt.datetime(2024, 1, 1)
        times = [start + dt.timedelta(minutes=int(366 * 1440 * share)) for share in where]
        return pa.array(times, pa.timestamp("us", kind.timezone))
    if kind.is_string():
        return _chosen(_WORDS, where)
    return pa.nulls(ROWS, kind.to_pyarrow())


def _chosen(values: Sequence[Any], where: NDArray[np.float64]) -> pa.Array:
    return pa.array([values[int(len(values) * share)] for share in where], from_pandas=True)


class DummyTables:
    """Private tables of dummy data, charged to accounts that nobody counts, in a temporary ledger."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ledger: Ledger | None = None

    def private(self, real: Private, dataset: Dataset, account: Account) -> Private:
        """The dummy data of a dataset as a private table; each thread has its own."""
        kept: dict[str, tuple[Dataset, Private]] = self._local.__dict__.setdefault("tables", {})
        cached = kept.get(dataset.name)
        if cached is None or cached[0] != dataset:
            table = pa.table(columns(real, dataset))
            bounds, person = dataset.bounds, dataset.person
            scratch = self._account(account)
            cached = dataset, Private(table, account=scratch, bounds=bounds, person=person, name=dataset.name)
            kept[dataset.name] = cached
        return cached[1]

    def forget(self) -> None:
        """Start over with fresh accounts in this thread, once the old ones are used up."""
        self._local.__dict__.clear()

    def close(self) -> None:
        """Remove the temporary ledger."""
        with self._lock:
            if self._ledger is not None and self._folder is not None:
                self._ledger.close()
                self._folder.cleanup()
            self._ledger = self._folder = None

    def _account(self, account: Account) -> Account:
        """A scratch account in the terms of a real one."""
        with self._lock:
            if self._ledger is None:
                self._folder = tempfile.TemporaryDirectory(prefix="discreet-trials-")
                self._ledger = Ledger(f"{self._folder.name}/trials.ledger")
            ledger = self._ledger
        terms = account.path[-1]
        neighbors, name = terms.neighbors, f"trial {uuid.uuid4().hex}"
        budget = form_of(terms.budget).generous()
        return ledger.account(name, budget, neighbors.unit, neighbors.relation, aside=float(terms.aside))
