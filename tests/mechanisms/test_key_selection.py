"""Key selection is as private as it claims, computed exactly for small cases, and draws as claimed."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

import discreet as dp
from discreet import events
from discreet.errors import InvalidArgument, InvalidSensitivity
from discreet.mechanisms import DiscreteGaussian, Gaussian, KeySelection, Laplace, laplace
from discreet.queries.discovered import key_counts, key_limits, keys_moved

ROWS, PERSON = dp.rows(), dp.person("id", max_rows=9, max_groups=3)


def laplace_tail(scale, reach):
    """P(Z ≥ reach) of discrete Laplace noise, for any integer."""
    q = math.exp(-1 / scale)
    return q**reach / (1 + q) if reach >= 1 else 1 - q ** (1 - reach) / (1 + q)


def chances(selection, counts):
    """The probability that each key is released."""
    return [
        laplace_tail(float(selection.noise.scale), selection.threshold - c) if c >= selection.least else 0.0
        for c in counts
    ]


def delta(epsilon, ours, theirs):
    """The hockey-stick divergence of two products of coins."""
    total = 0.0
    for outcome in itertools.product((True, False), repeat=len(ours)):
        p, q = (math.prod(x if out else 1 - x for x, out in zip(side, outcome, strict=True)) for side in (ours, theirs))
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


def pairs(moved, least):
    """Counts of keys in two neighboring datasets: up to `moved` of them differ, each by 1."""
    steps = [(least - 1, least), (least, least - 1), (least, least + 1), (9, 8), (least + 3, least + 2)]
    return itertools.combinations_with_replacement(steps, moved)


@pytest.mark.parametrize("least", [1, 4])
@pytest.mark.parametrize(("unit", "relation"), [(ROWS, dp.ADD_REMOVE), (ROWS, dp.REPLACE_ONE), (PERSON, dp.ZERO_OUT)])
@pytest.mark.parametrize(("epsilon", "failure"), [(1.0, 1e-3), (0.3, 0.02), (3.0, 1e-6)])
def test_no_neighbors_differ_by_more_than_is_claimed(unit, relation, epsilon, failure, least):
    limits = key_limits(unit, relation=relation)
    selection = KeySelection.over(Laplace.for_epsilon(limits, epsilon), limits, failure, least=least)
    for pair in pairs(keys_moved(unit, relation), least):
        ours, theirs = (chances(selection, side) for side in zip(*pair, strict=True))
        for one, other in ((ours, theirs), (theirs, ours)):
            assert delta(epsilon, one, other) <= failure * (1 + 1e-9)
    assert selection.guarantee(limits).epsilon == pytest.approx(epsilon)


def test_a_lower_threshold_would_break_the_claim_and_is_refused():
    limits = key_limits(ROWS)
    selection = KeySelection.over(Laplace.for_epsilon(limits, 1.0), limits, 1e-3)
    low = replace(selection, threshold=selection.threshold - 1)
    assert delta(5.0, chances(low, [1]), chances(low, [0])) > 1e-3
    with pytest.raises(InvalidSensitivity, match="threshold"):
        low.release(key_counts([1, 2], ROWS))
    with pytest.raises(InvalidSensitivity, match="threshold"):  # right for one key, too low for three
        selection.release(key_counts([1, 2], PERSON))


@pytest.mark.parametrize("failure", [1e-2, 1e-6, 1e-12])
def test_gaussian_thresholds_bound_the_exact_tail(failure):
    limits = key_limits(PERSON)
    rounded = KeySelection.over(Gaussian.for_epsilon(limits, 1.0, failure), limits, failure)
    sigma = float(rounded.noise.standard_deviation)
    assert 3 * special.ndtr(-(rounded.threshold - 1 - 0.5) / sigma) <= failure
    assert 3 * special.ndtr(-(rounded.threshold - 2 - 0.5) / sigma) > failure
    discrete = KeySelection.over(DiscreteGaussian.for_rho(limits, 0.05), limits, failure)
    x = np.arange(-2000, 2001)
    mass = np.exp(-(x**2) / (2 * float(discrete.noise.variance)))
    assert 3 * mass[x >= discrete.threshold - 1].sum() / mass.sum() <= failure
    assert rounded.guarantee(limits).delta == pytest.approx(2 * failure)


def test_the_event_is_that_of_the_noise_and_a_pure_failure():
    limits = key_limits(PERSON, relation=dp.REPLACE_ONE)
    event = KeySelection.over(Laplace(Fraction(10)), limits, 1e-6).event(limits)
    assert event == events.Composed((events.DiscreteLaplace(6, Fraction(10)), events.Claimed(0.0, 1e-6)))
    assert dp.accounting.epsilon(event, delta=1.001e-6).upper == pytest.approx(0.6, abs=1e-6)


def test_keys_are_released_as_often_as_they_should():
    """Two-sided binomial tests, each with a false alarm of 1e-7; a threshold that is off by one would be caught."""
    limits, draws = key_limits(ROWS), 200_000
    selection = KeySelection.over(Laplace.for_epsilon(limits, 1.0), limits, 0.01, least=2)
    for count in (1, 2, 3, 6, 9):
        out = int(selection.release(key_counts([count] * draws, ROWS)).value.sum())
        (chance,) = chances(selection, [count])
        assert stats.binomtest(out, draws, chance).pvalue > 1e-7 if chance else out == 0
    assert selection.release(key_counts([selection.certain(0.999)] * draws, ROWS)).value.mean() > 0.998


def test_counts_of_keys_are_not_a_bounded_value_and_show_nothing():
    counts = key_counts([17, 4242], ROWS)
    assert "4242" not in repr(counts)
    with pytest.raises(InvalidSensitivity):
        laplace(counts, epsilon=1.0)
    with pytest.raises(InvalidSensitivity, match="KeyCounts"):
        KeySelection(Laplace(Fraction(1)), 20, Fraction(1, 100)).release([17, 3])


def test_seeded_selections_guarantee_nothing():
    limits = key_limits(ROWS)
    selection = KeySelection.over(Laplace.for_epsilon(limits, 1.0), limits, 1e-3)
    one, two = (selection.release(key_counts(range(20), ROWS), insecure_seed=3) for _ in range(2))
    assert one.value.tolist() == two.value.tolist()
    assert not events.is_secure(one.event)


@pytest.mark.parametrize("bad", [0, -1.0, 1.0, 2, math.nan, math.inf, "x", None])
def test_a_bad_delta_is_refused(bad):
    with pytest.raises(InvalidArgument):
        KeySelection.over(Laplace(Fraction(1)), key_limits(ROWS), bad)
