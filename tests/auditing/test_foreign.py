"""A replay follows noise that other code draws from numpy, or that is marked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.auditing import NumpyNoise, Pair, declared, replay
from discreet.errors import InvalidArgument

ROWS = np.array([30.0, 41.0, 77.0, 52.0])
PAIR = Pair(ROWS, np.append(ROWS, 130.0), grows=True)
ONE = NumpyNoise(epsilon=1.0, mu=1.0)


def clamped(rows):
    return np.clip(rows, 0, 100).sum()


def by_loc(rows):
    return np.random.laplace(clamped(rows), 100.0)  # noqa: NPY002 # as old code does


def by_sum(rows):
    generator = np.random.default_rng()
    generator.permutation(7)  # other numbers are equal in both runs
    return clamped(rows) + generator.laplace(scale=100.0)


def by_difference(rows):
    return clamped(rows) - np.random.RandomState().laplace(scale=100.0)


def scaled(rows):
    return float(clamped(rows) + 100.0 * np.random.default_rng(3).standard_normal())


def histogram(rows):
    counts = np.histogram(rows, [0, 50, 100, 200])[0]
    return (counts + np.random.default_rng().laplace(size=3)).round(1)


def in_place(rows):
    counts = np.histogram(rows, [0, 50, 100, 200])[0].astype(float)
    counts += np.random.default_rng().laplace(size=3)
    return counts


@pytest.mark.parametrize("pipeline", [by_loc, by_sum, by_difference, scaled, histogram, in_place])
def test_honest_code_passes_and_reaches_its_bound(pipeline):
    seen = replay(pipeline, [PAIR, (PAIR.second, PAIR.first)], noise=ONE)
    assert seen.passed, str(seen)
    assert (seen.arrivals, seen.failed, seen.tightest) == (2, 0, 1.0)


def unclamped(rows):
    return rows.sum() + np.random.default_rng().laplace(scale=100.0)


def scale_of_data(rows):
    return clamped(rows) + np.random.default_rng().laplace(scale=rows.max())


def exact_beside(rows):
    return clamped(rows) + np.random.default_rng().laplace(scale=100.0), len(rows)


def divided_by_size(rows):
    return (clamped(rows) + np.random.default_rng().normal(scale=100.0)) / len(rows)


def one_noise_for_all(rows):
    return np.histogram(rows, [0, 50, 100, 200])[0] + np.random.default_rng().laplace(scale=10.0)


def missing_number(rows):
    return np.where(rows > 100, np.nan, rows).sum() + np.random.default_rng().laplace(scale=100.0)


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        (unclamped, "l1 moves by 1.3"),
        (scale_of_data, "differs between neighbors"),
        (exact_beside, "result: differs"),
        (divided_by_size, "result: differs"),
        (one_noise_for_all, "moves by inf"),
        (missing_number, "moves by inf"),
    ],
)
def test_known_mistakes_are_refuted(pipeline, words):
    seen = replay(pipeline, [PAIR], noise=ONE)
    assert not seen.passed
    assert words in str(seen)


def twice(rows):
    generator = np.random.default_rng()
    return clamped(rows) + generator.laplace(scale=100.0), len(rows) + generator.laplace()


def test_several_releases_may_share_one_claim():
    assert replay(twice, [PAIR], noise=ONE).passed
    assert "all releases together move by 2" in str(replay(twice, [PAIR], noise=NumpyNoise(1.0, together=True)))
    assert replay(by_sum, [PAIR], noise=NumpyNoise(1.0, together=True)).passed


def test_numpy_is_as_before_after_a_replay():
    before = np.random.laplace, np.random.default_rng, np.random.RandomState
    state = np.random.get_state()[1].tolist()  # noqa: NPY002 # as old code does
    replay(by_loc, [PAIR], noise=ONE)
    assert before == (np.random.laplace, np.random.default_rng, np.random.RandomState)
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002 # as old code does
    assert isinstance(np.random.default_rng().laplace(), float)


def test_noise_that_cannot_be_followed_is_an_error_with_a_remedy():
    for lost in (float, np.exp, np.mean, np.asarray, lambda noise: noise * noise, lambda noise: np.ones(3) * noise):
        seen = replay(lambda rows, lost=lost: lost(np.random.default_rng().laplace(size=3)), [PAIR], noise=ONE)
        assert seen.failed == 1
        assert "auditing.declared" in seen.errors[0]
    undeclared = replay(scaled, [PAIR], noise=NumpyNoise(epsilon=1.0))
    assert "noise.mu must be given" in undeclared.errors[0]
    with pytest.raises(InvalidArgument, match="got none"):
        NumpyNoise()
    with pytest.raises(InvalidArgument, match="epsilon must be > 0"):
        NumpyNoise(epsilon=0.0)


def test_any_noise_can_be_marked():
    def pipeline(rows, bound=100.0):
        value = np.clip(rows, 0, bound).sum()
        return declared(value, lambda: value + 3.0, kind="laplace", scale=100.0, limit=100.0)

    assert pipeline(ROWS) == clamped(ROWS) + 3.0  # outside of a replay it only draws
    assert replay(pipeline, [PAIR]).passed
    assert "l1 moves by 1.3" in str(replay(lambda rows: pipeline(rows, 1000.0), [PAIR]))
    with pytest.raises(InvalidArgument, match="kind must be"):
        declared(1.0, lambda: 1.0, kind="uniform", scale=1.0, limit=1.0)
