"""`epsilon_range` against sums of the noise's probabilities."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from scipy import special

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.mechanisms import Gaussian, L2Laplace, Laplace

COUNT = dp.queries.count([1, 2, 3])
MEAN = dp.queries.mean([1.0] * 500, bounds=(0, 10), relation="replace-one")
SUM = dp.queries.sum([1, 2], bounds=(0, 5))
DELTA = 1e-6


def brute(noise, epsilon, query, error):
    """P(|noise| > error), added up over the grid, or integrated between its cells."""
    if noise == "laplace":
        scale = float(Laplace.for_epsilon(query, epsilon).scale / query.granularity)
        x = np.arange(0, int(60 * scale) + 2)
        mass = np.exp(-x / scale)
        beyond = x * float(query.granularity) > error * (1 + 1e-12)
        return 2 * mass[beyond].sum() / (2 * mass.sum() - 1)
    steps = math.floor(error / float(query.granularity) * (1 + 1e-12))
    if noise == "gaussian":
        sigma = Gaussian.for_epsilon(query, epsilon, DELTA).standard_deviation / query.granularity
        return float(2 * special.ndtr(-(steps + 0.5) / float(sigma)))
    scale = L2Laplace.for_epsilon(query, epsilon, DELTA).scale / query.granularity
    return math.exp(-(steps + 0.5) / float(scale))


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "l2-laplace"])
@pytest.mark.parametrize(("error", "probability"), [(10, 0.05), (3.7, 0.3), (100, 1e-4)])
def test_the_least_epsilon_is_accurate_enough_and_a_little_less_is_not(noise, error, probability):
    delta = None if noise == "laplace" else DELTA
    found = dp.epsilon_range(COUNT, max_epsilon=5.0, error=error, probability=probability, noise=noise, delta=delta)
    assert brute(noise, found.low * (1 + 1e-8), COUNT, error) <= probability * (1 + 1e-9)
    assert brute(noise, found.low * (1 - 1e-6), COUNT, error) > probability
    assert found.probability_at(5.0) == pytest.approx(brute(noise, 5.0, COUNT, error), rel=1e-9)
    assert found.reached_probability == found.probability_at(5.0)


@pytest.mark.parametrize("query", [COUNT, MEAN, SUM])
def test_a_grid_search_finds_the_same_least_epsilon(query):
    error = 0.05 if query is MEAN else 20
    found = dp.epsilon_range(query, max_epsilon=1.0, error=error, probability=0.05)
    accurate = [e for e in np.geomspace(1e-3, 10, 400) if found.probability_at(float(e)) <= 0.05]
    assert min(accurate) / 1.03 <= found.low <= min(accurate)


def test_a_range_that_fits_contains_what_it_says():
    found = dp.epsilon_range(COUNT, max_epsilon=1.0, error=10, probability=0.05)
    assert found.fits
    assert 0.5 in found
    assert 0.1 not in found
    assert 1.5 not in found
    assert "to 1 fits" in str(found)


def test_where_nothing_fits_each_remedy_works():
    refused = dp.epsilon_range(COUNT, max_epsilon=0.1, error=10, probability=0.05)
    assert not refused.fits
    words = refused.words
    for part in ("No ε fits", "privacy: allow", "accuracy: accept", "certainty: accept"):
        assert part in words
    assert "bounds" not in words  # a row moves a count by 1, whatever one does
    ask = {"max_epsilon": 0.1, "error": 10, "probability": 0.05}
    assert dp.epsilon_range(COUNT, **{**ask, "max_epsilon": refused.low}).fits
    assert dp.epsilon_range(COUNT, **{**ask, "error": refused.reached_error}).fits
    assert dp.epsilon_range(COUNT, **{**ask, "probability": refused.reached_probability * 1.001}).fits


def test_more_rows_or_tighter_bounds_are_advised_and_work():
    ask = {"max_epsilon": 0.1, "error": 0.1, "probability": 0.05}
    refused = dp.epsilon_range(MEAN, **ask)
    assert "times as many rows" in refused.words
    more = math.ceil(500 * refused.sensitivity / refused.needed_sensitivity * 1.01)
    assert dp.epsilon_range(dp.queries.mean([1.0] * more, bounds=(0, 10), relation="replace-one"), **ask).fits
    refused = dp.epsilon_range(SUM, max_epsilon=0.1, error=10, probability=0.05)
    assert "tighten them" in refused.words
    tight = dp.queries.sum([1], bounds=(0, refused.needed_sensitivity * 0.99))
    assert dp.epsilon_range(tight, max_epsilon=0.1, error=10, probability=0.05).fits


def test_the_values_are_never_looked_at():
    few, many = dp.queries.count([]), dp.queries.count(list(range(1000)))
    ask = {"max_epsilon": 1.0, "error": 10, "probability": 0.05}
    assert dp.epsilon_range(few, **ask) == dp.epsilon_range(many, **ask)


def test_a_query_whose_error_depends_on_the_data_is_refused():
    for query in (
        dp.queries.mean([1, 2], bounds=(0, 5)),
        dp.queries.histogram(["a"], categories=["a", "b"]),
        dp.queries.variance([1, 2], bounds=(0, 5)),
    ):
        with pytest.raises(InvalidArgument, match="query must be a single number"):
            dp.epsilon_range(query, max_epsilon=1.0, error=1, probability=0.05)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_epsilon", 0),
        ("max_epsilon", math.nan),
        ("max_epsilon", 1e9),
        ("error", 0),
        ("error", math.inf),
        ("probability", 0),
        ("probability", 1),
        ("probability", -0.0),
        ("noise", "uniform"),
        ("delta", 1e-6),
    ],
)
def test_bad_arguments_are_refused_by_name(name, value):
    ask = {"max_epsilon": 1.0, "error": 10, "probability": 0.05, name: value}
    with pytest.raises(InvalidArgument, match=f"{name} must"):
        dp.epsilon_range(COUNT, **ask)


def test_gaussian_noise_needs_a_delta():
    with pytest.raises(InvalidArgument, match="delta must"):
        dp.epsilon_range(COUNT, max_epsilon=1.0, error=10, probability=0.05, noise="gaussian")


def test_both_answers_are_drawn():
    for most in (1.0, 0.1):
        found = dp.epsilon_range(COUNT, max_epsilon=most, error=10, probability=0.05)
        found.plot().figure.savefig(os.devnull, format="svg")
