"""How often the privacy loss exceeds ε: certified, and not the same as δ."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from discreet import events as ev
from discreet.accounting import calibrate, profile
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.guarantees import ApproxDP
from discreet.neighbors import REPLACE_ONE


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def test_gaussian_noise_at_a_delta_of_a_millionth_exceeds_epsilon_twenty_times_as_often() -> None:
    noise = calibrate(ev.Gaussian, ApproxDP(1.0, 1e-6))
    interval = profile(ev.Gaussian(noise)).loss_exceeds(1.0)
    assert interval.contains(_normal(0.5 / noise - noise))
    assert interval.upper == pytest.approx(2.0e-5, rel=0.01)
    assert interval.width < 1e-9 * interval.upper


@pytest.mark.parametrize(("sigma", "loss"), [(1.0, 0.0), (0.05, 1.0), (10.0, 3.0), (0.7, 20.0)])
def test_gaussian_noise_by_its_formula(sigma: float, loss: float) -> None:
    truth = _normal(0.5 / sigma - loss * sigma)
    interval = profile(ev.Gaussian(sigma)).loss_exceeds(loss)
    assert interval.lower <= truth * (1 + 1e-12)
    assert interval.upper >= truth * (1 - 1e-12)
    assert interval.width <= 1e-8 * truth


@pytest.mark.parametrize(
    ("event", "loss", "truth"),
    [
        (ev.RandomizedResponse(Fraction(1)), 0.5, math.e / (1 + math.e)),
        (ev.DiscreteLaplace(1, Fraction(2)), 0.25, 1 / (1 + math.exp(-0.5))),
        # Two reports: both true, or (for a loss below 0) one of them.
        (ev.Repeated(ev.RandomizedResponse(Fraction(1)), 2), 1.0, (math.e / (1 + math.e)) ** 2),
        (ev.MayFail(0.125, ev.Gaussian(1.0)), 1.0, 0.125 + 0.875 * _normal(-0.5)),
        # Removing a unit: l exceeds ln(1 + (e^ε − 1)/q) under (1−q)N(0, 1) + qN(1, 1).
        (
            ev.PoissonSampled(0.5, ev.Gaussian(1.0)),
            0.5,
            0.5 * _normal(0.5 - math.log1p(2 * math.expm1(0.5)))
            + 0.5 * _normal(-0.5 - math.log1p(2 * math.expm1(0.5))),
        ),
        (ev.NonPrivate(), 1.0, 1.0),
    ],
)
def test_other_events_by_the_slope_of_their_profile(event: ev.Event, loss: float, truth: float) -> None:
    interval = profile(event).loss_exceeds(loss)
    assert interval.lower <= truth * (1 + 1e-12)
    assert interval.upper >= truth * (1 - 1e-12)
    assert interval.width < 0.05 * truth


# Removing a unit, which is worse: a loss on a sample of rate 1/10 exceeds ε = 0.1 if
# that of the noise exceeds ln(1 + (e^ε − 1)·10).
_INNER = math.log1p(10 * math.expm1(0.1))


@pytest.mark.parametrize(
    ("event", "loss", "truth"),
    [
        (ev.Laplace(1.0), 0.3, 1 - math.exp((0.3 - 1.0) / 2) / 2),
        (ev.Laplace(1.0), 1.5, 0.0),
        # Q of a loss above l is e^{−(l+ε₀)/2}/2 for Laplace noise.
        (
            ev.PoissonSampled(0.1, ev.Laplace(1.0)),
            0.1,
            0.1 * (1 - math.exp((_INNER - 1) / 2) / 2) + 0.9 * math.exp(-(_INNER + 1) / 2) / 2,
        ),
        (ev.PoissonSampled(0.1, ev.RandomizedResponse(Fraction(1))), 0.1, (0.1 * math.e + 0.9) / (1 + math.e)),
        (ev.DiscreteLaplace(2, Fraction(2)), 0.25, 1 / (1 + math.exp(-0.5))),
    ],
)
def test_a_single_release_is_summed_exactly(event: ev.Event, loss: float, truth: float) -> None:
    interval = profile(event).loss_exceeds(loss)
    assert interval.lower <= truth * (1 + 1e-13)
    assert interval.upper >= truth * (1 - 1e-13)
    assert interval.width <= 1e-10 * truth


def test_an_atom_at_epsilon_counts_on_one_side_only() -> None:
    # The largest loss of Laplace noise is an atom of probability 1/2; whether it exceeds itself is left open.
    interval = profile(ev.Laplace(2.0)).loss_exceeds(0.5)
    assert interval.lower <= 1e-9
    assert interval.upper == pytest.approx(0.5)


def test_it_is_at_least_delta() -> None:
    curve = profile(ev.Composed((ev.Gaussian(4.0), ev.Laplace(5.0))))
    for loss in (0.0, 0.5, 1.5):
        assert curve.loss_exceeds(loss).upper >= curve.delta(loss).lower[0]


@pytest.mark.parametrize(
    "event",
    [
        ev.Claimed(1.0, 1e-6),
        ev.Exponential(Fraction(1)),
        ev.NoisyMax(Fraction(1)),
        ev.L2Laplace(1.0),
        ev.DiscreteGaussian(4, Fraction(4), 4),
        ev.Parallel((ev.Gaussian(1.0), ev.Laplace(1.0))),
        ev.ShuffledEpoch(1, 2, ev.Gaussian(1.0)),
    ],
)
def test_events_of_which_only_a_bound_is_known_are_refused(event: ev.Event) -> None:
    with pytest.raises(UnknownEvent, match="privacy losses are not known"):
        profile(event, REPLACE_ONE).loss_exceeds(1.0)


def test_a_negative_epsilon_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="epsilon must"):
        profile(ev.Gaussian(1.0)).loss_exceeds(-1.0)
