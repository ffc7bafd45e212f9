"""Public dummy data with the schema of a dataset: made from column names, types, bounds and public values alone.

An analyst tries a question on it before paying for one. It never looks at a row of the data, and it is the same for
everybody, so it tells nothing about anyone.
"""

from __future__ import annotations

import datetime as dt
import random
import secrets
import tempfile
import threading
from typing import Any

import pyarrow as pa

from discreet.analytics import Private
from discreet.apps.server.config import Dataset
from discreet.errors import InvalidArgument
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.ledger import Account, Ledger

#: How many rows the dummy data have.
ROWS = 1000
#: Where bounds are not declared.
_STANDARD_BOUNDS = (0.0, 100.0)
_WORDS = ("alpha", "beta", "gamma", "delta")
_FIRST_DAY = dt.date(2024, 1, 1)
#: Larger than any number of trials can use up between two restarts, and small enough for every formula.
_PLENTY = 1e9


def columns(private: Private, dataset: Dataset) -> dict[str, pa.Array]:
    """One Arrow array for each column of a private table, made of its schema."""
    draw = random.Random(0)  # public data: the same for everybody, in every process
    return {name: _column(name, kind, dataset, draw) for name, kind in private.schema().items()}


def _column(name: str, kind: Any, dataset: Dataset, draw: random.Random) -> pa.Array:
    if name in dataset.values:
        return pa.array(draw.choices(dataset.values[name], k=ROWS), from_pandas=True)
    low, high = dataset.bounds.get(name, _STANDARD_BOUNDS)
    if kind.is_boolean():
        return pa.array(draw.choices((False, True), k=ROWS))
    if kind.is_integer():
        first = round(low)
        return pa.array([draw.randint(first, max(first, round(high))) for _ in range(ROWS)], pa.int64())
    if kind.is_numeric():
        return pa.array([draw.uniform(low, high) for _ in range(ROWS)], pa.float64())
    if kind.is_date():
        return pa.array([_FIRST_DAY + dt.timedelta(days=draw.randrange(366)) for _ in range(ROWS)], pa.date32())
    if kind.is_timestamp():
        start = dt.datetime(2024, 1, 1)
        times = [start + dt.timedelta(minutes=draw.randrange(366 * 1440)) for _ in range(ROWS)]
        return pa.array(times, pa.timestamp("us", kind.timezone))
    if kind.is_string():
        return pa.array(draw.choices(_WORDS, k=ROWS))
    return pa.nulls(ROWS, kind.to_pyarrow())


def generous(budget: Guarantee) -> Guarantee:
    """A budget of the same form with room for everything, so that a trial is planned like the real question."""
    match budget:
        case ApproxDP():
            return ApproxDP(_PLENTY, budget.delta)
        case ZCDP():
            return ZCDP(_PLENTY)
        case GDP():
            return GDP(1e4)
        case RDP():
            return RDP(budget.orders, tuple(_PLENTY for _ in budget.orders))
        case PureDP():
            return PureDP(_PLENTY)
    raise InvalidArgument(f"a trial must have a budget of a known form, got {type(budget).__name__}: it is new here")


class Trials:
    """Private tables of dummy data, charged to accounts that nobody counts, in a temporary ledger."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._lock = threading.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ledger: Ledger | None = None

    def private(self, real: Private, dataset: Dataset, account: Account) -> Private:
        """The dummy data of a dataset as a private table; each thread has its own."""
        kept: dict[str, tuple[Dataset, Private]] = self._local.__dict__.setdefault("tables", {})
        known = kept.get(dataset.name)
        if known is None or known[0] != dataset:
            table = pa.table(columns(real, dataset))
            bounds, person = dataset.bounds, dataset.person
            scratch = self._account(account)
            known = dataset, Private(table, account=scratch, bounds=bounds, person=person, name=dataset.name)
            kept[dataset.name] = known
        return known[1]

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
        terms = account._terms
        neighbors, name = terms.neighbors, f"trial {secrets.token_hex(8)}"
        budget = generous(terms.budget)
        return ledger.account(name, budget, neighbors.unit, neighbors.relation, aside=float(terms.aside))
