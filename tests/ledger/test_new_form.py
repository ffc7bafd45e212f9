"""A new form of budget is a guarantee, its form and a tag: everything else takes it as it is."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

import discreet as dp
from discreet import codec
from discreet import events as ev
from discreet.accounting.adaptive import budgets
from discreet.accounting.adaptive.budgets import Limits, PureForm
from discreet.apps.report import collect
from discreet.errors import BudgetExceeded


@dataclass(frozen=True)
class Percent(dp.Guarantee):
    """ε-DP, with ε in hundredths."""

    points: float

    def __str__(self):
        return self._with_unit(f"{self.points:g} points")

    def group(self, people):
        return replace(self, points=people * self.points)

    def explain(self):
        return f"{self}: hundredths of ε."


class PercentForm(PureForm):
    """Hundredths of ε add up."""

    rule = "the sum of hundredths of ε"

    def limits(self, orders=None, aside=0.0):
        return Limits.of((), (Fraction(self.budget.points) / 100,))

    def shown(self, amounts, orders, protects, *, up):
        return Percent(float(100 * amounts[0]), protects=protects)

    def headline(self):
        return f"{self.budget.points:g}", "hundredths of ε"

    def profile(self, epsilons):
        return [(self.budget.points / 100, 0.0)]


@pytest.fixture
def percent(monkeypatch):
    monkeypatch.setitem(budgets.FORMS, Percent, PercentForm)
    monkeypatch.setitem(codec._GUARANTEES, "percent", (Percent, {"points": codec._REAL}))
    monkeypatch.setitem(codec._TAG_OF_GUARANTEE, Percent, "percent")


@pytest.mark.usefixtures("percent")
def test_a_new_form_is_opened_spent_refused_stated_reported_and_verified(new_sqlite):
    location = new_sqlite().location
    with dp.Ledger(location) as ledger:
        account = ledger.account("a", budget=Percent(50.0))
        account.allot("part", Percent(20.0)).spend(ev.Laplace(8.0))
        with pytest.raises(BudgetExceeded, match=r"it costs 50 points.*remains is 37\.5 points.*about ε = 0\.3749"):
            account.spend(ev.Laplace(2.0))
    with dp.Ledger(location) as ledger:
        account = ledger.account("a", budget=Percent(50.0))
        assert account.remaining() == Percent(37.5, protects=account.neighbors)
        statement = account.statement()
        assert statement.used == 0.25
        assert "spent 12.5 points" in statement.text
        assert json.loads(statement.to_json())["orders"] == []
        report = collect(account)
        assert any("the sum of hundredths of ε" in paragraph.answer for paragraph in report.promise)
        assert report.trade_off.promised[0] == 1.0 > report.trade_off.promised[5] > report.trade_off.promised[-1] == 0.0
        assert ledger.verify()
