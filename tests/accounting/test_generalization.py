"""The generalization bound against algorithms whose gap can be computed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import discreet as dp
from discreet.accounting import generalization_gap
from discreet.errors import InvalidArgument
from discreet.neighbors import REPLACE_ONE, Neighbors

REPLACED = Neighbors(REPLACE_ONE)


def gap_of_exponential(n, epsilon):
    """E[train − new] of the worst kind of learner, exactly: fit a coin's majority by the exponential mechanism.

    Examples are fair coins; the model says heads or tails; the loss is 1 where it is wrong, and new is always 1/2.
    Replacing an example changes the score (the number of heads) by 1, so the mechanism is ε-DP.
    """
    heads = np.arange(n + 1)
    share = stats.binom.pmf(heads, n, 0.5)
    says_heads = 1 / (1 + np.exp(-epsilon * (heads - n / 2)))
    train = says_heads * (n - heads) / n + (1 - says_heads) * heads / n
    return 0.5 - float(np.sum(share * train))


@pytest.mark.parametrize("n", [1, 2, 5, 100])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_learner_has_a_larger_gap_than_stated(n, epsilon):
    bound = generalization_gap(dp.PureDP(epsilon, protects=REPLACED), n)
    assert gap_of_exponential(n, epsilon) <= bound.expected
    if n == 1:  # one coin: the gap is tanh(ε/4)/2, half of what is allowed for small ε
        assert gap_of_exponential(1, epsilon) == pytest.approx(math.tanh(epsilon / 4) / 2)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
@pytest.mark.parametrize("failure", [0.01, 0.3])
def test_the_likely_bound_holds_as_often_as_stated(epsilon, failure):
    """All datasets of n coins and both models, weighed by their probabilities: no sampling."""
    n = 30
    bound = generalization_gap(dp.PureDP(epsilon, protects=REPLACED), n, failure=failure).likely
    wrong = 0.0
    for heads in range(n + 1):
        says_heads = 1 / (1 + math.exp(-epsilon * (heads - n / 2)))
        for chance, train in ((says_heads, (n - heads) / n), (1 - says_heads, heads / n)):
            wrong += stats.binom.pmf(heads, n, 0.5) * chance * (0.5 - train > bound)
    assert wrong <= failure


def test_all_algorithms_on_two_coins_keep_the_bound():
    """Every pair of output probabilities on a grid that is ε-DP, for n = 2 and a binary model."""
    epsilon = 0.8
    grid = np.linspace(0.01, 0.99, 15)
    worst = 0.0
    for none, one, both in itertools.product(grid, repeat=3):  # the chance of "heads" for 0, 1, 2 heads
        near = all(
            abs(math.log(a / b)) <= epsilon and abs(math.log((1 - a) / (1 - b))) <= epsilon
            for a, b in ((none, one), (one, both))
        )
        if near:
            chances = ((0.25, none, 0.0), (0.5, one, 0.5), (0.25, both, 1.0))
            worst = max(worst, 0.5 - sum(p * (h * (1 - s) + (1 - h) * s) for p, h, s in chances))
    bound = generalization_gap(dp.PureDP(epsilon, protects=REPLACED), 2).expected
    assert 0.2 * bound < worst <= bound


def test_forms_agree_about_gaussian_noise():
    mu = 0.5
    gdp, zcdp = (
        generalization_gap(form, 10).expected
        for form in (dp.GDP(mu, protects=REPLACED), dp.ZCDP(mu**2 / 2, protects=REPLACED))
    )
    assert gdp == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, rel=1e-9)
    assert zcdp == pytest.approx(mu / 2, rel=1e-9)
    orders = dp.RDP((1.5, 8.0), (1.5 * mu**2 / 2, 4 * mu**2), protects=REPLACED)
    assert generalization_gap(orders, 10).expected >= zcdp
    assert generalization_gap(dp.ApproxDP(0.5, 0.01, protects=REPLACED), 10).expected == pytest.approx(
        0.01 + 0.99 * math.tanh(0.25)
    )


def test_adding_or_removing_is_not_replacing():
    """A mutant that forgets the factor of 2 fails."""
    plain = generalization_gap(dp.PureDP(0.4), 100)
    assert plain.expected == pytest.approx(0.2)
    assert generalization_gap(dp.PureDP(0.8, protects=REPLACED), 100).expected == pytest.approx(0.2)
    assert generalization_gap(dp.PureDP(0.4, protects=Neighbors(dp.ADD_REMOVE)), 100).expected == plain.expected


def test_nothing_private_bounds_nothing():
    for form in (dp.PureDP(math.inf), dp.ApproxDP(1.0, 1.0), dp.ZCDP(math.inf), dp.GDP(math.inf)):
        assert generalization_gap(form, 10).expected == 1.0
    assert "on average" in str(generalization_gap(dp.ZCDP(0.1), 1000))
    assert "in one training" in str(generalization_gap(dp.PureDP(0.1), 1000))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"examples": 0}, "examples"),
        ({"failure": 0}, "failure"),
        ({"failure": 1}, "failure"),
        ({"failure": math.nan}, "failure"),
        ({"guarantee": 1.0}, "guarantee"),
    ],
)
def test_bad_arguments_are_refused(change, name):
    asked = {"guarantee": dp.PureDP(1.0), "examples": 10, **change}
    with pytest.raises(InvalidArgument, match=f"{name} must"):
        generalization_gap(asked.pop("guarantee"), asked.pop("examples"), **asked)
