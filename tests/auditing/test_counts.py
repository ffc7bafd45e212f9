"""The p-value of two counts holds for every rate, and sees what it says it sees."""

from __future__ import annotations

import bisect
import math

import numpy as np
import pytest
from scipy import stats

from discreet.auditing.counts import Line, Runs, clopper_pearson

E = math.e


@pytest.mark.parametrize("line", [Line(E, 0.0), Line(E, 0.05), Line(1.0, 0.1), Line(1 / E, 1 - 1 / E)])
def test_no_rate_on_the_line_is_rejected_more_often_than_alpha(line):
    """Exact: all pairs of counts are enumerated. A mutant that drops the interval's share, or tests at P₀ = X/n, fails
    at some rate."""
    runs, alpha = Runs(18, 14), 0.1
    rejected = np.array(
        [[runs.p_value(x, y, line, alpha) <= alpha for y in range(runs.above + 1)] for x in range(runs.below + 1)]
    )
    assert rejected.any()
    for rate in np.linspace(0.0, 1.0, 101):
        weights = np.outer(
            stats.binom.pmf(np.arange(runs.below + 1), runs.below, rate),
            stats.binom.pmf(np.arange(runs.above + 1), runs.above, line.at(np.array(rate))),
        )
        assert weights[rejected].sum() <= alpha


def tail(runs, line, rate, observed):
    """P(T ≥ observed), summed up."""
    alarms = np.arange(runs.below + 1)
    least = np.ceil(runs.above * (observed + line.slope * alarms / runs.below) - 1e-9)
    chances = stats.binom.pmf(alarms, runs.below, rate)
    return chances @ stats.binom.sf(least - 1, runs.above, float(line.at(np.array(rate))))


@pytest.mark.parametrize(
    ("line", "rate"), [(Line(E, 0.0), 0.16), (Line(0.7, 0.45), 0.35), (Line(1 / E, 1 - 1 / E), 0.6)]
)
@pytest.mark.parametrize(("runs", "sharp"), [(Runs(60, 40), 60), (Runs(300, 250), 4), (Runs(2_000, 2_000), 2)])
def test_a_tail_is_bounded_from_above_and_sharply(line, rate, runs, sharp):
    """Chernoff's bound alone is twelve times too large at five standard deviations."""
    spread = runs.spread(rate, float(line.at(np.array(rate))), line)
    for deviations in (1, 2, 3, 4, 5, 6):
        observed = line.intercept + deviations * spread
        if observed < 1:
            exact = tail(runs, line, rate, observed)
            assert exact <= math.exp(runs._log_bound(observed, line, (rate, rate))) <= sharp * exact


@pytest.mark.parametrize("line", [Line(E, 0.01), Line(0.7, 0.3)])
def test_no_rate_is_rejected_more_often_than_alpha_with_more_runs(line):
    """Exact, with enough runs for the normal part of the bound to count: for each X, the least Y that is rejected."""
    runs, alpha = Runs(150, 120), 0.02
    alarms, hits = np.arange(runs.below + 1), range(runs.above + 1)
    least = [
        bisect.bisect_left(hits, True, key=lambda y, x=x: rejects(runs, x, y, line, alpha)) for x in alarms.tolist()
    ]
    shares = [
        stats.binom.pmf(alarms, runs.below, rate)
        @ stats.binom.sf(np.array(least) - 1, runs.above, float(line.at(np.array(rate))))
        for rate in np.linspace(0.01, 0.99, 50)
    ]
    assert 0.1 * alpha < max(shares) <= alpha


def rejects(runs, alarms, hits, line, alpha):
    return runs.p_value(alarms, hits, line, alpha) <= alpha


def test_it_needs_few_runs_more_than_the_best_test():
    """Laplace noise at 80%: the normal test needs 5,500 runs for 99.9% at 1e-6, two Clopper–Pearson bounds 9,700."""
    line, truth = Line(E, 0.0), (0.5 * math.exp(-1.25), 0.5)
    for size, seen in ((5_400, False), (6_400, True)):
        runs = Runs(size, size)
        assert (runs.power(*truth, line, runs.critical(truth[0], line, 1e-6)) > 0.999) == seen


def test_power_is_the_share_of_rejections():
    line, runs, truth, alpha = Line(E, 0.0), Runs(2_000, 2_000), (0.143, 0.5), 1e-3
    generator = np.random.default_rng(7)
    counts = generator.binomial(2_000, truth[0], 1_000), generator.binomial(2_000, truth[1], 1_000)
    share = np.mean([runs.p_value(int(x), int(y), line, alpha) <= alpha for x, y in zip(*counts, strict=True)])
    assert abs(share - runs.power(*truth, line, runs.critical(truth[0], line, alpha))) < 0.08  # five standard errors


@pytest.mark.parametrize("distance", [1, 3])
def test_epsilon_lower_is_below_the_ratio_of_the_rates_and_near_it_for_many_runs(distance):
    lower = Runs(10**6, 10**6).epsilon_lower(100_000, 400_000, delta=0.0, alpha=0.01, distance=distance)
    assert 0.97 * math.log(4) < distance * lower < math.log(4)
    assert Runs(1000, 1000).epsilon_lower(500, 500, delta=0.0, alpha=0.01) == 0.0
    assert Runs(1000, 1000).epsilon_lower(0, 1000, delta=0.0, alpha=0.01) > 3


def test_clopper_pearson_matches_the_binomial_tails():
    lower, upper = clopper_pearson(3, 20, 0.01)
    assert math.isclose(stats.binom.sf(2, 20, lower), 0.01, rel_tol=1e-9)
    assert math.isclose(stats.binom.cdf(3, 20, upper), 0.01, rel_tol=1e-9)
    assert clopper_pearson(0, 5, 0.1)[0] == 0
    assert clopper_pearson(5, 5, 0.1)[1] == 1
