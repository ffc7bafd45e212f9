"""Composition theorems as plain functions."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import composition
from discreet.errors import InvalidArgument
from discreet.guarantees import ZCDP, ApproxDP, PureDP


def _optimal(loss: float, count: int, total: float) -> mpmath.mpf:
    step, whole = mpmath.mpf(loss), mpmath.mpf(total)
    terms = [
        mpmath.binomial(count, k) * max(0, mpmath.exp((count - k) * step) - mpmath.exp(whole + k * step))
        for k in range(count + 1)
    ]
    return mpmath.fsum(terms) / (1 + mpmath.exp(step)) ** count


def test_basic_composition_adds_exactly() -> None:
    whole = composition.basic([ApproxDP(0.1, 1e-6)] * 100)
    assert Fraction(whole.epsilon) >= 100 * Fraction(0.1)
    assert whole.epsilon == pytest.approx(10.0)
    assert whole.delta == pytest.approx(1e-4)
    assert composition.basic([PureDP(1.0), ApproxDP(0.5, 1e-6)]) == ApproxDP(1.5, 1e-6)


def test_advanced_composition_is_the_textbooks() -> None:
    whole = composition.advanced(ApproxDP(0.1, 1e-6), 100, slack=1e-5)
    truth = 0.1 * math.sqrt(200 * math.log(1e5)) + 10 * math.expm1(0.1)
    assert truth <= whole.epsilon <= truth * (1 + 1e-12)
    assert whole.epsilon == pytest.approx(5.85, abs=0.01)
    assert whole.delta == pytest.approx(1.1e-4)


def test_advanced_composition_of_different_parts_contains_the_equal_case() -> None:
    mixed = composition.advanced_of([PureDP(0.1), PureDP(0.1)], [40, 60], 1e-5)
    assert mixed.epsilon == pytest.approx(composition.advanced(PureDP(0.1), 100, 1e-5).epsilon, rel=1e-13)
    assert math.isinf(composition.advanced(PureDP(math.inf), 2, 1e-5).epsilon)


@pytest.mark.parametrize(
    ("loss", "count", "delta", "epsilon"),
    [
        (0.1, 100, 1e-5, 4.306791372517),
        (0.1, 100, 1e-6, 4.774567588108),
        (math.log(3), 10, 1e-6, 10.986105129),
    ],
)
def test_optimal_composition_has_the_values_of_the_reference(
    loss: float, count: int, delta: float, epsilon: float
) -> None:
    assert composition.optimal_pure(loss, count, delta) == pytest.approx(epsilon, rel=1e-9)


@given(st.floats(0.01, 3), st.integers(1, 60), st.floats(1e-6, 1))
@settings(max_examples=80, deadline=None)
def test_optimal_composition_is_the_sum_rounded_up(loss: float, count: int, part: float) -> None:
    total = part * loss * count
    with mpmath.workdps(60):
        truth = _optimal(loss, count, total)
        ours = mpmath.mpf(composition.optimal_pure_delta(loss, count, total))
        assert truth <= ours
        assert ours <= truth * (1 + mpmath.mpf(10) ** -9) + mpmath.mpf(10) ** -14 * (1 + total)


@pytest.mark.parametrize("count", [1000, 100_000])
def test_optimal_composition_stays_stable_for_many_uses(count: int) -> None:
    loss = 1 / math.sqrt(count)
    optimal = composition.optimal_pure(loss, count, 1e-6)
    assert optimal <= composition.advanced(PureDP(loss), count, 1e-6).epsilon
    # The limit is a Gaussian with μ = 1, whose ε at 1e-6 is 4.89.
    assert optimal == pytest.approx(4.89, abs=0.1)
    assert composition.optimal_pure_delta(loss, count, optimal) <= 1e-6
    assert composition.optimal_pure_delta(loss, count, 0.999 * optimal) > 1e-6


def test_optimal_composition_never_exceeds_basic() -> None:
    assert composition.optimal_pure(1.0, 1, 1e-12) <= 1.0
    assert composition.optimal_pure(2.0, 3, 1e-140) == 6.0
    assert composition.optimal_pure(0.1, 0, 1e-6) == 0.0
    assert composition.optimal_pure_delta(0.5, 4, 2.0) == 0.0
    assert composition.optimal_pure_delta(0.5, 4, 2.1) == 0.0


def test_parallel_takes_the_largest_and_groups_grow() -> None:
    assert composition.parallel([ApproxDP(1.0, 1e-7), ApproxDP(0.5, 1e-6)]) == ApproxDP(1.0, 1e-6)
    assert composition.parallel([]) == ApproxDP(0.0, 0.0)
    assert composition.group(PureDP(0.5), 4) == PureDP(2.0)
    assert composition.group(ZCDP(0.5), 4) == ZCDP(8.0)
    pair = composition.group(ApproxDP(0.5, 1e-6), 2)
    assert isinstance(pair, ApproxDP)
    assert pair.epsilon == 1.0
    assert 2 * math.exp(0.5) * 1e-6 <= pair.delta <= 2 * math.exp(0.5) * 1.00001e-6


def test_arguments_that_break_a_rule_are_refused() -> None:
    for broken in (
        lambda: composition.optimal_pure(-1.0, 2, 1e-6),
        lambda: composition.optimal_pure(1.0, -2, 1e-6),
        lambda: composition.optimal_pure(1.0, 2, 0.0),
        lambda: composition.advanced(PureDP(1.0), 2, 0.0),
        lambda: composition.optimal_pure_delta(1.0, 2, -1.0),
    ):
        with pytest.raises(InvalidArgument):
            broken()
