"""Sampled Gaussians up to a cut along a contour: each part of the certificate against many digits or another method."""

import math

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting import tight
from discreet.accounting.methods.fourier import panels
from discreet.accounting.methods.fourier.panels import CutGaussian
from discreet.accounting.methods.jumps import bounds as jumps
from discreet.accounting.methods.jumps import contour
from discreet.accounting.methods.jumps.guess import Coarse
from discreet.accounting.methods.target import Target
from discreet.events import Gaussian, PoissonSampled, Repeated
from discreet.numeric.rounding import UNIT

# rate, σ, the cut in u, tilt, frequency
CASES = [
    (1e-3, 1.0, 5.0, 40.0, 300.0),
    (1e-6, 0.5, 6.0, 30.0, 2000.0),
    (0.05, 2.0, 3.0, 5.0, 40.0),
]


def moment(s, event):
    rate, mu = mp.mpf(event.rate), mp.mpf(event.mu)

    def integrand(u):
        return mp.npdf(u) * (1 - rate + rate * mp.exp(mu * u - mu * mu / 2)) ** s

    # Short panels near the end, where the phase turns fast.
    far = range(-26, 2 * (math.floor(event.end) - 2))
    near = range(16 * (math.floor(event.end) - 2), math.floor(16 * event.end) + 1)
    ends = [mp.mpf(k) / 2 for k in far] + [mp.mpf(k) / 16 for k in near] + [mp.mpf(event.end)]
    return mp.quad(integrand, ends, maxdegree=3, method="gauss-legendre")


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(
    ("rate", "sigma", "end", "tilt", "omega"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
)
def test_moments_up_to_a_cut_lie_within_their_certificate(rate, sigma, end, tilt, omega, adding):
    event = CutGaussian(rate, 1 / sigma, end, adding)
    rule = panels.certified(event, tilt, omega, 1e-14)
    with mp.workdps(25):
        s = mp.mpf(event.order(tilt))
        at_real, at_complex = moment(s, event), moment(mp.mpc(s, -omega if adding else omega), event)
        change = complex(at_complex / at_real - 1)
        log_moment = mp.log(at_real.real)
    error = rule.contour_error(np.array([omega]))[0, 0]
    assert abs(rule.on_contour(omega, 2)[0, 1] - change) <= error < 1e-10
    assert abs(rule.log_moment[0] - log_moment) <= rule.error[0] < 1e-10
    # A rule for lower frequencies is no rule for this one: without its part for ω the certificate would be wrong.
    coarse = panels._edges(event, event.order(tilt), 0.0, -9.0, end)
    assert coarse is not None
    assert len(coarse) <= rule.losses.shape[1] // panels._NODES + 2


def test_a_quadrature_that_is_too_coarse_says_so():
    """The bound on the error of panels covers what two of them miss that are far too wide for their frequency."""
    event = CutGaussian(1e-3, 1.0, 5.0, False)
    s, omega, edges = event.order(40.0), 6000.0, np.array([3.0, 4.0, 5.0])
    center, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    u = (center[:, None] + half[:, None] * panels._PLACES).ravel()
    weights = (half[:, None] * panels._WEIGHTS).ravel() * np.exp(-u * u / 2) / math.sqrt(2 * math.pi)
    found = weights @ np.exp((s + 1j * omega) * event.loss(u))
    with mp.workdps(25):
        whole, below = (moment(mp.mpc(s, omega), CutGaussian(1e-3, 1.0, end, False)) for end in (5.0, 3.0))
        missed = abs(complex(whole - below) - found)
    assert missed > 1e-9
    assert missed <= panels._panel_errors(event, s, omega, center, half)


def test_the_weights_of_gauss_are_as_good_as_assumed():
    with mp.workdps(40):
        for place, weight in zip(panels._PLACES, panels._WEIGHTS, strict=True):
            n, x = panels._NODES, mp.findroot(lambda t: mp.legendre(panels._NODES, t), mp.mpf(place))
            slope = n * (x * mp.legendre(n, x) - mp.legendre(n - 1, x)) / (x * x - 1)
            assert abs(2 / ((1 - x * x) * slope**2) / weight - 1) < (panels._NODE_ROUNDINGS - 64) * UNIT
            assert abs(x - place) <= 2 * UNIT


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(("rate", "sigma", "end", "tilt", "omega"), CASES)
def test_the_integrand_falls_at_least_as_fast_as_stated(rate, sigma, end, tilt, omega, adding):
    event = CutGaussian(rate, 1 / sigma, end, adding)
    rule = panels.certified(event, tilt, omega, 1e-14)
    fall = panels.natural_fall(event, tilt, float(rule.log_moment[0]), omega)
    steps = 64
    ratio = np.abs(1 + rule.on_contour(omega / steps, steps + 1)[0]) ** 2
    frequencies = omega / steps * np.arange(steps + 1)
    assert fall > 0
    assert np.all(ratio <= 1 - fall * frequencies**2 + 1e-9)
    # It is no far smaller number that says nothing: at low frequencies the fall is that of the variance at most.
    assert fall <= 2 * float(rule.variance()[0]) * (1 + 1e-6)


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "delta"),
    [(1e-3, 0.8, 1000, 1e-6), (2e-4, 1.5, 3000, 1e-9), (1e-2, 0.5, 300, 1e-5), (1e-5, 0.7, 20_000, 1e-8)],
)
def test_a_contour_and_a_grid_agree(rate, sigma, steps, delta, adding):
    coarse = Coarse.of([(rate, 1 / sigma, steps)], adding)
    with np.errstate(all="ignore"):
        guess = coarse.guess(Target(delta=delta))
        one = contour.bounds(coarse, guess, Target(delta=delta))
        other = jumps.bounds(coarse, guess, Target(delta=delta))
    assert one[0] <= other[1]
    assert other[0] <= one[1]
    assert one[1] - one[0] <= 3e-4 * one[1]


