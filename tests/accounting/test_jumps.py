"""Sampled Gaussians at tiny rates: rare large losses by formula, the rest on a grid, both ends certified."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from discreet.accounting import tight
from discreet.accounting.methods import concentration, jumps
from discreet.accounting.methods.grid import overshoot
from discreet.accounting.methods.target import Target
from discreet.accounting.losses import atoms
from discreet.events import Gaussian, Laplace, PoissonSampled, RandomizedResponse, Repeated


def training(rate, sigma, steps):
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def one_step(epsilon, rate, mu, adding):
    """δ(ε) of one step at any real ε, with mpmath: where P exceeds e^ε Q is a half-line of u."""
    normal = mp.ncdf
    if adding:
        kept = (mp.exp(-epsilon) - (1 - rate)) / rate  # N(0, 1) exceeds e^ε times the mixture below this likelihood ratio
        if kept <= 0:
            return mp.mpf(0)
        u = mp.log(kept) / mu + mu / 2
        return normal(u) - mp.exp(epsilon) * ((1 - rate) * normal(u) + rate * normal(u - mu))
    ratio = (mp.exp(epsilon) - (1 - rate)) / rate
    if ratio <= 0:
        return 1 - mp.exp(epsilon)
    u = mp.log(ratio) / mu + mu / 2
    return (1 - rate) * normal(-u) + rate * normal(mu - u) - mp.exp(epsilon) * normal(-u)


def two_steps(epsilon, rate, mu, adding):
    """δ(ε) of two steps: the mean of one step's δ at ε less the loss of the other."""

    def loss(u):
        return mp.log(1 - rate + rate * mp.exp(mu * u - mu * mu / 2))

    def integrand(u):
        density = mp.npdf(u) if adding else (1 - rate) * mp.npdf(u) + rate * mp.npdf(u, mu)
        rest = epsilon + loss(u) if adding else epsilon - loss(u)
        return density * one_step(rest, rate, mu, adding)

    # The other step's δ has a kink where it begins to lose anything at all.
    return mp.quad(integrand, [-14, -8, *(mp.mpf(k) / 2 for k in range(-12, 30)), 20, 30])


TWO_STEPS = [
    (1.9e-4, 1.04, 0.1463, False),
    (1.9e-4, 1.04, 0.01, False),
    (1e-2, 0.7, 0.5, False),
    (1e-2, 0.7, 0.015, True),
    (0.2, 0.5, 0.3, True),
    (1e-5, 0.4, 2.0, False),
]


@pytest.mark.parametrize(("rate", "sigma", "epsilon", "adding"), TWO_STEPS)
def test_two_steps_contain_a_quadrature_of_forty_digits(rate, sigma, epsilon, adding):
    with mp.workdps(40):
        truth = float(two_steps(mp.mpf(epsilon), mp.mpf(rate), 1 / mp.mpf(sigma), adding))
    low, high = jumps.bounds(
        [(rate, 1 / sigma, 2)], Target(epsilon=epsilon), adding=adding, epsilon=epsilon, delta=truth * 3
    )
    assert low <= truth * (1 + 1e-12)
    assert high >= truth * (1 - 1e-12)
    assert high - low <= 1e-3 * high


WEAK = [
    (1.9e-4, 1.04, 2, 1.5e-15, 0.1463),
    (2.2e-5, 0.873, 9, 1.2e-11, 0.0122),
    (1.36e-5, 0.483, 20349, 8e-4, 0.0255),
    (1.6e-5, 0.678, 741365, 1.4e-11, 1.099),
]


@pytest.mark.parametrize(("rate", "sigma", "steps", "at", "at_most"), WEAK)
def test_corners_that_had_useless_intervals_are_narrow(rate, sigma, steps, at, at_most):
    found = tight.epsilon(training(rate, sigma, steps), at)
    assert found.width <= 1e-3 * found.upper + 1e-6
    assert found.lower <= at_most
    assert found.upper <= at_most * 1.01
    # δ at the ends of ε surrounds the δ asked for, whatever method prices it.
    event = training(rate, sigma, steps)
    assert tight.delta(event, found.upper).lower <= at <= tight.delta(event, found.lower).upper
