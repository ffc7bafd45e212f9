"""Nested counts that add up: the least squares fit of a tree, its errors, and what it refuses."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet import analytics
from discreet.analytics.result.hierarchy import fit_tree
from discreet.errors import InvalidArgument
from discreet.numeric.noise_sums import laplace_sum_quantile

COUNTRIES = ["A", "B", "C"]
STATES = [(c, f"{c}{i}") for c in COUNTRIES for i in range({"A": 1, "B": 3, "C": 4}[c])]
COUNTIES = [(c, s, f"{s}.{i}") for c, s in STATES for i in range(1 + len(s + c) % 3 + int(s[1]))]


@pytest.fixture
def places(account):
    rng = np.random.default_rng(7)
    rows = [COUNTIES[i] for i in rng.integers(0, len(COUNTIES), 3000) ** 2 % (len(COUNTIES) - 2)]
    country, state, county = zip(*rows, strict=True)
    return dp.Private({"country": country, "state": state, "county": county, "x": np.ones(3000)}, account=account)


def asked(places, epsilon=0.5, **release):
    levels = [("country",), ("country", "state"), ("country", "state", "county")]
    groups = [
        places.group_by(*by, keys=keys).count() for by, keys in zip(levels, (COUNTRIES, STATES, COUNTIES), strict=True)
    ]
    return [one.release(epsilon=epsilon * (i + 1), **release) for i, one in enumerate([places.count(), *groups])]


def check_adds_up(levels):
    for above, below in pairwise(levels):
        inner = list(zip(*list(below.columns.values())[: below.group_columns], strict=True))
        outer = list(zip(*list(above.columns.values())[: above.group_columns], strict=True)) or [()]
        for key, value in zip(outer, above.columns["count"], strict=True):
            total = sum(v for k, v in zip(inner, below.columns["count"], strict=True) if k[: len(key)] == key)
            assert total == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    "whole", [{}, {"nonnegative": True}, {"integer": True}, {"nonnegative": True, "integer": True}]
)
def test_every_group_is_the_sum_of_the_groups_inside(places, whole):
    measured = asked(places, 0.05)
    found = analytics.hierarchy(*measured, **whole)
    check_adds_up(found)
    for before, after in zip(measured, found, strict=True):
        assert list(before.columns) == list(after.columns)
        assert before.releases is after.releases
        if "nonnegative" in whole:
            assert min(after.columns["count"]) >= 0
        if "integer" in whole:
            assert all(isinstance(value, int) for value in after.columns["count"])
        if not whole:
            assert max(after.columns["count_error"]) <= max(before.columns["count_error"]) + 1


trees = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=3)


@given(shape=trees, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_the_fit_is_generalized_least_squares(shape, seed):
    """Against the normal equations over the leaves, for trees of any shape; variances are the diagonal of theirs."""
    rng = np.random.default_rng(seed)
    parents = [np.zeros(1, dtype=np.int64)]
    for raw in shape:
        parents.append(np.sort(np.array(raw) % parents[-1].size))
    variances = [rng.uniform(0.1, 9.0, parent.size) for parent in parents]
    values = [rng.normal(0, 10, parent.size) for parent in parents]
    leaves = []
    for level, parent in enumerate(parents):
        inside = set(parents[level + 1].tolist()) if level + 1 < len(parents) else set()
        leaves += [(level, node) for node in range(parent.size) if node not in inside]
    rows = []
    for level, parent in enumerate(parents):
        for node in range(parent.size):
            row = []
            for at, leaf in leaves:
                place = leaf
                for up in range(at, level, -1):
                    place = int(parents[up][place])
                row.append(1.0 if at >= level and place == node else 0.0)
            rows.append(row)
    design, weights = np.array(rows), 1 / np.concatenate(variances)
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    wanted = design @ (covariance @ (design.T @ (weights * np.concatenate(values))))
    spread = np.diag(design @ covariance @ design.T)
    found = fit_tree(list(zip(values, variances, parents, strict=True)))
    assert np.concatenate([fit.values for fit in found]) == pytest.approx(wanted, abs=1e-8)
    assert np.concatenate([fit.variances for fit in found]) == pytest.approx(spread, abs=1e-8)


def test_a_level_without_a_measurement_is_the_sum_of_its_children():
    infinite = np.array([math.inf])
    root, leaves = fit_tree(
        [
            (np.zeros(1), infinite, np.zeros(1, dtype=np.int64)),
            (np.array([1.0, 2.0]), np.ones(2), np.zeros(2, dtype=np.int64)),
        ]
    )
    assert root.values == pytest.approx([3.0])
    assert root.variances == pytest.approx([2.0])
    assert leaves.values == pytest.approx([1.0, 2.0])


def test_no_sum_of_laplace_noises_is_wider_than_one_of_the_same_variance():
    """At 95% and above, over 20,000 random weights. The quantile here is an upper bound, at most 3% too wide."""
    rng = np.random.default_rng(11)
    weights = rng.exponential(1.0, (6, 20_000)) ** rng.uniform(0.2, 4.0, 20_000)
    for tail in (0.05, 0.01, 1e-3):
        wide = laplace_sum_quantile(weights, tail)
        assert np.all(wide <= -math.log(tail) * np.sqrt(np.sum(weights**2, axis=0)) * 1.0301)


@pytest.mark.parametrize("gaussian", [False, True])
def test_errors_cover_the_truth(gaussian):
    """2,000 fits: coverage of a node below 92.6% has a probability below 1e-6 at a true coverage of 95%."""
    rng = np.random.default_rng(13)
    states = np.array([COUNTRIES.index(c) for c, _ in STATES])
    counties = np.array([STATES.index((c, s)) for c, s, _ in COUNTIES])
    parents = [np.zeros(3, dtype=np.int64), states, counties]
    leaves = rng.integers(0, 1000, len(COUNTIES)).astype(float)
    middle = np.bincount(counties, weights=leaves)
    truths = [np.bincount(states, weights=middle), middle, leaves]
    scales = [8.0, 3.0, 5.0]
    factor = 1.96 if gaussian else -math.log(0.05) / math.sqrt(2)
    hits = [np.zeros(truth.size) for truth in truths]
    for _ in range(2000):
        noise = [
            rng.normal(0, b, t.size) if gaussian else rng.laplace(0, b, t.size)
            for b, t in zip(scales, truths, strict=True)
        ]
        variances = [np.full(t.size, b * b * (1 if gaussian else 2)) for b, t in zip(scales, truths, strict=True)]
        measured = [t + n for t, n in zip(truths, noise, strict=True)]
        fits = fit_tree(list(zip(measured, variances, parents, strict=True)))
        for level, (fit, truth) in enumerate(zip(fits, truths, strict=True)):
            hits[level] += np.abs(fit.values - truth) <= factor * np.sqrt(fit.variances)
    covered = np.concatenate(hits) / 2000
    assert covered.min() >= 0.926
    assert covered.max() <= 0.985


def test_what_does_not_nest_is_refused(places):
    measured = asked(places)
    partly = places.group_by("country", keys=["A", "B"]).count().release(epsilon=1)
    countries = places.group_by("country", keys=COUNTRIES)
    means = [one.mean("x", bounds=(0, 1)).release(epsilon=1) for one in (places, countries)]
    moved = countries.count().release(epsilon=1, nonnegative=True)
    for results, words in (
        (measured[:1], "two released results"),
        ((measured[2], measured[1]), "begin with the group columns"),
        ((partly, measured[2]), "list the group of each finer group"),
        ((measured[0], moved), "as measured"),
        (means, "add up over groups"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            analytics.hierarchy(*results)
    with pytest.raises(InvalidArgument, match="nonnegative"):
        analytics.hierarchy(*measured, nonnegative=1)
