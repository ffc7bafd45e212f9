"""Which noise a budget buys: within the budget, split by shares, chosen from public facts, shown in the preview."""

from __future__ import annotations

import math

import numpy as np
import pytest

import discreet as dp
from discreet import accounting
from discreet.analytics import answer, correlation, count, marginal, mean, median, top_k
from discreet.analytics import sum as total
from discreet.analytics.plan import spending
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.events import Composed, DiscreteGaussian, DiscreteLaplace, Gaussian
from tests.analytics.plans import table

BOUNDS = {"x": (0, 10), "n": (-5, 5)}
SEVERAL = {
    "n": count(),
    "m": mean("x", share=3),
    "r": correlation("x", "n"),
    "t": top_k("g", k=2, categories=["a", "b"]),
    "h": median("x"),
    "c": marginal("g", categories={"g": ["a", "b"]}),
}


@pytest.fixture
def open_account(tmp_path):
    ledger = dp.Ledger(tmp_path / "noise.ledger")
    return lambda name, budget, unit=None, **rest: ledger.account(name, budget, unit or dp.rows(), **rest)


@pytest.fixture
def people(open_account):
    account = open_account("a", dp.ApproxDP(1e4, 1e-3), aside=5e-4)
    data = [(f"p{i}", float(i % 10), i % 5, "ab"[i % 2], 0.0) for i in range(1000)]
    return dp.Private(table(data), account=account, bounds=BOUNDS)


@pytest.mark.parametrize("discovered", [False, True])
@pytest.mark.parametrize("unit", [dp.rows(), dp.person("id", max_rows=4)], ids=str)
@pytest.mark.parametrize("relation", list(dp.Relation), ids=str)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_all_parts_together_stay_within_the_budget(open_account, unit, relation, noise, discovered):
    account = open_account("a", dp.ApproxDP(100.0, 1e-3), unit, relation=relation, aside=5e-4)
    people = dp.Private(table([]), account=account, bounds=BOUNDS)
    groups = people.group_by("g", keys=dp.discover() if discovered else ["a", "b"])
    event = groups.aggregate(**SEVERAL).event(1.0, delta=1e-6, noise=noise, total=True)
    assert accounting.epsilon(event, delta=1e-6 * (1 + 1e-6), relation=relation).lower <= 1.0 + 1e-6


@pytest.mark.parametrize("relation", list(dp.Relation), ids=str)
def test_a_rho_is_what_all_parts_cost_together(open_account, relation):
    people = dp.Private(table([]), account=open_account("z", dp.ZCDP(1.0), relation=relation), bounds=BOUNDS)
    event = people.group_by("g", keys=["a", "b"]).aggregate(**SEVERAL).event(rho=0.25, total=True)
    spent = accounting.zcdp(event, relation).rho
    assert spent <= 0.25 + 1e-9
    assert spent == pytest.approx(0.25, rel=1e-6)
    assert {type(part) for part in event.events} >= {DiscreteGaussian}


def test_gaussian_parts_cost_less_together_than_apart(people):
    """Ten counts at (1, 1e-6): calibrated together their noise is about √10 times that of one, not 10 times."""
    asked = people.aggregate(**{f"n{i}": count() for i in range(10)})
    single = people.count().event(1.0, delta=1e-6, noise="gaussian")
    event = asked.event(1.0, delta=1e-6, noise="gaussian")
    assert isinstance(single, Gaussian)
    assert event.events[0].noise_multiplier == pytest.approx(single.noise_multiplier * math.sqrt(10), rel=1e-6)
    assert accounting.epsilon(event, delta=1e-6).upper == pytest.approx(1.0, abs=1e-5)


def test_shares_split_the_budget_and_are_shown(people):
    asked = people.aggregate(n=count(share=3), m=mean("x"))
    laplace = asked.preview(epsilon=1.0)
    assert [column.epsilon for column in laplace.columns] == [0.75, 0.25]
    gaussian = asked.preview(epsilon=1.0, delta=1e-6, noise="gaussian")
    assert [column.share for column in gaussian.columns] == [0.75, 0.25]
    n, m = (part.noise_multiplier for part in gaussian.event.events)
    assert m / n == pytest.approx(math.sqrt(3), rel=1e-6)
    rho = asked.preview(rho=0.1)
    assert rho.epsilon is None
    assert "75%" in str(rho)
    assert "ρ = 0.1" in str(rho)


def test_auto_takes_the_smaller_noise_and_says_so(people):
    one = people.count().preview(epsilon=1.0, delta=1e-6)
    assert one.noise.startswith("Laplace")
    assert "δ" not in one.cost
    many = people.aggregate(**{f"n{i}": count() for i in range(40)}).preview(epsilon=1.0, delta=1e-6)
    assert many.noise.startswith("Gaussian")
    assert "δ = 1e-06" in many.cost
    assert "(Gaussian)" in str(many)
    errors = {
        noise: people.aggregate(**{f"n{i}": count() for i in range(40)}).preview(epsilon=1.0, delta=1e-6, noise=noise)
        for noise in ("laplace", "gaussian")
    }
    assert errors["gaussian"].columns[0].error < errors["laplace"].columns[0].error


