"""Directed rounding and bisection: the end that is returned is the safe one."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.numeric import rounding
from discreet.numeric.search import bisect, bisect_ratio, least_integer, least_positive

RATIONALS = st.builds(
    lambda numerator, denominator, exponent: Fraction(numerator, denominator) * Fraction(2) ** exponent,
    st.integers(1, 10**30),
    st.integers(1, 10**30),
    st.integers(-300, 300),
)


@given(RATIONALS)
def test_floats_round_to_the_side_that_their_name_says(value: Fraction) -> None:
    for sign in (1, -1):
        up, down = rounding.float_up(sign * value), rounding.float_down(sign * value)
        assert Fraction(down) <= sign * value <= Fraction(up)
        assert up in (down, math.nextafter(down, math.inf))


@given(RATIONALS)
def test_roots_enclose_the_root(square: Fraction) -> None:
    up, down = rounding.float_root_up(square), rounding.float_root_down(square)
    assert Fraction(down) ** 2 <= square <= Fraction(up) ** 2
    assert up <= down * (1 + 2.0**-50)
    assert square <= rounding.root_up(square) ** 2 <= square * (1 + Fraction(1, 1 << 38))


@given(RATIONALS)
def test_simple_fractions_stay_on_their_side_and_close(value: Fraction) -> None:
    assert value * (1 - Fraction(1, 1 << 40)) <= rounding.rounded_down(value) <= value
    assert value <= rounding.rounded_up(value) <= value * (1 + Fraction(1, 1 << 40))


@given(st.integers(0, 3**40), st.floats(0, 1e100))
def test_products_are_rounded_up_by_less_than_one_float(count: int, value: float) -> None:
    product = rounding.times_up(count, value)
    assert Fraction(product) >= count * Fraction(value)
    assert product == 0 or Fraction(math.nextafter(product, 0.0)) < count * Fraction(value)


@given(st.floats(1e-300, 1e300), st.floats(1e-15, 0.5))
def test_the_least_number_is_found_from_the_side_where_it_holds(edge: float, relative: float) -> None:
    least = least_positive(lambda x: x >= edge, relative=relative)
    assert edge <= least <= edge * (1 + 4 * relative)


def test_no_finite_number_is_inf() -> None:
    assert math.isinf(least_positive(lambda _: False, relative=1e-3))


@given(st.floats(0.0, 1.0, exclude_min=True))
def test_a_bracket_shrinks_to_neighboring_floats(edge: float) -> None:
    low, high = bisect(lambda x: x >= edge, 0.0, 1.0)
    assert low < edge <= high
    assert high == math.nextafter(low, 1.0)


@pytest.mark.parametrize("edge", [2e-6, 1.0, 9.9e5])
def test_a_ratio_shrinks_to_the_one_that_is_asked_for(edge: float) -> None:
    low, high = bisect_ratio(lambda x: x >= edge, 1e-6, 1e6, ratio=1.001)
    assert low < edge <= high <= 1.001 * low


@given(st.integers(1, 10**30), st.integers(0, 10**30))
def test_the_least_integer_is_exact(edge: int, more: int) -> None:
    assert least_integer(lambda n: n >= edge, 0, edge + more) == edge
