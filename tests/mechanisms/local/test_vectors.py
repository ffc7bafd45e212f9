"""Reports about unit vectors: listed on coarse grids they are ε-DP, and on the real one the mean is unbiased.

Statistical tests have a false-alarm rate of 1e-6 each.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from discreet.errors import InvalidArgument
from discreet.mechanisms.local import UnitVectors, vectors
from tests.exact import FALSE_ALARM


@pytest.fixture
def coarse(monkeypatch):
    """A grid and places in its cells that can be listed."""
    coarsen(monkeypatch, 16)


def coarsen(patch, scale):
    patch.setattr(vectors, "SCALE", scale)
    patch.setattr(vectors, "PLACE_BITS", 2)


def grid(protocol):
    """All vectors of the public grid with their probabilities in P₀."""
    weights = vectors.normal_weights(vectors.SCALE)
    held = np.flatnonzero(weights)
    points = np.array(list(itertools.product(held - len(weights) // 2, repeat=protocol.dimension)), dtype=np.int16)
    shares = weights[held] / weights.sum()
    return points, np.prod(np.array(list(itertools.product(shares, repeat=protocol.dimension))), axis=1)


def law(protocol, points, shares, vector):
    """The probability of each point in a report about a unit vector."""
    units, ways = np.tile(vector, (len(points), 1)), np.zeros(len(points))
    for place in itertools.product(range(1 << vectors.PLACE_BITS), repeat=protocol.dimension):
        places = np.tile(np.array(place, dtype=np.uint8), (len(points), 1, 1))
        products, within = protocol._products(points[:, None, :], places, units)
        # In the cap directly, or by turning the opposite around.
        ways += (within & (products > 0))[:, 0]
    cap = shares * ways
    return (1 - protocol._tilt) * shares + protocol._tilt * cap / cap.sum()


def directions_to_try(dimension):
    """The axes, a diagonal, directions beside them, and random ones."""
    generator = np.random.default_rng(5)
    axes = np.vstack([np.eye(dimension), -np.eye(dimension)])
    beside = axes + generator.normal(size=axes.shape) * 1e-4
    found = np.vstack([axes, np.ones((1, dimension)), beside, generator.normal(size=(12, dimension))])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize(("scale", "dimension"), [(4, 2), (16, 2)])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_no_report_tells_two_vectors_apart_by_more_than_epsilon(epsilon, scale, dimension, monkeypatch):
    coarsen(monkeypatch, scale)
    protocol = UnitVectors(epsilon, dimension)
    points, shares = grid(protocol)
    laws = np.array([law(protocol, points, shares, vector) for vector in directions_to_try(dimension)])
    assert laws.sum(axis=1) == pytest.approx(1)
    losses = np.log(laws.max(axis=0) / laws.min(axis=0))
    assert losses.max() <= epsilon * (1 + 1e-12)
    if scale == 16:  # the bound on the mass of a cap is nearly tight already
        assert losses.max() > 0.9 * epsilon
    # Total variation, for the event: w·tanh(ε/2) with w the informative share.
    apart = max(float(np.abs(first - second).sum()) / 2 for first, second in itertools.pairwise(laws))
    assert apart <= protocol.informative * math.tanh(epsilon / 2) * (1 + 1e-12)


def test_a_mutant_that_forgets_the_rounding_to_the_grid_is_caught(monkeypatch):
    monkeypatch.setattr(UnitVectors, "_mass_from_below", lambda self, threshold: float(self._tail(np.array(threshold))))
    for scale in (4, 16):
        with pytest.raises(AssertionError), monkeypatch.context() as patch:
            test_no_report_tells_two_vectors_apart_by_more_than_epsilon(1.0, scale, 2, patch)


def test_reports_are_drawn_with_their_stated_probabilities(coarse):
    protocol, people = UnitVectors(1.5, 2), 60_000
    vector = np.array([0.6, 0.8])
    points, shares = grid(protocol)
    chances = law(protocol, points, shares, vector)
    drawn = protocol._vectors(protocol.simulate(np.tile(vector, (people, 1))).payloads)
    places = {tuple(point): place for place, point in enumerate(points.tolist())}
    seen = np.bincount([places[tuple(row)] for row in drawn.tolist()], minlength=len(points))
    often = chances * people >= 10
    observed = np.append(seen[often], seen[~often].sum())
    expected = np.append(chances[often], chances[~often].sum()) * people
    assert np.sum((observed - expected) ** 2 / expected) < stats.chi2.isf(FALSE_ALARM, len(expected) - 1)


def always_tilted(patch):
    patch.setattr(vectors, "logistic", lambda epsilon, odds: lambda precision: (1 << precision, 1 << precision))
    patch.setattr(vectors, "exp_neg", lambda epsilon, precision: (0, 0))


def tilted_without_a_second_coin(patch):
    patch.setattr(vectors, "exp_neg", lambda epsilon, precision: (0, 0))


def not_turned_around(patch):
    honest, products = UnitVectors._draw_inside, UnitVectors._products

    class Upright(UnitVectors):
        def _products(self, *drawn):
            found, within = products(self, *drawn)
            return np.abs(found), within

    patch.setattr(UnitVectors, "_draw_inside", lambda self, *given: honest(Upright(self.epsilon, 2), *given))


def half_of_all_directions(patch):
    honest = UnitVectors._draw_inside

    def wider(self, units, bits):
        other = UnitVectors(self.epsilon, self.dimension)
        object.__setattr__(other, "_cap", (0.0, self._cap[1]))
        return honest(other, units, bits)

    patch.setattr(UnitVectors, "_draw_inside", wider)


@pytest.mark.parametrize(
    "mutant", [always_tilted, tilted_without_a_second_coin, not_turned_around, half_of_all_directions]
)
def test_mutants_draw_other_probabilities(mutant, coarse, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        test_reports_are_drawn_with_their_stated_probabilities(None)


@pytest.mark.parametrize(("epsilon", "dimension"), [(0.5, 3), (1.0, 2), (2.0, 16), (4.0, 10)])
def test_the_mean_is_unbiased_at_the_stated_error(epsilon, dimension):
    protocol, people = UnitVectors(epsilon, dimension), 20_000
    for vector in (np.eye(dimension)[0], directions_to_try(dimension)[-1]):
        reports = protocol.simulate(np.tile(vector, (people, 1)) * 5.0)
        estimate = protocol.estimate(reports)
        stated = protocol.variance(people)
        distance = float(np.sum((estimate.mean - vector) ** 2))
        # The squared distance is about a chi-square with d degrees of freedom, scaled to the stated mean.
        assert distance < stated / dimension * stats.chi2.isf(FALSE_ALARM, dimension) * 1.5
        assert estimate.standard_error == pytest.approx(math.sqrt(stated), rel=0.1)
        # Along the vector, readings have the mean 1, with a spread that the reports show.
        along = protocol.directions(reports.payloads) @ vector / protocol._gain
        assert abs(along.mean() - 1) < 5.5 * along.std() / math.sqrt(people)


def test_a_mutant_with_a_weaker_tilt_is_biased(monkeypatch):
    monkeypatch.setattr(vectors, "logistic", lambda epsilon, odds: lambda precision: (0, 0))
    with pytest.raises(AssertionError):
        test_the_mean_is_unbiased_at_the_stated_error(2.0, 16)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_grid_changes_the_mean_of_a_report_by_its_square(epsilon, monkeypatch):
    """Listed at 4 and at 16 points per standard deviation: at 4096 the square of their ratio leaves less than 1e-6."""
    worst = {}
    for scale in (4, 16):
        coarsen(monkeypatch, scale)
        protocol = UnitVectors(epsilon, 2)
        points, shares = grid(protocol)
        unit = points / np.maximum(np.linalg.norm(points.astype(float), axis=1), 1)[:, None]
        means = [law(protocol, points, shares, vector) @ unit / protocol._gain for vector in directions_to_try(2)]
        worst[scale] = max(
            float(np.linalg.norm(mean - vector)) for mean, vector in zip(means, directions_to_try(2), strict=True)
        )
    assert worst[16] < 0.01
    assert worst[16] < worst[4] / 8


def test_the_error_is_that_of_privunit():
    """The best cap of real directions, with e^ε between its inside and its outside (Asi, Feldman & Talwar 2022)."""
    for epsilon, dimension in [(0.5, 16), (1.0, 16), (4.0, 16), (1.0, 100), (8.0, 8)]:
        protocol = UnitVectors(epsilon, dimension)
        best = 0.0
        for threshold in np.linspace(0.0, 0.95, 400):
            mass = float(protocol._tail(np.array(threshold)))
            tilt = mass * math.expm1(epsilon) / (1 + mass * math.expm1(epsilon))
            best = max(best, tilt * protocol._mean_product(float(threshold)))
        assert 0.9999 < protocol.variance(1) / (best**-2 - 1) < 1.0002
        # Half of all directions instead of the best cap (Duchi, Jordan & Wainwright 2018) costs more.
        assert protocol._gain > math.tanh(epsilon / 2) * protocol._mean_product(0.0)


def test_the_mean_product_of_a_cap_is_that_of_random_directions():
    protocol = UnitVectors(1.0, 5)
    normal = np.random.default_rng(2).normal(size=(200_000, 5))
    products = normal[:, 0] / np.linalg.norm(normal, axis=1)
    inside = products[products >= 0.3]
    assert inside.size / products.size == pytest.approx(float(protocol._tail(np.array(0.3))), rel=0.02)
    assert inside.mean() == pytest.approx(protocol._mean_product(0.3), rel=0.01)
    assert protocol.influence() == pytest.approx(1 / protocol._gain)


def test_more_privacy_means_more_error_and_a_vector_of_any_length_counts_once():
    gains = [UnitVectors(epsilon, 10)._gain for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert gains == sorted(gains)
    protocol = UnitVectors(8.0, 3)
    for scale in (1e-300, 1e300):
        estimate = protocol.estimate(protocol.simulate(np.tile([0.0, scale, 0.0], (100, 1))))
        assert estimate.mean[1] > 0.5


def test_vectors_without_a_direction_say_nothing():
    """Zero and what is not finite are replaced by a random direction."""
    protocol = UnitVectors(2.0, 2)
    hostile = np.array([[0.0, 0.0], [math.nan, 1.0], [math.inf, 0.0], [-0.0, -math.inf]] * 300)
    estimate = protocol.estimate(protocol.simulate(hostile))
    assert np.linalg.norm(estimate.mean) < 6 * math.sqrt(protocol.variance(1200))


@pytest.mark.parametrize("epsilon", [1e-6, 256.0])
def test_the_ends_of_the_range_of_epsilon_work(epsilon):
    protocol = UnitVectors(epsilon, 2)
    estimate = protocol.estimate(protocol.simulate(np.tile([1.0, 0.0], (50, 1))))
    assert np.isfinite(estimate.mean).all()
    assert 0 < protocol.informative <= 1


def test_a_report_is_two_bytes_for_each_coordinate_in_the_second_version():
    protocol = UnitVectors(1.0, 16)
    report = protocol.client()(np.ones(16))
    assert report[0] == 2
    assert len(report) == 5 + 32
    assert 15 * 16 < protocol.bits < 16 * 16


def test_foreign_and_malformed_reports_are_rejected_and_counted():
    protocol, other = UnitVectors(2.0, 3), UnitVectors(3.0, 3)
    client = protocol.client()
    good = [client([1.0, 0.0, 0.0]) for _ in range(10)]
    older = b"\x01" + good[0][1:]
    bad = [b"", other.client()([1.0, 0.0, 0.0]), good[0][:-2] + b"\x00\x80", good[0][:-2], older]
    estimate = protocol.estimate([*good, *bad])
    assert (estimate.reports, estimate.rejected) == (10, 5)
    for wrong in ([[1.0, 2.0]], [1.0, 2.0, 3.0]):
        with pytest.raises(InvalidArgument, match="vectors must have 3 columns"):
            protocol.simulate(wrong)
    with pytest.raises(InvalidArgument, match="at least two valid ones"):
        protocol.estimate(bad)
