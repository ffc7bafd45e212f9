"""Reports about unit vectors: each index has one of two probabilities, and the mean is unbiased at the stated error.

Statistical tests have a false-alarm rate of 1e-6 each.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.errors import InvalidArgument
from discreet.mechanisms.local import UnitVectors, vectors
from tests.exact import FALSE_ALARM


def ranks(protocol, vector, reports):
    """For each report, how near its direction is among those of its seed."""
    packed = np.ascontiguousarray(reports.payloads).view("<u8").ravel()
    directions = protocol._directions(packed & np.uint64((1 << 48) - 1))
    order = np.argsort(-(directions @ vector), axis=1, kind="stable")
    return np.argmax(order == (packed >> np.uint64(48)).astype(int)[:, None], axis=1)


def test_near_directions_are_exactly_e_to_the_epsilon_times_as_likely():
    protocol = UnitVectors(Fraction(1), 3, directions=8)
    vector = np.array([0.6, 0.0, 0.8])
    people = 20_000
    seen = np.bincount(ranks(protocol, vector, protocol.simulate(np.tile(vector, (people, 1)))), minlength=8)
    weights = np.where(np.arange(8) < protocol.near, math.e, 1.0)
    expected = people * weights / weights.sum()
    assert np.sum((seen - expected) ** 2 / expected) < stats.chi2.isf(FALSE_ALARM, 7)
    # power: 15% less noise is rejected
    weights = np.where(np.arange(8) < protocol.near, math.exp(1.15), 1.0)
    expected = people * weights / weights.sum()
    assert np.sum((seen - expected) ** 2 / expected) > stats.chi2.isf(FALSE_ALARM, 7)


@pytest.mark.parametrize(("epsilon", "dimension", "directions"), [(1.0, 2, 16), (4.0, 10, 64)])
def test_the_mean_is_unbiased_at_the_stated_error(epsilon, dimension, directions):
    protocol = UnitVectors(epsilon, dimension, directions)
    vector = np.zeros(dimension)
    vector[0] = 1.0
    people = 2000
    estimate = protocol.estimate(protocol.simulate(np.tile(vector, (people, 1)) * 5.0))
    stated = protocol.variance(people)
    distance = float(np.sum((estimate.mean - vector) ** 2))
    # The squared distance is about a chi-square with d degrees of freedom, scaled to the stated mean.
    assert distance < stated / dimension * stats.chi2.isf(FALSE_ALARM, dimension) * 1.5
    assert estimate.standard_error == pytest.approx(math.sqrt(stated), rel=0.2)
    assert abs(estimate.mean[0] - 1) < 5.5 * math.sqrt(stated)


def test_the_shrinkage_is_that_of_simulated_directions():
    protocol = UnitVectors(3.0, 5, directions=32)
    seeds = np.arange(3000, dtype=np.uint64)
    products = np.sort(protocol._directions(seeds)[:, :, 0], axis=1)[:, ::-1]
    top, rest = products[:, : protocol.near].mean(), products[:, protocol.near :].mean()
    chance = protocol.near * math.exp(3) / (protocol.near * math.exp(3) + 32 - protocol.near)
    assert chance * top + (1 - chance) * rest == pytest.approx(protocol._gain, rel=0.01)
    assert protocol.influence() == pytest.approx(1 / protocol._gain)


def test_more_privacy_means_more_error_and_a_vector_of_any_length_counts_once():
    gains = [UnitVectors(epsilon, 10, 64)._gain for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert gains == sorted(gains)
    protocol = UnitVectors(8.0, 3, 64)
    for scale in (1e-300, 1e300):
        estimate = protocol.estimate(protocol.simulate(np.tile([0.0, scale, 0.0], (100, 1))))
        assert estimate.mean[1] > 0.5


def test_vectors_without_a_direction_say_nothing():
    """Zero and what is not finite: the choice does not depend on the vector, so all of them report alike."""
    protocol = UnitVectors(2.0, 2, 8)
    hostile = np.array([[0.0, 0.0], [math.nan, 1.0], [math.inf, 0.0]] * 300)
    estimate = protocol.estimate(protocol.simulate(hostile))
    assert np.linalg.norm(estimate.mean) < 6 * math.sqrt(protocol.variance(900))


def test_foreign_and_malformed_reports_are_rejected_and_counted():
    protocol, other = UnitVectors(2.0, 3, 8), UnitVectors(2.0, 3, 16)
    client = protocol.client()
    good = [client([1.0, 0.0, 0.0]) for _ in range(10)]
    bad = [b"", other.client()([1.0, 0.0, 0.0]), good[0][:-1] + b"\xff", good[0][:-2]]
    estimate = protocol.estimate([*good, *bad])
    assert (estimate.reports, estimate.rejected) == (10, 4)
    for wrong in ([[1.0, 2.0]], [1.0, 2.0, 3.0]):
        with pytest.raises(InvalidArgument, match="vectors must have 3 columns"):
            protocol.simulate(wrong)
    with pytest.raises(InvalidArgument, match="at least two valid ones"):
        protocol.estimate(bad)


def test_a_mutant_that_always_reports_a_near_direction_is_caught(monkeypatch):
    monkeypatch.setattr(vectors, "coins", lambda target, size, bits: np.ones(size, dtype=bool))
    with pytest.raises(AssertionError):
        test_near_directions_are_exactly_e_to_the_epsilon_times_as_likely()
