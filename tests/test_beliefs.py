"""`Guarantee.posterior` against beliefs that are computed result by result."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from scipy import optimize, special

import discreet as dp
from discreet.errors import InvalidArgument

PRIORS = (0.001, 0.1, 0.5, 0.9)


def after(prior, p, q):
    """The posterior of each result, by Bayes' rule."""
    return prior * p / (prior * p + (1 - prior) * q)


def canonical(epsilon, delta):
    """The two laws on four outcomes to which every (ε, δ)-DP pair can be reduced (docs/proofs/what-delta-means.md)."""
    share = (1 - delta) / (1 + math.exp(epsilon))
    first = np.array([delta, share * math.exp(epsilon), share, 0.0])
    return first, first[::-1]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_pure_dp_bounds_every_belief_and_randomized_response_reaches_both_ends(prior, epsilon):
    p, q = (side[1:3] for side in canonical(epsilon, 0.0))
    beliefs = after(prior, p, q)
    bound = dp.PureDP(epsilon).posterior(prior)
    assert bound.failure == 0
    assert bound.high >= beliefs.max() >= bound.high * (1 - 1e-12)
    assert bound.low <= beliefs.min() <= bound.low * (1 + 1e-12)


@pytest.mark.parametrize("prior", PRIORS)
def test_pure_dp_bounds_beliefs_about_a_count_with_discrete_laplace_noise(prior):
    x = np.arange(-200, 201)
    p, q = np.exp(-np.abs(x) / 2), np.exp(-np.abs(x - 1) / 2)
    beliefs = after(prior, p / p.sum(), q / q.sum())
    bound = dp.PureDP(0.5).posterior(prior)
    assert bound.low - 1e-12 <= beliefs.min() <= beliefs.max() <= bound.high + 1e-12


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(("epsilon", "delta", "failure"), [(1.0, 1e-3, 0.01), (0.1, 0.05, 0.2), (0.0, 0.1, 0.9)])
def test_approximate_dp_is_exceeded_as_often_as_stated_by_no_post_processing(prior, epsilon, delta, failure):
    """Every event of the canonical pair, and every coin on top of one, is tried as a report "yes"."""
    p, q = canonical(epsilon, delta)
    bound = dp.ApproxDP(epsilon, delta).posterior(prior, failure=failure)
    worst = 0.0
    for weights in np.ndindex(11, 11, 11, 11):
        chance_p, chance_q = (float(np.dot(weights, side)) / 10 for side in (p, q))
        if chance_p > failure * (1 + 1e-9):
            worst = max(worst, after(prior, chance_p, chance_q))
            assert after(prior, chance_p, chance_q) <= bound.high * (1 + 1e-9)
    assert worst > 0.8 * bound.high  # a coarse grid of coins already comes close


def test_a_report_that_says_only_whether_the_best_test_rejects_reaches_the_bound():
    epsilon, delta, failure = 1.0, 1e-3, 0.01
    p, q = canonical(epsilon, delta)
    coin = (failure - delta) / p[1]  # say yes on outcome 1, and with this probability on outcome 2
    reached = after(0.1, p[0] + coin * p[1], q[0] + coin * q[1])
    assert dp.ApproxDP(epsilon, delta).posterior(0.1, failure=failure).high == pytest.approx(reached, rel=1e-9)
    mu = 0.7
    least = float(special.ndtr(special.ndtri(failure) - mu))
    assert dp.GDP(mu).posterior(0.1, failure=failure).high == pytest.approx(after(0.1, failure, least), rel=1e-9)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("failure", [1e-6, 0.01, 0.3])
def test_gaussian_noise_moves_beliefs_no_more_often_than_its_three_forms_say(mu, failure):
    """For N(μ, 1) against N(0, 1), P(L > ℓ) = Φ(μ/2 − ℓ/μ), and under the other law less."""
    orders = (1.5, 2.0, 4.0, 16.0, 64.0)
    forms = [dp.GDP(mu), dp.ZCDP(mu**2 / 2), dp.RDP(orders, tuple(a * mu**2 / 2 for a in orders))]
    losses = [form.most_loss(failure) for form in forms]
    for loss in losses:
        assert float(special.ndtr(mu / 2 - loss / mu)) <= failure * (1 + 1e-12)
        assert float(special.ndtr(-mu / 2 - loss / mu)) <= failure
    assert losses[0] <= losses[1] * (1 + 1e-12) <= losses[2] * (1 + 1e-9)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("mu", [0.2, 1.5])
