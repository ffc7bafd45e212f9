"""Tight prices: published values lie inside the interval, and known failures of other accountants are avoided."""

import itertools
import math
from fractions import Fraction

import mpmath as mp
import pytest

from discreet.accounting.tight import delta, epsilon
from discreet.errors import InvalidArgument
from discreet.events import (
    Claimed,
    Gaussian,
    Laplace,
    NoisyMax,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    SparseVector,
)
from discreet.neighbors import ADD_REMOVE
from tests.accounting.truth import gaussian_delta


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
def test_one_percent_less_noise_costs_more(event, at, value, digits):
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
    remove = tight.one_direction(way, Target(delta=1e-5), ADD_REMOVE, False, 0)
    add = tight.one_direction(way, Target(delta=1e-5), ADD_REMOVE, True, 0)
    assert remove[0] == pytest.approx(6.18771, abs=1e-5)
    assert add[0] == pytest.approx(5.61151, abs=1e-5)


def test_adding_is_charged_where_it_costs_more_than_removing():
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
            truth = gaussian_delta(at, 1 / mp.mpf(multiplier))
            found = delta(Gaussian(multiplier), at)
            assert mp.mpf(found.lower) <= truth <= mp.mpf(found.upper)
        assert found.width <= 1e-8 * found.upper


@pytest.mark.parametrize(
    ("event", "at"), [(Gaussian(1e-6), 500008000000.00006), (Repeated(Gaussian(0.05), 10**7), 2000189736.66)]
)
def test_cancellation_does_not_raise_the_lower_end(event, at):
    leaf, count = (event.event, event.count) if isinstance(event, Repeated) else (event, 1)
    with mp.workdps(60):
        mu = mp.sqrt(count) / mp.mpf(leaf.noise_multiplier)
        truth = gaussian_delta(at, mu)
    found = delta(event, at)
    assert found.lower <= truth <= found.upper


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
        if make not in (NoisyMax, SparseVector):  # these need not reach the bound of pure DP
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


@pytest.mark.parametrize(("rate", "sigma", "at"), [(0.2, 0.5, 1.0), (0.3, 0.3, 4.0)])
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
def test_extreme_trainings_have_finite_and_consistent_intervals(event, at):
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
