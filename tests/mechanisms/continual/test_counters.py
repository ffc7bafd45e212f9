"""Counters answer what they should, with exactly the stated error, and cost no less than they move.

Tests that look through the noise are exact. Statistical ones have a false-alarm rate of 1e-6.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize, stats

from discreet import accounting, events, queries
from discreet.bounded import Sensitivity
from discreet.errors import InvalidArgument
from discreet.mechanisms import Gaussian, Laplace
from discreet.mechanisms import continual as dc
from discreet.mechanisms.continual import series
from discreet.mechanisms.continual.trees import tree_squares
from discreet.neighbors import Rows
from tests.exact import FALSE_ALARM
from tests.mechanisms.continual.kinds import (
    STEPS,
    answers,
    counters,
    decoder,
    named,
    noise_of,
    query,
    unit_of,
    workload_matrix,
)

COUNTERS = counters()
every_counter = pytest.mark.parametrize("counter", COUNTERS, ids=named)


@every_counter
def test_without_noise_the_answers_are_exact(counter, monkeypatch):
    stream = np.random.default_rng(1).integers(-1000, 1000, STEPS)
    with noise_of(monkeypatch, lambda i: 0):
        found = answers(counter, stream)
    assert np.allclose(found, workload_matrix(counter) @ stream, rtol=0, atol=1e-4)
    if isinstance(counter, (dc.SubtractionTree, dc.Tree)) and not getattr(counter, "refined", False):
        assert np.array_equal(found, np.cumsum(stream))


@every_counter
def test_errors_are_exactly_those_of_the_noise(counter, monkeypatch):
    """Σ over draws of the squared weight in each answer, times the variance of a draw."""
    weights = decoder(counter, monkeypatch)
    variance = counter._noise_variance / unit_of(counter) ** 2
    stated = [counter.error(step) for step in range(1, STEPS + 1)]
    assert np.sum(weights**2, axis=1) * variance == pytest.approx(stated, rel=1e-5)
    assert counter.mean_error() == pytest.approx(np.mean(stated))
    assert counter.max_error() == pytest.approx(np.max(stated))


@every_counter
def test_no_unit_moves_the_draws_further_than_the_event_says(counter, monkeypatch):
    """A neighbor at step i has the same answers if the draws move by s with B·s = A·eᵢ: the least |s| is what it costs.

    Mutants: one level less in `tree_event`, the sensitivity of the first column in place of all, fail.
    """
    weights, matrix = decoder(counter, monkeypatch), workload_matrix(counter)
    worst = 0.0
    for step in range(0, STEPS, 1 if isinstance(counter.noise, Gaussian) else 5):
        target = matrix[:, step]
        if isinstance(counter.noise, Laplace):
            count = weights.shape[1]
            cost, both = np.ones(2 * count), np.hstack([weights, -weights])
            worst = max(worst, optimize.linprog(cost, A_eq=both, b_eq=target, bounds=(0, None)).fun)
        else:
            shift, *_ = np.linalg.lstsq(weights, target, rcond=None)
            assert np.allclose(weights @ shift, target, atol=1e-4)
            worst = max(worst, float(np.linalg.norm(shift)))
    if isinstance(counter.noise, Laplace):
        assert isinstance(counter.event, events.DiscreteLaplace)
        assert worst <= counter.event.sensitivity * (1 + 1e-6)
        if not getattr(counter, "refined", False):
            assert worst > counter.event.sensitivity - 0.5
    else:
        mu = worst / float(counter.noise.standard_deviation)
        stated = accounting.gdp(counter.event).mu
        assert mu <= stated * (1 + 1e-4)
        assert mu > stated * (0.5 if isinstance(counter, (dc.SubtractionTree, dc.Tree)) else 0.95)


@pytest.mark.parametrize("counter", counters(dc.Stream(17, participations=3, separation=4)), ids=named)
def test_several_participations_move_no_further_than_the_event_says(counter, monkeypatch):
    """Some units in three steps, and the first three steps that are allowed."""
    weights, matrix = decoder(counter, monkeypatch), workload_matrix(counter)
    worst = 0.0
    for steps in ([0, 4, 8], [1, 6, 13], [0, 9, 16], [8, 12, 16]):
        target = matrix[:, steps].sum(axis=1)
        if isinstance(counter.noise, Laplace):
            cost, both = np.ones(2 * weights.shape[1]), np.hstack([weights, -weights])
            worst = max(worst, optimize.linprog(cost, A_eq=both, b_eq=target, bounds=(0, None)).fun)
        else:
            worst = max(worst, float(np.linalg.norm(np.linalg.lstsq(weights, target, rcond=None)[0])))
    if isinstance(counter.noise, Laplace):
        assert worst <= counter.event.sensitivity * (1 + 1e-6)
    else:
        assert worst / float(counter.noise.standard_deviation) <= accounting.gdp(counter.event).mu * (1 + 1e-4)


@pytest.mark.parametrize("kind", [dc.Buffered, dc.BandedInverse, dc.SquareRoot])
@pytest.mark.parametrize(("scale", "epsilon", "delta"), [(1, 0.5, 1e-9), (1 << 28, 0.5, 1e-9), (1, 1e-14, 1e-14)])
def test_rounding_moves_the_encoded_stream_no_further_than_the_distortion(kind, scale, epsilon, delta):
    """Encode two neighboring streams with integers as the counter does, on coarse grids as well.

    With the largest noise the grid is so coarse that a mutant without the distortion fails.
    """
    stream = dc.Stream(200, Sensitivity(1, scale, scale**2, scale))
    counter = kind.for_epsilon(stream, epsilon, delta, **({} if kind is dc.Buffered else {"bands": 16}))
    coarse = epsilon < 1e-6
    assert counter.bits == 30 or scale > 1 or (coarse and counter.bits <= 6)
    generator = np.random.default_rng(3)
    first = [int(v) for v in generator.integers(-(2**40), 2**40, 200)]
    second = list(first)
    second[5] += scale
    encoded = []
    for integers in (first, second):
        memory, row = [], []
        for value in integers:
            memory, (out,) = counter._encode(memory, [value])
            row.append(out)
        encoded.append(row)
    moved = math.sqrt(sum((a - b) ** 2 for a, b in zip(*encoded, strict=True))) / 2**counter.bits
    deviation = float(counter.noise.standard_deviation)
    assert moved <= deviation * accounting.gdp(counter.event).mu
    undistorted = counter._event_with(deviation / scale)
    assert moved > (0.99 if not coarse else 1.0) * deviation * accounting.gdp(undistorted).mu


@every_counter
def test_the_event_costs_at_most_what_was_asked(counter):
    if isinstance(counter.noise, Laplace):
        assert 0.999 < accounting.pure(counter.event).epsilon <= 1.0
        assert counter.guarantee.epsilon <= 1.0
    else:
        assert 0.99 < accounting.epsilon(counter.event, 1e-6).upper <= 1.0
    assert str(counter.guarantee).endswith("add or remove one row")


@pytest.mark.parametrize(
    ("steps", "binary", "subtraction", "branching", "gaussian", "root"),
    [
        (1 << 10, 1210, 170, 13, 982, {1e-6: 173, 1e-10: 333, 1e-15: 542}),
        pytest.param(1 << 16, 4624, 615, 21, 2427, {1e-6: 351, 1e-10: 677, 1e-15: 1102}, marks=pytest.mark.slow),
        pytest.param(1 << 20, 8820, 1147, 19, 3748, {1e-6: 505, 1e-10: 974, 1e-15: 1585}, marks=pytest.mark.slow),
    ],
)
def test_errors_are_the_published_ones(steps, binary, subtraction, branching, gaussian, root):
    """MSE·ε² at a small ε, where integer noise is as good as continuous noise."""
    stream, epsilon = dc.Stream(steps), 0.01
    tree = dc.Tree.for_epsilon(stream, epsilon, refined=False)
    assert tree.mean_error() * epsilon**2 == pytest.approx(binary, rel=3e-3)
    fewer = dc.SubtractionTree.for_epsilon(stream, epsilon, branching=branching)
    assert fewer.mean_error() * epsilon**2 == pytest.approx(subtraction, rel=5e-3)
    others = [dc.SubtractionTree.for_epsilon(stream, epsilon, branching=k).mean_error() for k in range(3, 41, 2)]
    assert min(others) * epsilon**2 == pytest.approx(subtraction, rel=5e-3)
    assert dc.Tree.for_epsilon(stream, 1.0, 1e-6, refined=False).mean_error() == pytest.approx(gaussian, rel=3e-3)
    refined = dc.Tree.for_epsilon(stream, 1.0, 1e-6).mean_error()
    assert refined < 0.6 * gaussian
    for delta, stated in root.items():
        assert dc.SquareRoot.for_epsilon(stream, 1.0, delta).mean_error() == pytest.approx(stated, rel=3e-3)
        assert dc.Buffered.for_epsilon(stream, 1.0, delta, buffers=8).mean_error() < stated * 1.01


def test_inverse_coefficients_are_the_published_ones():
    assert series.inverse_square_root(5).tolist() == [1, -1 / 2, -1 / 8, -1 / 16, -5 / 128]
    column = np.cumprod(np.concatenate(([1.0], 1 - 1 / (2 * np.arange(1.0, 1000)))))
    assert np.allclose(series.inverse(column, 1000), series.inverse_square_root(1000), atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "counter",
    [
        dc.SubtractionTree.for_epsilon(dc.Stream(12), 1.0, branching=3),
        dc.Tree.for_epsilon(dc.Stream(12), 1.0, 1e-6),
        dc.Buffered.for_epsilon(dc.Stream(12), 1.0, 1e-6, buffers=3),
    ],
    ids=named,
)
def test_releases_have_the_stated_variance(counter):
    """1,000 runs; a third of the variance is missed with probability below 1e-6."""
    runs = np.array([answers(counter, range(12)) for _ in range(1000)]) - np.cumsum(range(12))
    for step in (1, 8, 12):
        kurtosis = 6.0  # at most that of Laplace noise: the variance of a sample variance grows with it
        ratio = runs[:, step - 1].var() / counter.error(step)
        spread = math.sqrt((2 + kurtosis) / 1000)
        assert abs(ratio - 1) < -stats.norm.ppf(FALSE_ALARM / 6) * spread
        center = runs[:, step - 1].mean() / math.sqrt(counter.error(step) / 1000)
        assert abs(center) < -stats.norm.ppf(FALSE_ALARM / 6) + 1


@every_counter
def test_a_stored_state_continues_as_if_nothing_happened(counter):
    queries_ = [query(v) for v in range(10)]
    straight, stored = counter.start(), counter.start()
    for one in queries_:
        before = straight.to_bytes()
        straight_after, release = counter.step(straight, one, insecure_seed=5)
        assert straight.to_bytes() == before  # a step changes nothing
        straight = straight_after
        stored, again = counter.step(dc.State.from_bytes(stored.to_bytes()), one, insecure_seed=5)
        assert release.value == again.value
    assert stored.to_bytes() == straight.to_bytes()
    assert "hidden" in repr(stored)


@every_counter
def test_the_state_stays_as_small_as_stated(counter):
    for state, _ in counter.run(counter.start(), [query(1)] * STEPS):
        numbers = sum(len(np.ravel(np.array(part, dtype=object))) for rows in state.content.values() for part in rows)
        assert numbers <= counter.state_size + 1


def test_histograms_are_counted_bin_by_bin(monkeypatch):
    bins = ("a", "b", "c")
    stream = dc.Stream.of(queries.histogram([], categories=bins), 20)
    assert (stream.dimension, stream.unit) == (3, Rows())
    for counter in counters(stream):
        with noise_of(monkeypatch, lambda i: 0):
            state = counter.start()
            for _ in range(4):
                state, release = counter.step(state, queries.histogram(["a", "a", "c"], categories=bins))
        expected = workload_matrix(counter)[3, :4].sum()
        assert np.allclose(release.value, expected * np.array([2, 0, 1]), atol=1e-6)


def test_one_number_is_encoded_and_decoded_as_each_of_several():
    """Streams of one number take a shorter way through the buffers, bit for bit the same."""
    numbers = np.random.default_rng(3)
    one = dc.Buffered.for_epsilon(dc.Stream(100), 1.0, 1e-6, buffers=4)
    both = dc.Buffered(dc.Stream(100, dimension=2), one.noise, one.workload, one.scales, one.decays)
    kept, kept_both, seen, seen_both = [], [], [], []
    for step in range(30):
        query, noisy = int(numbers.integers(-50, 50)), float(numbers.normal())
        kept, encoded = one._encode(kept, [query])
        kept_both, encoded_both = both._encode(kept_both, [query, step])
        seen, decoded = one._decode(seen, [noisy])
        seen_both, decoded_both = both._decode(seen_both, [noisy, 1.0])
        assert encoded == encoded_both[:1]
        assert decoded == decoded_both[:1]
        assert kept == [row[:1] for row in kept_both]
        assert seen == [row[:1] for row in seen_both]


def test_sums_keep_their_grid(monkeypatch):
    bounds = (0.0, 10.0)
    stream = dc.Stream.of(queries.sum([], bounds=bounds), 16)
    for counter in counters(stream):
        with noise_of(monkeypatch, lambda i: 0):
            _, release = counter.step(counter.start(), queries.sum([2.5, 3.25, 99.0], bounds=bounds))
        assert release.value == pytest.approx(15.75, abs=1e-6)
        # One step costs about as much as a plain release of a bounded sum.
        assert counter.error(1) > 50


def test_foreign_queries_states_and_steps_are_refused():
    counter = dc.Tree.for_epsilon(dc.Stream(3), 1.0)
    other = dc.Tree.for_epsilon(dc.Stream(4), 1.0)
    with pytest.raises(InvalidArgument, match="state must belong"):
        counter.step(other.start(), query(1))
    with pytest.raises(InvalidArgument, match="sensitivity of at most"):
        counter.step(counter.start(), query(1, Sensitivity(1, 2, 4, 2)))
    with pytest.raises(InvalidArgument, match="coordinates"):
        counter.step(counter.start(), query([1, 2]))
    with pytest.raises(InvalidArgument, match="grid of step"):
        counter.step(counter.start(), query(1, granularity=2))
    with pytest.raises(InvalidArgument, match="made by a query"):
        counter.step(counter.start(), 5)
    with pytest.raises(InvalidArgument, match="made by a query"):
        dc.Stream.of(5, 10)
    with pytest.raises(InvalidArgument, match="end after 3 steps"):
        list(counter.run(counter.start(), [query(1)] * 4))
    for step in (0, 4, 1.0, True):
        with pytest.raises(InvalidArgument, match="step"):
            counter.error(step)
    for stored in (b"", b"{}", b'{"version":9,"counter":"","step":0,"content":{}}', b"\xff", b"[]"):
        with pytest.raises(InvalidArgument, match="state"):
            dc.State.from_bytes(stored)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dc.Stream(0),
        lambda: dc.Stream(5, participations=0),
        lambda: dc.Stream(5, sensitivity=3),
        lambda: dc.Stream(2.0),
        lambda: dc.Tree.for_epsilon(dc.Stream(5), math.nan),
        lambda: dc.Tree.for_epsilon(dc.Stream(5), 1.0, 2.0),
        lambda: dc.Tree.for_epsilon(dc.Stream(5), 1.0, branching=1),
        lambda: dc.SubtractionTree.for_epsilon(dc.Stream(5), 1.0, branching=4),
        lambda: dc.Banded.for_epsilon(dc.Stream(5), 1.0, 1e-6, coefficients=(2.0, 1.0)),
        lambda: dc.Banded.for_epsilon(dc.Stream(5), 1.0, 1e-6, coefficients=()),
        lambda: dc.SquareRoot.for_epsilon(dc.Stream(5), 1.0, 1e-6, bands=6),
        lambda: dc.Buffered.for_epsilon(dc.Stream(5), 1.0, 1e-6, buffers=0),
        lambda: dc.Buffered(dc.Stream(5), Gaussian(Fraction(1)), dc.Total(), (20.0,), (0.5,)),
        lambda: dc.Buffered(dc.Stream(5), Gaussian(Fraction(1)), dc.Total(), (0.5,), (1.0,)),
        lambda: dc.BandedInverse.for_epsilon(dc.Stream(5), 1.0, 1e-6, bands=0),
        lambda: dc.Window(0),
        lambda: dc.Decayed(1.0),
        lambda: dc.Doubling(dc.Stream(5, participations=2), 1.0),
        lambda: dc.best_for(5, 1.0, measure="median"),
        lambda: dc.best_for(5, 1.0, workload=dc.Window(2)),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(InvalidArgument):
        make()


def test_the_sensitivity_of_trees_is_that_of_the_priced_tree():
    """`TreeNoise` has the same nodes if the length is a power of the branching."""
    for count, apart in ((1, 1), (4, 3), (8, 8), (20, 1)):
        stream = dc.Stream(64, participations=count, separation=apart)
        squares = tree_squares(stream, 7, 2)
        priced = accounting.gdp(events.TreeNoise(1.0, 2, 64, count, apart)).mu ** 2
        assert squares == pytest.approx(priced, rel=1e-9)


def test_intervals_hold_the_truth_as_often_as_stated():
    """Sums of n Laplace variables, n = 1 to 40: the exact chance of a miss, by numeric integration of the densities."""
    grid = np.linspace(-60, 60, 40_001)
    density = np.exp(-np.abs(grid)) / 2
    transform = 1 / (1 + np.fft.fftfreq(grid.size, grid[1] - grid[0]) ** 2 * (2 * math.pi) ** 2)
    for count in (1, 2, 3, 5, 10, 40):
        density = np.fft.fftshift(np.fft.ifft(transform**count).real) / (grid[1] - grid[0])
        for confidence in (0.95, 0.99):
            release = dc.RunningRelease(1, 0.0, math.sqrt(2 * count), False)
            low, high = release.interval(confidence)
            inside = density[(grid >= low) & (grid <= high)].sum() * (grid[1] - grid[0])
            assert inside >= confidence - 2e-3
    assert dc.RunningRelease(1, 0.0, 1.0, True).interval(0.95)[1] == pytest.approx(1.96, abs=1e-3)


@pytest.mark.parametrize(("bands", "measure"), [(1, "mean"), (3, "mean"), (12, "mean"), (12, "max")])
def test_optimized_diagonals_have_an_error_that_no_small_change_makes_smaller(bands, measure):
    stream, generator = dc.Stream(12), np.random.default_rng(0)
    error = dc.Banded.mean_error if measure == "mean" else dc.Banded.max_error
    best = dc.Banded.optimized(stream, 1.0, 1e-6, bands=bands, measure=measure)
    root = dc.SquareRoot.for_epsilon(stream, 1.0, 1e-6, bands=bands)
    assert error(best) <= error(root) * (1 + 1e-9)
    for _ in range(20):
        moved = np.array(best.coefficients) + np.concatenate(([0.0], generator.normal(0, 1e-2, bands - 1)))
        other = dc.Banded.for_epsilon(stream, 1.0, 1e-6, coefficients=tuple(moved.tolist()))
        assert error(best) <= error(other) * (1 + 1e-9)


def test_all_optimized_diagonals_reach_the_best_factorization_of_another_library():
    """jax-privacy 2.0 optimizes 1024 diagonals to a mean squared error of 166.75 at ε = 1, δ = 1e-6."""
    assert dc.Banded.optimized(dc.Stream(1024), 1.0, 1e-6).mean_error() < 166.75


@pytest.mark.parametrize("bad", [{"bands": 0}, {"bands": 13}, {"bands": 2.5}, {"measure": "median"}])
def test_diagonals_that_cannot_be_optimized_are_refused(bad):
    with pytest.raises(InvalidArgument):
        dc.Banded.optimized(dc.Stream(12), 1.0, 1e-6, **bad)
