"""Calibration: the parameter fits the budget, and a slightly better one does not."""

from fractions import Fraction

import pytest

from discreet.accounting._calibrate import calibrate, most_steps
from discreet.accounting.tight import epsilon
from discreet.errors import InvalidArgument
from discreet.events import (
    Claimed,
    Composed,
    Gaussian,
    Laplace,
    NonPrivate,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)
from discreet.guarantees import ApproxDP, PureDP


def training(rate, sigma, steps):
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


@pytest.mark.parametrize(
    ("budget", "sigma"),
    [
        ((1.0, 1e-5), 3.73063163482),
        ((1.0, 1e-6), 4.22467888933),
        ((0.1, 1e-6), 36.3046904262),
        ((1e-3, 1e-9), 4122.62973),
    ],
)
def test_gaussian_noise_is_the_analytic_one(budget, sigma):
    assert calibrate(Gaussian, ApproxDP(*budget), tolerance=1e-9) == pytest.approx(sigma, rel=2e-9)


def test_one_sampled_step_needs_the_noise_of_its_formula():
    found = calibrate(lambda sigma: PoissonSampled(0.01, Gaussian(sigma)), ApproxDP(1.0, 1e-5), tolerance=1e-10)
    assert found == pytest.approx(0.67379289246, abs=1e-9)


@pytest.mark.parametrize("budget", [ApproxDP(2.0, 1e-5), ApproxDP(0.3, 1e-9), ApproxDP(20.0, 1e-3)])
def test_noise_fits_and_a_little_less_does_not(budget):
    sigma = calibrate(lambda s: training(0.01, s, 2000), budget)
    assert epsilon(training(0.01, sigma, 2000), budget.delta).upper <= budget.epsilon
    assert epsilon(training(0.01, sigma * (1 - 1e-5), 2000), budget.delta).lower > budget.epsilon * (1 - 1e-9)


def test_steps_fit_and_one_more_does_not():
    budget = ApproxDP(2.0, 1e-5)
    steps = calibrate(lambda count: training(0.01, 1.0, count), budget, find="steps")
    assert isinstance(steps, int)
    assert epsilon(training(0.01, 1.0, steps), 1e-5).upper <= 2.0
    assert epsilon(training(0.01, 1.0, steps + 1), 1e-5).upper > 2.0


def test_a_rate_fits_and_a_little_more_does_not():
    rate = calibrate(lambda q: training(q, 1.0, 1000), ApproxDP(2.0, 1e-5), find="rate")
    assert epsilon(training(rate, 1.0, 1000), 1e-5).upper <= 2.0
    assert epsilon(training(rate * (1 + 1e-5), 1.0, 1000), 1e-5).upper > 2.0


def test_a_rate_of_one_is_the_most():
    assert calibrate(lambda q: PoissonSampled(q, Gaussian(100.0)), ApproxDP(1.0, 1e-5), find="rate") == 1.0


def test_laplace_noise_is_found_on_the_grid():
    scale = calibrate(lambda b: Repeated(Laplace(b), 20), ApproxDP(1.0, 1e-6), tolerance=1e-4)
    assert epsilon(Repeated(Laplace(scale), 20), 1e-6).upper <= 1.0
    assert epsilon(Repeated(Laplace(scale * 0.999), 20), 1e-6).upper > 1.0


def test_not_even_one_step_is_zero_steps():
    assert most_steps(lambda n: Repeated(RandomizedResponse(Fraction(3)), n), ApproxDP(1.0, 1e-9)) == 0


def test_an_unreachable_budget_is_refused():
    with pytest.raises(InvalidArgument, match="budget"):
        calibrate(lambda _: NonPrivate(), ApproxDP(1.0, 1e-5))
    with pytest.raises(InvalidArgument, match="budget"):
        calibrate(Gaussian, PureDP(1.0))
    with pytest.raises(InvalidArgument, match="delta"):
        calibrate(Gaussian, ApproxDP(1.0, 0.0))
    with pytest.raises(InvalidArgument, match="find"):
        calibrate(Gaussian, ApproxDP(1.0, 1e-5), find="luck")


def test_steps_with_much_noise_are_counted_without_overflow():
    assert most_steps(lambda n: Repeated(Gaussian(1e6), n), ApproxDP(1.0, 1e-6)) == 10**9


def test_a_budget_below_a_claim_is_unreachable_and_says_so():
    with pytest.raises(InvalidArgument, match="budget must be reachable"):
        calibrate(lambda s: Composed((Gaussian(s), Claimed(1.0, 1e-4))), ApproxDP(2.0, 1e-5))
