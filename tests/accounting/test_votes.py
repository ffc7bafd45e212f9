"""Votes of teachers: prices that hold for all votes, and bounds that depend on them, against quadratures and papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special

from discreet import events as ev
from discreet.accounting import compare, epsilon, pate, pure, rdp, zcdp
from discreet.accounting.composition import advanced
from discreet.accounting.forms.conversions import rdp_epsilon
from discreet.errors import InvalidArgument
from discreet.guarantees import RDP, PureDP


def test_gaussian_votes_have_the_published_divergence():
    # Papernot et al. 2018, Proposition 8: (λ, λ/σ²)-RDP for GNMax; their check is half of that.
    for sigma in (40.0, 150.0):
        for order in (2.0, 32.0):
            assert rdp(ev.GaussianVotes(sigma), (order,)).epsilons[0] == pytest.approx(order / sigma**2, rel=1e-12)
            assert rdp(ev.GaussianVoteCheck(sigma), (order,)).epsilons[0] == pytest.approx(order / (2 * sigma**2))
    assert zcdp(ev.GaussianVotes(40.0)).rho >= 1 / 1600


def test_laplace_votes_have_the_published_epsilon():
    # Papernot et al. 2017: (2γ, 0)-DP. 100 answers at γ = 0.05 cost 5.80 at δ = 1e-5 by strong composition; here less.
    event = ev.LaplaceVotes(20.0)
    assert pure(event).epsilon == pytest.approx(0.1, rel=1e-15)
    assert advanced(PureDP(0.1), 100, 1e-5).epsilon == pytest.approx(5.80, abs=0.06)
    assert epsilon(ev.Repeated(event, 100), 1e-5).upper < 4.31


def test_votes_compose_and_compare_like_the_noise_that_they_are():
    plan = ev.Composed((ev.Repeated(ev.GaussianVoteCheck(150.0), 500), ev.Repeated(ev.GaussianVotes(40.0), 286)))
    plain = ev.Composed((ev.Repeated(ev.Gaussian(150.0), 500), ev.Repeated(ev.Gaussian(40 / math.sqrt(2)), 286)))
    assert epsilon(plan, 1e-5).upper == pytest.approx(epsilon(plain, 1e-5).upper, rel=1e-9)
    assert epsilon(plan, 1e-5).upper >= epsilon(plain, 1e-5).lower
    assert "GaussianVotes" in repr(plan)
    assert str(compare(ev.Repeated(ev.LaplaceVotes(20.0), 100), 1e-5))
    assert epsilon(ev.GaussianVotes(math.inf), 1e-5).upper == 0
    # A mutant that takes 1 for the sensitivity of the counts is cheaper.
    assert epsilon(ev.GaussianVotes(40.0), 1e-5).lower > epsilon(ev.Gaussian(40.0), 1e-5).upper


def winners(votes, sigma):
    """P(each class wins) with N(0, σ²) noise on the counts, by quadrature."""

    def density(x, k):
        others = [special.ndtr((x - count) / sigma) for j, count in enumerate(votes) if j != k]
        return math.exp(-((x - votes[k]) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) * math.prod(others)

    span = (min(votes) - 12 * sigma, max(votes) + 12 * sigma)
    return np.array([integrate.quad(density, *span, args=(k,), limit=400, epsabs=1e-16)[0] for k in range(len(votes))])


@pytest.mark.parametrize("votes", [(18, 6, 1), (12, 10, 2), (14, 0, 0)])
@pytest.mark.parametrize("sigma", [2.0, 6.0])
def test_no_neighbor_of_these_votes_is_further_than_the_bound(votes, sigma):
    here = winners(votes, sigma)
    assert here[1] + here[2] <= math.exp(pate.gaussian_log_q(votes, sigma)) * (1 + 1e-6) + 1e-15
    orders = (1.5, 3.0, 8.0)
    bounds = pate.gaussian_votes_rdp(votes, sigma, orders)
    for old in range(3):
        for new in range(3):
            if old == new or votes[old] == 0:
                continue
            moved = [count - (k == old) + (k == new) for k, count in enumerate(votes)]
            there = winners(moved, sigma)
            for order, bound in zip(orders, bounds, strict=True):
                attained = math.log(float(np.sum(here**order * there ** (1 - order)))) / (order - 1)
                assert attained <= bound * (1 + 1e-6) + 1e-9


def test_agreement_lowers_the_bound_and_disagreement_does_not():
    orders = (2.0, 10.0, 30.0)
    plain = np.array(orders) / 40.0**2
    agreed, split = (pate.gaussian_votes_rdp(votes, 40.0, orders) for votes in ([245, 3, 2], [90, 85, 75]))
    assert np.all(agreed[:2] < 0.75 * plain[:2])
    assert split == pytest.approx(plain, rel=1e-12)
    # More agreement never costs more.
    curve = [pate.gap_rdp(gap, 10, 40.0, 10.0) for gap in range(0, 251, 10)]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] == pytest.approx(10 / 1600)


def test_a_single_class_reveals_nothing():
    assert pate.gaussian_votes_rdp([10], 2.0, (2.0,)).tolist() == [0.0]
    assert pate.laplace_votes_rdp([10], 2.0, (2.0,))[0] < 1e-9


def test_the_bound_follows_the_theorem_in_plain_arithmetic():
    # Theorem 6 at ln q = −25 and σ = 40, written out: μ₂ = 200, μ₁ = 201.
    q, sigma, order = math.exp(-25.0), 40.0, 8.0
    second, first = 200.0, 201.0
    a = (1 - q) / (1 - (q * math.exp(second / sigma**2)) ** ((second - 1) / second))
    b = math.exp(first / sigma**2) / q ** (1 / (first - 1))
    written = math.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)
    assert pate.from_log_q(-25.0, sigma, (order,))[0] == pytest.approx(written, rel=1e-3)
    assert pate.from_log_q(-25.0, sigma, (order,))[0] >= written - 1e-13
    # Above μ₁ the theorem says nothing.
    assert pate.from_log_q(-25.0, sigma, (300.0,))[0] == pytest.approx(300 / 1600)


def test_laplace_bounds_follow_the_theorem_and_never_exceed_the_pure_one():
    votes, scale = [230, 15, 5], 20.0
    q = sum((2 + d / scale) / 4 * math.exp(-d / scale) for d in (215, 225))
    assert pate.laplace_log_q(votes, scale) == pytest.approx(math.log(q), rel=1e-9)
    bounds = pate.laplace_votes_rdp(votes, scale, (2.0, 9.0))
    written = math.log((1 - q) * (1 - q) / (1 - math.exp(0.1) * q) + q * math.exp(0.1))
    assert bounds[0] == pytest.approx(written, rel=1e-4)
    assert np.all(bounds <= rdp(ev.LaplaceVotes(scale), (2.0, 9.0)).epsilons[0] * 10)
    assert np.all(pate.laplace_votes_rdp([90, 85, 75], scale, (2.0, 9.0)) <= 0.1)


def test_a_check_far_from_its_threshold_costs_little():
    near, far = (pate.vote_check_rdp(largest, 200, 50.0, (4.0,))[0] for largest in (200, 640))
    assert near == pytest.approx(4 / (2 * 50.0**2), rel=1e-9)
    assert far < 0.2 * near


@pytest.mark.parametrize("gap", [0, 7, 60, 120])
def test_the_smooth_sensitivity_is_smooth_and_covers_every_neighbor(gap):
    arguments = (150, 5, 12.0, 6.0, 0.05)
    here = pate.smooth_sensitivity(gap, *arguments)
    value = pate.gap_rdp(gap, 5, 12.0, 6.0)
    for other in range(max(0, gap - 2), min(150, gap + 2) + 1):
        assert abs(pate.gap_rdp(other, 5, 12.0, 6.0) - value) <= here
        assert pate.smooth_sensitivity(other, *arguments) <= math.exp(0.05) * here * (1 + 1e-9)


def test_the_smooth_sensitivity_covers_the_steepest_place():
    # Where two votes' difference changes the bound most, one that looks one vote far would be about half of it.
    values = np.array([pate.gap_rdp(gap, 5, 12.0, 6.0) for gap in range(151)])
    changes = np.abs(values[2:] - values[:-2])
    gap = int(np.argmax(changes))
    assert pate.smooth_sensitivity(gap, 150, 5, 12.0, 6.0, 2.0) >= changes[gap]


def test_a_smooth_release_costs_no_less_than_two_normal_laws():
    # The divergence of N(0, 1) and N(Δ, r) by quadrature, at both ends of what neighbors can differ by.
    beta, ratio, order = 0.02, 5.0, 6.0
    price = float(pate.smooth_rdp((order,), ratio, beta)[0])
    x = np.linspace(-40, 40, 400_001)
    for r in (math.exp(2 * beta), math.exp(-2 * beta), 1.0):
        other = 1.0  # the neighbor's scale; ours is √r times as large, and the smaller of the two bounds the distance
        distance = min(math.sqrt(r), 1.0) / ratio
        log_p = -(x**2) / (2 * r) - math.log(r) / 2
        log_q = -((x - distance) ** 2) / (2 * other)
        moment = float(np.sum(np.exp(order * log_p - (order - 1) * log_q)) * (x[1] - x[0]) / math.sqrt(2 * math.pi))
        assert math.log(moment) / (order - 1) <= price * (1 + 1e-9)
    assert math.isinf(pate.smooth_rdp((30.0,), ratio, 0.2)[0])
    # With β → 0 it is a Gaussian of this noise.
    assert float(pate.smooth_rdp((order,), ratio, 1e-9)[0]) == pytest.approx(order / (2 * ratio**2), rel=1e-6)


def test_answers_that_teachers_agree_on_cost_a_fraction_of_the_charged_price():
    # 286 answers with σ = 40 of 250 teachers of whom 245 agree; what is charged does not depend on it.
    orders = tuple(float(k) for k in range(2, 100))
    by_votes = RDP(orders, tuple(286 * pate.gaussian_votes_rdp([245, 3, 2], 40.0, orders)))
    assert rdp_epsilon(by_votes, 1e-5) < 0.8 * rdp_epsilon(rdp(ev.Repeated(ev.GaussianVotes(40.0), 286), orders), 1e-5)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: pate.gaussian_votes_rdp([], 1.0, (2.0,)),
        lambda: pate.gaussian_votes_rdp([3, 2], 0.0, (2.0,)),
        lambda: pate.gaussian_votes_rdp([3, 2], 1.0, (1.0,)),
        lambda: pate.gaussian_votes_rdp([3, 2], 1.0, ()),
        lambda: pate.gap_rdp(-1, 3, 1.0, 2.0),
        lambda: pate.gap_rdp(1, 1, 1.0, 2.0),
        lambda: pate.smooth_sensitivity(11, 10, 3, 1.0, 2.0, 0.1),
        lambda: pate.smooth_rdp((2.0,), 0.0, 0.1),
        lambda: ev.GaussianVotes(0.0),
        lambda: ev.LaplaceVotes(-1.0),
    ],
)
def test_bad_arguments_are_refused(ask):
    with pytest.raises(InvalidArgument):
        ask()
