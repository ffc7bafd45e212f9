"""zCDP: ρ bounds the divergence of every order, and is the smallest that does."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import events as ev
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.forms.zcdp import laplace_rho, pure_rho, zcdp
from discreet.errors import UnknownEvent
from discreet.neighbors import REPLACE_ONE, ZERO_OUT

ORDERS = tuple(1 + float(t) for t in np.geomspace(1e-3, 1e4, 60))


@pytest.mark.parametrize(
    ("event", "rho"),
    [
        (ev.Gaussian(2.0), 0.125),
        (ev.Gaussian(math.inf), 0.0),
        (ev.DiscreteGaussian(3, Fraction(6)), 0.25),
        (ev.L2Laplace(2.0), 0.125),
        (ev.L2Laplace(2.0, 1e9), laplace_rho(1e-9)),
        (ev.Exponential(Fraction(2)), 0.5),
        (ev.Claimed(1.0, 1e-9), math.inf),
        (ev.NonPrivate(), math.inf),
        (ev.Insecure(ev.Gaussian(1.0)), math.inf),
        (ev.Repeated(ev.Gaussian(2.0), 4), 0.5),
        (ev.Composed((ev.Gaussian(2.0), ev.Gaussian(1.0))), 0.625),
        (ev.Parallel((ev.Gaussian(2.0), ev.Gaussian(1.0))), 0.5),
        (ev.Group(ev.Gaussian(2.0), 3), 1.125),
        (ev.Group(ev.DiscreteGaussian(1, Fraction(8)), 4), 1.0),
        (ev.Group(ev.PoissonSampled(0.5, ev.Gaussian(2.0)), 3), 1.125),
        (ev.PoissonSampled(0.01, ev.Gaussian(2.0)), 0.125),
        (ev.PoissonSampled(0.0, ev.Gaussian(2.0)), 0.0),
    ],
)
def test_each_event_has_its_rho(event: ev.Event, rho: float) -> None:
    assert zcdp(event).rho == pytest.approx(rho, rel=1e-13)
    assert zcdp(event).rho >= rho


@given(st.floats(1e-6, 50))
def test_pure_events_have_the_kullback_leibler_divergence_of_randomized_response(epsilon: float) -> None:
    with mpmath.workdps(40):
        truth = mpmath.mpf(epsilon) * mpmath.tanh(mpmath.mpf(epsilon) / 2)
        assert truth <= pure_rho(epsilon) <= truth * (1 + mpmath.mpf(10) ** -13)
    assert pure_rho(epsilon) <= epsilon**2 / 2 * (1 + 1e-15)


@given(st.floats(1e-6, 50))
def test_laplace_noise_has_its_kullback_leibler_divergence(epsilon: float) -> None:
    with mpmath.workdps(40):
        truth = mpmath.mpf(epsilon) - 1 + mpmath.exp(-mpmath.mpf(epsilon))
        assert truth <= laplace_rho(epsilon) <= truth * (1 + mpmath.mpf(10) ** -13)


@given(st.integers(1, 20), st.fractions(Fraction(1, 30), 10_000))
@settings(max_examples=60)
def test_discrete_laplace_noise_has_its_kullback_leibler_divergence(sensitivity: int, scale: Fraction) -> None:
    with mpmath.workdps(60):
        t = mpmath.mpf(scale.denominator) / scale.numerator
        epsilon = sensitivity * t
        truth = epsilon - (1 - mpmath.exp(-epsilon)) * t / mpmath.sinh(t)
        assert truth <= zcdp(ev.DiscreteLaplace(sensitivity, scale)).rho <= truth * (1 + mpmath.mpf(10) ** -12)


@pytest.mark.parametrize(
    "event",
    [
        ev.Laplace(1.0),
        ev.Laplace(0.1),
        ev.Laplace(20.0),
        ev.DiscreteLaplace(1, Fraction(2)),
        ev.DiscreteLaplace(7, Fraction(3)),
        ev.DiscreteLaplace(40, Fraction(3)),
        ev.RandomizedResponse(Fraction(1)),
        ev.RandomizedResponse(Fraction(5), 7),
        ev.Exponential(Fraction(3)),
        ev.NoisyMax(Fraction(2)),
        ev.L2Laplace(1.0, None, (0.5, 0.5)),
    ],
)
def test_rho_bounds_the_divergence_of_every_order_and_is_reached_near_order_one(event: ev.Event) -> None:
    divergences = np.array(rdp(event, ORDERS).epsilons)
    rho = zcdp(event).rho
    assert np.all(divergences <= rho * np.array(ORDERS) * (1 + 1e-9))
    if not isinstance(event, ev.RandomizedResponse | ev.Exponential):
        assert divergences[0] >= 0.99 * rho


def test_fixed_size_samples_keep_the_rho_of_their_event() -> None:
    sample = ev.SampledWithoutReplacement(1, 100, ev.Gaussian(2.0))
    assert zcdp(sample, REPLACE_ONE).rho == zcdp(sample, ZERO_OUT).rho == 0.125
    assert zcdp(ev.ShuffledEpoch(1, 100, ev.Gaussian(2.0)), ZERO_OUT).rho == 0.125
    assert zcdp(ev.SampledWithoutReplacement(1, 100, ev.Laplace(1.0)), REPLACE_ONE).rho < 0.001
    with pytest.raises(UnknownEvent, match="SampledWithoutReplacement"):
        zcdp(sample)
