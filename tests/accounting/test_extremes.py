"""Every accountant on every event at the edges of what an event may hold: no warning, no NaN, never below zero."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet import events as ev
from discreet.accounting.adaptive.filter import AdaptiveFilter, Refused
from discreet.accounting.forms.conversions import gdp_epsilon, rdp_epsilon, zcdp_epsilon
from discreet.accounting.forms.gdp import gdp
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.forms.zcdp import zcdp
from discreet.accounting.tight import delta, epsilon
from discreet.errors import DiscreetError, UnknownEvent
from discreet.guarantees import GDP, ZCDP, ApproxDP, PureDP
from discreet.neighbors import Relation

NUMBERS = [1e-150, 1e-9, 1, 2.0**53, 10**30, 10**150, 1e150, math.inf, np.float32(0.3), Fraction(1, 3)]
EXACT = [Fraction(1, 10**150), Fraction(1, 10**9), Fraction(1), Fraction(700), Fraction(10**9), Fraction(10**150)]
ORDERS = (1.0000001, 1.5, 2.0, 33.0, 1e4, 1e6)

LEAVES: list[ev.Event] = [
    *(ev.Gaussian(number) for number in NUMBERS),  # type: ignore[arg-type]
    *(ev.Laplace(number) for number in NUMBERS),  # type: ignore[arg-type]
    *(ev.L2Laplace(number, number) for number in NUMBERS),  # type: ignore[arg-type]
    *(ev.L2Laplace(1.0, None, (number, 1)) for number in (1e-150, 1e150, Fraction(1, 3), np.float32(2))),  # type: ignore[arg-type]
    *(ev.DiscreteLaplace(1, number) for number in EXACT),
    *(ev.DiscreteLaplace(10**9, number) for number in EXACT),
    *(ev.DiscreteGaussian(10**9, number, 7) for number in EXACT),
    *(ev.Exponential(number) for number in EXACT),
    *(ev.RandomizedResponse(number, 1000) for number in EXACT),
    *(ev.NoisyMax(number) for number in EXACT),
    ev.Claimed(0.0),
    ev.Claimed(10**9, 1),
]


def _priced(event: ev.Event, relation: Relation) -> None:
    loss, rho = pure(event, relation).epsilon, zcdp(event, relation).rho
    curve = rdp(event, ORDERS, relation).epsilons
    for value in (loss, rho, *curve):
        assert value >= 0
    for value in curve:
        assert value <= loss * (1 + 1e-9)
    assert zcdp_epsilon(ZCDP(rho), 1e-6) >= 0
    assert rdp_epsilon(rdp(event, ORDERS, relation), 1e-140) >= 0
    try:
        mu = gdp(event, relation)
    except UnknownEvent:
        return
    assert mu.mu >= 0
    if 1e-3 < mu.mu < 1e3:
        assert gdp_epsilon(mu, 1e-6) >= 0


@pytest.mark.parametrize("event", LEAVES, ids=lambda event: repr(event)[:60])
def test_a_leaf_at_the_edge_has_a_price(event: ev.Event) -> None:
    for relation in Relation:
        _priced(event, relation)


@pytest.mark.parametrize("rate", [0.0, 1e-150, 1e-12, np.float32(0.01), 1 - 2.0**-53])
@pytest.mark.parametrize(
    "inner",
    [
        ev.Gaussian(0.01),
        ev.Gaussian(1),
        ev.Gaussian(1e12),
        pytest.param(ev.Laplace(1e-2), marks=pytest.mark.slow),
        ev.DiscreteGaussian(1, Fraction(9)),
    ],
)
def test_a_sample_at_the_edge_has_a_price(rate: float, inner: ev.Event) -> None:
    event = ev.PoissonSampled(rate, inner)
    for relation in Relation:
        _priced(event, relation)
    for people in (1, 2, 1000):
        _priced(ev.Group(event, people), Relation.ADD_REMOVE)


@pytest.mark.parametrize("budget", [PureDP(1.0), ZCDP(1.0), GDP(1.0), ApproxDP(1.0, 1e-6)])
def test_a_filter_answers_for_every_leaf(budget: PureDP | ZCDP | GDP | ApproxDP) -> None:
    for event in LEAVES:
        after = AdaptiveFilter.start(budget).spend(event)
        assert isinstance(after, AdaptiveFilter | Refused)


def test_counts_far_beyond_a_float_are_exact() -> None:
    many = 10**30
    assert pure(ev.Repeated(ev.Laplace(2.0**100), many)).epsilon == pytest.approx(many / 2.0**100)
    assert math.isinf(pure(ev.Repeated(ev.Laplace(1.0), 10**400)).epsilon)
    assert gdp(ev.Repeated(ev.Gaussian(1e15), many)).mu == pytest.approx(1.0)
    assert gdp(ev.Gaussian(1e140)).mu == pytest.approx(1e-140)


@pytest.mark.parametrize(
    "event",
    [
        ev.Composed((ev.Exponential(Fraction(1, 2)), ev.L2Laplace(3.0))),
        ev.Laplace(1e-4),
        ev.Laplace(1e-9),
        ev.Group(ev.DiscreteLaplace(1000, Fraction(10)), 10**6),
        ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1e-5)), 3),
        ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1e150)), 3),
        ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1e-140)), 3),
        ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.0)), 10**18),
        ev.DiscreteGaussian(10**10, Fraction(100)),
        ev.DiscreteGaussian(10**10, Fraction(10**4)),
        ev.L2Laplace(math.inf, math.inf),
        ev.Repeated(ev.Laplace(5.0), 10**400),
        ev.RandomizedResponse(Fraction(1), 10**400),
        ev.NoisyMax(Fraction(10**9)),
        ev.Composed((ev.L2Laplace(1.0, None, (1e150, 1.0)), ev.Gaussian(1.0), ev.Laplace(3.0))),
        ev.Composed((ev.L2Laplace(1e-150, 1e-150), ev.Gaussian(1.0), ev.Laplace(3.0))),
        ev.PoissonSampled(0.01, ev.L2Laplace(1e-150, 1e-150)),
        ev.Repeated(ev.L2Laplace(1.0, None, (1e-150, 1.0)), 10**18),
    ],
    ids=lambda event: repr(event)[:60],
)
def test_extreme_numbers_get_an_interval_or_a_clear_refusal(event: ev.Event) -> None:
    for ask in (lambda: epsilon(event, 1e-5), lambda: delta(event, 1.0)):
        try:
            answer = ask()
        except DiscreetError:
            continue
        assert 0 <= answer.lower <= answer.upper


@pytest.mark.parametrize("error", [ValueError, IndexError, TypeError])
def test_a_mistake_of_ours_is_not_taken_for_an_extreme_number(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*_: object) -> None:
        raise error("a mistake")

    monkeypatch.setattr("discreet.accounting.methods.answer.choose", mistaken)
    with pytest.raises(error, match="a mistake"):
        epsilon(ev.Gaussian(1.0), 1e-5)


def test_laplace_noise_far_below_its_sensitivity_costs_its_pure_epsilon() -> None:
    assert epsilon(ev.Laplace(1e-4), 1e-5).upper == pytest.approx(1e4, rel=1e-3)


@pytest.mark.parametrize("steps", [10**7, 10**8, 10**10, 10**12])
def test_any_number_of_steps_without_a_density_has_both_ends_near_each_other(steps: int) -> None:
    # One discrete Gaussian of σ = 10 differs from a Gaussian by less than 1e-80, and 1e12 of them by less than 1e-68.
    discrete = epsilon(ev.Repeated(ev.DiscreteGaussian(1, Fraction(100)), steps), 1e-6)
    smooth = epsilon(ev.Gaussian(10 / math.sqrt(steps)), 1e-6)
    assert discrete.lower <= smooth.upper
    assert smooth.lower <= discrete.upper
    # The loss of Laplace noise has mean a − 1 + e^{−a} at a = 1/b, and the sum concentrates around its mean.
    for multiplier in (10.0, 1000.0):
        found = epsilon(ev.Repeated(ev.Laplace(multiplier), steps), 1e-6)
        mean = steps * (1 / multiplier + math.expm1(-1 / multiplier))
        assert mean * (1 - 1e-5) < found.upper
        assert found.upper < mean + 6 * math.sqrt(2 * mean)
        assert found.width <= 0.01 * found.upper
    assert discrete.width <= 0.01 * discrete.upper
