"""Sampled Gaussians at tiny rates: rare large losses by formula, the rest on a grid, both ends certified."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from discreet.accounting import tight
from discreet.accounting.losses import atoms
from discreet.accounting.methods import concentration
from discreet.accounting.methods.grid import overshoot
from discreet.accounting.methods.jumps import bounds as jumps
from discreet.accounting.methods.jumps.guess import Coarse
from discreet.accounting.methods.target import Target
from discreet.events import Gaussian, Laplace, PoissonSampled, RandomizedResponse, Repeated


def training(rate, sigma, steps):
    return Repeated(PoissonSampled(rate, Gaussian(sigma)), steps)


def one_step(epsilon, rate, mu, adding):
    """δ(ε) of one step at any real ε, with mpmath: where P exceeds e^ε Q is a half-line of u."""
    normal = mp.ncdf
    if adding:
        kept = (mp.exp(-epsilon) - (1 - rate)) / rate  # the likelihood ratio below which P rules
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

    # Where one loss is about ε, the other decides: within a few q of it, the integrand bends sharply.
    ends = [mp.mpf(end) for end in (-14, -8, *range(-6, 16), 20, 30)]
    if not adding:
        decides = mp.log((mp.exp(epsilon) - (1 - rate)) / rate) / mu + mu / 2
        ends += [decides + sign * mp.mpf(10) ** power for power in (-4, -3, -2, -1) for sign in (-1, 1)] + [decides]
    return mp.quad(integrand, sorted(ends))


def cut(rate, sigma, steps, target, adding=False):
    """The bounds of the method itself, whatever the accountant would choose."""
    coarse = Coarse.of([(rate, 1 / sigma, steps)], adding)
    with np.errstate(all="ignore"):
        return jumps.bounds(coarse, coarse.guess(target), target)


TWO_STEPS = [
    (1.9e-4, 1.04, 0.1463, False),
    (1e-2, 0.7, 0.5, False),
    (1e-2, 0.7, 0.015, True),
    (0.2, 0.5, 0.3, True),
]


@pytest.mark.parametrize(("rate", "sigma", "epsilon", "adding"), TWO_STEPS)
def test_two_steps_contain_a_quadrature_of_many_digits(rate, sigma, epsilon, adding):
    with mp.workdps(25):
        truth = float(two_steps(mp.mpf(epsilon), mp.mpf(rate), 1 / mp.mpf(sigma), adding))
    low, high = cut(rate, sigma, 2, Target(epsilon=epsilon), adding)
    assert low <= truth * (1 + 1e-12)
    assert high >= truth * (1 - 1e-12)
    assert high - low <= 1e-3 * high


def test_the_epsilon_of_two_rare_steps_is_that_of_a_quadrature():
    """q = 1.9e-4, σ = 1.04, T = 2, δ = 1.5e-15: an interval of [.024, .319] once."""
    found = tight.epsilon(training(1.9e-4, 1.04, 2), 1.5e-15)
    with mp.workdps(25):
        at_ends = [
            two_steps(mp.mpf(end), mp.mpf(1.9e-4), 1 / mp.mpf(1.04), False) for end in (found.lower, found.upper)
        ]
    assert at_ends[0] * (1 + 1e-12) >= 1.5e-15 >= at_ends[1] * (1 - 1e-12)
    assert found.width <= 1e-4 * found.upper


WEAK = [
    (1.9e-4, 1.04, 2, 1.5e-15, 0.14960),
    (2.2e-5, 0.873, 9, 1.2e-11, 0.012434),
    (1.36e-5, 0.483, 20349, 8e-4, 0.025933),
    (1.6e-5, 0.678, 741365, 1.4e-11, 0.711),
]


@pytest.mark.parametrize(("rate", "sigma", "steps", "at", "near"), WEAK)
def test_corners_that_had_useless_intervals_are_narrow(rate, sigma, steps, at, near):
    found = tight.epsilon(training(rate, sigma, steps), at)
    assert found.width <= 1e-3 * found.upper + 1e-6
    assert found.upper == pytest.approx(near, rel=1e-3)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rate", "sigma", "steps", "at", "near"), WEAK[1:3])
def test_corners_are_no_dearer_than_the_pessimistic_accountant(rate, sigma, steps, at, near):
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-5)
    accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)), steps)
    theirs = accountant.get_epsilon(at)
    found = tight.epsilon(training(rate, sigma, steps), at)
    assert found.lower <= theirs
    assert found.upper <= theirs * (1 + 1e-4)


@pytest.mark.parametrize("adding", [False, True])
def test_a_cut_in_another_place_gives_bounds_that_overlap(adding):
    """Wherever the cut lies the bounds hold: where it is too low, the rest that others make up for is counted."""
    coarse = Coarse.of([(1e-3, 1.0, 300)], adding)
    guess = coarse.guess(Target(delta=1e-7))
    best = cut(1e-3, 1.0, 300, Target(epsilon=guess.epsilon), adding)
    for factor in (0.3, 0.7, 1.5, 4.0):
        elsewhere = replace(guess, epsilon=guess.epsilon * factor)
        made = jumps._pass(coarse, elsewhere, 1e-5)
        assert made.lower(guess.epsilon) <= best[1]
        assert made.upper(guess.epsilon) >= best[0]


@pytest.mark.parametrize(("splits", "step"), [(1, 0.02), (9, 0.1), (400, 1e-3), (2000, 0.01)])
def test_the_bump_pays_for_what_splitting_adds(splits, step):
    """For the widest splits, a coin flip of ±step/2 each, at any distance from ε. A quarter of the height does not."""
    shape = overshoot.bump(splits, step)
    up = -math.expm1(-step / 2) / (2 * math.sinh(step / 2))  # so that E[e^{−D}] = 1
    heads = np.arange(splits + 1)
    moved = step * (heads - splits / 2)
    weight = stats.binom.pmf(heads, splits, 1 - up)
    assert weight @ np.exp(-moved) == pytest.approx(1.0, rel=1e-9)

    def lacks(scale):
        worst = -math.inf
        for at in np.linspace(-6, 6, 241) * math.sqrt(splits) * step / 2:
            added = weight @ np.maximum(0.0, -np.expm1(-(at + moved))) - max(0.0, -math.expm1(-at))
            paid = weight @ (scale * shape.height * np.exp(-((at + moved) ** 2) / (2 * shape.width**2)))
            worst = max(worst, added - paid)
        return worst > 1e-15

    assert not lacks(1.0)
    assert splits == 1 or lacks(0.25)


def test_without_a_bump_the_lower_end_would_exceed_the_truth():
    """A mutant that leaves out the bump: at a coarse step δ⁺ lies above the truth, and the bump brings it below."""
    target = Target(epsilon=0.5)
    truth = cut(1e-2, 0.7, 200, target)
    coarse = Coarse.of([(1e-2, 1 / 0.7, 200)], False)
    with np.errstate(all="ignore"):
        made = jumps._pass(coarse, coarse.guess(target), 2e-3)
    assert made.below.at(0.5) + made.far.at(0.5)[0] > truth[1]
    assert made.lower(0.5) <= truth[1]


@pytest.mark.parametrize(
    "step", [PoissonSampled(0.01, Gaussian(1.0)), RandomizedResponse(Fraction(1, 1000)), Laplace(1000.0)]
)
def test_a_million_million_steps_have_a_lower_end(step):
    found = tight.epsilon(Repeated(step, 10**12), 1e-5)
    assert found.lower > 0.9 * found.upper


def test_the_bound_by_mean_and_variance_is_below_the_truth():
    parts = [(atoms.randomized_response(0.1, 2), 1000)]
    truth = tight.epsilon(Repeated(RandomizedResponse(Fraction(1, 10)), 1000), 1e-5)
    assert 0 < concentration.lower(parts, Target(delta=1e-5)) < truth.lower
    exact = tight.delta(Repeated(RandomizedResponse(Fraction(1, 10)), 1000), 2.0)
    assert 0 < concentration.lower(parts, Target(epsilon=2.0)) < exact.lower
