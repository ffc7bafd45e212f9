"""A claim's curve is the event's own trade-off curve, in both directions and for groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

import discreet as dp
from discreet import accounting, events
from discreet.auditing import audit
from discreet.auditing.claims import claimed
from discreet.errors import InvalidArgument

RATES = np.array([0.0, 1e-4, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0])


def gaussian_power(mu, rates=RATES):
    return special.ndtr(special.ndtri(rates) + mu)


@pytest.mark.parametrize("distance", [1, 3])
@pytest.mark.parametrize("promise", [dp.GDP(0.5), events.Gaussian(2.0)])
def test_a_gaussian_claim_allows_what_a_gaussian_allows_and_a_group_k_times_as_much(promise, distance):
    curve = claimed(promise, distance=distance).forward[0]
    exact = gaussian_power(0.5 * distance)
    assert np.all(curve.power(RATES) >= exact - 1e-12)
    assert np.allclose(curve.power(RATES), exact, atol=2e-3)
    assert curve.largest_mu() == pytest.approx(0.5 * distance, rel=1e-3)
    assert curve.largest_mu() >= 0.5 * distance * (1 - 1e-9)


@pytest.mark.parametrize("promise", [dp.PureDP(1.0), dp.ApproxDP(1.0, 0.01), dp.ZCDP(0.3), dp.GDP(0.5)])
def test_a_line_lies_above_the_curve_and_touches_it(promise):
    curve = claimed(promise, distance=2).forward[0]
    for rate in (0.001, 0.1, 0.6):
        slope, intercept = curve.line(rate)
        assert np.all(np.minimum(1, intercept + slope * RATES) >= curve.power(RATES) - 1e-12)
        assert intercept + slope * rate == pytest.approx(float(curve.power(np.array([rate]))[0]))


def test_pure_dp_multiplies_rates_by_e_to_the_epsilon():
    curve = claimed(dp.PureDP(1.0)).forward[0]
    assert curve.power(np.array([0.1])) == pytest.approx(0.1 * math.e)
    assert curve.inverse(0.1 * math.e) == pytest.approx(0.1)
    assert claimed(dp.PureDP(1.0), distance=2).forward[0].power(np.array([0.01])) == pytest.approx(0.01 * math.e**2)


def test_a_growing_pair_tests_each_direction_of_a_sampled_event_by_its_own_curve():
    event = events.PoissonSampled(0.1, events.Gaussian(0.7))
    claim = claimed(event, grows=True)
    removing = accounting.trade_off(event, direction="removing").lower(RATES)
    adding = accounting.trade_off(event, direction="adding").lower(RATES)
    assert np.allclose(claim.forward[0].power(RATES), 1 - removing)
    assert np.allclose(claim.backward[0].power(RATES), 1 - adding)
    assert not np.allclose(removing, adding, atol=1e-2)
    assert len(claimed(event).forward) == 2  # without a direction, both must be violated


@pytest.mark.parametrize(
    ("event", "truth"),
    [
        (events.Gaussian(1.0), lambda rates: gaussian_power(1.25, rates)),
        (events.Laplace(1.0), lambda rates: np.where(rates < 0.5 * math.exp(-1.25), rates * math.exp(1.25), np.nan)),
    ],
)
def test_a_stretched_curve_is_that_of_less_noise(event, truth):
    rates = np.array([0.01, 0.05, 0.14])
    assert claimed(event).forward[0].stretched(rates, 1.25) == pytest.approx(truth(rates), rel=0.04)


def test_the_delta_of_epsilon_is_that_of_the_claim():
    assert claimed(dp.ApproxDP(1, 1e-5)).delta == 1e-5
    assert claimed(dp.PureDP(1)).delta == claimed(events.Laplace(1.0)).delta == 0
    assert claimed(events.Gaussian(1.0)).delta == 1e-6
    assert claimed(events.Gaussian(1.0), delta=1e-9).delta == 1e-9


@pytest.mark.parametrize("promise", [None, 1.0, "1-DP"])
def test_a_claim_must_be_an_event_or_a_guarantee(promise):
    with pytest.raises(InvalidArgument, match="claim must be an event or a guarantee"):
        claimed(promise)


def test_the_test_of_mu_refutes_only_what_violates_every_curve_of_a_direction():
    """Without a direction, a sampled event has two curves; a pair may follow either, so the larger μ counts."""
    claim = claimed(events.PoissonSampled(0.5, events.Gaussian(1.0)))
    limits = [curve.largest_mu() for curve in claim.forward]
    assert limits[0] != pytest.approx(limits[1], rel=1e-2)
    middle = sum(limits) / 2
    generator = np.random.default_rng(8)

    def shifted(data, runs):
        return generator.normal(middle * data, 1.0, runs)

    found = audit(shifted, claim.promise, [(0, 1)], estimator="mu", vectorized=True, max_samples=400_000, alpha=1e-6)
    assert not found.violated
