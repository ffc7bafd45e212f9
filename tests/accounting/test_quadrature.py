"""Moments of sampled Gaussian noise: the quadrature's own certificate holds against mpmath."""

import math

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting.methods.fourier import quadrature
from discreet.accounting.methods.fourier.decay import decay
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.numeric.rounding import UNIT

CASES = [
    pytest.param(0.01, 1.0, 3.0, 0.0, marks=pytest.mark.slow),
    (0.01, 1.0, 3.0, 50.0),
    pytest.param(0.001, 0.8, 8.0, 300.0, marks=pytest.mark.slow),
    pytest.param(0.1, 0.3, 2.0, 20.0, marks=pytest.mark.slow),
    pytest.param(0.2, 5.0, 20.0, 10.0, marks=pytest.mark.slow),
    (0.9, 0.5, 1.0, 3.0),
    (1e-6, 1.0, 1000.0, 1e5),
    pytest.param(0.5, 100.0, 30.0, 500.0, marks=pytest.mark.slow),
]


def moment(s, rate, sigma):
    rate, mu = mp.mpf(rate), 1 / mp.mpf(sigma)

    def integrand(u):
        return mp.npdf(u) * (1 - rate + rate * mp.exp(mu * u - mu * mu / 2)) ** s

    # Panels short enough for the phase of a far outlier's loss.
    high = min(4 * (int(abs(s.real) / sigma) + 18), 4 * 40)
    return mp.quad(integrand, [mp.mpf(k) / 4 for k in range(-56, high)], maxdegree=5)


@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("rate", "sigma", "tilt", "omega"), CASES)
def test_moments_lie_within_their_certificate(rate, sigma, tilt, omega, reverse):
    events = SampledGaussians(np.array([rate]), np.array([1 / sigma]), np.ones(1), reverse)
    rule = quadrature.certified(events, tilt, max(omega, 1.0))
    if rule is None:
        pytest.skip("the rule declines here")
    with mp.workdps(25):
        s = mp.mpf(events.order(tilt))
        at_real = moment(mp.mpc(s), rate, sigma)
        at_complex = moment(mp.mpc(s, -omega if reverse else omega), rate, sigma)
        ratio = complex(at_complex / at_real)
        log_moment = float(mp.log(at_real.real))
    found = 1 + rule.on_contour(omega, 2)[0, 1]
    assert abs(found - ratio) <= rule.error[0]
    assert abs(found - ratio) <= rule.contour_error(np.array([omega]))[0, 0] + UNIT  # 1 + … is rounded here
    assert abs(rule.log_moment[0] - log_moment) <= rule.error[0] * (1 + 1e-3) + 1e-15 * abs(log_moment)
    assert rule.error[0] < 1e-10


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("rate", "sigma", "tilt"), [(0.01, 1.0, 3.0), (0.1, 0.3, 2.0), (0.001, 0.8, 7.0), (0.3, 4.0, 1.0)]
)
def test_the_characteristic_function_stays_below_its_decay_bound(rate, sigma, tilt, reverse):
    events = SampledGaussians(np.array([rate]), np.array([1 / sigma]), np.ones(1), reverse)
    omega = 2.0 ** np.arange(0, 8) / math.sqrt(quadrature.rough(events, tilt).variance()[0])
    rule = quadrature.certified(events, tilt, float(omega[-1]), within=1e-6)
    if rule is None:
        pytest.skip("the rule declines here")
    cuts = decay(events, tilt, rule.log_moment)
    for point in omega:
        assert abs(1 + rule.on_contour(float(point), 2)[0, 1]) <= cuts.bound(float(point))[0] + 1e-5


def test_octaves_agree_with_the_contour():
    events = SampledGaussians(np.array([0.01, 0.05]), np.array([1.0, 0.7]), np.ones(2), False)
    rule = quadrature.certified(events, 2.0, 64.0)
    assert rule is not None
    found = rule.octaves(2.0, 4, 8)
    for octave in range(4):
        step = 2.0 * 2**octave / 8
        expected = np.abs(1 + rule.on_contour(step, 16)[:, 8:])
        assert np.allclose(found[:, octave * 8 : octave * 8 + 8], expected, atol=1e-11)
