"""Plans for the rest of a budget: they fit, they are fair, and they keep the errors that they state."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest

import discreet as dp
from discreet.accounting import AdaptiveFilter, allocate
from discreet.accounting.wishes import CountWish, SelectionWish, TrainingWish
from discreet.errors import InvalidArgument, MissingExtra
from discreet.events import Composed, DiscreteGaussian, DiscreteLaplace, Exponential, Laplace, Repeated

WISHES = (
    CountWish("rows", 20.0),
    CountWish("weighted", 30.0, 4.0, noise="gaussian", sensitivity=2),
    CountWish("ages", 60.0, times=5),
    SelectionWish("color", 80.0, candidates=8),
    TrainingWish("model", 1.2, examples=30_000, batch_size=512, steps=300),
)
BUDGETS = (dp.ApproxDP(1.0, 1e-6), dp.ApproxDP(8.0, 1e-6), dp.ZCDP(0.05), dp.RDP((2.0, 8.0), (0.05, 0.3)))


def laplace_outside(scale, error):
    x = np.arange(math.floor(error) + 1, 4000)
    mass = np.exp(-np.arange(0, 4000) / float(scale))
    return 2 * np.sum(np.exp(-x / float(scale))) / (2 * np.sum(mass) - 1)


@pytest.mark.parametrize("error", [0.5, 1.0, 7.3, 20.0, 333.0])
def test_a_count_stays_within_its_error_and_no_larger_scale_does(error):
    event = CountWish("rows", error).at(error)
    assert isinstance(event, DiscreteLaplace)
    assert laplace_outside(event.scale, error) <= 0.05 * (1 + 1e-9)
    assert laplace_outside(event.scale * Fraction(1001, 1000), error) > 0.05


@pytest.mark.parametrize("error", [0.5, 3.0, 40.0, 2000.0])
def test_a_gaussian_count_stays_within_its_error(error):
    event = CountWish("rows", error, noise="gaussian", sensitivity=3, confidence=0.99).at(error)
    assert isinstance(event, DiscreteGaussian)
    assert event.sensitivity_squared == 9
    x = np.arange(-40_000, 40_001)
    mass = np.exp(-(x**2) / (2 * float(event.variance)))
    assert np.sum(mass[np.abs(x) > error]) / np.sum(mass) <= 0.01 * (1 + 1e-9)
    assert np.sum(mass[np.abs(x) > 0.9 * error - 1]) / np.sum(mass) > 0.01


def test_very_wide_noise_is_bounded_by_its_continuous_form():
    event = CountWish("rows", 1e6, noise="gaussian").at(1e6)
    assert float(event.variance) ** 0.5 == pytest.approx(1e6 / 1.959964, rel=1e-4)
    assert float(event.variance) ** 0.5 <= 1e6 / 1.959964


def test_a_selection_has_the_epsilon_of_its_theorem():
    event = SelectionWish("color", 10.0, candidates=20, sensitivity=2.0, confidence=0.9).at(10.0)
    assert isinstance(event, Exponential)
    assert float(event.epsilon) == pytest.approx(2 * 2.0 * math.log(200) / 10)
    assert float(event.epsilon) >= 2 * 2.0 * math.log(200) / 10 * (1 - 1e-15)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_plan_fits_and_uses_no_more_than_remains(budget):
    plan = allocate(budget, WISHES)
    filled = AdaptiveFilter.start(budget).spend(plan.event)
    assert isinstance(filled, AdaptiveFilter)
    assert sum(part.share for part in plan.parts) <= 1 + 1e-9
    if plan.met:
        assert [part.reached for part in plan.parts] == [wish.error for wish in WISHES]
        assert plan.best <= 1
    else:
        # A little less error for all would not fit: the plan wastes nothing.
        stretched = [wish.error * (1 + (0.995 * plan.factor - 1) / wish.weight) for wish in WISHES]
        smaller = Composed(tuple(wish.at(error) for wish, error in zip(WISHES, stretched, strict=True)))
        assert not isinstance(AdaptiveFilter.start(budget).spend(smaller), AdaptiveFilter)
        assert sum(part.share for part in plan.parts) > 0.97


def test_wishes_give_way_by_their_weights():
    plan = allocate(dp.PureDP(0.1), [CountWish("light", 5.0), CountWish("heavy", 5.0, weight=10.0)])
    light, heavy = plan.parts
    assert not plan.met
    assert light.reached / 5 - 1 == pytest.approx(10 * (heavy.reached / 5 - 1))
    assert light.reached / 5 == pytest.approx(plan.factor)
    assert light.epsilon + heavy.epsilon <= 0.1
    assert light.epsilon + heavy.epsilon > 0.095  # noise is an integer, so errors count in whole steps


def test_a_plan_for_an_account_counts_what_is_spent_here_and_above(tmp_path):
    with dp.Ledger(tmp_path / "x.ledger") as ledger:
        account = ledger.account("a", budget=dp.PureDP(1.0))
        ann = account.allot("ann", dp.PureDP(0.9))
        assert allocate(account, [CountWish("rows", 4.0)]).met
        account.spend(Laplace(2.0))
        below = allocate(ann, [CountWish("rows", 4.0)])
        assert not below.met  # 0.9 is left here, and 0.5 above
        assert below.parts[0].epsilon <= 0.5
        assert allocate(account, [CountWish("rows", 8.0)]).met
        assert account.summary().charges == 1
        account.spend(Laplace(2.0))
        with pytest.raises(InvalidArgument, match="fit with some error"):
            allocate(account, [CountWish("rows", 4.0)])


def test_a_plan_reads_as_a_table_and_as_rows():
    plan = allocate(dp.ApproxDP(0.5, 1e-6), WISHES)
    text = str(plan)
    assert "Not all wishes fit" in text
    for wish in WISHES:
        assert wish.name in text
        assert wish.quantity in text
    assert [row["wish"] for row in plan.rows()] == [wish.name for wish in WISHES]
    assert "All wishes fit" in str(allocate(dp.ApproxDP(50.0, 1e-6), WISHES))


def test_a_plan_is_drawn_and_says_what_it_needs(monkeypatch):
    pytest.importorskip("matplotlib")
    plan = allocate(dp.ApproxDP(0.5, 1e-6), WISHES)
    axes = plan.plot()
    assert len(axes.patches) == len(WISHES)
    assert plan.plot(axes) is axes
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="matplotlib"):
        plan.plot()


@pytest.mark.parametrize(
    "bad",
    [
        lambda: CountWish("", 1.0),
        lambda: CountWish("a", 0.0),
        lambda: CountWish("a", math.nan),
        lambda: CountWish("a", math.inf),
        lambda: CountWish("a", 1.0, weight=0.0),
        lambda: CountWish("a", 1.0, confidence=1.0),
        lambda: CountWish("a", 1.0, sensitivity=0),
        lambda: CountWish("a", 1.0, noise="uniform"),
        lambda: SelectionWish("a", 1.0, candidates=1),
        lambda: TrainingWish("a", 1.0),
        lambda: TrainingWish("a", 1.0, examples=10, batch_size=11, steps=1),
        lambda: allocate(dp.PureDP(1.0), []),
        lambda: allocate(dp.PureDP(1.0), [CountWish("a", 1.0), CountWish("a", 2.0)]),
        lambda: allocate(dp.PureDP(1.0), [Repeated(Laplace(1.0), 2)]),
        lambda: allocate(1.0, [CountWish("a", 1.0)]),
        lambda: allocate(dp.PureDP(1.0), [TrainingWish("a", 1.0, examples=10, batch_size=1, steps=1)]),
    ],
)
def test_bad_wishes_are_refused(bad):
    with pytest.raises(InvalidArgument):
        bad()
