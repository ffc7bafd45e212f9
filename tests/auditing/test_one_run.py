"""One-run audits: the bounds of the two papers, and the table of what ideal canaries reach."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import discreet as dp
from discreet.accounting import closed_forms
from discreet.auditing import audit, one_run
from discreet.auditing.claims import claimed
from discreet.auditing.one_run import Guesses
from discreet.auditing.scores_test import _mu_lower
from discreet.errors import InvalidArgument


def test_without_delta_right_guesses_are_binomial():
    guesses = Guesses(1000, 100, 80)
    assert guesses.p_value(1.0, 0.0) == pytest.approx(stats.binom.sf(79, 100, math.e / (1 + math.e)))


def test_delta_adds_the_largest_slope_of_the_tail():
    """The formula of Theorem 5.2, written out as a sum."""
    guesses, epsilon, delta = Guesses(1000, 100, 80), 1.0, 1e-4
    chance = math.e / (1 + math.e)
    beta = stats.binom.sf(79, 100, chance)
    slope = max((stats.binom.sf(79 - i, 100, chance) - beta) / i for i in range(1, 81))
    assert guesses.p_value(epsilon, delta) == pytest.approx(beta + 2 * 1000 * delta * slope)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_for_a_pure_claim_the_curve_refutes_no_less_than_the_binomial_bound_allows(epsilon):
    """Randomized response reaches both bounds: what it does with probability above α is never refuted."""
    curve = claimed(dp.PureDP(epsilon)).forward[0]
    chance = 1 / (1 + math.exp(-epsilon))
    likely = int(stats.binom.isf(0.05, 400, chance))
    assert not Guesses(400, 400, likely).refutes(curve, 0.05)
    assert Guesses(400, 400, 400).refutes(curve, 0.05)


@pytest.mark.parametrize(("epsilon", "first", "second"), [(2, 0.96, 1.16), (4, 1.89, 2.45), (8, 3.40, 4.88)])
def test_the_table_of_ideal_canaries_is_reproduced(epsilon, first, second):
    """5,000 canaries, δ = 1e-5, 95%: medians of Steinke et al. and of the curve of a Gaussian."""
    mu = 1 / closed_forms.gaussian_noise_multiplier(epsilon, 1e-5)
    attempts = one_run.expected_attempts(5_000, mu, 0.5)
    assert max(each.epsilon_lower(1e-5, 0.05) for each in attempts) == pytest.approx(first, rel=0.08)
    best = one_run.epsilon_of(max(each.mu_lower(0.05) for each in attempts), 1e-5)
    assert second * 0.93 < best < min(epsilon, second * 1.15)


#: Medians of 5,000 ideal canaries at δ = 1e-5 and 95%: Steinke et al., the f-DP bound, and the latter two's rates.
PUBLISHED = [(2, 0.96, 1.16, 1.49), (4, 1.89, 2.45, 3.43), (8, 3.40, 4.88, 7.31)]


@pytest.mark.parametrize(("epsilon", "first", "second"), [row[:3] for row in PUBLISHED])
def test_the_claim_says_how_many_guesses_get_most_of_alpha(epsilon, first, second):
    """So the published medians, which know the best number of guesses, are nearly reached although seven are tried."""
    mu = 1 / closed_forms.gaussian_noise_multiplier(epsilon, 1e-5)
    for shown, published in (
        (lambda guesses, level: guesses.epsilon_lower(1e-5, level), 0.95 * first),
        (lambda guesses, level: one_run.epsilon_of(guesses.mu_lower(level), 1e-5), second),
    ):
        shares, levels = one_run.levels(5_000, mu, 0.05, shown)
        assert sum(levels) == pytest.approx(0.05)
        attempts = one_run.expected_attempts(5_000, mu, 0.5, shares)
        best = max(shown(guesses, level) for guesses, level in zip(attempts, levels, strict=True))
        assert published <= best < epsilon
    assert one_run.levels(5_000, math.inf, 0.06, Guesses.mu_lower)[1] == pytest.approx([0.01] * 6)


@pytest.mark.parametrize(("epsilon", "published"), [(row[0], row[3]) for row in PUBLISHED])
def test_rates_at_a_threshold_bound_mu_from_below_and_reach_the_published_medians(epsilon, published):
    """200 audits of 5,000 ideal canaries at 95%; the published median knows the best threshold.

    More than 24 of the bounds exceed μ with a probability below 1e-5, if each does with 5%. The median of 200 varies by
    1% (a tenth of a bound's own spread), so that 5% below the published one is five deviations off.
    """
    mu = 1 / closed_forms.gaussian_noise_multiplier(epsilon, 1e-5)
    generator = np.random.default_rng(epsilon)
    bounds = np.array(
        [_mu_lower(generator.normal(size=2_500), mu + generator.normal(size=2_500), 0.05) for _ in range(200)]
    )
    assert np.count_nonzero(bounds > mu) <= 24
    assert one_run.epsilon_of(float(np.median(bounds)), 1e-5) > 0.95 * published


def ideal(mu, canaries=2_000, seed=3):
    generator = np.random.default_rng(seed)
    included = generator.random(canaries) < 0.5
    return generator.normal(size=canaries) + mu * included, included


@pytest.mark.parametrize("estimator", ["one_run", "one_run_f"])
def test_honest_scores_pass_and_scores_with_a_tenth_of_the_noise_do_not(estimator):
    scores, included = ideal(0.4)
    honest = audit(scores, dp.GDP(0.4), included, estimator=estimator, alpha=1e-3, delta=1e-7)
    assert not honest.violated
    assert "ideal canaries" in honest.verdict
    scores, included = ideal(4.0)
    caught = audit(scores, dp.GDP(0.4), included, estimator=estimator, alpha=1e-3, delta=1e-7)
    assert caught.violated
    assert caught.epsilon_lower > dp.accounting.epsilon(dp.events.Gaussian(2.5), delta=1e-7).upper


def test_scores_need_a_claim_and_coins():
    scores, included = ideal(1.0, canaries=50)
    with pytest.raises(InvalidArgument, match="claim must be given"):
        audit(scores, None, included)
    with pytest.raises(InvalidArgument, match="neighbors must be one bool for each score"):
        audit(scores, dp.GDP(1.0), included.astype(int))
    with pytest.raises(InvalidArgument, match="at least 10"):
        audit(scores[:5], dp.GDP(1.0), included[:5])
