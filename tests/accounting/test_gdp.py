"""Gaussian DP: exact for Gaussians, valid for pure events, refused for the rest."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from discreet import events as ev
from discreet.accounting.forms.gdp import gaussian_multiplier, gdp, limit, pure_mu
from discreet.errors import UnknownEvent
from discreet.neighbors import REPLACE_ONE, ZERO_OUT


@pytest.mark.parametrize(
    ("event", "mu"),
    [
        (ev.Gaussian(4.0), 0.25),
        (ev.Gaussian(math.inf), 0.0),
        (ev.Repeated(ev.Gaussian(2.0), 16), 2.0),
        (ev.Composed((ev.Gaussian(0.25), ev.Gaussian(1 / 3))), 5.0),
        (ev.Parallel((ev.Gaussian(0.25), ev.Gaussian(1 / 3))), 4.0),
        (ev.Group(ev.Gaussian(3.0), 3), 1.0),
        (ev.NonPrivate(), math.inf),
        (ev.Repeated(ev.NonPrivate(), 0), 0.0),
        (ev.Insecure(ev.Gaussian(1.0)), math.inf),
    ],
)
def test_gaussians_and_their_compositions_are_exact(event: ev.Event, mu: float) -> None:
    assert gdp(event).mu == pytest.approx(mu, rel=1e-15)
    assert gdp(event).mu >= mu * (1 - 1e-15)


def test_a_replacement_may_touch_two_disjoint_parts() -> None:
    parts = ev.Parallel((ev.Gaussian(0.25), ev.Gaussian(1 / 3), ev.Gaussian(1.0)))
    assert gdp(parts, REPLACE_ONE).mu == pytest.approx(5.0)
    twins = ev.Parallel((ev.Gaussian(1.0), ev.Gaussian(1.0)))
    assert gdp(twins, REPLACE_ONE).mu == pytest.approx(math.sqrt(2))


@given(st.floats(1e-6, 200))
def test_pure_events_meet_the_curve_of_randomized_response_at_its_corner(epsilon: float) -> None:
    with mpmath.workdps(60):
        mu = mpmath.mpf(pure_mu(epsilon))
        corner = 1 / (1 + mpmath.exp(epsilon))
        assert mpmath.erfc(mu / mpmath.sqrt(8)) / 2 <= corner
        assert mpmath.erfc(mu * (1 - mpmath.mpf(10) ** -11) / mpmath.sqrt(8)) / 2 >= corner


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_curve_of_a_pure_event_lies_above_that_of_its_gaussian(epsilon: float) -> None:
    mu = pure_mu(epsilon)
    for step in range(1, 200):
        false_alarm = step / 200
        missed = max(0.0, 1 - math.exp(epsilon) * false_alarm, math.exp(-epsilon) * (1 - false_alarm))
        assert float(special.ndtr(special.ndtri(1 - false_alarm) - mu)) <= missed + 1e-12


@pytest.mark.parametrize(
    "event",
    [
        ev.PoissonSampled(0.1, ev.Gaussian(1.0)),
        ev.DiscreteGaussian(1, Fraction(4)),
        ev.L2Laplace(2.0),
        ev.Claimed(1.0, 1e-6),
        ev.Composed((ev.Gaussian(1.0), ev.PoissonSampled(0.1, ev.Gaussian(1.0)))),
    ],
)
def test_what_is_not_known_to_be_gaussian_is_refused_by_name(event: ev.Event) -> None:
    culprit = [*event.walk()][-2 if isinstance(event, ev.PoissonSampled | ev.Composed) else -1]
    with pytest.raises(UnknownEvent, match=type(culprit).__name__):
        gdp(event)


def test_samples_of_pure_events_are_amplified_first() -> None:
    sampled = gdp(ev.PoissonSampled(0.01, ev.Laplace(1.0))).mu
    assert sampled < 0.02 * gdp(ev.Laplace(1.0)).mu * 2
    assert gdp(ev.ShuffledEpoch(1, 9, ev.Gaussian(1.0)), ZERO_OUT).mu == 1.0


def test_a_composition_of_gaussians_is_one_gaussian_and_nothing_else_is() -> None:
    assert gaussian_multiplier(ev.Repeated(ev.Gaussian(2.0), 4)) == pytest.approx(1.0)
    assert gaussian_multiplier(ev.Group(ev.Gaussian(2.0), 2)) == pytest.approx(1.0)
    assert gaussian_multiplier(ev.Repeated(ev.Gaussian(2.0), 0)) is None
    assert gaussian_multiplier(ev.Composed((ev.Gaussian(2.0), ev.Laplace(2.0)))) is None
    assert gaussian_multiplier(ev.Composed(())) is None


def test_the_limit_is_the_formula_and_is_stated_for_sampled_gaussians_alone() -> None:
    event = ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.0)), 10_000)
    assert limit(event) == pytest.approx(0.01 * math.sqrt(10_000 * math.expm1(1.0)))
    with pytest.raises(UnknownEvent, match="Laplace"):
        limit(ev.Composed((event, ev.Laplace(1.0))))


def test_groups_of_pure_events_multiply_the_distance() -> None:
    assert gdp(ev.Group(ev.NoisyMax(Fraction(1, 2)), 3)).mu == pytest.approx(3 * pure_mu(0.5))
