"""Every mechanism passes its audit, and mutants of it are caught with the stated power (more in `test_mutants`).

False alarms: 1e-6 for each audit. Each mutant is missed with a probability below 1e-6, by the sizes below.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import discreet as dp
from discreet import events, queries
from discreet.auditing import audit, neighboring_values
from discreet.bounded import Bounded, Sensitivity
from discreet.mechanisms import (
    DiscreteGaussian,
    Exponential,
    Gaussian,
    KeySelection,
    L2Laplace,
    Laplace,
    NoisyMax,
    RandomizedResponse,
    TopK,
    sparse_vector,
)
from discreet.mechanisms.local import (
    CountMeanSketch,
    GeneralizedResponse,
    HadamardResponse,
    Hybrid,
    LocalHashing,
    OneBit,
    Piecewise,
    SubsetSelection,
    UnaryEncoding,
)
from discreet.neighbors import ADD_REMOVE
from discreet.queries.discovered import key_counts, key_limits

COUNT = queries.count([0] * 10)
#: A fine grid: the test of μ assumes normal outputs.
SUM = queries.sum([1.0] * 10, bounds=(0, 100))
#: Three coordinates of which one unit moves two, by one each.
VECTOR = Bounded(np.array([5, 7, 9]), Fraction(1, 4), {ADD_REMOVE: Sensitivity(2, 2, 2, 1)}, "vector")
SIZE = 9_000

ADDITIVE = {
    "laplace": Laplace.for_epsilon,
    "gaussian": lambda bounded, epsilon: Gaussian.for_epsilon(bounded, epsilon, 1e-2),
    "discrete gaussian": lambda bounded, epsilon: DiscreteGaussian.for_rho(bounded, epsilon**2 / 2),
    "l2 laplace": lambda bounded, epsilon: L2Laplace.for_epsilon(bounded, epsilon, 1e-2),
}


@pytest.mark.slow
@pytest.mark.parametrize("bounded", [COUNT, VECTOR], ids=["count", "vector"])
@pytest.mark.parametrize("name", ADDITIVE)
def test_every_mechanism_that_adds_noise_passes_its_audit(name, bounded):
    mechanism = ADDITIVE[name](bounded, 1.0)
    for distance in (1, 5):
        report = audit(mechanism, neighbors=bounded, max_samples=SIZE, distance=distance)
        assert not report.violated, str(report)
        assert distance > 1 or (report.power.missing_noise or 0) < 0.9


def votes(tea, coffee):
    return queries.votes(["tea"] * tea + ["coffee"] * coffee, candidates=["tea", "coffee", "mate"])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [Exponential(Fraction(1)), NoisyMax(Fraction(1)), TopK(Fraction(1), 2)], ids=str)
def test_every_mechanism_that_chooses_passes_its_audit(mechanism):
    pair = dp.auditing.Pair(votes(3, 3), votes(3, 4), grows=True)
    report = audit(mechanism, neighbors=[pair], max_samples=1_500)
    assert not report.violated, str(report)


def above(number):
    run = sparse_vector(threshold=10, epsilon=1.0, max_answers=1)
    return [run.above(queries.count([0] * number)).value for _ in range(2) if run.answers_left] + [False]


@pytest.mark.slow
def test_sparse_vector_and_key_selection_pass_their_audits():
    run = audit(
        lambda n: tuple([*above(n), False, False][:3]),
        events.SparseVector(Fraction(1), 1),
        [(10, 11)],
        max_samples=1_000,
    )
    assert not run.violated, str(run)
    limits = key_limits(dp.rows())
    selection = KeySelection.over(Laplace(1), limits, 1e-2)
    keys = [np.array([selection.threshold - extra]) for extra in (1, 0)]

    def released(count, runs):
        return selection.release(key_counts(np.repeat(count, runs), dp.rows())).value

    report = audit(released, selection.event(limits), [tuple(keys)], max_samples=3_000, vectorized=True)
    assert not report.violated, str(report)


LOCAL = [
    GeneralizedResponse(1, ("a", "b", "c", "d")),
    UnaryEncoding(1, ("a", "b", "c", "d")),
    LocalHashing(1, ("a", "b", "c", "d")),
    HadamardResponse(1, ("a", "b", "c", "d")),
    SubsetSelection(1, ("a", "b", "c", "d")),
]
MEANS = [OneBit(1, (0, 1)), Piecewise(1, (0, 1)), Hybrid(1, (0, 1))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", [RandomizedResponse(1, (False, True)), *LOCAL, *MEANS], ids=lambda p: type(p).__name__
)
def test_every_local_randomizer_passes_its_audit_and_reaches_its_epsilon(protocol):
    """A claim of 3/4 of its ε is refuted: the expected deviation is more than ten standard errors."""
    answers = (False, True) if isinstance(protocol, RandomizedResponse) else ("a", "b")
    pair = (0.0, 1.0) if protocol in MEANS else answers
    report = audit(protocol, neighbors=[pair], max_samples=SIZE)
    assert not report.violated, str(report)
    assert report.epsilon_lower > 0.5
    assert audit(protocol, dp.PureDP(0.6), [pair], max_samples=SIZE).violated


@pytest.mark.slow
def test_a_sketch_passes_its_audit():
    sketch = CountMeanSketch(1)
    report = audit(
        lambda value, runs: sketch.simulate([value] * runs).payloads,
        sketch.event,
        [("a", "b")],
        vectorized=True,
        relation=dp.REPLACE_ONE,
    )
    assert not report.violated, str(report)


# --- mutants


def weaker(mechanism, share):
    """The same mechanism with less noise."""
    (field,) = [f for f in ("scale", "standard_deviation", "variance") if hasattr(mechanism, f)]
    factor = share**2 if field == "variance" else share
    return replace(mechanism, **{field: getattr(mechanism, field) * factor})


@pytest.mark.slow
@pytest.mark.parametrize(("share", "samples"), [(Fraction(8, 10), 60_000), (Fraction(9, 10), 300_000)])
@pytest.mark.parametrize("name", ["laplace", "gaussian", "discrete gaussian"])
def test_a_tenth_or_a_fifth_of_missing_noise_is_seen(name, share, samples):
    """Failing is less likely than 1e-6.

    Laplace noise: hits are 24 standard errors above what is needed, and at least 20 for each of the events that
    hundreds of simulated pilots chose. With two thirds of the runs, one in a hundred pilots chose an event where they
    were 5 above. A Gaussian by its μ at distance 3 is seen by more than 40 standard errors.
    """
    bounded = COUNT if name == "laplace" else SUM
    mechanism = ADDITIVE[name](bounded, 1.0)
    distance = 1 if name == "laplace" else 3
    estimator = "auto" if name == "laplace" else "mu"
    claim = mechanism.event(bounded)
    caught = audit(
        weaker(mechanism, share), claim, bounded, max_samples=samples, distance=distance, estimator=estimator
    )
    assert caught.violated, str(caught)
    honest = audit(mechanism, claim, bounded, max_samples=samples, distance=distance, estimator=estimator)
    assert not honest.violated
    # The stated share takes the pair's hit rate from below, so it is more than what is seen.
    assert honest.power.missing_noise <= 2.5 * (1 - share)


def noisy(mechanism, *, skip=None, reuse=False):
    """A release of three numbers by hand, with a fault."""

    def release(values, runs):
        noise = np.asarray(mechanism.release(replace(COUNT, values=np.zeros(3 * runs, dtype=np.int64))).value, float)
        noise = noise.reshape(runs, 3)
        if skip is not None:
            noise[:, skip] = 0
        if reuse:
            noise[:] = noise[:, :1]
        return np.asarray(values) + noise

    return release


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [Laplace(3), Gaussian(5)], ids=str)
def test_a_coordinate_without_noise_and_reused_randomness_are_seen(mechanism):
    """Both leave a projection without noise: every run tells the datasets apart."""
    claim = (
        events.Composed((events.Laplace(3.0),) * 3)
        if isinstance(mechanism, Laplace)
        else events.Gaussian(5 / math.sqrt(3))
    )
    pair = [((5, 6, 7), (6, 7, 8))]
    assert not audit(noisy(mechanism), claim, pair, max_samples=2_000, vectorized=True).violated
    assert audit(noisy(mechanism, skip=1), claim, pair, max_samples=2_000, vectorized=True).violated
    apart = [((5, 6, 7), (6, 7, 7))]
    assert not audit(noisy(mechanism), claim, apart, max_samples=2_000, vectorized=True).violated
    assert audit(noisy(mechanism, reuse=True), claim, apart, max_samples=2_000, vectorized=True).violated


def test_a_vector_is_searched_in_every_norm():
    changes = {tuple(pair.second.values - pair.first.values) for pair in neighboring_values(VECTOR)}
    assert changes == {(1, 0, 0), (1, 1, 0)}
