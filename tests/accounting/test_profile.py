"""Profiles and trade-off curves."""

import math

import numpy as np
import pytest
from scipy import stats

from discreet.accounting._profile import profile
from discreet.accounting.tight import delta, epsilon
from discreet.errors import InvalidArgument
from discreet.events import Gaussian, Laplace, NonPrivate, PoissonSampled, Repeated

STEP = Repeated(PoissonSampled(0.02, Gaussian(1.1)), 200)


def test_a_profile_is_delta_at_each_epsilon():
    curve = profile(STEP).delta([0.0, 0.5, 2.0])
    assert list(curve.upper) == [delta(STEP, at).upper for at in (0.0, 0.5, 2.0)]
    assert np.all(curve.lower <= curve.upper)
    assert np.all(np.diff(curve.upper) < 0)


def test_a_profile_gives_epsilon_at_each_delta():
    curve = profile(STEP).epsilon([1e-3, 1e-6])
    assert list(curve.lower) == [epsilon(STEP, at).lower for at in (1e-3, 1e-6)]


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_the_trade_off_of_gaussian_noise_is_known(mu):
    alpha = np.array([0.001, 0.01, 0.1, 0.3, 0.7])
    truth = stats.norm.cdf(stats.norm.ppf(1 - alpha) - mu)
    curve = profile(Gaussian(1 / mu)).trade_off(alpha)
    assert np.all(curve.lower <= truth + 1e-12)
    assert np.all(curve.upper >= truth - 1e-12)
    assert np.all(truth - curve.lower < 0.01)


def test_the_trade_off_of_laplace_noise_is_known():
    alpha = np.array([0.01, 0.1, 0.18])
    truth = 1 - math.exp(1.0) * alpha  # below e^{−ε₀}/2
    curve = profile(Laplace(1.0)).trade_off(alpha)
    assert np.all(curve.lower <= truth + 1e-9)
    assert np.all(curve.upper >= truth - 1e-9)
    assert np.all(truth - curve.lower < 0.01)


def test_without_protection_there_is_no_error():
    curve = profile(NonPrivate()).trade_off([0.1, 0.5])
    assert np.all(curve.lower == 0.0)
    assert np.all(curve.upper <= 1e-9)


@pytest.mark.parametrize("bad", [[-0.1], [1.1], [math.nan], [[0.1, 0.2]]])
def test_errors_that_are_no_probabilities_are_refused(bad):
    with pytest.raises(InvalidArgument):
        profile(STEP).trade_off(bad)
