"""Thousands of different scales: families of losses, and the Gaussian that makes their inversion converge."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import special

from discreet.accounting.closed_forms import gaussian_delta
from discreet.accounting.losses import families, of_events
from discreet.accounting.losses.atoms import DiscreteGaussianLoss, DiscreteLaplaceLoss, discrete_laplace
from discreet.accounting.losses.closed import ClosedAtoms, ClosedLaplace
from discreet.accounting.losses.collapse import collapse
from discreet.accounting.losses.families import (
    AtomFamily,
    DiscreteGaussianFamily,
    DiscreteLaplaceFamily,
    LaplaceFamily,
    in_families,
)
from discreet.accounting.methods import smoothing
from discreet.accounting.methods.choose import choose
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.target import Target
from discreet.accounting.tight import delta, epsilon
from discreet.events import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)
from discreet.neighbors import ADD_REMOVE

OMEGA = np.array([0.0, 0.3, 2.0, 17.0, 250.0])
NONE = SampledGaussians(*(np.zeros(0) for _ in range(3)), False)


def discrete_moment(sensitivity, scale, z):
    """E[e^{zL}] with 40 digits, summed atom by atom."""
    with mpmath.workdps(40):
        b, ratio = mpmath.mpf(scale), mpmath.exp(-1 / mpmath.mpf(scale))
        inside = mpmath.mpf(0)
        for j in range(sensitivity + 1):
            mass = (1 - ratio) / (1 + ratio) * mpmath.exp(-j / b)
            if j == 0:
                mass = 1 / (1 + ratio)
            elif j == sensitivity:
                mass = mpmath.exp(-sensitivity / b) / (1 + ratio)
            inside += mass * mpmath.exp(z * (sensitivity - 2 * j) / b)
        return inside


@pytest.mark.parametrize("tilt", [0.01, 1.0, 30.0])
def test_a_family_of_discrete_laplaces_is_the_product_of_its_members(tilt):
    members = [(1, 3.7, 1), (2, 50.0, 3), (9, 4.25, 1), (150, 1e4, 2)]
    family = DiscreteLaplaceFamily(*np.array(members, dtype=float).T)
    ratio, error = family.ratio(tilt, OMEGA)
    for at, omega in enumerate(OMEGA):
        truth = mpmath.mpf(1)
        for sensitivity, scale, count in members:
            numerator = discrete_moment(sensitivity, scale, mpmath.mpc(tilt, float(omega)))
            truth *= (numerator / discrete_moment(sensitivity, scale, mpmath.mpf(tilt))) ** count
        assert abs(complex(truth) - ratio[at]) <= error[at] + 1e-15
    total = sum(count * mpmath.log(discrete_moment(d, b, mpmath.mpf(tilt))) for d, b, count in members)
    assert family.cumulants(tilt)[0] == pytest.approx(float(total), rel=1e-12)


@pytest.mark.parametrize("tilt", [1e-9, 0.4, 12.0])
def test_the_derivatives_of_a_family_are_those_of_its_sum(tilt):
    losses = [(DiscreteLaplaceLoss(d, b), n) for d, b, n in [(1, 2.0, 2), (5, 3.0, 1), (40, 1e6, 1), (300, 50.0, 4)]]
    family = in_families(losses)[0][0][0]
    one_by_one = [(ClosedAtoms(*loss.atoms()[:2]), count) for loss, count in losses]
    expected = np.sum([[count * term for term in loss.cumulants(tilt)] for loss, count in one_by_one], axis=0)
    assert family.cumulants(tilt) == pytest.approx(tuple(expected), rel=1e-5)
    laplace = LaplaceFamily(np.array([0.01, 0.7, 3.0]), np.array([1.0, 2.0, 1.0]))
    single = [(ClosedLaplace(e), n) for e, n in [(0.01, 1), (0.7, 2), (3.0, 1)]]
    expected = np.sum([[count * term for term in loss.cumulants(tilt)] for loss, count in single], axis=0)
    assert laplace.cumulants(tilt) == pytest.approx(tuple(expected), rel=1e-9)


@pytest.mark.parametrize("tilt", [0.01, 1.37, 40.0])
def test_a_family_of_discrete_gaussians_is_the_product_of_its_members(tilt):
    members = [(1, 1.0, 2), (3, 2.25, 1), (5, 30.0, 3), (1, 7.7, 1)]
    family = in_families([(DiscreteGaussianLoss(a, v), n) for a, v, n in members])[0][0][0]
    assert isinstance(family, DiscreteGaussianFamily)
    omega = np.append(OMEGA, [3.1, 6.28, 500.0])
    ratio, error = family.ratio(tilt, omega)
    for at, w in enumerate(omega):
        truth = mpmath.mpf(1)
        for shift, variance, count in members:
            top = gaussian_moment(shift, variance, mpmath.mpc(tilt, float(w)))
            truth *= (top / gaussian_moment(shift, variance, mpmath.mpf(tilt))) ** count
        assert abs(complex(truth) - ratio[at]) <= error[at] + 1e-15
        assert error[at] < 1e-9
    total = sum(count * mpmath.log(gaussian_moment(a, v, mpmath.mpf(tilt))) for a, v, count in members)
    assert family.cumulants(tilt)[0] == pytest.approx(float(total), rel=1e-12)


def gaussian_moment(shift, variance, z):
    """E[e^{zL}] of discrete Gaussian noise with 40 digits, summed atom by atom around its two centers."""
    with mpmath.workdps(40):
        v = mpmath.mpf(variance)
        spread = int(15 * math.sqrt(variance)) + 2
        center = -round(float(mpmath.re(z)) * shift)  # e^{zL}P is a bump around −za
        around = range(center - spread, center + spread + 1)
        mass = sum(mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * v)) for x in range(-spread, spread + 1))
        terms = (mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * v) + z * (shift**2 - 2 * shift * x) / (2 * v)) for x in around)
        return mpmath.fsum(terms) / mass


def test_many_discrete_gaussians_next_to_laplaces_are_priced_tightly():
    gaussians = tuple(DiscreteGaussian(1, Fraction(900 + 7 * k)) for k in range(40))
    event = Composed((*gaussians, *(DiscreteLaplace(2, Fraction(200 + k)) for k in range(40))))
    found = epsilon(event, 1e-6)
    limit = Composed((*(Gaussian(math.sqrt(900 + 7 * k)) for k in range(40)), *event.events[40:]))
    near = epsilon(limit, 1e-6)
    assert found.width < 3e-4 * found.upper
    assert found.upper == pytest.approx(near.upper, rel=1e-3)


def test_phases_on_equally_spaced_frequencies_are_those_computed_one_by_one():
    loss, omega = np.array([[0.3], [-2.0], [0.001]]), 0.7 * np.arange(1000)
    assert np.max(np.abs(families._turned(loss, omega) - np.exp(1j * loss * omega))) < 1e-12
    assert np.max(np.abs(families._turned(loss, omega + 0.1) - np.exp(1j * loss * (omega + 0.1)))) < 1e-12


def test_families_of_laplaces_and_atoms_multiply_their_members():
    laplace = LaplaceFamily(np.array([0.01, 0.7, 3.0]), np.array([1.0, 2.0, 1.0]))
    expected = np.prod([ClosedLaplace(e).ratio(2.0, OMEGA)[0] for e in (0.01, 0.7, 0.7, 3.0)], axis=0)
    assert np.all(np.abs(laplace.ratio(2.0, OMEGA)[0] - expected) <= laplace.ratio(2.0, OMEGA)[1] + 1e-14)
    few, many = discrete_laplace(1, 2.0), discrete_laplace(3, 1.5)
    family = in_families([(few, 2), (many, 1)])[0][0][0]
    assert isinstance(family, AtomFamily)
    expected = np.prod([ClosedAtoms(a.losses, a.p).ratio(2.0, OMEGA)[0] for a in (few, few, many)], axis=0)
    assert np.all(np.abs(family.ratio(2.0, OMEGA)[0] - expected) <= family.ratio(2.0, OMEGA)[1] + 1e-14)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.5])
@pytest.mark.parametrize("at", [-2.0, -0.5, 0.0, 0.02, 0.7, 3.0])
def test_what_a_gaussian_adds_is_at_most_its_density_times_c(mu, at):
    # L is 0 for sure, so δ_L(ε) = (1 − e^ε)₊, δ_{L+G} is the Gaussian's, and p is the density of its loss.
    added = gaussian_delta(at, mu) - max(0.0, -math.expm1(at))
    density = math.exp(-((at - mu * mu / 2) ** 2) / (2 * mu * mu)) / (mu * math.sqrt(2 * math.pi))
    assert added + 1e-15 >= 0
    assert added <= smoothing._removed(mu * mu) * density + 1e-13  # gaussian_delta is rounded up


def test_the_constant_cannot_be_halved():
    # At ε = 0 half of c would already fail: a mutant that removes too little is caught here.
    mu = 0.01
    density = math.exp(-mu * mu / 8) / (mu * math.sqrt(2 * math.pi))
    added = gaussian_delta(0.0, mu)
    assert added > 0.99 * smoothing._removed(mu * mu) * density
    assert smoothing._removed(mu * mu) == pytest.approx(mu * mu, rel=1e-3)
    assert added == pytest.approx(special.erf(mu / math.sqrt(8)))


@pytest.mark.parametrize("at", [0.0, 0.35, 1.0])
def test_smoothed_bounds_contain_one_laplace(at):
    smooth = fourier.Smooth(0.0, NONE, in_families([(DiscreteLaplaceLoss(1, 0.9), 1)])[0])
    samples = smoothing.invert(smooth, fourier.locate(smooth, epsilon=at), Target(epsilon=at))
    ratio = math.exp(-1 / 0.9)
    truth = 1 / (1 + ratio) * (1 - math.exp(at - 1 / 0.9))  # the report that is right, less e^ε times the wrong one
    truth -= 0 if at > -1 / 0.9 else math.nan
    low, high = samples.at(at)
    assert low <= truth <= high
    assert high - low < 1e-3 * truth


def scales(count, seed=1):
    generator = np.random.default_rng(seed)
    return [float(x) for x in generator.uniform(30.0, 3000.0, count)]


@pytest.mark.parametrize("target", [1e-3, 1e-6, 1e-10])
def test_ten_different_laplaces_agree_with_the_grid(target):
    event = Composed(tuple(Laplace(x / 40) for x in scales(10)))
    found = epsilon(event, target)
    from discreet.accounting.losses.composed import Losses
    from discreet.accounting.losses.continuous import ContinuousLoss, LaplaceShift

    parts = Losses(others=tuple((ContinuousLoss(LaplaceShift(40 / x)), 1) for x in scales(10))).for_grid(adding=False)
    low, high = grid.bounds(parts, Target(delta=target))
    assert found.lower <= high * (1 + 1e-9)
    assert found.upper >= low * (1 - 1e-9)
    assert found.width < 1e-3 * found.upper


def test_two_thousand_different_scales_are_priced_tightly():
    laplaces = tuple(Laplace(x) for x in scales(1000))
    discrete = tuple(DiscreteLaplace(1 + k % 5, Fraction(round(x))) for k, x in enumerate(scales(1000, seed=2)))
    event = Composed((*laplaces, *discrete, Gaussian(20.0)))
    found = epsilon(event, 1e-6)
    assert found.width < 3e-4 * found.upper
    # A second opinion: at the ends, δ is on either side of the target.
    assert delta(event, found.upper * 1.001).upper < 1e-6 < delta(event, found.lower * 0.999).upper


def test_many_scales_next_to_a_training_are_priced_tightly():
    training = Repeated(PoissonSampled(0.01, Gaussian(1.5)), 1000)
    event = Composed(
        (training, *(Laplace(x) for x in scales(60)), *(RandomizedResponse(Fraction(x / 1e6), 3) for x in scales(30)))
    )
    found = epsilon(event, 1e-6)
    assert found.width < 1e-3 * found.upper
    assert found.lower > epsilon(training, 1e-6).upper


@pytest.mark.parametrize(("target", "truth"), [(1e-5, 4.306791372517), (1e-6, 4.774567588108)])
def test_a_hundred_reports_contain_the_optimal_composition(target, truth):
    # Kairouz, Oh & Viswanath's formula at ε₀ = 0.1; here the reports differ in the 13th digit, so no two are merged.
    # Without the correction for the added noise, or with half of it, the lower end is above the truth.
    reports = tuple(RandomizedResponse(Fraction(1, 10) + Fraction(k, 10**13), 2) for k in range(100))
    found = epsilon(Composed(reports), target)
    assert found.lower < truth * (1 + 1e-10) < found.upper * (1 + 1e-9)
    assert found.width < 3e-4 * truth


@pytest.mark.parametrize("target", [1e-10, 1e-14, 1e-25])
def test_below_the_top_atom_the_largest_loss_decides(target):
    event = Composed(tuple(Laplace(x) for x in scales(30)))
    most = math.fsum(1 / x for x in scales(30))
    found = epsilon(event, target)
    assert found.lower <= most
    assert found.width < 1e-3 * found.upper
    if target < 2.0**-40:
        # All losses are at their top with probability 2⁻³⁰; one is below it by u with density 1/2 relative to that. So
        # δ(most − d) = 2⁻³⁰(1 − e^{−d} + 30·d²/4) = 2⁻³⁰(d + 7d²) to second order.
        below = target * 2.0**30
        assert found.contains(most - (math.sqrt(1 + 28 * below) - 1) / 14)


def test_a_family_of_one_is_priced_as_the_grid_prices_it():
    # Chosen so that no Gaussian helps: all methods must contain the closed form of equal reports.
    event = Composed(tuple(Laplace(10 + k / 1e9) for k in range(100)))
    assert epsilon(event, 1e-5).upper == pytest.approx(epsilon(Repeated(Laplace(10.0), 100), 1e-5).upper, rel=3e-4)


@pytest.mark.parametrize("target", [0.9, 1e-140])
def test_extreme_deltas_have_an_answer(target):
    event = Composed(tuple(Laplace(x) for x in scales(50)))
    found = epsilon(event, target)
    assert 0 <= found.lower <= found.upper < math.inf


def test_sums_over_atoms_are_the_same_on_equally_spaced_frequencies():
    draw = np.random.default_rng(4)
    losses, p = np.sort(draw.uniform(-1.0, 1.0, 3000)), draw.dirichlet(np.ones(3000))
    atoms = ClosedAtoms(losses, p)
    omega = 0.37 * np.arange(200)
    value, error = atoms.ratio(2.5, omega)
    with mp.workdps(30):
        for k in (0, 1, 77, 199):
            terms = [(mpf(w) * mp.exp(mpf(2.5) * mpf(x)), mpf(x)) for w, x in zip(p, losses, strict=True)]
            total = mp.fsum(weight for weight, _ in terms)
            truth = mp.fsum(weight * mp.expj(mpf(float(omega[k])) * x) for weight, x in terms) / total
            assert abs(mp.mpc(value[k]) - truth) <= error[k]
    assert float(error.max()) < 1e-11


def test_a_ledger_of_queries_and_selections_is_not_put_on_a_grid():
    # A hundred selections of one range have ten thousand atoms. On a grid, with 40 other scales, they take seconds.
    events = [Laplace(2e3 + 10.0 * k) for k in range(40)]
    events += [Repeated(Exponential(Fraction(1, 2000)), 100), Repeated(PoissonSampled(0.001, Gaussian(20.0)), 10)]
    (way,) = collapse(Composed(tuple(events)))
    for upper in (True, False):
        assert choose(of_events.losses(way, of_events.View(ADD_REMOVE, False, upper, 0))) == "fourier"
    found = epsilon(Composed(tuple(events)), 1e-6)
    assert found.width <= 3e-4 * found.upper


def test_many_queries_beside_a_short_training_have_both_ends():
    # The steps of the training are too few to bound the integrand where that of the queries has fallen.
    queries = [Laplace(2e3 + 10.0 * k) for k in range(40)]
    found = epsilon(Composed((*queries, Repeated(PoissonSampled(0.001, Gaussian(20.0)), 10))), 1e-6)
    alone = epsilon(Composed(tuple(queries)), 1e-6)
    assert alone.lower <= found.upper
    assert found.upper <= alone.upper * (1 + 1e-3)
    assert found.width <= 3e-4 * found.upper
