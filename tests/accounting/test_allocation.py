"""Random allocation is priced from both sides, in agreement with integrals, published numbers and its neighbors."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from discreet import accounting
from discreet import events as ev
from discreet.accounting.losses import averages
from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift
from discreet.accounting.prices.allocation import _toward_average
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT


def exact_two_steps(sigma: float, epsilon: float, *, adding: bool) -> mp.mpf:
    """δ of one batch of two, by an integral over the first step: the second has a threshold in closed form."""
    with mp.workdps(20):
        mu, gamma = 1 / mp.mpf(sigma), mp.e ** mp.mpf(epsilon)

        def inner(x: mp.mpf) -> mp.mpf:
            # With Y₁ = e^{μx − μ²/2}: Z ≥ γ (Z ≤ 1/γ) means Y₂ ≥ 2γ − Y₁ (Y₂ ≤ 2/γ − Y₁).
            first = mp.e ** (mu * x - mu**2 / 2)
            if adding:
                rest = 2 / gamma - first
                if rest <= 0:
                    return mp.mpf(0)
                at = (mp.log(rest) + mu**2 / 2) / mu
                return mp.ncdf(at) * (1 - gamma * first / 2) - gamma / 2 * mp.ncdf(at - mu)
            rest = 2 * gamma - first
            if rest <= 0:
                return first / 2 + mp.mpf(1) / 2 - gamma
            at = (mp.log(rest) + mu**2 / 2) / mu
            return mp.ncdf(-at) * (first / 2 - gamma) + mp.ncdf(mu - at) / 2

        bound = 2 / gamma if adding else 2 * gamma
        kink = (mp.log(bound) + mu**2 / 2) / mu
        return mp.quad(lambda x: mp.npdf(x) * inner(x), [-12, kink - 1, kink, kink + 1, 14], maxdegree=6)


@pytest.mark.parametrize(("sigma", "epsilon"), [(0.5, 0.3), (1.0, 0.0), (1.0, 1.5), (3.0, 0.3)])
def test_one_batch_of_two_is_an_integral(sigma, epsilon):
    truth = max(exact_two_steps(sigma, epsilon, adding=adding) for adding in (False, True))
    found = accounting.delta(ev.RandomlyAllocated(2, 1, ev.Gaussian(sigma)), epsilon)
    assert found.lower <= truth <= found.upper
    assert found.upper - found.lower < 0.02 * found.upper + 1e-15


def exact_three_reports(epsilon: Fraction, steps: int, asked: float) -> float:
    """δ of randomized response on one batch of `steps`, by enumeration of all outcomes."""
    truth, lie = 1 / (1 + mp.e ** (-epsilon)), 1 / (1 + mp.e**epsilon)
    high, low = truth / lie, lie / truth
    remove = add = mp.mpf(0)
    for ones in range(steps + 1):
        q = mp.binomial(steps, ones) * lie**ones * truth ** (steps - ones)
        z = (ones * high + (steps - ones) * low) / steps
        remove += q * max(z - mp.e**asked, 0)
        add += q * max(1 - mp.e**asked * z, 0)
    return max(remove, add)


@pytest.mark.parametrize("steps", [3, 20])
def test_reports_are_enumerated(steps):
    for asked in (0.1,):
        truth = exact_three_reports(mp.mpf(1), steps, asked)
        found = accounting.delta(ev.RandomlyAllocated(steps, 1, ev.RandomizedResponse(Fraction(1))), asked)
        assert found.lower <= truth <= found.upper
        assert found.upper - found.lower < 0.02 * found.upper


@pytest.mark.parametrize(("steps", "selected"), [(3, 2), (4, 2), (5, 3)])
def test_several_batches_are_covered_by_their_blocks(steps, selected):
    """The exact δ of reports on `selected` of `steps` batches, by enumeration of outcomes and of sets of batches."""
    truth, lie = math.e / (1 + math.e), 1 / (1 + math.e)
    event = ev.RandomlyAllocated(steps, selected, ev.RandomizedResponse(Fraction(1)))
    for asked in (0.3, 1.0, 1.8):
        exact = 0.0
        for ones in range(steps + 1):
            outcome = [True] * ones + [False] * (steps - ones)
            q = math.comb(steps, ones) * lie**ones * truth ** (steps - ones)
            sets = list(itertools.combinations(outcome, selected))
            z = sum(math.exp(sum(1 if one else -1 for one in chosen)) for chosen in sets) / len(sets)
            exact += q * max(z - math.exp(asked), 0.0)
        found = accounting.delta(event, asked)
        assert exact <= found.upper * (1 + 1e-9)
        assert found.lower <= exact * (1 + 1e-9)


def test_the_bounds_hold_against_simulation():
    """δ of removal at σ = 1 and 100 steps, from 2e5 samples of Z under P; false alarm 1e-9 by Bernstein's bound.

    Its power: bounds that are off by 10% of δ are refuted.
    """
    steps, samples = 100, 200_000
    base = ContinuousLoss(GaussianShift(1.0))
    above, below = (
        averages.average(base, steps, upper=upper).loss(adding=False, upper=upper) for upper in (True, False)
    )
    generator = np.random.default_rng(5)
    total = np.exp(generator.standard_normal(samples) + 0.5)  # the step that counts
    for _ in range(steps - 1):
        total += np.exp(generator.standard_normal(samples) - 0.5)
    for epsilon in (0.02, 0.1):
        gain = np.maximum(1 - math.exp(epsilon) * steps / total, 0.0)
        mean, spread = float(gain.mean()), 6.5 * float(gain.std()) / math.sqrt(samples) + 22 / samples
        least, most = (float(np.sum(np.maximum(law.p - math.exp(epsilon) * law.q, 0.0))) for law in (below, above))
        assert spread < 0.1 * mean
        assert mean - spread <= most
        assert least <= mean + spread
        assert least <= most < least * 1.003


@pytest.mark.parametrize("steps", [10, 100])
def test_the_interval_is_narrow_and_an_epoch_costs_about_what_its_poisson_steps_cost(steps):
    allocated = accounting.epsilon(ev.RandomlyAllocated(steps, 1, ev.Gaussian(1.0)), 1e-6)
    poisson = accounting.epsilon(ev.Repeated(ev.PoissonSampled(1 / steps, ev.Gaussian(1.0)), steps), 1e-6)
    assert allocated.upper - allocated.lower < 2e-3 * allocated.upper
    assert allocated.upper < 1.1 * poisson.upper


def test_one_step_and_all_steps_are_the_event_itself():
    for event, plain in (
        (ev.RandomlyAllocated(1, 1, ev.Gaussian(2.0)), ev.Gaussian(2.0)),
        (ev.RandomlyAllocated(5, 5, ev.Laplace(2.0)), ev.Repeated(ev.Laplace(2.0), 5)),
    ):
        allocated, known = accounting.epsilon(event, 1e-5), accounting.epsilon(plain, 1e-5)
        assert allocated.upper == pytest.approx(known.upper, rel=1e-6)
        assert accounting.rdp(event, (2.0, 5.0)) == accounting.rdp(plain, (2.0, 5.0))


def test_an_epoch_never_costs_more_than_its_event_on_a_known_batch():
    for inner, selected in ((ev.Gaussian(1.0), 2), (ev.Laplace(1.0), 1)):
        event, known = ev.RandomlyAllocated(7, selected, inner), ev.Repeated(inner, selected)
        assert accounting.delta(event, 0.5).upper < accounting.delta(known, 0.5).upper
        orders = (1.5, 2.0, 7.0, 300.0)
        assert np.all(np.array(accounting.rdp(event, orders).epsilons) <= accounting.rdp(known, orders).epsilons)
        assert accounting.pure(event) == accounting.pure(known)
        assert accounting.zcdp(event) == accounting.zcdp(known)


def test_epochs_compose_with_everything_else():
    epoch = ev.RandomlyAllocated(50, 1, ev.Gaussian(1.5))
    ten = accounting.epsilon(ev.Repeated(epoch, 10), 1e-6)
    assert ten.upper - ten.lower < 2e-3 * ten.upper
    mixed = accounting.epsilon(ev.Composed((ev.Repeated(epoch, 10), ev.Gaussian(3.0))), 1e-6)
    assert mixed.upper - mixed.lower < 2e-3 * mixed.upper
    assert mixed.lower > ten.upper


def test_renyi_divergences_bound_what_they_should():
    """Order 2 of removal is (e^{μ²} − 1)/t in closed form; that of addition is bounded by the same, and not by less."""
    steps, mu = 40, 0.8
    found = np.array(accounting.rdp(ev.RandomlyAllocated(steps, 1, ev.Gaussian(1 / mu)), (2.0, 3.0)).epsilons)
    second = math.log1p(math.expm1(mu**2) / steps)
    third = math.log1p(3 * math.expm1(mu**2) / steps + (math.expm1(3 * mu**2) - 3 * math.expm1(mu**2)) / steps**2) / 2
    assert found[0] == pytest.approx(second, rel=1e-9)
    assert found[1] == pytest.approx(third, rel=1e-9)
    assert np.all(found >= np.array([second, third]) * (1 - 1e-12))


@pytest.mark.parametrize("power", [0.5, 2.0, 6.0])
def test_the_added_direction_has_its_own_moments(power):
    """E[Z^{−s}] for two steps, by Gauss-Hermite quadrature, which is good to 12 digits here."""
    base = ContinuousLoss(GaussianShift(0.8))
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    ratio = np.exp(0.8 * nodes - 0.32)
    weights = weights / weights.sum()
    truth = math.log(float(weights @ ((ratio[:, None] + ratio[None, :]) / 2) ** -power @ weights))
    found = _toward_average(averages.average(base, 2, upper=True), base, power)
    assert truth * (1 - 1e-11) <= found < truth * 1.002


def test_relations_without_a_gain_pay_for_known_batches():
    event = ev.RandomlyAllocated(20, 2, ev.Gaussian(2.0))
    known = accounting.epsilon(ev.Repeated(ev.Gaussian(2.0), 2), 1e-6, REPLACE_ONE)
    replaced = accounting.epsilon(event, 1e-6, REPLACE_ONE)
    assert replaced.upper == pytest.approx(known.upper)
    assert replaced.lower == 0.0
    assert accounting.epsilon(event, 1e-6, ZERO_OUT) == accounting.epsilon(event, 1e-6, ADD_REMOVE)


def test_extreme_noise_has_a_price():
    for inner, steps in ((ev.Gaussian(0.05), 3), (ev.Gaussian(0.2), 5), (ev.Gaussian(1e6), 10), (ev.Laplace(0.01), 5)):
        found = accounting.epsilon(ev.RandomlyAllocated(steps, 1, inner), 1e-6)
        assert found.upper <= accounting.epsilon(inner, 1e-6).upper * (1 + 1e-9)
    assert accounting.epsilon(ev.RandomlyAllocated(5, 1, ev.Gaussian(math.inf)), 1e-6).upper == 0.0


def test_what_has_no_theorem_is_refused():
    for inner in (ev.PoissonSampled(0.1, ev.Gaussian(1.0)), ev.Claimed(1.0, 1e-6), ev.NonPrivate()):
        with pytest.raises(UnknownEvent):
            accounting.epsilon(ev.RandomlyAllocated(10, 1, inner), 1e-5)
    with pytest.raises(InvalidArgument):
        ev.RandomlyAllocated(10, 11, ev.Gaussian(1.0))


@pytest.mark.parametrize("upper", [True, False])
def test_a_law_keeps_its_mean_and_moves_its_variance_the_right_way(upper):
    mu, steps = 0.7, 37
    law = averages.average(ContinuousLoss(GaussianShift(mu)), steps, upper=upper)
    true = steps * math.expm1(mu**2)
    assert float(law.masses @ law.values) == pytest.approx(steps, rel=1e-9)
    assert (law.variance >= true) == upper
    assert law.variance == pytest.approx(true, rel=2e-3)
