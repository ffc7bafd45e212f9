"""What a review broke once, each with a truth from 30-digit arithmetic or from direct reasoning."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from discreet import accounting
from discreet.errors import DiscreetError, InvalidArgument, UnknownEvent
from discreet.events import (
    Claimed,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Group,
    L2Laplace,
    Laplace,
    NoisyMax,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    Shuffled,
    SparseVector,
)
from discreet.guarantees import ApproxDP
from discreet.neighbors import REPLACE_ONE


def gaussian_delta(epsilon, mu):
    phi = lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2  # noqa: E731
    return phi(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("size", "population", "sigma", "epsilon"),
    [(50, 100, 0.5, 20.0), (10, 100, 1.0, 6.5), (10, 100, 1.0, 7.0), (10, 100, 1.0, 8.0), (1, 1000, 2.0, 3.0)],
)
def test_what_lies_beyond_the_grid_of_a_fixed_size_sample_is_not_forgotten(size, population, sigma, epsilon):
    event = SampledWithoutReplacement(size, population, Gaussian(sigma))
    with mpmath.workdps(40):
        rate = mpmath.mpf(size) / population
        inner = mpmath.log(1 + mpmath.expm1(mpmath.mpf(epsilon)) / rate)
        truth = rate * gaussian_delta(inner, 1 / mpmath.mpf(sigma))
    found = accounting.delta(event, epsilon, REPLACE_ONE)
    assert found.lower <= truth <= found.upper


@pytest.mark.parametrize("share", [1e-3, 1e-6, 1e-9, 1e-11])
def test_a_claim_that_uses_up_nearly_all_of_delta_leaves_the_lower_end_below_the_truth(share):
    claimed = 1e-5 * (1 - share)
    found = accounting.epsilon(Composed((Gaussian(1.0), Claimed(0.0, claimed))), 1e-5)
    with mpmath.workdps(40):
        # δ = c + (1 − c)δ_G(ε)
        wanted = (mpmath.mpf(1e-5) - mpmath.mpf(claimed)) / (1 - mpmath.mpf(claimed))
        truth = mpmath.findroot(lambda e: mpmath.log(gaussian_delta(e, 1) / wanted), (6.0, 9.0), solver="anderson")
    assert found.lower <= truth <= found.upper
    assert found.upper < truth * 1.01


def test_no_finite_epsilon_is_promised_where_claims_alone_exceed_delta():
    event, at = Repeated(Claimed(0.1, 7.774977043991845e-05), 742), 0.05605990400976173
    assert math.isinf(accounting.epsilon(event, at).upper)
    assert math.isfinite(accounting.epsilon(event, at * (1 + 1e-12)).upper)


def test_the_lower_end_of_a_selection_is_one_that_a_selection_reaches():
    """Permute-and-flip between two candidates: δ(0) = 1 − e^{−ε/2}, not the (e^ε − 1)/(e^ε + 1) of a binary report."""
    found = accounting.delta(NoisyMax(Fraction(1)), 0.0)
    assert found.lower == pytest.approx(1 - math.exp(-0.5), rel=1e-6)
    assert found.upper == pytest.approx(math.tanh(0.5), rel=1e-9)
    assert accounting.delta(SparseVector(Fraction(1)), 0.0).lower == 0


@pytest.mark.parametrize(
    ("event", "epsilon"), [(Gaussian(1e-6), 500008000000.00006), (Repeated(Gaussian(0.05), 10**7), 2000189736.66)]
)
def test_cancellation_does_not_raise_the_lower_end(event, epsilon):
    leaf, count = (event.event, event.count) if isinstance(event, Repeated) else (event, 1)
    with mpmath.workdps(60):
        mu = mpmath.sqrt(count) / mpmath.mpf(leaf.noise_multiplier)
        truth = gaussian_delta(mpmath.mpf(epsilon), mu)
    found = accounting.delta(event, epsilon)
    assert found.lower <= truth <= found.upper


@pytest.mark.parametrize(
    "event",
    [
        Composed((Exponential(Fraction(1, 2)), L2Laplace(3.0))),
        Laplace(1e-4),
        Laplace(1e-9),
        Group(DiscreteLaplace(1000, Fraction(10)), 10**6),
        Repeated(PoissonSampled(0.01, Gaussian(1e-5)), 3),
        Repeated(PoissonSampled(0.01, Gaussian(1e150)), 3),
        Repeated(PoissonSampled(0.01, Gaussian(1e-140)), 3),
        Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10**18),
        DiscreteGaussian(10**10, Fraction(100)),
        DiscreteGaussian(10**10, Fraction(10**4)),
        L2Laplace(math.inf, math.inf),
        Repeated(Laplace(5.0), 10**400),
        RandomizedResponse(Fraction(1), 10**400),
    ],
    ids=lambda e: repr(e)[:50],
)
def test_extreme_numbers_get_an_interval_or_a_clear_refusal(event):
    for ask in (lambda: accounting.epsilon(event, 1e-5), lambda: accounting.delta(event, 1.0)):
        try:
            found = ask()
        except DiscreetError:
            continue
        assert 0 <= found.lower <= found.upper


def test_one_loud_laplace_costs_its_pure_epsilon():
    assert accounting.epsilon(Laplace(1e-4), 1e-5).upper == pytest.approx(1e4, rel=1e-3)


def test_shuffling_reports_that_hide_nothing_is_priced_as_one_report():
    assert accounting.epsilon(Shuffled(100, Claimed(712.0)), 1e-5, REPLACE_ONE).upper <= 712.0 * (1 + 1e-9)
    assert accounting.delta(Shuffled(100, Claimed(800.0)), 1.0, REPLACE_ONE).upper <= 1.0


def test_noise_far_below_the_sensitivity_is_refused_by_name():
    with pytest.raises(UnknownEvent, match="DiscreteGaussian"):
        accounting.delta(DiscreteGaussian(10**10, Fraction(10**4)), 5e5)


def test_quiet_steps_are_counted_without_overflow():
    assert accounting.most_steps(lambda n: Repeated(Gaussian(1e6), n), ApproxDP(1.0, 1e-6)) == 10**9


def test_a_budget_below_a_claim_is_unreachable_and_says_so():
    with pytest.raises(InvalidArgument, match="budget must be reachable"):
        accounting.calibrate(lambda s: Composed((Gaussian(s), Claimed(1.0, 1e-4))), ApproxDP(2.0, 1e-5))
