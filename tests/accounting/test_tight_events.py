"""Tight prices of each kind of event: discrete noise, selections, claims, samples of fixed size, mixtures of them."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting.losses.symmetric import triangle
from discreet.accounting.tight import delta, epsilon
from discreet.errors import UnknownEvent
from discreet.events import (
    Claimed,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Insecure,
    L2Laplace,
    Laplace,
    NoisyMax,
    NonPrivate,
    Parallel,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SampledWithoutReplacement,
    SparseVector,
)
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT
from tests.accounting.truth import gaussian_delta


def sampled(rate, sigma, steps):
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def response(loss, count):
    return Repeated(RandomizedResponse(Fraction(loss)), count)


# --- discrete noise ------------------------------------------------------------------------------------------------


def direct(p, q, at):
    return math.fsum(max(0.0, a - math.exp(at) * b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize(
    ("shift", "variance", "at"), [(1, Fraction(1), 0.8), (3, Fraction(7, 2), 1.5), (2, Fraction(100), 0.1)]
)
def test_discrete_gaussian_is_summed_directly(shift, variance, at):
    span = range(-200, 201)
    weight = [math.exp(-x * x / (2 * float(variance))) for x in span]
    total = math.fsum(weight)
    moved = [math.exp(-((x - shift) ** 2) / (2 * float(variance))) / total for x in span]
    truth = direct([w / total for w in weight], moved, at)
    found = delta(DiscreteGaussian(shift * shift, variance), at)
    assert found.lower <= truth * (1 + 1e-9)
    assert found.upper >= truth * (1 - 1e-9)
    assert found.width <= 1e-6 * found.upper


@pytest.mark.parametrize(("shift", "scale", "at"), [(1, Fraction(1), 0.5), (4, Fraction(3), 0.9)])
def test_discrete_laplace_is_summed_directly(shift, scale, at):
    span = range(-400, 401)
    weight = [math.exp(-abs(x) / float(scale)) for x in span]
    total = math.fsum(weight)
    moved = [math.exp(-abs(x - shift) / float(scale)) / total for x in span]
    truth = direct([w / total for w in weight], moved, at)
    found = delta(DiscreteLaplace(shift, scale), at)
    assert found.lower <= truth * (1 + 1e-9)
    assert found.upper >= truth * (1 - 1e-9)
    assert found.width <= 1e-6 * found.upper


def test_wide_discrete_noise_approaches_its_continuous_limit():
    wide = epsilon(Repeated(DiscreteGaussian(10**12, Fraction(10**14)), 100), 1e-5)
    assert wide.contains(epsilon(Gaussian(1.0), 1e-5).upper)
    assert wide.width < 1e-3
    laplace = epsilon(DiscreteLaplace(10**6, Fraction(10**7)), 1e-5)
    assert laplace.contains(epsilon(Laplace(10.0), 1e-5).upper)


def test_just_below_and_just_above_the_summing_limit_agree():
    summed = epsilon(Repeated(DiscreteGaussian(2600**2, Fraction(2600**2)), 3), 1e-6)
    compared = epsilon(Repeated(DiscreteGaussian(2700**2, Fraction(2700**2)), 3), 1e-6)
    assert summed.lower == pytest.approx(compared.upper, rel=1e-3)


def test_noise_far_below_the_sensitivity_is_refused_by_name():
    with pytest.raises(UnknownEvent, match="DiscreteGaussian"):
        delta(DiscreteGaussian(10**10, Fraction(16)), 5e5)


def test_noise_below_the_sensitivity_costs_what_a_gaussian_costs():
    discrete, smooth = epsilon(DiscreteGaussian(10**10, Fraction(10**4)), 1e-6), epsilon(Gaussian(1e-3), 1e-6)
    assert discrete.contains(smooth.upper)
    assert discrete.width < 1e-3 * discrete.upper


def test_discrete_gaussians_with_several_coordinates_are_bounded():
    one = epsilon(Repeated(DiscreteGaussian(4, Fraction(100), 1), 10), 1e-5)
    many = epsilon(Repeated(DiscreteGaussian(4, Fraction(100), 5), 10), 1e-5)
    assert many.lower >= one.lower * (1 - 1e-6)
    assert many.upper > one.upper
    rho = 10 * 4 / 200
    assert many.upper <= rho + 2 * math.sqrt(rho * math.log(1e5))


# --- other events ------------------------------------------------------------------------------------------------


def test_l2_laplace_with_a_known_shift_is_a_product_of_laplaces():
    known = epsilon(L2Laplace(10.0, shift=(0.06, 0.08)), 1e-3)
    product = epsilon(Composed((Laplace(1 / 0.06), Laplace(1 / 0.08))), 1e-3)
    assert known.lower == pytest.approx(product.lower, rel=1e-9)
    assert known.upper == pytest.approx(product.upper, rel=1e-9)


def test_l2_laplace_is_within_the_theorem_and_above_one_coordinate():
    from discreet.accounting.closed_forms import l2_laplace_epsilon

    found = epsilon(L2Laplace(4.8), 1e-5)
    assert found.upper <= l2_laplace_epsilon(1e-5, 4.8)
    assert found.lower >= epsilon(Laplace(4.8), 1e-5).lower * (1 - 1e-6)
    with_l1 = epsilon(L2Laplace(4.8, l1_noise_multiplier=2.4), 1e-5)
    assert with_l1.upper <= 1 / 2.4


def test_exponential_costs_no_more_than_pure_and_no_less_than_half():
    found = epsilon(Repeated(Exponential(Fraction(1, 10)), 100), 1e-5)
    assert epsilon(response(Fraction(1, 20), 100), 1e-5).lower <= found.upper
    assert found.lower >= epsilon(response(Fraction(1, 20), 100), 1e-5).lower * (1 - 1e-6)
    assert found.upper <= epsilon(response(Fraction(1, 10), 100), 1e-5).upper


def test_the_lower_end_of_a_selection_is_one_that_a_selection_reaches():
    """Permute-and-flip between two candidates: δ(0) = 1 − e^{−ε/2}, not the (e^ε − 1)/(e^ε + 1) of a binary report."""
    found = delta(NoisyMax(Fraction(1)), 0.0)
    assert found.lower == pytest.approx(1 - math.exp(-0.5), rel=1e-6)
    assert found.upper == pytest.approx(math.tanh(0.5), rel=1e-9)
    assert delta(SparseVector(Fraction(1)), 0.0).lower == 0


def test_claims_compose_with_their_failures():
    found = delta(Repeated(Claimed(0.1, 1e-8), 100), 10.0)
    assert found.contains(-math.expm1(100 * math.log1p(-1e-8)))
    assert epsilon(Claimed(0.5, 1e-6), 1e-6 * 0.99).upper == math.inf
    assert epsilon(Claimed(0.5, 1e-6), 1e-5).upper <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("share", [1e-3, 1e-6, 1e-9, 1e-11])
def test_a_claim_that_uses_up_nearly_all_of_delta_leaves_the_lower_end_below_the_truth(share):
    claimed = 1e-5 * (1 - share)
    found = epsilon(Composed((Gaussian(1.0), Claimed(0.0, claimed))), 1e-5)
    with mp.workdps(40):
        # δ = c + (1 − c)δ_G(ε)
        wanted = (mp.mpf(1e-5) - mp.mpf(claimed)) / (1 - mp.mpf(claimed))
        truth = mp.findroot(lambda e: mp.log(gaussian_delta(e, 1) / wanted), (6.0, 9.0), solver="anderson")
    assert found.lower <= truth <= found.upper
    assert found.upper < truth * 1.01


def test_no_finite_epsilon_is_promised_where_claims_alone_exceed_delta():
    event, at = Repeated(Claimed(0.1, 7.774977043991845e-05), 742), 0.05605990400976173
    assert math.isinf(epsilon(event, at).upper)
    assert math.isfinite(epsilon(event, at * (1 + 1e-12)).upper)


def test_a_leak_with_a_small_probability_is_a_delta():
    leak = PoissonSampled(0.1, NonPrivate())
    assert delta(leak, 5.0).contains(0.1)
    assert epsilon(leak, 0.05).lower == math.inf
    assert epsilon(leak, 0.2).upper < math.inf


@pytest.mark.parametrize("event", [NonPrivate(), Insecure(Gaussian(100.0)), Composed((Gaussian(9.0), NonPrivate()))])
def test_no_protection_is_an_infinite_price(event):
    assert epsilon(event, 0.5).lower == math.inf
    assert delta(event, 3.0).lower >= 1 - 1e-9


def test_nothing_costs_nothing():
    for event in (Composed(()), Repeated(NonPrivate(), 0), PoissonSampled(0.0, Gaussian(1.0)), Parallel(())):
        assert epsilon(event, 1e-9).upper == 0.0
        assert delta(event, 0.0).upper == 0.0


def test_parallel_parts_cost_the_worst_of_them():
    parts = (sampled(0.01, 1.0, 100), Laplace(2.0), Gaussian(4.0))
    worst = max(epsilon(part, 1e-5).upper for part in parts)
    assert epsilon(Parallel(parts), 1e-5).upper == pytest.approx(worst, rel=1e-9)
    both = epsilon(Composed((Gaussian(3.0), Parallel((Laplace(2.0), Gaussian(4.0))))), 1e-5)
    singles = [epsilon(Composed((Gaussian(3.0), part)), 1e-5).upper for part in (Laplace(2.0), Gaussian(4.0))]
    assert both.upper == pytest.approx(max(singles), rel=1e-9)


def test_mixtures_of_everything_lie_between_their_parts_and_the_sum():
    parts = (sampled(0.01, 1.0, 500), Repeated(Laplace(10.0), 10), DiscreteLaplace(1, Fraction(10)), Gaussian(5.0))
    found = epsilon(Composed(parts), 1e-5)
    assert found.lower >= max(epsilon(part, 1e-5).lower for part in parts)
    assert found.upper <= sum(epsilon(part, 1e-5 / 4).upper for part in parts)
    assert found.width <= 1e-6 * found.upper


def test_unsampled_events_cost_the_same_under_every_relation():
    for event in (Gaussian(2.0), Repeated(Laplace(3.0), 5), response(Fraction(1, 2), 7)):
        assert len({repr(epsilon(event, 1e-6, relation)) for relation in (ADD_REMOVE, REPLACE_ONE, ZERO_OUT)}) == 1


def test_sampling_under_the_wrong_relation_is_refused_by_name():
    step = PoissonSampled(0.1, Gaussian(1.0))
    assert epsilon(step, 1e-5, ZERO_OUT) == epsilon(step, 1e-5)
    subset = SampledWithoutReplacement(10, 100, Gaussian(1.0))
    for relation in (ADD_REMOVE, ZERO_OUT):
        with pytest.raises(UnknownEvent, match="SampledWithoutReplacement"):
            epsilon(subset, 1e-5, relation)


def test_a_sample_without_a_known_pair_is_refused_by_name():
    with pytest.raises(UnknownEvent, match="DiscreteGaussian"):
        epsilon(PoissonSampled(0.1, DiscreteGaussian(4, Fraction(9), 3)), 1e-5)
    with pytest.raises(UnknownEvent, match="PoissonSampled"):
        epsilon(PoissonSampled(0.1, Composed((Gaussian(1.0), Laplace(1.0)))), 1e-5)


def test_a_subset_of_fixed_size_costs_at_least_a_poisson_sample():
    for leaf in (Gaussian(1.0), Laplace(1.0), RandomizedResponse(Fraction(1))):
        subset = epsilon(Repeated(SampledWithoutReplacement(10, 100, leaf), 20), 1e-5, REPLACE_ONE)
        poisson = epsilon(Repeated(PoissonSampled(0.1, leaf), 20), 1e-5)
        assert subset.lower >= poisson.lower * (1 - 1e-3)
        assert subset.upper < epsilon(Repeated(leaf, 20), 1e-5).upper


def test_one_subset_is_amplified_as_balle_barthe_and_gaboardi_say():
    at, rate = 0.3, 0.1
    inner = math.log1p(math.expm1(at) / rate)
    found = delta(SampledWithoutReplacement(10, 100, Gaussian(1.0)), at, REPLACE_ONE)
    truth = rate * delta(Gaussian(1.0), inner).upper
    assert found.upper == pytest.approx(truth, rel=1e-3)
    assert found.upper >= truth * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "population", "sigma", "at"),
    [(50, 100, 0.5, 20.0), (10, 100, 1.0, 6.5), (10, 100, 1.0, 7.0), (10, 100, 1.0, 8.0), (1, 1000, 2.0, 3.0)],
)
def test_the_tail_beyond_the_grid_of_a_fixed_size_sample_is_counted(size, population, sigma, at):
    event = SampledWithoutReplacement(size, population, Gaussian(sigma))
    with mp.workdps(40):
        rate = mp.mpf(size) / population
        inner = mp.log(1 + mp.expm1(mp.mpf(at)) / rate)
        truth = rate * gaussian_delta(inner, 1 / mp.mpf(sigma))
    found = delta(event, at, REPLACE_ONE)
    assert found.lower <= truth <= found.upper


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.3)])
@pytest.mark.parametrize("total", [0.2, 1.0, 3.0])
def test_one_coordinate_is_the_worst_way_to_spend_an_l1_bound(shares, total):
    spread = L2Laplace(1.0, shift=tuple(total * share for share in shares))
    for at in (0.0, 0.3 * total, 0.7 * total, 0.95 * total):
        assert delta(spread, at).lower <= delta(Laplace(1 / total), at).upper
    for at in (0.0, 0.25, 0.5, 0.9):
        split = Composed((DiscreteLaplace(1, Fraction(3)), DiscreteLaplace(2, Fraction(3))))
        assert delta(split, at).lower <= delta(DiscreteLaplace(3, Fraction(3)), at).upper


def test_the_triangle_attack_on_subsets_is_one_that_gaussian_noise_allows():
    """δ of one step by a fine sum over the plane, for three values at distance 1 from each other and σ = 0.8."""
    rate, mu, at = 0.3, 1.25, 0.4
    axis = np.linspace(-10, 11, 1401)
    x, y = np.meshgrid(axis, axis)

    def density(a, b):
        return np.exp(-0.5 * ((x - a) ** 2 + (y - b) ** 2)) / (2 * np.pi)

    height = mu * math.sqrt(3) / 2
    p = (1 - rate) * density(0, 0) + rate * density(height, mu / 2)
    q = (1 - rate) * density(0, 0) + rate * density(height, -mu / 2)
    truth = float(np.sum(np.maximum(p - math.exp(at) * q, 0))) * (axis[1] - axis[0]) ** 2
    found = triangle(rate, mu).profile(at)
    assert found[0] <= truth * (1 + 1e-9)
    assert found[0] == pytest.approx(truth, rel=1e-3)
    assert truth <= delta(SampledWithoutReplacement(3, 10, Gaussian(0.8)), at, REPLACE_ONE).upper


@pytest.mark.slow
def test_many_subsets_cost_more_than_samples_that_miss_the_replacement():
    many = Repeated(SampledWithoutReplacement(50, 1000, Gaussian(1.0)), 2000)
    found = epsilon(many, 1e-5, REPLACE_ONE)
    poisson = epsilon(Repeated(PoissonSampled(0.05, Gaussian(1.0)), 2000), 1e-5)
    assert found.lower > 1.005 * poisson.upper
    assert found.lower < found.upper