def test_the_choice_of_noise_looks_at_no_data(people, monkeypatch):
    monkeypatch.setattr(answer, "_run", None)
    asked = people.group_by("g", keys=["a", "b"]).aggregate(**SEVERAL)
    for spend in ({"epsilon": 1.0}, {"epsilon": 1.0, "delta": 1e-6}, {"rho": 0.5}, {"error_target": {"n": 50.0}}):
        assert asked.preview(**spend, total=True).affordable


def test_a_pure_account_gets_laplace_noise(open_account):
    people = dp.Private(table([]), account=open_account("pure", dp.PureDP(3.0)))
    asked = people.aggregate(**{f"n{i}": count() for i in range(40)})
    assert isinstance(asked.event(1.0, delta=1e-6).events[0], DiscreteLaplace)
    asked.release(epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        asked.release(epsilon=1.0, delta=1e-6, noise="gaussian")


@pytest.mark.parametrize("spend", [{"epsilon": 8.0, "delta": 1e-6, "noise": "gaussian"}, {"rho": 4.0}], ids=str)
def test_expected_errors_are_those_of_the_release(people, spend):
    asked = people.aggregate(n=count(), s=total("x"), m=mean("x"))
    preview = asked.preview(**spend, rows=1000)
    (row,) = asked.release(**spend).rows()
    for column in preview.columns:
        assert row[f"{column.name}_error"] == pytest.approx(column.error, rel=0.1, abs=2), column.name
    truth = {"n": 1000, "s": 4500.0, "m": 4.5}
    misses = 0
    for _ in range(20):
        (row,) = asked.release(**spend).rows()
        misses += sum(abs(row[name] - value) > row[f"{name}_error"] + 1e-3 for name, value in truth.items())
    # 60 intervals, each wrong with probability at most 5%; more than 19 wrong has probability < 1e-6 even if so.
    assert misses <= 19


def test_a_wanted_error_is_found_for_gaussian_noise_too(people):
    asked = people.aggregate(n=count(), m=mean("x"))
    preview = asked.preview(error_target={"n": 20}, delta=1e-6, noise="gaussian")
    assert preview.columns[0].error <= 20
    less = asked.preview(epsilon=preview.epsilon * 0.9, delta=1e-6, noise="gaussian")
    assert less.columns[0].error > 20


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "x", True])
@pytest.mark.parametrize("name", ["epsilon", "rho"])
def test_a_budget_that_is_none_is_refused(people, bad, name):
    for ask in (people.count().release, people.count().preview, people.count().event):
        with pytest.raises(InvalidArgument):
            ask(**{name: bad})


@pytest.mark.parametrize(
    "spend",
    [
        {},
        {"epsilon": 1.0, "rho": 1.0},
        {"epsilon": 1.0, "noise": "gaussian"},
        {"epsilon": 1.0, "noise": "cauchy"},
        {"epsilon": 1.0, "noise": None},
        {"rho": 1.0, "noise": "laplace"},
        {"epsilon": 1.0, "delta": 0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "total": True},
    ],
    ids=str,
)
def test_budgets_that_make_no_sense_are_refused_before_the_charge(people, spend):
    before = people._spec.account.remaining()
    with pytest.raises(InvalidArgument):
        people.count().release(**spend)
    assert people._spec.account.remaining() == before


def mutant_no_split(monkeypatch):
    honest = spending._Split._noise
    monkeypatch.setattr(
        spending._Split, "_noise", lambda self, shape, share, family: honest(self, shape, 4 * share, family)
    )


def mutant_one_sensitivity(monkeypatch):
    honest = spending._Split._noise

    def wrong(self, shape, share, family):
        noise = honest(self, shape, share, family)
        return type(noise)(noise.standard_deviation / 2) if family == "gaussian" else noise

    monkeypatch.setattr(spending._Split, "_noise", wrong)


@pytest.mark.parametrize("mutant", [mutant_no_split, mutant_one_sensitivity], ids=lambda f: f.__name__)
def test_a_mutant_of_the_split_is_caught(mutant, monkeypatch, open_account):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test_all_parts_together_stay_within_the_budget(open_account, dp.rows(), dp.ADD_REMOVE, "gaussian", False)


def test_composed_parts_are_flat_enough_to_read(people):
    event = people.aggregate(n=count(), m=mean("x")).event(1.0)
    assert isinstance(event, Composed)
    assert all(isinstance(part, DiscreteLaplace) for part in event.events)
    assert np.isclose(accounting.pure(event).epsilon, 1.0)


@pytest.mark.parametrize("budget", [dp.PureDP(3.0), dp.ZCDP(2.0), dp.ApproxDP(9.0, 1e-4)], ids=str)
def test_a_preview_says_what_will_remain(open_account, budget):
    account = open_account("a", budget)
    asked = dp.Private(table([]), account=account, bounds=BOUNDS).aggregate(n=count(), m=mean("x"))
    preview = asked.preview(epsilon=0.5)
    assert preview.remaining == account.remaining()
    asked.release(epsilon=0.5)
    assert preview.afterwards == account.remaining() != preview.remaining
    assert "afterwards" in str(preview)
    too_much = asked.preview(epsilon=1e3)
    assert too_much.afterwards is None
    assert not too_much.affordable
    assert "NOT ENOUGH" in str(too_much)
