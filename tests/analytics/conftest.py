"""Accounts for the analytics tests, opened once for each unit and relation, and engines, started once."""

from __future__ import annotations

import itertools

import pytest

import discreet as dp
from discreet.mechanisms import observation
from tests.analytics import engines

_numbers = itertools.count()


@pytest.fixture(scope="session")
def account_of(tmp_path_factory):
    ledger = dp.Ledger(tmp_path_factory.mktemp("ledger") / "tests.ledger")
    known = {}

    def account(unit=None, relation=dp.ADD_REMOVE, *, budget=None, fresh=False, aside=0.0):
        wanted = (unit or dp.rows(), relation)
        shared = (*wanted, observation._audit.get())  # a replay charges only accounts that it opened itself
        if not fresh and shared in known:
            return known[shared]
        name = f"account{next(_numbers)}"
        opened = ledger.account(name, budget or dp.PureDP(1e6), wanted[0], relation, aside=aside)
        if not fresh:  # a fresh account is one test's own, and may have little budget
            known[shared] = opened
        return opened

    return account


@pytest.fixture
def account(account_of):
    return account_of(fresh=True)


@pytest.fixture(scope="session", params=["duckdb", "postgres", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request, tmp_path_factory):
    """Loads an Arrow table into an engine."""
    folder = tmp_path_factory.mktemp(request.param)
    start = {"duckdb": engines.duckdb, "postgres": engines.postgres, "spark": lambda: engines.spark(folder)}
    with start[request.param]() as load:
        yield load
