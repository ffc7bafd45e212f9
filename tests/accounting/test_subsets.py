"""Many subsets of fixed size: the block of steps dominates every attack, and is tighter than step by step."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.accounting.losses import subsets
from discreet.accounting.losses.symmetric import triangle
from discreet.accounting.tight import delta, epsilon
from discreet.events import Composed, Exponential, Gaussian, PoissonSampled, Repeated, SampledWithoutReplacement
from discreet.neighbors import REPLACE_ONE

RATE, MU = 0.2, 0.9
AXIS = np.linspace(-9, 10, 1201)


def in_the_plane(u, v):
    """P and Q of every cell of a fine grid of the plane, for the values u, v and 0."""
    x, y = np.meshgrid(AXIS, AXIS)
    step = (AXIS[1] - AXIS[0]) ** 2

    def density(mean):
        return step * np.exp(-0.5 * ((x - mean[0]) ** 2 + (y - mean[1]) ** 2)) / (2 * np.pi)

    without = (1 - RATE) * density((0, 0))
    return (without + RATE * density(u)).ravel(), (without + RATE * density(v)).ravel()


def on_a_line(u, v):
    """P and Q of the cells of a line, for the values u, v and 0."""
    step = AXIS[1] - AXIS[0]

    def density(mean):
        return step * np.exp(-0.5 * (AXIS - mean) ** 2) / math.sqrt(2 * np.pi)

    without = (1 - RATE) * density(0)
    return without + RATE * density(u), without + RATE * density(v)


def excess(p, q, at):
    return float(np.sum(np.maximum(p - math.exp(at) * q, 0.0)))


def test_one_step_covers_every_three_values_at_most_a_distance_apart():
    loss = subsets.block(RATE, MU, 1)
    rng = np.random.default_rng(5)
    tried = 0
    corners = [
        ((MU, 0), (0, 0)),
        ((0, 0), (MU, 0)),
        ((MU, 0), (MU / 2, MU * math.sqrt(0.75))),
        ((MU / 2, 0), (-MU / 2, 0)),
    ]
    drawn = [tuple(map(tuple, rng.uniform(-MU, MU, (2, 2)))) for _ in range(40)]
    for u, v in [*corners, *drawn]:
        if max(math.hypot(*u), math.hypot(*v), math.dist(u, v)) > MU * (1 + 1e-9) or tried > 12:
            continue
        tried += 1
        p, q = in_the_plane(u, v)
        for at in (-0.5, -0.1, 0.0, 0.1, 0.6):
            assert excess(p, q, at) <= loss.profile(at)[1]
    assert tried > 8


def test_one_step_is_hardly_more_than_the_theorem():
    loss = subsets.block(RATE, MU, 1)
    for at in (0.0, 0.2, 0.8):
        exact = delta(SampledWithoutReplacement(1, 5, Gaussian(1 / MU)), at, REPLACE_ONE)
        assert exact.lower <= loss.profile(at)[1] <= 1.01 * exact.upper


def test_two_steps_cover_every_mix_of_attacks():
    loss = subsets.block(RATE, MU, 2)
    with_unit, with_other = on_a_line(MU, 0), on_a_line(0, MU)
    both = triangle(RATE, MU)
    step = len(both.p) // 600
    coarse = tuple(np.add.reduceat(mass, np.arange(0, len(both.p), step)) for mass in (both.p, both.q))
    for first, second in itertools.combinations_with_replacement((with_unit, with_other, coarse), 2):
        p, q = np.outer(first[0], second[0]), np.outer(first[1], second[1])
        for at in (0.0, 0.3, 0.9):
            assert excess(p, q, at) <= loss.profile(at)[1]


def test_many_steps_cost_less_than_step_by_step_and_more_than_poisson_samples():
    event = Repeated(SampledWithoutReplacement(10, 100, Gaussian(1.0)), 20)
    found = epsilon(event, 1e-5, REPLACE_ONE)
    assert found.upper < 3.63  # the pair of one step, composed, gives 3.743
    assert found.lower >= epsilon(Repeated(PoissonSampled(0.1, Gaussian(1.0)), 20), 1e-5).lower * (1 - 1e-4)
    assert found.width < 0.011 * found.upper


def test_only_one_part_of_a_composition_is_steered():
    subset = SampledWithoutReplacement(10, 100, Gaussian(1.0))
    other = SampledWithoutReplacement(5, 100, Gaussian(1.0))
    assert subsets.steered_leaf(frozenset([(subset, 20), (other, 7)])) == subset
    assert subsets.steered_leaf(frozenset([(subset, 20), (Exponential(Fraction(1)), 3)])) is None
    assert subsets.steered_leaf(frozenset([(subset, 1)])) is None
    mixed = epsilon(Composed((Repeated(subset, 4), Gaussian(3.0))), 1e-5, REPLACE_ONE)
    assert mixed.lower > epsilon(Gaussian(3.0), 1e-5).upper


@pytest.mark.slow
def test_a_thousand_steps_are_within_five_percent():
    found = epsilon(Repeated(SampledWithoutReplacement(10, 1000, Gaussian(1.0)), 1000), 1e-6, REPLACE_ONE)
    assert found.width < 0.05 * found.upper


@pytest.mark.parametrize(("size", "sigma", "count"), [(99, 1.0, 3), (1, 100.0, 3), (50, 0.3, 70)])
def test_extreme_subsets_keep_both_ends(size, sigma, count):
    event = Repeated(SampledWithoutReplacement(size, 100, Gaussian(sigma)), count)
    found = epsilon(event, 1e-6, REPLACE_ONE)
    assert 0 <= found.lower <= found.upper <= epsilon(Repeated(Gaussian(sigma), count), 1e-6).upper * (1 + 1e-9)


def test_two_steps_cover_an_attack_that_chooses_the_second_after_the_first():
    loss = subsets.block(RATE, MU, 2)
    lines = on_a_line(MU, 0), on_a_line(0, MU)
    for at in (0.0, 0.2, 0.5):
        attained = []
        for p, q in lines:
            left = np.exp(at - np.log(p / q))[:, None]
            second = [np.sum(np.maximum(each[0] - left * each[1], 0.0), axis=1) for each in lines]
            attained.append(float(p @ np.maximum(*second)))
        assert 0.96 * loss.profile(at)[1] <= max(attained) <= loss.profile(at)[1]