def test_the_cut_off_losses_are_part_of_the_answer():
    """A mutant without the far part has an upper end below the lower end of the grid."""
    coarse = Coarse.of([(1e-5, 1 / 0.7, 20_000)], False)
    target = Target(delta=1e-8)
    with np.errstate(all="ignore"):
        guess = coarse.guess(target)
        truth = jumps.bounds(coarse, guess, target)
        made = contour._made(coarse, guess, target, 6e-5)
    assert made.at(truth[0])[1] >= 1e-8 * (1 - 1e-9)
    assert made.near.at(truth[0])[1] < 0.9e-8


@pytest.mark.parametrize("steps", [10**8, 10**10, 10**12])
def test_the_time_and_the_width_do_not_grow_with_the_number_of_steps(steps):
    """At q = 10⁻⁶ the sum is nearly normal: μ² = T q²(e − 1), which the interval is close to but does not contain."""
    found = tight.epsilon(Repeated(PoissonSampled(1e-6, Gaussian(1.0)), steps), 1e-5)
    assert found.width <= 2e-4 * found.upper
    normal = tight.epsilon(Gaussian(1 / (1e-6 * math.sqrt(steps * math.expm1(1.0)))), 1e-5)
    assert found.upper == pytest.approx(normal.upper, rel=5e-3)


def test_two_kinds_of_steps_are_inverted_together():
    coarse = Coarse.of([(1e-4, 1.0, 20_000), (3e-5, 1 / 0.7, 30_000)], False)
    target = Target(epsilon=0.1)
    with np.errstate(all="ignore"):
        guess = coarse.guess(target)
        one, other = contour.bounds(coarse, guess, target), jumps.bounds(coarse, guess, target)
    assert max(one[0], other[0]) <= min(one[1], other[1])
    assert one[1] - one[0] <= 3e-4 * one[1]
