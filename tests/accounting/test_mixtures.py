"""Poisson samples for groups and for a replaced unit: mixtures of normals, and losses that are rare."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting.losses import mixtures
from discreet.accounting.tight import delta, epsilon
from discreet.errors import UnknownEvent
from discreet.events import Composed, Gaussian, Group, Laplace, NonPrivate, PoissonSampled, Repeated
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT
from tests.accounting.truth import gaussian_delta


def mixture(weights, means, x):
    return mp.fsum(w * mp.npdf(x - m) for w, m in zip(weights, means, strict=True))


def group_delta(rate, mu, removed, added, at):
    """∫ max(0, P − e^ε Q) by 30 digits of mpmath: P/Q grows, so it is an integral from one point on."""

    def binomial(n):
        return [mp.binomial(n, i) * mp.mpf(rate) ** i * (1 - mp.mpf(rate)) ** (n - i) for i in range(n + 1)]

    p, q = binomial(removed), binomial(added)
    up, down = [i * mp.mpf(mu) for i in range(removed + 1)], [-j * mp.mpf(mu) for j in range(added + 1)]

    def excess(x):
        return mixture(p, up, x) - mp.exp(at) * mixture(q, down, x)

    low, high = mp.mpf(-60), mp.mpf(60)
    if excess(high) <= 0:
        return mp.mpf(0)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)

    def tail(weights, means):
        return mp.fsum(w * mp.ncdf(m - low) for w, m in zip(weights, means, strict=True))

    return tail(p, up) - mp.exp(at) * tail(q, down)


@pytest.mark.parametrize(
    ("rate", "sigma", "people", "at"), [(0.1, 1.0, 2, 0.5), (0.3, 2.0, 3, 1.0), (0.01, 0.8, 4, 0.2), (0.7, 1.5, 2, 2.0)]
)
def test_a_group_on_one_sample_costs_the_worst_split_of_added_and_removed_units(rate, sigma, people, at):
    with mp.workdps(30):
        truth = max(group_delta(rate, 1 / mp.mpf(sigma), a, people - a, mp.mpf(at)) for a in range(people + 1))
    found = delta(Group(PoissonSampled(rate, Gaussian(sigma)), people), at)
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-3 * found.upper


@pytest.mark.parametrize(("removed", "added"), [(2, 0), (0, 2), (1, 1), (2, 1)])
def test_each_split_has_the_loss_of_its_two_mixtures(removed, added):
    loss = mixtures.group_loss(0.2, 0.9, removed, added)
    edges = np.linspace(*loss.support(1e-12), 4001)
    cells = loss.cells(edges)
    middle = (edges[1:] + edges[:-1]) / 2
    at = 0.3
    found = float(np.sum(cells.p * np.maximum(-np.expm1(at - middle), 0.0)))
    with mp.workdps(30):
        assert found == pytest.approx(float(group_delta(0.2, 0.9, removed, added, mp.mpf(at))), rel=1e-3)
    assert np.all(cells.upper_share <= cells.p)


def test_no_directions_of_the_units_are_worse_than_one_line():
    """Two removed units and one added one, with vectors in the plane: an integral over a fine grid of the plane."""
    axis = np.linspace(-9, 9, 361)
    x, y = np.meshgrid(axis, axis)
    step = (axis[1] - axis[0]) ** 2

    def density(weights, means):
        parts = (
            w * np.exp(-0.5 * ((x - a) ** 2 + (y - b) ** 2)) / (2 * np.pi)
            for w, (a, b) in zip(weights, means, strict=True)
        )
        return sum(parts)

    rng, rate, mu = np.random.default_rng(3), 0.4, 1.1
    weights = [(1 - rate) ** 2, rate * (1 - rate), rate * (1 - rate), rate**2]
    with mp.workdps(20):
        bounds = {at: float(group_delta(rate, mu, 2, 1, mp.mpf(at))) for at in (0.0, 0.7)}
    for _ in range(20):
        angles, sizes = rng.uniform(0, 2 * np.pi, 3), mu * rng.uniform(0.3, 1.0, 3)
        first, second, third = (size * np.array([np.cos(t), np.sin(t)]) for t, size in zip(angles, sizes, strict=True))
        p = density(weights, [(0, 0), first, second, first + second])
        q = density([1 - rate, rate], [(0, 0), third])
        for at, bound in bounds.items():
            assert np.sum(np.maximum(p - math.exp(at) * q, 0)) * step <= bound * (1 + 1e-6)


def test_a_group_on_a_sample_of_everybody_is_a_group_without_a_sample():
    sampled = epsilon(Group(PoissonSampled(1.0, Gaussian(3.0)), 3), 1e-6)
    assert sampled.contains(epsilon(Gaussian(1.0), 1e-6).upper)


def test_groups_compose_and_cost_less_than_the_group_theorem_says():
    steps = Repeated(PoissonSampled(0.01, Gaussian(2.0)), 20)
    pair = epsilon(Group(steps, 2), 1e-6)
    assert epsilon(steps, 1e-6).upper < pair.lower <= pair.upper < 2 * epsilon(steps, 1e-6 / 3).upper
    with_more = epsilon(Composed((Group(steps, 2), Gaussian(5.0))), 1e-6)
    assert with_more.lower > pair.upper
    assert epsilon(Group(steps, 2), 1e-6, ZERO_OUT) == pair


def test_groups_that_are_not_priced_are_refused_by_name():
    step = PoissonSampled(0.1, Gaussian(1.0))
    for event, relation in [
        (Group(step, 2), REPLACE_ONE),
        (Group(step, 33), ADD_REMOVE),
        (Group(PoissonSampled(0.1, Laplace(1.0)), 2), ADD_REMOVE),
        (Composed((Group(step, 2), Group(step, 3))), ADD_REMOVE),
    ]:
        with pytest.raises(UnknownEvent, match="Group"):
            epsilon(event, 1e-5, relation)


@pytest.mark.parametrize(("rate", "at"), [(0.1, 0.0), (0.01, 0.5), (0.5, 2.0)])
def test_a_replaced_unit_costs_the_event_with_the_probability_that_it_is_sampled(rate, at):
    found = delta(PoissonSampled(rate, Gaussian(1.0)), at, REPLACE_ONE)
    with mp.workdps(30):
        truth = mp.mpf(rate) * gaussian_delta(mp.mpf(at), 1)
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-3 * found.upper


def test_replaced_units_on_many_samples_cost_a_random_number_of_events():
    """δ = Σ_m C(T, m) q^m (1−q)^{T−m} δ_m, with δ_m that of m Gaussians."""
    rate, steps, at = 0.05, 30, 1.0
    with mp.workdps(30):
        truth = mp.fsum(
            mp.binomial(steps, m)
            * mp.mpf(rate) ** m
            * (1 - mp.mpf(rate)) ** (steps - m)
            * gaussian_delta(at, mp.sqrt(m))
            for m in range(1, steps + 1)
        )
    found = delta(Repeated(PoissonSampled(rate, Gaussian(1.0)), steps), at, REPLACE_ONE)
    assert found.lower <= truth <= found.upper
    assert found.width <= 1e-3 * found.upper


def test_a_replaced_unit_on_a_sample_that_is_published_is_a_delta():
    assert delta(PoissonSampled(0.1, NonPrivate()), 5.0, REPLACE_ONE).contains(0.1)
    with pytest.raises(UnknownEvent, match="Composed"):
        epsilon(PoissonSampled(0.1, Composed((Gaussian(1.0), Laplace(1.0)))), 1e-5, REPLACE_ONE)
