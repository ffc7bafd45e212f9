"""Correlated noise is priced by the sensitivity of its encoder, which brute force and published tables confirm."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from discreet import accounting
from discreet import events as ev
from discreet.accounting import correlation
from discreet.accounting.adaptive.advice import _scaled
from discreet.accounting.prices.correlated import sensitivity
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.neighbors import REPLACE_ONE


def patterns(steps: int, participations: int, separation: int):
    """Every allowed set of steps."""
    for size in range(1, participations + 1):
        for chosen in itertools.combinations(range(steps), size):
            if all(later - earlier >= separation for earlier, later in itertools.pairwise(chosen)):
                yield chosen


def worst(encoder: np.ndarray, participations: int, separation: int) -> float:
    """The largest norm over all patterns and all signs: the sensitivity of a stream of numbers."""
    best = 0.0
    for chosen in patterns(encoder.shape[1], participations, separation):
        for signs in itertools.product((1, -1), repeat=len(chosen) - 1):
            best = max(best, float(np.linalg.norm(encoder[:, chosen] @ np.array([1, *signs]))))
    return best


def toeplitz(coefficients, steps: int) -> np.ndarray:
    matrix = np.zeros((steps, steps))
    for j, coefficient in enumerate(coefficients):
        matrix += coefficient * np.eye(steps, k=-j)
    return matrix


def tree(branching: int, steps: int) -> np.ndarray:
    rows, width = [], 1
    while True:
        rows += [[start <= step < start + width for step in range(steps)] for start in range(0, steps, width)]
        if width >= steps:
            return np.array(rows, dtype=float)
        width *= branching


DECREASING = [(1.0,), (1.0, 0.5), (1.0, 0.5, 0.375, 0.3125), (2.0, 2.0, 2.0, 0.1), tuple(0.9**j for j in range(9))]


@pytest.mark.parametrize("coefficients", DECREASING)
@pytest.mark.parametrize(("participations", "separation"), [(1, 1), (2, 1), (3, 2), (2, 4), (9, 3), (9, 1)])
def test_decreasing_coefficients_have_the_sensitivity_that_brute_force_finds(coefficients, participations, separation):
    truth = worst(toeplitz(coefficients, 9), participations, separation)
    lower, upper = sensitivity(ev.ToeplitzNoise(1.0, coefficients, 9, participations, separation))
    assert lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= upper
    assert upper - lower < 1e-12 * upper


@pytest.mark.parametrize("coefficients", [(1.0, -0.5), (1.0, -0.5, -0.125, -0.0625), (0.5, 1.0, 0.2), (1.0, 0.0, 0.9)])
@pytest.mark.parametrize(("participations", "separation"), [(1, 1), (2, 1), (3, 2), (2, 4), (8, 1)])
def test_other_coefficients_have_bounds_around_the_truth(coefficients, participations, separation):
    truth = worst(toeplitz(coefficients, 8), participations, separation)
    lower, upper = sensitivity(ev.ToeplitzNoise(1.0, coefficients, 8, participations, separation))
    assert lower <= truth * (1 + 1e-14)
    assert truth * (1 - 1e-14) <= upper
    if separation >= len(coefficients):
        assert upper <= truth * (1 + 1e-12)  # bands do not overlap


@pytest.mark.parametrize(("branching", "steps"), [(2, 8), (3, 9), (2, 7)])
@pytest.mark.parametrize(("participations", "separation"), [(1, 1), (2, 1), (3, 2), (2, 3), (8, 1)])
def test_trees_have_bounds_around_what_brute_force_finds(branching, steps, participations, separation):
    truth = worst(tree(branching, steps), participations, separation)
    lower, upper = sensitivity(ev.TreeNoise(1.0, branching, steps, participations, separation))
    assert lower <= truth <= upper
    if separation == 1 or (separation == branching and steps % branching == 0 and participations < 3):
        assert upper == pytest.approx(truth)


@pytest.mark.parametrize(("steps", "squared_error"), [(2**10, 173), (2**16, 351), (2**20, 505)])
def test_the_square_root_factorization_has_the_published_error(steps, squared_error):
    """The mean squared error of prefix sums at (1, 1e-6)-DP: the noise's variance times the decoder's mean square."""
    squares = correlation.square_root_coefficients(steps) ** 2
    noise = 4.22467888933 * math.sqrt(squares.sum())  # the analytic Gaussian mechanism, scaled
    decoder = float(squares @ (1 - np.arange(steps) / steps))
    assert noise**2 * decoder == pytest.approx(squared_error, abs=0.5)
    found = accounting.epsilon(ev.SquareRootNoise(noise, steps, steps, 1, steps), 1e-6)
    assert found.lower == pytest.approx(1.0, rel=1e-7)
    assert found.upper == pytest.approx(1.0, rel=1e-7)


def test_the_binary_tree_has_the_published_error():
    """982 at 2¹⁰ steps: σ² · 11 levels · 5 nodes in a sum on average."""
    noise = 4.22467888933 * math.sqrt(11)
    assert noise**2 * 5 == pytest.approx(982, abs=0.5)
    found = accounting.epsilon(ev.TreeNoise(noise, 2, 2**10, 1, 2**10), 1e-6)
    assert found.upper == pytest.approx(1.0, rel=1e-7)


def test_the_square_root_squares_to_prefix_sums_and_buffers_are_geometric():
    column = correlation.square_root_coefficients(64)
    assert np.allclose(np.convolve(column, column)[:64], 1.0, rtol=1e-14)
    event = ev.BufferedNoise(2.0, (0.3, 0.1), (0.9, 0.99), 200, 5, 40)
    column = correlation.buffered_coefficients(event.scales, event.decays, 200)
    same = ev.ToeplitzNoise(2.0, tuple(column.tolist()), 200, 5, 40)
    assert sensitivity(event)[1] == pytest.approx(sensitivity(same)[1], rel=1e-12)
    assert accounting.gdp(event).mu == pytest.approx(sensitivity(same)[1] / 2, rel=1e-9)


def test_uncorrelated_noise_is_what_it_was():
    plain = ev.Repeated(ev.Gaussian(3.0), 7)
    event = ev.ToeplitzNoise(3.0, (1.0,), 1000, 7, 10)
    assert accounting.epsilon(event, 1e-6).upper == pytest.approx(accounting.epsilon(plain, 1e-6).upper, rel=1e-10)
    assert accounting.zcdp(event).rho == pytest.approx(accounting.zcdp(plain).rho, rel=1e-10)
    assert accounting.zcdp(event).rho >= accounting.zcdp(plain).rho
    assert accounting.pure(event).epsilon == math.inf


def test_no_more_participations_count_than_fit():
    one = ev.ToeplitzNoise(3.0, (1.0, 0.5), 100, 10**9, 50)
    assert sensitivity(one) == sensitivity(ev.ToeplitzNoise(3.0, (1.0, 0.5), 100, 2, 50))


def test_huge_numbers_are_priced_or_refused():
    far = 10**20
    assert sensitivity(ev.ToeplitzNoise(1.0, (1.0, 0.5), 100, far, far)) == sensitivity(
        ev.ToeplitzNoise(1.0, (1.0, 0.5), 100, 1, 100)
    )
    lower, upper = sensitivity(ev.TreeNoise(1.0, 2, far, 1000, 10**17))
    assert 0 < lower <= upper < 2000
    banded = ev.CyclicSampled(0.1, 10**10, ev.ToeplitzNoise(1.0, (1.0, 0.5), far, 10**10, 10**10))
    assert accounting.delta(banded, 1e6).lower >= 0
    for refused in (ev.SquareRootNoise(1.0, 5, far, 1, 5), ev.BufferedNoise(1.0, (0.5,), (0.5,), far, 1, 1)):
        with pytest.raises(UnknownEvent):
            accounting.epsilon(refused, 1e-6)


def test_groups_are_sampled_as_published():
    """One group and one band is ordinary training: 6.1877124 (docs: q = 0.01, σ = 1, 10 000 steps, δ = 1e-5)."""
    plain = ev.CyclicSampled(0.01, 1, ev.ToeplitzNoise(1.0, (1.0,), 10_000, 10_000, 1))
    found = accounting.epsilon(plain, 1e-5)
    assert found.upper == pytest.approx(6.1877124, rel=1e-6)
    assert found.lower == pytest.approx(6.1877124, rel=1e-6)


def test_groups_pay_for_their_own_steps_at_the_norm_of_a_column():
    column = (1.0, 0.5, 0.375, 0.3125)
    norm = float(np.linalg.norm(column))
    event = ev.CyclicSampled(0.04, 4, ev.ToeplitzNoise(1.5, column, 1000, 250, 4))
    same = ev.Repeated(ev.PoissonSampled(0.04, ev.Gaussian(1.5 / norm)), 250)
    found, known = accounting.epsilon(event, 1e-6), accounting.epsilon(same, 1e-6)
    assert found.upper == pytest.approx(known.upper, rel=1e-9)
    assert found.lower == pytest.approx(known.lower, rel=1e-6)
    assert accounting.rdp(event, (8.0,)).epsilons[0] == pytest.approx(accounting.rdp(same, (8.0,)).epsilons[0])
    cut = ev.CyclicSampled(0.04, 4, ev.ToeplitzNoise(1.5, column, 1001, 251, 4))
    assert accounting.epsilon(cut, 1e-6).lower == pytest.approx(found.lower, rel=1e-9)
    assert accounting.epsilon(cut, 1e-6).upper > found.upper


def test_bands_that_overlap_within_a_group_are_refused():
    with pytest.raises(UnknownEvent, match="3 bands"):
        accounting.epsilon(ev.CyclicSampled(0.1, 2, ev.SquareRootNoise(1.0, 3, 10, 5, 2)), 1e-6)
    with pytest.raises(InvalidArgument, match="separation 2"):
        ev.CyclicSampled(0.1, 2, ev.SquareRootNoise(1.0, 2, 10, 1, 2))
    with pytest.raises(UnknownEvent):
        accounting.epsilon(ev.CyclicSampled(0.1, 4, ev.SquareRootNoise(1.0, 3, 8, 2, 4)), 1e-6, REPLACE_ONE)


def test_correlated_noise_is_not_sampled_or_allocated_as_a_step():
    noise = ev.ToeplitzNoise(1.0, (1.0, 0.5), 10, 2, 5)
    for event in (ev.PoissonSampled(0.1, noise), ev.RandomlyAllocated(3, 1, noise)):
        with pytest.raises(UnknownEvent):
            accounting.epsilon(event, 1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ev.ToeplitzNoise(1.0, (), 10, 1, 1),
        lambda: ev.ToeplitzNoise(1.0, (-1.0, 0.5), 10, 1, 1),
        lambda: ev.ToeplitzNoise(1.0, (1.0, math.nan), 10, 1, 1),
        lambda: ev.ToeplitzNoise(1.0, (1.0,) * 11, 10, 1, 1),
        lambda: ev.ToeplitzNoise(1.0, [1.0], 10, 1, 1),
        lambda: ev.SquareRootNoise(1.0, 11, 10, 1, 1),
        lambda: ev.BufferedNoise(1.0, (1.0,), (1.0,), 10, 1, 1),
        lambda: ev.BufferedNoise(1.0, (1.0, 0.5), (0.5,), 10, 1, 1),
        lambda: ev.TreeNoise(1.0, 1, 10, 1, 1),
        lambda: ev.TreeNoise(1.0, 2, 10, 0, 1),
        lambda: ev.CyclicSampled(0.1, 2, ev.TreeNoise(1.0, 2, 10, 5, 2)),
    ],
)
def test_senseless_events_are_refused(make):
    with pytest.raises(InvalidArgument):
        make()


def test_a_refused_charge_says_how_much_more_noise_would_fit():
    event = ev.CyclicSampled(0.01, 4, ev.SquareRootNoise(1.0, 4, 100, 25, 4))
    noisier = _scaled(event, 2.0)
    assert isinstance(noisier, ev.CyclicSampled)
    assert isinstance(noisier.event, ev.SquareRootNoise)
    assert noisier.event.noise_multiplier == 2.0
    assert accounting.epsilon(noisier, 1e-6).upper < accounting.epsilon(event, 1e-6).lower
