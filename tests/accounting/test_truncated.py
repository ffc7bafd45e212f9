"""Truncated Poisson batches cost what Poisson batches cost, and what truncation adds to δ."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

import discreet as dp
from discreet import accounting
from discreet import events as ev
from discreet.accounting.prices.truncated import overflow_probability


@pytest.mark.parametrize(
    ("units", "rate", "largest"), [(3, 0.3, 1), (50, 0.1, 12), (10_000, 0.01, 160), (10**6, 1e-3, 1300)]
)
def test_the_overflow_is_a_binomial_tail(units, rate, largest):
    truth = stats.binom.sf(largest, units, rate)
    found = overflow_probability(units, rate, largest)
    assert truth * (1 - 1e-9) <= found <= 1.3 * truth


def truncated_step(values: list[float], rate: float, largest: int, sigma: float):
    """The density of a noisy sum over a truncated Poisson batch of `values`."""
    weights: dict[float, float] = {}
    for joined in itertools.product((False, True), repeat=len(values)):
        probability = math.prod(rate if joins else 1 - rate for joins in joined)
        batch = [value for value, joins in zip(values, joined, strict=True) if joins]
        choices = list(itertools.combinations(batch, min(largest, len(batch))))
        for kept in choices:
            total = round(sum(kept), 9)
            weights[total] = weights.get(total, 0.0) + probability / len(choices)
    return lambda x: sum(w * stats.norm.pdf(x, total, sigma) for total, w in weights.items())


@pytest.mark.parametrize("others", [[-1.0, -1.0], [-1.0, 1.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("largest", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_price_covers_every_small_dataset(others, largest):
    """The exact δ of the truncated step, by integration, in both directions; here truncation matters a lot."""
    rate, sigma, units = 0.2, 1.0, len(others) + 1
    event = ev.TruncatedPoissonSampled(rate, largest, units, ev.Gaussian(sigma))
    with_unit, without = (
        truncated_step([1.0, *others], rate, largest, sigma),
        truncated_step(others, rate, largest, sigma),
    )
    grid = np.linspace(-10, 10, 4001)
    p, q = with_unit(grid), without(grid)
    for epsilon in (0.1, 0.5, 1.5):
        both = (np.maximum(p - math.exp(epsilon) * q, 0), np.maximum(q - math.exp(epsilon) * p, 0))
        truth = max(float(integrate.trapezoid(gain, grid)) for gain in both)
        assert truth <= accounting.delta(event, epsilon).upper


def test_a_sensitivity_of_one_would_not_be_enough():
    """A mutant that prices the truncated step as a Poisson step is below the truth: the unit pushes another one out."""
    rate, sigma, epsilon = 0.6, 1.0, 1.0
    grid = np.linspace(-10, 10, 4001)
    p = truncated_step([1.0, -1.0, -1.0], rate, 1, sigma)(grid)
    q = truncated_step([-1.0, -1.0], rate, 1, sigma)(grid)
    truth = float(integrate.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), grid))
    poisson = accounting.delta(ev.PoissonSampled(rate, ev.Gaussian(sigma)), epsilon)
    truncated = accounting.delta(ev.TruncatedPoissonSampled(rate, 1, 3, ev.Gaussian(sigma)), epsilon)
    assert poisson.upper < truth <= truncated.upper


def test_many_steps_cost_the_published_addition():
    """At most a few times T(1 + e^ε)τ is added to δ (arXiv 2411.04205), and nothing where no batch can overflow."""
    rate, steps, units, largest = 0.01, 1000, 10_000, 180
    inner = ev.Gaussian(1.0)
    poisson = accounting.delta(ev.Repeated(ev.PoissonSampled(rate, inner), steps), 2.0)
    truncated = accounting.delta(ev.Repeated(ev.TruncatedPoissonSampled(rate, largest, units, inner), steps), 2.0)
    published = steps * (1 + math.exp(2.0)) * stats.binom.sf(largest, units, rate)
    assert poisson.upper < truncated.upper < poisson.upper + 20 * published
    assert truncated.lower == pytest.approx(poisson.lower, rel=1e-6)
    whole = ev.TruncatedPoissonSampled(rate, units, units, inner)
    assert accounting.rdp(whole, (4.0,)) == accounting.rdp(ev.PoissonSampled(rate, inner), (4.0,))


def test_a_batch_that_usually_overflows_has_no_price():
    event = ev.TruncatedPoissonSampled(0.5, 3, 100, ev.Gaussian(1.0))
    assert accounting.epsilon(event, 1e-6).upper == math.inf
    assert accounting.delta(event, 1.0).upper == 1.0


def test_an_account_with_delta_aside_takes_it(tmp_path):
    event = ev.Repeated(ev.TruncatedPoissonSampled(0.01, 250, 10_000, ev.Gaussian(2.0)), 10)
    assert accounting.rdp(event, (4.0,)).epsilons[0] == math.inf  # it may fail
    with dp.Ledger(tmp_path / "l.ledger") as ledger:
        account = ledger.account("a", budget=dp.ApproxDP(1.0, 1e-6), aside=5e-7)
        account.spend(event, purpose="training")
