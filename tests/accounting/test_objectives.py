"""The price of a perturbed objective against integrals of its loss, and against densities of minimizers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special, stats

from discreet import events as ev
from discreet.accounting import delta, epsilon, gdp, pure, rdp, zcdp
from discreet.accounting.prices.objectives import objective_delta, objective_multiplier
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.neighbors import REPLACE_ONE

CASES = [(1.0, 0.1, 1.0), (0.3, 0.2, 0.1), (0.3, 0.0, 1.0), (2.0, 0.5, 3.0), (1.0, 0.1, 0.3), (0.1, 0.01, 0.5)]


@pytest.mark.parametrize(("mu", "kappa", "at"), CASES)
def test_delta_is_the_integral_of_the_loss(mu, kappa, at):
    def part(z):
        return 2 * stats.norm.pdf(z) * max(0.0, -math.expm1(at - kappa - mu * mu / 2 - mu * z))

    start = max(0.0, (at - kappa - mu * mu / 2) / mu)
    truth = integrate.quad(part, start, start + 40, epsabs=0, epsrel=1e-11, limit=400)[0]
    event = ev.PerturbedObjective(1 / mu, math.expm1(kappa))
    assert objective_delta(at, 1 / mu, math.expm1(kappa)) == pytest.approx(truth, rel=1e-9)
    assert objective_delta(at, 1 / mu, math.expm1(kappa)) >= truth * (1 - 1e-10)
    answer = delta(event, at)
    assert answer.upper <= truth * 1.02
    if at - kappa >= mu * mu / 2:  # below, the convexity of every profile gives a better bound
        assert answer.upper >= truth * (1 - 1e-10)


@pytest.mark.parametrize(("mu", "kappa", "_"), CASES)
def test_renyi_divergences_are_the_moments_of_the_loss(mu, kappa, _):
    event = ev.PerturbedObjective(1 / mu, math.expm1(kappa))
    for order in (1.01, 2.0, 10.0):
        moment = integrate.quad(
            lambda z, a=order: 2 * math.exp(stats.norm.logpdf(z) + (a - 1) * (kappa + mu * z + mu * mu / 2)),
            0,
            (order - 1) * mu + 20,
            limit=400,
        )[0]
        bound = rdp(event, (order,)).epsilons[0]
        assert bound == pytest.approx(math.log(moment) / (order - 1), rel=1e-6)
        assert bound <= zcdp(event).rho * order
    assert zcdp(event).rho == pytest.approx(rdp(event, (1 + 1e-6,)).epsilons[0], rel=1e-4)


@pytest.mark.parametrize(
    ("features", "new", "regularization", "sigma"),
    [([], 1.0, 0.5, 2.0), ([1, -0.7], 1.0, 1, 1), ([], 1.0, 0.5, 50.0)],
)
def test_no_minimizer_of_a_logistic_loss_loses_more(features, new, regularization, sigma):
    """In one dimension the density of the minimizer is known: the claim is tested against it, in both directions.

    Mutants that fail: no term for the volume (κ = 0; seen in the last case), and half the gradient.
    """
    theta = np.linspace(-1, 1, 60_001) * 10 * (sigma + 3) / regularization

    def density(rows):
        linear = regularization * theta - sum(x * special.expit(-x * theta) for x in rows)
        slope = regularization + sum(x * x * special.expit(x * theta) * special.expit(-x * theta) for x in rows)
        return stats.norm.pdf(-linear, scale=sigma) * slope

    p, q = density([*features, new]), density(features)
    step = theta[1] - theta[0]
    assert np.sum(p) * step == pytest.approx(1, abs=1e-6)
    event = ev.PerturbedObjective(sigma / 1.0, 0.25 / regularization)
    for at in (0.0, 0.2, 1.0):
        bound = delta(event, at).upper
        for one, two in ((p, q), (q, p)):
            truth = float(np.sum(np.maximum(one - math.exp(at) * two, 0)) * step)
            assert truth <= bound + 1e-9
    order = 3.0
    for one, two in ((p, q), (q, p)):
        inside = (one > 1e-200) & (two > 1e-200)
        powers = order * np.log(one[inside]) + (1 - order) * np.log(two[inside])
        moment = float(np.sum(np.exp(powers)) * step)
        assert math.log(moment) / (order - 1) <= rdp(event, (order,)).epsilons[0]


def test_the_multiplier_is_the_least_that_fits():
    multiplier = objective_multiplier(0.9, 1e-6, 0.1)
    assert objective_delta(0.9, multiplier, 0.1) <= 1e-6 < objective_delta(0.9, multiplier * (1 - 1e-9), 0.1)
    assert epsilon(ev.PerturbedObjective(multiplier, 0.1), 1e-6).upper == pytest.approx(0.9, rel=1e-3)
    with pytest.raises(InvalidArgument, match="reachable"):
        objective_multiplier(0.05, 1e-6, 0.1)  # ln(1.1) > 0.05: no noise lowers the volume's change


def test_it_composes_and_fails_closed_elsewhere():
    event = ev.PerturbedObjective(5.0, 0.1)
    both = epsilon(ev.Composed((event, ev.Gaussian(50.0))), 1e-6)
    assert epsilon(event, 1e-6).upper < both.upper < epsilon(event, 1e-6).upper + epsilon(ev.Gaussian(50.0), 1e-7).upper
    assert pure(event).epsilon == math.inf
    assert pure(ev.PerturbedObjective(math.inf, 0.0)).epsilon == 0
    assert delta(ev.PerturbedObjective(math.inf, 0.0), 0.0).upper == 0
    for ask in (
        lambda: gdp(event),
        lambda: epsilon(event, 1e-6, REPLACE_ONE),
        lambda: zcdp(event, REPLACE_ONE),
        lambda: rdp(event, (2.0,), REPLACE_ONE),
        lambda: pure(event, REPLACE_ONE),
        lambda: epsilon(ev.PoissonSampled(0.1, event), 1e-6),
        lambda: epsilon(ev.Group(event, 2), 1e-6),
    ):
        with pytest.raises(UnknownEvent):
            ask()


@pytest.mark.parametrize("bad", [(0, 1), (-1, 1), (math.nan, 1), (1, -1), (1, math.inf), (1, "1"), (True, 1)])
def test_bad_numbers_are_refused(bad):
    with pytest.raises(InvalidArgument):
        ev.PerturbedObjective(*bad)


@pytest.mark.parametrize(("multiplier", "curvature"), [(1e-6, 1e6), (1e9, 1e-12), (1e-150, 0), (1e150, 1e150)])
def test_extremes_have_a_price(multiplier, curvature):
    event = ev.PerturbedObjective(multiplier, curvature)
    assert epsilon(event, 1e-6).upper >= 0
    assert delta(event, 1.0).upper <= 1
    assert zcdp(event).rho >= 0
    assert min(rdp(event, (1.5, 1000.0)).epsilons) >= 0