def test_the_best_guess_is_right_as_often_as_a_search_finds(prior, mu):
    def wrong(threshold):
        return (1 - prior) * special.ndtr(-threshold) + prior * special.ndtr(threshold - mu)

    found = optimize.minimize_scalar(wrong, bounds=(-50, 50), method="bounded", options={"xatol": 1e-10})
    grid = min(wrong(t) for t in np.linspace(-40, 40, 4001))
    best = 1 - min(found.fun, grid)
    assert dp.GDP(mu).posterior(prior).right == pytest.approx(best, abs=1e-4)
    assert dp.GDP(mu).posterior(prior).right >= best - 1e-9
    assert dp.ZCDP(mu**2 / 2).posterior(prior).right >= best - 1e-9
    orders = (1.25, 2.0, 8.0)
    assert dp.RDP(orders, tuple(a * mu**2 / 2 for a in orders)).posterior(prior).right >= best - 1e-9


@pytest.mark.parametrize("prior", PRIORS)
def test_no_rule_is_right_more_often_than_stated_under_approximate_dp(prior):
    epsilon, delta = 0.8, 0.02
    p, q = canonical(epsilon, delta)
    rules = [np.array(rule, dtype=bool) for rule in np.ndindex(2, 2, 2, 2)]
    best = max(prior * p[rule].sum() + (1 - prior) * q[~rule].sum() for rule in rules)
    assert dp.ApproxDP(epsilon, delta).posterior(prior).right == pytest.approx(best, rel=1e-12)


def test_what_is_not_bounded_is_said_to_be_not_bounded():
    nothing = dp.ApproxDP(1.0, 1e-3).posterior(0.2, failure=1e-3)
    assert (nothing.low, nothing.high) == (0.0, 1.0)
    assert "not above δ" in nothing.words
    for form in (dp.PureDP(math.inf), dp.ZCDP(math.inf), dp.GDP(math.inf), dp.RDP((2.0,), (math.inf,))):
        belief = form.posterior(0.2)
        assert (belief.low, belief.high, belief.right) == (0.0, 1.0, 1.0)
        assert "anything" in belief.words


@pytest.mark.parametrize("form", [dp.PureDP(0.0), dp.ApproxDP(0.0, 0.0), dp.ZCDP(0.0), dp.GDP(0.0)])
def test_no_loss_moves_no_belief(form):
    belief = form.posterior(0.2)
    assert belief.low == pytest.approx(0.2, rel=1e-12)
    assert belief.high == pytest.approx(0.2, rel=1e-12)
    assert belief.right == pytest.approx(0.8, rel=1e-12)


def test_a_certain_attacker_stays_certain():
    for prior in (0.0, 1.0):
        belief = dp.ApproxDP(1.0, 1e-6).posterior(prior)
        assert (belief.low, belief.high, belief.right) == (prior, prior, 1.0)


def test_a_family_is_believed_about_through_its_group():
    assert dp.PureDP(0.5).group(4).posterior(0.5).high == pytest.approx(1 / (1 + math.exp(-2)))


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf, "0.5", None, True])
def test_a_bad_prior_or_failure_is_refused(bad):
    with pytest.raises(InvalidArgument, match="prior must"):
        dp.PureDP(1.0).posterior(bad)
    with pytest.raises(InvalidArgument, match="failure must"):
        dp.ZCDP(1.0).posterior(0.5, failure=bad)


@pytest.mark.parametrize("failure", [0.0, 1.0])
def test_only_pure_dp_takes_a_failure_of_0(failure):
    assert dp.PureDP(1.0).posterior(0.5, failure=failure).failure == 0
    with pytest.raises(InvalidArgument, match="failure must be in"):
        dp.GDP(1.0).posterior(0.5, failure=failure)


def test_a_belief_is_drawn_and_said():
    for form in (dp.PureDP(1.0), dp.GDP(1.0)):
        belief = form.posterior(0.1)
        belief.plot().figure.savefig(os.devnull, format="svg")
        assert str(form) in str(belief)
    assert "3.93% and 23.2%, always" in str(dp.PureDP(1.0).posterior(0.1))
