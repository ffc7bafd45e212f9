"""A new form of budget is a guarantee, its form and a tag: everything else takes it as it is."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

import discreet as dp
from discreet import accounting, codec
from discreet import events as ev
from discreet.accounting.adaptive import budgets
from discreet.accounting.adaptive.budgets import PureForm, form_of
from discreet.accounting.adaptive.form import Limits
from discreet.accounting.wishes import CountWish
from discreet.apps.report import collect
from discreet.auditing.claims import claimed
from discreet.errors import BudgetExceeded
from discreet.ledger.access import promise_over
from discreet.ledger.access.policy import cost_of


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

    @property
    def never_fails(self):
        return True

    def most_loss(self, failure):
        return self.points / 100

    def best_guess(self, prior):
        return dp.PureDP(self.points / 100).best_guess(prior)


class PercentForm(PureForm):
    """Hundredths of ε add up."""

    rule = "the sum of hundredths of ε"

    def limits(self, orders=None, aside=0.0):
        return Limits.of((), (Fraction(self.budget.points) / 100,))

    def shown(self, amounts, orders, protects, *, up):
        return Percent(float(100 * amounts[0]), protects=protects)

    def amounts(self, left):
        return [Fraction(left.points) / 100]

    def over(self, count):
        return replace(self.budget, points=count * self.budget.points)

    def generous(self):
        return Percent(1e9)

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


@pytest.mark.usefixtures("percent")
def test_a_new_form_is_planned_renewed_tried_and_explained(new_sqlite):
    """What a budget of hundredths of ε answers is what the same pure ε answers."""
    budget, pure = Percent(50.0), dp.PureDP(0.5)
    assert promise_over(budget, 4) == Percent(200.0)
    assert form_of(budget).generous() == Percent(1e9)
    wishes = [CountWish("a", 20.0), CountWish("b", 30.0)]
    plan, expected = (accounting.allocate(room, wishes) for room in (budget, pure))
    assert (plan.factor, plan.delta, plan.rows()) == (expected.factor, 0.0, expected.rows())
    gap, expected_gap = (accounting.generalization_gap(promise, 1000) for promise in (budget, pure))
    assert (gap.expected, gap.likely) == (expected_gap.expected, expected_gap.likely)
    belief, expected_belief = budget.posterior(0.1), pure.posterior(0.1)
    assert (belief.low, belief.high, belief.right) == (expected_belief.low, expected_belief.high, expected_belief.right)
    assert claimed(budget).delta == 0.0
    with dp.Ledger(new_sqlite().location) as ledger:
        terms = ledger.account("a", budget=budget).path[-1]
        assert cost_of(terms, ev.Laplace(8.0)) == 0.125
        assert cost_of(terms, ev.Gaussian(8.0)) == math.inf
