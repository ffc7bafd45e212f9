"""Sums of many parties' noise: prices against sums in many digits, and against the published theorems."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from discreet import events as ev
from discreet.accounting import AdaptiveFilter, delta, epsilon, gdp, pure, rdp, zcdp
from discreet.accounting.prices import aggregation
from discreet.codec import decode, encode
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.guarantees import ApproxDP

REACH = 60


def exact(value):
    """A Fraction in the digits that the caller set."""
    return mp.mpf(Fraction(value).numerator) / Fraction(value).denominator


def skellam_masses(variance):
    """P(k) = e^{−v} I_k(v) for |k| ≤ 60, in the digits that the caller set."""
    each = [mp.exp(-exact(variance)) * mp.besseli(k, exact(variance)) for k in range(REACH + 1)]
    return [each[abs(k)] for k in range(-REACH, REACH + 1)]


def summed_masses(variance, parties):
    """The law of a sum of discrete Gaussians, by adding one party after another."""
    one = [mp.exp(-mp.mpf(k * k) / (2 * exact(variance))) for k in range(-REACH, REACH + 1)]
    one = [mass / mp.fsum(one) for mass in one]
    total = one
    for _ in range(parties - 1):
        size = len(total)
        total = [
            mp.fsum(total[i] * one[k - i + REACH] for i in range(max(0, k - REACH), min(size, k + REACH + 1)))
            for k in range(size)
        ]
    return total


def shifted(masses, by):
    return [masses[i - by] if 0 <= i - by < len(masses) else mp.mpf(0) for i in range(len(masses))]


def true_delta(masses, by, at):
    """δ(ε) between a law and itself, moved."""
    growth = mp.exp(mp.mpf(at))
    return mp.fsum(max(a - growth * b, 0) for a, b in zip(masses, shifted(masses, by), strict=True))


def true_divergence(masses, by, order):
    """D_α between a law and itself, moved."""
    order = mp.mpf(order)
    pairs = zip(masses, shifted(masses, by), strict=True)
    return mp.log(mp.fsum(a**order * b ** (1 - order) for a, b in pairs if a > 0 and b > 0)) / (order - 1)


@pytest.mark.parametrize(("variance", "shift"), [(Fraction(1, 4), 1), (Fraction(2), 1), (Fraction(9), 3)])
def test_one_coordinate_of_skellam_noise_is_priced_exactly(variance, shift):
    event = ev.Skellam(shift * shift, variance)
    with mp.workdps(60):
        masses = skellam_masses(variance)
        for at in (0.1, 1.0, 3.0):
            truth, answer = true_delta(masses, shift, at), delta(event, at)
            assert answer.lower <= truth <= answer.upper
            assert answer.width < 1e-3 * float(truth)


@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(1), Fraction(10), Fraction(50)])
def test_renyi_prices_of_skellam_noise_hold(variance):
    with mp.workdps(60):
        masses = skellam_masses(variance)
        for shift in (1, 2, 5):
            event = ev.Skellam(shift * shift, variance)
            for order in (1.05, 1.25, 2.0, 3.5, 8.0):
                truth = true_divergence(masses, shift, order)
                price = rdp(event, (order,)).epsilons[0]
                assert price >= truth * (1 - 1e-12)
                assert zcdp(event).rho * order >= truth * (1 - 1e-12)


def test_the_zcdp_of_wide_skellam_noise_is_near_that_of_a_gaussian():
    for variance, squared in ((200, 4), (10**4, 100), (10**7, 10**4)):
        rho = zcdp(ev.Skellam(squared, Fraction(variance), coordinates=50)).rho
        assert squared / (2 * variance) < rho < 1.02 * squared / (2 * variance)


def test_nine_tenths_of_the_curvature_would_be_caught():
    with mp.workdps(60):
        truth = true_divergence(skellam_masses(50), 1, 2)
        assert truth > 0.9 * rdp(ev.Skellam(1, Fraction(50)), (2.0,)).epsilons[0]


@pytest.mark.parametrize("variance", [Fraction(1, 100), Fraction(1, 2), Fraction(1), Fraction(3), Fraction(200)])
def test_the_curvature_bounds_every_second_difference(variance):
    with mp.workdps(40):
        largest = mp.mpf(0)
        for k in range(40):
            below, here, above = (mp.log(mp.besseli(abs(k + by), exact(variance))) for by in (-1, 0, 1))
            largest = max(largest, 2 * here - below - above)
        assert largest <= aggregation._curvature(variance) <= largest * 1.5


def test_the_curvature_of_wide_noise_is_near_that_of_a_gaussian():
    for variance in (10**5, 10**6, 10**6 + 1, 10**9, 10**14):
        assert 1 / variance < aggregation._curvature(Fraction(variance)) < (1 + 3 / variance) / variance + 4e-15


def test_skellam_prices_are_below_the_published_theorem():
    # Agarwal, Kairouz & Liu 2021: αΔ₂²/(2v) + min(((2α−1)Δ₂² + 6Δ₁)/(4v²), 3Δ₁/(2v)), with Δ₁ ≤ Δ₂².
    for squared, variance in ((1, 10), (16, 100), (400, 2500)):
        for order in (2, 4, 32):
            extra = min(((2 * order - 1) * squared + 6 * squared) / (4 * variance**2), 3 * squared / (2 * variance))
            published = order * squared / (2 * variance) + extra
            assert rdp(ev.Skellam(squared, Fraction(variance), coordinates=99), (order,)).epsilons[0] <= published


@pytest.mark.parametrize(("variance", "parties"), [(Fraction(1, 2), 3), (Fraction(1, 4), 4), (Fraction(2), 2)])
def test_the_log_density_of_a_sum_has_a_range_of_at_most_tau(variance, parties):
    event = ev.DistributedDiscreteGaussian(1, variance, parties)
    with mp.workdps(60):
        masses = summed_masses(variance, parties)
        total = exact(variance) * parties
        gaps = [mp.log(masses[REACH + k]) + mp.mpf(k * k) / (2 * total) for k in range(-8, 9)]
        spread = max(gaps) - min(gaps)
        assert spread <= aggregation._tau(event)
        # Half of τ would be caught with two parties, where Lemma 1 is sharp.
        if parties == 2:
            assert spread > 0.6 * aggregation._tau(event)
    published = 10 * sum(math.exp(-2 * math.pi**2 * float(variance) * k / (k + 1)) for k in range(1, parties))
    assert aggregation._tau(event) <= published


@pytest.mark.parametrize(("variance", "parties", "shift"), [(Fraction(1, 2), 3, 1), (Fraction(1, 3), 4, 2)])
def test_sums_of_discrete_gaussians_cost_no_less_than_sixty_digits_say(variance, parties, shift):
    event = ev.DistributedDiscreteGaussian(shift * shift, variance, parties)
    with mp.workdps(60):
        masses = summed_masses(variance, parties)
        for at in (0.2, 1.0, 2.5):
            truth, answer = true_delta(masses, shift, at), delta(event, at)
            assert answer.lower <= truth <= answer.upper
        for order in (1.1, 2.0, 9.0):
            truth = true_divergence(masses, shift, order)
            assert rdp(event, (order,)).epsilons[0] >= truth
            assert zcdp(event).rho * order >= truth


def test_shares_of_wide_noise_cost_what_one_party_with_all_of_it_costs():
    shared = ev.DistributedDiscreteGaussian(100, Fraction(25), 40, 0, 3)
    whole = ev.DiscreteGaussian(100, Fraction(1000), 3)
    assert epsilon(shared, 1e-6).upper == pytest.approx(epsilon(whole, 1e-6).upper, rel=1e-9)
    assert zcdp(shared).rho == pytest.approx(zcdp(whole).rho, rel=1e-9)
    one = ev.DistributedDiscreteGaussian(4, Fraction(9), 1)
    assert epsilon(one, 1e-6) == epsilon(ev.DiscreteGaussian(4, Fraction(9)), 1e-6)
    assert zcdp(one) == zcdp(ev.DiscreteGaussian(4, Fraction(9)))
    assert rdp(one, (3.0,)) == rdp(ev.DiscreteGaussian(4, Fraction(9)), (3.0,))


@pytest.mark.parametrize("kind", [ev.DistributedDiscreteGaussian, ev.Skellam])
def test_the_price_is_for_the_noise_that_is_left(kind):
    event = kind(4, Fraction(2), 100, 25)
    assert event.total_variance == 150
    fewer = kind(4, Fraction(2), 75)
    assert epsilon(event, 1e-6) == epsilon(fewer, 1e-6)
    assert rdp(event, (2.0, 7.5)) == rdp(fewer, (2.0, 7.5))
    # A mutant that counts all parties would be a third cheaper in variance.
    assert epsilon(event, 1e-6).lower > epsilon(kind(4, Fraction(2), 100), 1e-6).upper


@pytest.mark.parametrize("coordinates", [1, 4])
@pytest.mark.parametrize("kind", [ev.DistributedDiscreteGaussian, ev.Skellam])
def test_prices_lie_near_that_of_gaussian_noise_of_the_same_variance(kind, coordinates):
    event = kind(4, Fraction(4), 50, 0, coordinates)
    gaussian = epsilon(ev.Gaussian(math.sqrt(50)), 1e-6).upper
    assert epsilon(event, 1e-6).upper == pytest.approx(gaussian, rel=0.02 if coordinates == 1 else 0.1)
    both = epsilon(ev.Composed((event, ev.Gaussian(10.0))), 1e-6).upper
    assert both < epsilon(event, 1e-6).upper + epsilon(ev.Gaussian(10.0), 1e-6).upper
    AdaptiveFilter.start(ApproxDP(2.0, 1e-6)).spend(event)
    assert math.isinf(pure(event).epsilon)
    with pytest.raises(UnknownEvent, match="no μ"):
        gdp(event)
    assert decode(encode(event)) == event


def test_two_coordinates_of_skellam_noise_cost_no_less_than_their_product():
    # A unit that moves two coordinates by 1 each: the outputs' losses add up, over a grid of 81 × 81 outputs.
    k = np.arange(-40, 41)
    p, q = special.ive(np.abs(k), 8.0), special.ive(np.abs(k - 1), 8.0)
    attained = float(np.sum(np.maximum(np.outer(p, p) - math.exp(1.0) * np.outer(q, q), 0.0)))
    assert delta(ev.Skellam(2, Fraction(8), coordinates=2), 1.0).upper >= attained
    # Moved by at most 2 in one coordinate, or by 1 in each: the sensitivity covers both.
    assert delta(ev.Skellam(4, Fraction(8), coordinates=1), 1.0).lower > attained


@pytest.mark.parametrize(
    "change",
    [
        {"parties": 0},
        {"dropouts": 10},
        {"dropouts": -1},
        {"variance": 2.0},
        {"variance": Fraction(0)},
        {"sensitivity_squared": 0},
        {"coordinates": 0},
    ],
)
@pytest.mark.parametrize("kind", [ev.DistributedDiscreteGaussian, ev.Skellam])
def test_bad_sums_are_refused(kind, change):
    with pytest.raises(InvalidArgument):
        replace(kind(1, Fraction(1), 10), **change)


def test_shares_that_are_too_small_are_refused_by_name():
    with pytest.raises(UnknownEvent, match="variance ≥ 1/2"):
        epsilon(ev.DistributedDiscreteGaussian(1, Fraction(1, 1000), 100_000), 1e-6)


@pytest.mark.parametrize("squared", [1, 10**6, 10**14, 10**400], ids=["0", "6", "14", "400"])
@pytest.mark.parametrize("power", [-400, -9, 0, 400])
@pytest.mark.parametrize("kind", [ev.DistributedDiscreteGaussian, ev.Skellam])
def test_extreme_sums_have_valid_prices(kind, squared, power):
    variance = Fraction(10) ** power
    event = kind(squared, variance, 10**9, 0, 3)
    if kind is ev.DistributedDiscreteGaussian and variance < 1:
        with pytest.raises(UnknownEvent):
            epsilon(event, 1e-6)
        return
    answer = epsilon(event, 1e-6)
    assert 0 <= answer.lower <= answer.upper
    assert all(value >= 0 for value in rdp(event, (1.5, 30.0)).epsilons)
    assert zcdp(event).rho > 0
