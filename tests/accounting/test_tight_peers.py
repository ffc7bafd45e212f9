"""A randomized cross-check against the accountants in use; a disagreement beyond the certificates is a failure."""

import math
import random
from fractions import Fraction

import pytest

from discreet.accounting.tight import delta, epsilon
from discreet.events import Composed, DiscreteLaplace, Gaussian, Laplace, PoissonSampled, RandomizedResponse, Repeated

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SEEDS = range(150)


def random_parts(seed):
    """A few random leaves, each with a rate or None and a count."""
    draw = random.Random(seed)
    parts = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind = draw.choice(("gaussian", "gaussian", "laplace", "discrete"))
        rate = draw.choice((None, round(10 ** draw.uniform(-2.5, -0.3), 4)))
        noise = round(10 ** draw.uniform(-0.2, 1.0), 3)
        parts.append((kind, rate if kind != "discrete" else None, noise, draw.choice((1, 3, 10, 100, 400))))
    return parts, 10 ** draw.uniform(-8, -3)


def ours(parts):
    leaves = []
    for kind, rate, noise, count in parts:
        leaf = {
            "gaussian": Gaussian,
            "laplace": Laplace,
            "discrete": lambda n: DiscreteLaplace(1, Fraction(n)),
        }[kind](noise)
        leaves.append(Repeated(leaf if rate is None else PoissonSampled(rate, leaf), count))
    return Composed(tuple(leaves))


def compose_theirs(parts, interval):
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=interval)
    for kind, rate, noise, count in parts:
        leaf = {
            "gaussian": dp.GaussianDpEvent,
            "laplace": dp.LaplaceDpEvent,
            "discrete": lambda n: dp.dp_event.DiscreteLaplaceDpEvent(1 / n, 1),
        }[kind](noise)
        accountant.compose(leaf if rate is None else dp.PoissonSampledDpEvent(rate, leaf), count)
    return accountant


@pytest.mark.parametrize("seed", SEEDS)
def test_never_above_the_pessimistic_accountant_and_never_far_below(seed):
    parts, at = random_parts(seed)
    theirs = compose_theirs(parts, 1e-3).get_epsilon(at)
    found = epsilon(ours(parts), at)
    assert found.lower <= theirs * (1 + 1e-6) + 1e-9
    assert found.upper >= theirs * 0.98 - 2e-2
    assert found.width <= 2e-3 * found.upper + 1e-9


def test_the_pessimistic_accountant_is_below_the_truth_at_tiny_delta():
    """Why certificates matter: T = 10⁴ Gaussians of σ = 100 have a closed form, 7.8687 at δ = 1e-14."""
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(1.0, dp.GaussianDpEvent(100.0)), 10_000)
    truth = epsilon(Repeated(Gaussian(100.0), 10_000), 1e-14)
    assert truth.upper == pytest.approx(7.8687, abs=1e-4)
    assert accountant.get_epsilon(1e-14) < truth.lower


def test_a_report_composed_with_noise_is_counted():
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.dp_event.RandomizedResponseDpEvent(0.5, 2), 100)
    found = epsilon(Repeated(RandomizedResponse(Fraction(math.log(3))), 100), 1e-6)
    assert found.lower == pytest.approx(94.29, abs=1e-2)
    assert accountant.get_epsilon(1e-6) < 2


@pytest.mark.parametrize("seed", range(60))
def test_the_intervals_of_prv_accountant_meet_ours(seed):
    prv = pytest.importorskip("prv_accountant")
    draw = random.Random(1000 + seed)
    rate, sigma = 10 ** draw.uniform(-2.5, -0.5), draw.uniform(0.7, 3.0)
    steps, at = draw.choice((10, 100, 1000)), 10 ** draw.uniform(-7, -4)
    mechanism = prv.PoissonSubsampledGaussianMechanism(noise_multiplier=sigma, sampling_probability=rate)
    try:
        accountant = prv.PRVAccountant(
            prvs=[mechanism], max_self_compositions=[steps], eps_error=0.02, delta_error=at * 1e-3
        )
        low, _, high = accountant.compute_epsilon(delta=at, num_self_compositions=[steps])
    except RuntimeError as error:
        pytest.skip(f"prv_accountant gives up: {error}")
    found = epsilon(Repeated(PoissonSampled(rate, Gaussian(sigma)), steps), at)
    assert found.lower <= high * (1 + 1e-9)
    assert found.upper >= low * (1 - 1e-9)
    assert found.width <= 1e-3 * found.upper
    assert delta(Repeated(PoissonSampled(rate, Gaussian(sigma)), steps), found.upper).lower <= at
