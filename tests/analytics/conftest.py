"""Accounts for the tests of analytics, opened once for each unit and relation."""

from __future__ import annotations

import itertools

import pytest

import discreet as dp

_numbers = itertools.count()


@pytest.fixture(scope="session")
def account_of(tmp_path_factory):
    ledger = dp.Ledger(tmp_path_factory.mktemp("ledger") / "tests.ledger")
    known = {}

    def account(unit=None, relation=dp.ADD_REMOVE, *, budget=None, fresh=False):
        wanted = (unit or dp.rows(), relation)
        if fresh or wanted not in known:
            name = f"account{next(_numbers)}"
            known[wanted] = ledger.account(name, budget or dp.PureDP(1e6), wanted[0], relation)
        return known[wanted]

    return account


@pytest.fixture
def account(account_of):
    return account_of(fresh=True)
