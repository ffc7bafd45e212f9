"""A replay refutes a pipeline that treats neighbors differently, and finds nothing in one that does not."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import pytest

import discreet as dp
from discreet import queries
from discreet.auditing import Pair, replay
from discreet.bounded import Bounded, Scores, Sensitivity
from discreet.errors import InvalidArgument
from discreet.mechanisms import SparseVector, observation
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE

AGES = np.array([30, 41, 77, 52])
LONGER = np.append(AGES, 130)


def total(ages):
    return dp.laplace(queries.sum(ages, bounds=(0, 100)), epsilon=1.0)


def test_an_honest_pipeline_passes_and_reaches_its_bound():
    seen = replay(total, [Pair(AGES, LONGER, grows=True), (LONGER, AGES)])
    assert seen.passed, str(seen)
    assert (seen.pairs, seen.arrivals, seen.tightest) == (2, 2, 1.0)
    assert "no violation found: 2 pairs" in str(seen)


def test_all_randomness_is_replayed():
    """So that whatever differs in the result comes from the data."""
    results = []

    def keep(ages):
        results.append(total(ages).value)

    replay(keep, [(AGES, LONGER)])
    assert results[0] == results[1]
    assert len({total(AGES).value for _ in range(20)}) > 1  # nothing stays replayed afterwards


def bounded(values, change, **facts):
    declared = {ADD_REMOVE: Sensitivity.scalar(change), REPLACE_ONE: Sensitivity.scalar(2 * change)}
    return Bounded(np.array(values), 1, declared, "toy", **facts)


def too_large(ages):
    return dp.laplace(bounded(int(ages.sum()), 100), epsilon=1.0)  # 130 is not clamped


def other_direction(ages):
    return dp.laplace(bounded(-int(np.clip(ages, 0, 100).sum()), 100, direction=1), epsilon=1.0)


def scale_from_data(ages):
    return dp.laplace(bounded(len(ages), len(ages)), epsilon=1.0)


def label_from_data(ages):
    return dp.laplace(queries.histogram(ages, edges=[0, 50, 200] + [300] * (len(ages) > 4)), epsilon=1.0)


def exact_beside(ages):
    return total(ages).value, int(ages.max())


def dtype_from_data(ages):
    return np.array([total(ages).value], dtype=np.float32 if len(ages) > 4 else np.float64)


def error_from_data(ages):
    if ages.max() > 100:
        raise ValueError("an age is too large")
    return total(ages)


def warning_from_data(ages):
    if ages.max() > 100:
        warnings.warn("an age was clamped", stacklevel=1)
    return total(ages)


def print_from_data(ages):
    print(len(ages))
    return total(ages)


def log_from_data(ages):
    logging.getLogger("toy").warning("%d rows", len(ages))
    return total(ages)


def more_mechanisms(ages):
    return [total(ages) for _ in ages]


def scores_both_ways(ages):
    values = np.array([len(ages), -len(ages)])
    scored = Scores(values, ("a", "b"), {ADD_REMOVE: 1}, "toy", monotone=frozenset({ADD_REMOVE}))
    return dp.exponential(scored, epsilon=1.0)


def score_too_far(ages):
    return dp.noisy_max(Scores(np.array([0, 2 * len(ages)]), ("a", "b"), {ADD_REMOVE: 1}, "toy"), epsilon=1.0)


def threshold_too_far(ages):
    run = SparseVector(threshold=100, epsilon=1.0)
    return run.above(bounded(3 * len(ages), 1)).value


def event_from_data(ages):
    return dp.laplace(queries.count(ages), epsilon=1.0 if len(ages) > 4 else 2.0)


MUTANTS = {
    too_large: "linf moves by 1.3",
    other_direction: "against its declared direction",
    scale_from_data: "differs between neighbors",
    label_from_data: "differs between neighbors",
    exact_beside: "result: differs",
    dtype_from_data: "result: differs",
    error_from_data: "error: differs",
    warning_from_data: "warning: differs",
    print_from_data: "printed text: differs",
    log_from_data: "log message: differs",
    more_mechanisms: "different number",
    scores_both_ways: "move both ways",
    score_too_far: "linf moves by 2",
    threshold_too_far: "linf moves by 3",
    event_from_data: "differs between neighbors",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda f: f.__name__)
def test_a_pipeline_that_leaks_is_refuted_with_a_witness(mutant):
    seen = replay(mutant, [Pair(AGES, LONGER, grows=True)])
    assert not seen.passed
    assert MUTANTS[mutant] in str(seen)


def test_scores_of_several_groups_share_one_bound():
    def pipeline(counts):
        with observation.jointly("groups"):
            for count in counts:
                dp.exponential(Scores(np.array([0, count]), ("a", "b"), {ADD_REMOVE: 1}, "toy"), epsilon=1.0)

    assert replay(pipeline, [([1, 1], [2, 1])]).passed
    assert "all groups together move by 2" in str(replay(pipeline, [([1, 1], [2, 2])]))


def test_local_reports_may_change_one_answer():
    def pipeline(answers):
        return dp.randomized_response(answers, epsilon=1.0).value

    assert replay(pipeline, [([True, False], [True, True])]).passed
    assert not replay(pipeline, [([True, False], [False, True])]).passed


def test_large_integers_do_not_overflow():
    def pipeline(value):
        return dp.laplace(bounded(value, 1), epsilon=1.0)

    assert "linf moves by 2.3" in str(replay(pipeline, [(-(2**60), 2**60)]))


def test_pairs_that_fail_alike_are_reported_as_such():
    def pipeline(ages):
        raise ValueError("not today")

    seen = replay(pipeline, [(AGES, LONGER)] * 2)
    assert (seen.passed, seen.arrivals, seen.failed, seen.errors) == (True, 0, 2, ("ValueError: not today",))
    assert "2 pairs raised an error, the same on both sides: ValueError: not today" in str(seen)


def test_pairs_are_needed():
    with pytest.raises(InvalidArgument, match="pairs must hold a pair"):
        replay(total, [])
