"""Tight prices: every published value inside the interval, every known failure of others avoided."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import pytest

from discreet.accounting.tight import delta, epsilon
from discreet.errors import InvalidArgument, UnknownEvent
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


def sampled(rate, sigma, steps):
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def response(loss, count):
    return Repeated(RandomizedResponse(Fraction(loss)), count)


PUBLISHED = [
    (Gaussian(1.0), 1e-5, 4.377178095681, 1e-12),
    (Gaussian(1.0), 1e-30, 11.743883025231, 1e-12),
    (Gaussian(3.73063163482), 1e-5, 1.0, 1e-11),
    (Gaussian(4.22467888933), 1e-6, 1.0, 1e-11),
    (Gaussian(36.3046904262), 1e-6, 0.1, 1e-11),
    (Gaussian(4122.62973), 1e-9, 1e-3, 1e-8),
    (response(Fraction(1, 10), 100), 1e-5, 4.306791372517, 1e-12),
    (response(Fraction(1, 10), 100), 1e-6, 4.774567588108, 1e-12),
    (response(math.log(3), 10), 1e-6, 10.986105129, 1e-9),
    (sampled(0.01, 4.0, 10_000), 1e-5, 0.9468668, 1e-7),
    (sampled(0.01, 4.0, 40_000), 1e-5, 2.0330653, 1e-7),
    (sampled(0.01, 1.0, 10_000), 1e-5, 6.1877124, 1e-7),
    (sampled(0.01, 1.0, 1_000), 1e-5, 1.82824, 1e-5),
    (sampled(0.01, 1.0, 100_000), 1e-5, 25.5731, 1e-4),
    (sampled(0.01, 1.0, 1_000_000), 1e-5, 139.030273, 1e-6),
    (sampled(0.04, 1.5, 2250), 1e-5, 6.7687804, 1e-7),
    (sampled(0.05, 1.5, 1000), 1e-6, 6.1996917, 1e-7),
    (sampled(0.001, 0.8, 1000), 1e-6, 0.468, 5e-4),
    (Repeated(PoissonSampled(0.1, Gaussian(1.0)), 100), 1e-5, 7.05, 5e-3),
    (sampled(1.0, 100.0, 10_000), 1e-10, 6.547924, 1e-6),
    (sampled(1.0, 100.0, 10_000), 1e-12, 7.23849, 1e-5),
    (sampled(1.0, 100.0, 10_000), 1e-14, 7.8687, 1e-4),
    (response(math.log(3), 100), 1e-6, 94.29, 5e-3),
]


@pytest.mark.parametrize(("event", "at", "value", "digits"), PUBLISHED)
def test_published_values_lie_inside_the_interval(event, at, value, digits):
    found = epsilon(event, at)
    assert found.lower <= value + digits
    assert found.upper >= value - digits
    assert found.width <= 1e-3 * found.upper


@pytest.mark.parametrize(("event", "at", "value", "digits"), PUBLISHED)
def test_one_percent_less_noise_is_seen(event, at, value, digits):
    leaf = event
    while isinstance(leaf, Repeated | PoissonSampled):
        leaf = leaf.event
    if not isinstance(leaf, Gaussian):
        pytest.skip("this one has no noise multiplier")

    def thinner(part):
        match part:
            case Gaussian(multiplier):
                return Gaussian(0.99 * multiplier)
            case Repeated(inner, count):
                return Repeated(thinner(inner), count)
            case PoissonSampled(rate, inner):
                return PoissonSampled(rate, thinner(inner))

    assert epsilon(thinner(event), at).lower > epsilon(event, at).upper


def test_the_two_directions_have_their_own_prices():
    from discreet.accounting import tight
    from discreet.accounting.losses.collapse import collapse
    from discreet.accounting.methods.target import Target

    (way,) = collapse(sampled(0.01, 1.0, 10_000))
    remove = tight._direction(way, Target(delta=1e-5), ADD_REMOVE, False)
    add = tight._direction(way, Target(delta=1e-5), ADD_REMOVE, True)
    assert remove[0] == pytest.approx(6.18771, abs=1e-5)
    assert add[0] == pytest.approx(5.61151, abs=1e-5)


def test_adding_may_cost_more_than_removing_and_is_not_forgotten():
    """Two sampled reports, ε = 1: enumerated by hand over the four outcomes, in both orders."""
    truth, rate = math.exp(3) / (1 + math.exp(3)), 0.9
    p, q = (truth, 1 - truth), (1 - truth, truth)
    mixed = [(1 - rate) * b + rate * a for a, b in zip(p, q, strict=True)]

    def stick(one, other):
        pairs = itertools.product(range(2), repeat=2)
        return sum(max(0.0, one[i] * one[j] - math.e * other[i] * other[j]) for i, j in pairs)

    remove, add = stick(mixed, q), stick(q, mixed)
    assert add > 1.1 * remove
    found = delta(Repeated(PoissonSampled(0.9, RandomizedResponse(Fraction(3))), 2), 1.0)
    assert found.contains(add)
    assert found.width < 1e-6


def test_gaussian_delta_is_the_closed_form():
    for multiplier, at in [(1.0, 1.0), (0.3, 5.0), (50.0, 1e-4), (5000.0, 4e-4), (2.0, 9.0)]:
        with mp.workdps(40):
            mu = 1 / mp.mpf(multiplier)
            truth = mp.ncdf(mu / 2 - at / mu) - mp.exp(mp.mpf(at)) * mp.ncdf(-mu / 2 - at / mu)
            found = delta(Gaussian(multiplier), at)
            assert mp.mpf(found.lower) <= truth <= mp.mpf(found.upper)
        assert found.width <= 1e-8 * found.upper


def mpf(value):
    """A number with many digits; mpmath 1.3 takes no fractions."""
    exact = Fraction(value)
    return mp.mpf(exact.numerator) / exact.denominator


def pure_composition(at, loss, count):
    with mp.workdps(60):
        loss, at = mpf(loss), mpf(at)
        total = mp.mpf(0)
        for flips in range(count + 1):
            gap = mp.exp((count - flips) * loss) - mp.exp(at + flips * loss)
            total += mp.binomial(count, flips) * max(gap, 0)
        return total / (1 + mp.exp(loss)) ** count


@pytest.mark.parametrize(("loss", "count", "at"), [(0.1, 100, 4.0), (1.0, 10, 5.0), (0.02, 1000, 3.0), (3.0, 3, 8.5)])
def test_pure_mechanisms_compose_as_kairouz_says(loss, count, at):
    truth = pure_composition(at, Fraction(loss), count)
    for make in (RandomizedResponse, NoisyMax, SparseVector, lambda e: Claimed(float(e))):
        found = delta(Repeated(make(Fraction(loss)), count), at)
        assert found.contains(float(truth))
        assert found.upper == pytest.approx(float(truth), rel=1e-5)
        if make not in (NoisyMax, SparseVector):  # those need not reach what pure DP allows
            assert found.width <= 1e-5 * found.upper


def test_tiny_delta_keeps_its_digits_on_the_grid():
    at = epsilon(response(Fraction(1, 10), 1000), 1e-30)
    assert pure_composition(at.lower, Fraction(1, 10), 1000) >= mp.mpf("1e-30") * (1 - mp.mpf("1e-9"))
    assert pure_composition(at.upper, Fraction(1, 10), 1000) <= mp.mpf("1e-30") * (1 + mp.mpf("1e-9"))
    assert at.width < 1e-6


def laplace_delta(at, loss):
    """δ of one Laplace at any real ε."""
    if at >= loss:
        return mp.mpf(0)
    return 1 - mp.exp((at - loss) / 2) if at > -loss else 1 - mp.exp(at)


@pytest.mark.parametrize(("loss", "at"), [(1.0, 1.5), (0.1, 0.05), (0.5, 0.9), (3.0, 2.0)])
def test_two_laplaces_against_direct_integration(loss, at):
    with mp.workdps(30):
        loss, at = mpf(loss), mpf(at)
        density = mp.quad(
            lambda x: mp.exp((x - loss) / 2) / 4 * laplace_delta(at - x, loss),
            sorted({-loss, max(-loss, at - loss), min(loss, at + loss), loss}),
        )
        truth = density + laplace_delta(at - loss, loss) / 2 + mp.exp(-loss) / 2 * laplace_delta(at + loss, loss)
    found = delta(Repeated(Laplace(1 / float(loss)), 2), float(at))
    assert found.contains(float(truth))
    assert found.width <= 1e-3 * found.upper


def test_laplace_times_a_hundred_is_below_the_known_bound():
    found = epsilon(Repeated(Laplace(10.0), 100), 1e-5)
    assert found.upper == pytest.approx(4.220347, abs=1e-5)
    assert found.width < 1e-5


def gaussian_delta(at, mu):
    return mp.ncdf(mu / 2 - at / mu) - mp.exp(at) * mp.ncdf(-mu / 2 - at / mu)


@pytest.mark.parametrize(("rate", "sigma", "at"), [(0.2, 0.5, 1.0), (0.01, 1.0, 0.2), (0.5, 2.0, 0.3), (0.3, 0.3, 4.0)])
def test_two_sampled_gaussians_against_direct_integration(rate, sigma, at):
    with mp.workdps(25):
        q, mu = mp.mpf(rate), 1 / mp.mpf(sigma)

        def loss(u):
            return mp.log(1 - q + q * mp.exp(mu * u - mu * mu / 2))

        def removed(eps):
            if mp.exp(eps) <= 1 - q:
                return 1 - mp.exp(eps)
            return q * gaussian_delta(mp.log((mp.exp(eps) - 1 + q) / q), mu)

        def added(eps):
            left = 1 - mp.exp(eps) * (1 - q)
            return left * gaussian_delta(mp.log(mp.exp(eps) * q / left), mu) if left > 0 else mp.mpf(0)

        points = list(range(-12, int(20 + 2 * mu)))
        remove = mp.quad(
            lambda u: ((1 - q) * mp.npdf(u) + q * mp.npdf(u - mu)) * removed(at - loss(u)), points, maxdegree=8
        )
        add = mp.quad(lambda u: mp.npdf(u) * added(at + loss(u)), points, maxdegree=8)
    truth = float(max(remove, add))
    found = delta(sampled(rate, sigma, 2), at)
    assert found.lower <= truth * (1 + 1e-8)
    assert found.upper >= truth * (1 - 1e-8)
    assert found.width <= 1e-3 * found.upper


def test_one_sampled_step_is_its_formula():
    with mp.workdps(40):
        mu, q = 1 / mp.mpf("0.67379289246030105"), mp.mpf(0.01)
        truth = q * gaussian_delta(mp.log(1 + (mp.e - 1) / q), mu)
    found = delta(PoissonSampled(0.01, Gaussian(0.67379289246030105)), 1.0)
    assert mp.mpf(found.lower) <= truth <= mp.mpf(found.upper)
    assert found.contains(1e-5)


def test_three_sampled_gaussians_have_the_published_delta():
    assert delta(sampled(0.2, 0.5, 3), 1.0).lower == pytest.approx(0.15594, abs=2e-5)


@pytest.mark.parametrize(
    ("event", "at"),
    [
        (sampled(0.01, 1.0, 10_000_000), 1e-5),
        (sampled(1e-6, 1.0, 10_000), 1e-8),
        (sampled(0.1, 0.3, 1000), 1e-5),
        (sampled(0.01, 1.0, 10_000), 1e-30),
        (sampled(0.001, 30.0, 100), 1e-5),
        (Repeated(Laplace(10.0), 100), 1e-30),
        (sampled(0.5, 100.0, 1_000_000), 1e-15),
    ],
)
def test_extremes_stay_finite_ordered_and_consistent(event, at):
    found = epsilon(event, at)
    assert 0 <= found.lower <= found.upper < math.inf
    assert delta(event, found.upper).lower <= at * (1 + 1e-6)
    if found.lower > 0:
        assert delta(event, found.lower).upper >= at * (1 - 1e-6)


def test_there_is_no_jump_between_neighboring_deltas():
    """prv_accountant jumps from .156 to 3.9 between these two."""
    one, other = (epsilon(sampled(0.001, 10.0, 100), at).upper for at in (1.1e-18, 1.13e-18))
    assert other <= one <= 1.01 * other


def test_epsilon_grows_with_steps_and_falls_with_delta():
    steps = [epsilon(sampled(0.02, 1.2, count), 1e-6).upper for count in (10, 100, 1000, 10_000)]
    assert steps == sorted(steps)
    deltas = [epsilon(sampled(0.02, 1.2, 500), 10.0**-k).upper for k in range(2, 20, 3)]
    assert deltas == sorted(deltas)


def test_a_small_epsilon_takes_little_memory():
    import tracemalloc

    tracemalloc.start()
    epsilon(sampled(0.001, 5.0, 2), 1e-6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6


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


def test_discrete_gaussians_with_several_coordinates_are_bounded():
    one = epsilon(Repeated(DiscreteGaussian(4, Fraction(100), 1), 10), 1e-5)
    many = epsilon(Repeated(DiscreteGaussian(4, Fraction(100), 5), 10), 1e-5)
    assert many.lower >= one.lower * (1 - 1e-6)
    assert many.upper > one.upper
    rho = 10 * 4 / 200
    assert many.upper <= rho + 2 * math.sqrt(rho * math.log(1e5))


# --- everything else ------------------------------------------------------------------------------------------------


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


def test_claims_compose_with_their_failures():
    found = delta(Repeated(Claimed(0.1, 1e-8), 100), 10.0)
    assert found.contains(-math.expm1(100 * math.log1p(-1e-8)))
    assert epsilon(Claimed(0.5, 1e-6), 1e-6 * 0.99).upper == math.inf
    assert epsilon(Claimed(0.5, 1e-6), 1e-5).upper <= 0.5 * (1 + 1e-9)


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
    with pytest.raises(UnknownEvent, match="PoissonSampled"):
        epsilon(Repeated(step, 10), 1e-5, REPLACE_ONE)
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


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-5, math.nan, math.inf, "1e-5", None, True])
def test_a_delta_outside_of_zero_to_one_is_refused(bad):
    with pytest.raises(InvalidArgument, match="delta"):
        epsilon(Gaussian(1.0), bad)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1", None])
def test_an_epsilon_that_is_no_number_is_refused(bad):
    with pytest.raises(InvalidArgument, match="epsilon"):
        delta(Gaussian(1.0), bad)


def test_what_is_not_an_event_is_refused():
    with pytest.raises(InvalidArgument, match="event"):
        epsilon(1.0, 1e-5)
    with pytest.raises(InvalidArgument, match="relation"):
        epsilon(Gaussian(1.0), 1e-5, "neighbors")


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.4, 0.3, 0.3)])
@pytest.mark.parametrize("total", [0.2, 1.0, 3.0])
def test_one_coordinate_is_the_worst_way_to_spend_an_l1_bound(shares, total):
    spread = L2Laplace(1.0, shift=tuple(total * share for share in shares))
    for at in (0.0, 0.3 * total, 0.7 * total, 0.95 * total):
        assert delta(spread, at).lower <= delta(Laplace(1 / total), at).upper
    for at in (0.0, 0.25, 0.5, 0.9):
        split = Composed((DiscreteLaplace(1, Fraction(3)), DiscreteLaplace(2, Fraction(3))))
        assert delta(split, at).lower <= delta(DiscreteLaplace(3, Fraction(3)), at).upper
