"""The share of a budget that is used lies between 0 and 1, wherever it is shown.

Small ε with a small δ leave some Rényi orders without any room: their limit is 0 or less.
"""

from __future__ import annotations

import itertools
import json
import re
from fractions import Fraction

import pytest

import discreet as dp
from discreet import events as ev
from discreet.accounting.adaptive.budgets import form_of
from discreet.apps.report import collect
from tests.apps.conftest import Run

EPSILONS = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0)
DELTAS = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 3e-6, 1e-5, 1e-4, 1e-3)
BUDGETS = [dp.ApproxDP(epsilon, delta) for epsilon, delta in itertools.product(EPSILONS, DELTAS)]

NEGATIVE = r"[-−]\d+(\.\d+)?%"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """One account for each budget; a tenth of ε is spent from each, and then four more tenths."""
    with dp.Ledger(tmp_path_factory.mktemp("used") / "census.ledger") as opened:
        yield opened


@pytest.fixture(scope="module")
def used(ledger):
    """What each statement and each of its lines say: before any spend, after one, and after five."""
    seen = {}
    for budget in BUDGETS[::2]:
        account = ledger.account(f"e{budget.epsilon} d{budget.delta}", budget=budget)
        tenth = ev.Laplace(10 / budget.epsilon)
        statements = [account.statement()]
        for times in (1, 4):
            for _ in range(times):
                account.spend(tenth)
            statements.append(account.statement())
        seen[account.name] = statements
    return seen


def test_some_common_budgets_have_orders_without_room():
    """Otherwise the tests below would show nothing."""
    limits = [[Fraction(*amount) for amount in form_of(budget).limits().amounts] for budget in BUDGETS]
    assert len(BUDGETS) == 153
    assert sum(min(amounts) <= 0 for amounts in limits) >= 30
    assert all(max(amounts) > 0 for amounts in limits)


def test_statements_show_a_share_that_starts_at_zero_and_grows(used):
    for name, statements in used.items():
        before, once, five = (statement.used for statement in statements)
        assert before == 0.0, name
        assert 0.0 < once < five <= 1.0, name
        assert "used: 0.00%" in statements[0].text
        assert not re.search(NEGATIVE, statements[2].text), name
        assert all(0.0 < line.share <= 1.0 for line in statements[2].lines), name


def test_the_command_line_shows_the_same_shares(ledger, used, run: Run):
    shown = json.loads(run(f"discreet ledger accounts {ledger._location} --json").out)
    assert {account["account"]: account["used"] for account in shown} == {name: s[2].used for name, s in used.items()}
    table = run(f"discreet ledger accounts {ledger._location}").out
    assert not re.search(NEGATIVE, table)
    shown = run(f"discreet ledger statement {ledger._location} --account 'e0.5 d1e-05'").out
    assert re.search(r"used +\d+(\.\d+)?%", shown)


@pytest.mark.parametrize("name", ["e0.5 d1e-05", "e0.01 d1e-10", "e0.3 d3e-06", "e10.0 d0.001"])
def test_the_report_shows_the_same_shares(ledger, used, name):
    report = collect(ledger.account(name))
    shares = [charge.used_after for charge in report.charges]
    assert shares == sorted(shares)
    assert 0.0 < shares[0] == used[name][1].used
    assert shares[-1] == report.statement.used == used[name][2].used <= 1.0
    assert all(share >= 0.0 for share in report.increments)
