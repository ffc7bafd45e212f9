"""Conversions: both directions round to the safe side, and each undoes the other."""

from __future__ import annotations

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting.forms.conversions import (
    gdp_delta,
    gdp_epsilon,
    gdp_to_zcdp,
    order_limit,
    pure_delta,
    pure_to_gdp,
    pure_to_rdp,
    pure_to_zcdp,
    rdp_delta,
    rdp_epsilon,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_to_rdp,
)
from discreet.errors import InvalidArgument
from discreet.guarantees import GDP, RDP, ZCDP, PureDP

ORDER = st.floats(1.01, 1e4)
DELTA = st.floats(1e-30, 0.5)


@given(ORDER, st.floats(1e-6, 50), DELTA)
def test_the_tight_conversion_is_the_published_one_rounded_up(order: float, divergence: float, delta: float) -> None:
    with mpmath.workdps(50):
        a, d = mpmath.mpf(order), mpmath.mpf(delta)
        truth = divergence + mpmath.log((a - 1) / a) - (mpmath.log(d) + mpmath.log(a)) / (a - 1)
        ours = rdp_epsilon(RDP((order,), (divergence,)), delta)
        assert max(truth, 0) <= ours
        assert ours <= max(truth, 0) + mpmath.mpf(10) ** -11 * (1 + abs(truth))


@given(ORDER, st.floats(1e-6, 50), DELTA)
def test_the_textbook_conversion_is_never_better(order: float, divergence: float, delta: float) -> None:
    curve = RDP((order,), (divergence,))
    textbook = rdp_epsilon(curve, delta, "textbook")
    assert textbook == pytest.approx(divergence - math.log(delta) / (order - 1))
    assert textbook >= divergence - math.log(delta) / (order - 1)
    assert rdp_epsilon(curve, delta) <= textbook


@given(ORDER, st.floats(1e-6, 50), DELTA, st.sampled_from(["tight", "textbook"]))
def test_delta_undoes_epsilon(order: float, divergence: float, delta: float, conversion: str) -> None:
    curve = RDP((order,), (divergence,))
    epsilon = rdp_epsilon(curve, delta, conversion)  # type: ignore[arg-type]
    back = rdp_delta(curve, epsilon, conversion)  # type: ignore[arg-type]
    if epsilon > 0:
        assert back == pytest.approx(delta, rel=1e-6)
    else:
        assert back <= delta * (1 + 1e-6)


@given(ORDER, st.floats(1e-3, 50), DELTA)
def test_an_order_limit_is_the_largest_divergence_that_fits(order: float, epsilon: float, delta: float) -> None:
    limit = order_limit(order, epsilon, delta)
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        exponent = (a - 1) * (mpmath.mpf(limit.numerator) / limit.denominator - epsilon)
        used = mpmath.exp(exponent) * (1 - 1 / a) ** a / (a - 1)
        assert mpmath.mpf(delta) * (1 - mpmath.mpf(10) ** -9) <= used <= mpmath.mpf(delta)


def test_the_best_order_is_taken() -> None:
    curve = RDP((2.0, 8.0, 64.0), (0.25, 1.0, 8.0))
    assert rdp_epsilon(curve, 1e-5) == rdp_epsilon(RDP((8.0,), (1.0,)), 1e-5)
    assert math.isinf(rdp_epsilon(RDP((2.0,), (math.inf,)), 1e-5))
    assert rdp_delta(RDP((2.0,), (math.inf,)), 3.0) == 1.0


@given(st.floats(1e-8, 100), DELTA)
@settings(max_examples=60)
def test_zcdp_takes_the_best_of_all_orders(rho: float, delta: float) -> None:
    tight = zcdp_epsilon(ZCDP(rho), delta)
    orders = tuple(1 + 10 ** (k / 20) for k in range(-60, 200))
    grid = rdp_epsilon(zcdp_to_rdp(ZCDP(rho), orders), delta)
    assert tight <= grid * (1 + 1e-9) + 1e-12
    assert tight <= zcdp_epsilon(ZCDP(rho), delta, "textbook")
    assert zcdp_epsilon(ZCDP(rho), delta, "textbook") >= rho + 2 * math.sqrt(-rho * math.log(delta)) * (1 - 1e-15)


@given(st.floats(1e-3, 50), st.floats(1e-12, 0.1))
@settings(max_examples=60)
def test_a_gaussian_costs_at_least_its_exact_price_through_any_conversion(mu: float, delta: float) -> None:
    exact = gdp_epsilon(GDP(mu), delta)
    rho = gdp_to_zcdp(GDP(mu))
    assert exact <= zcdp_epsilon(rho, delta) <= zcdp_epsilon(rho, delta, "textbook")
    assert gdp_delta(GDP(mu), exact) <= delta
    assert delta <= zcdp_delta(rho, exact * (1 - 1e-9)) * (1 + 1e-6)
    assert zcdp_delta(rho, exact) <= zcdp_delta(rho, exact, "textbook")


@pytest.mark.parametrize(("mu", "delta", "epsilon"), [(1.0, 1e-5, 4.377178095681), (1.0, 1e-30, 11.743883025231)])
def test_gaussian_values_of_the_reference(mu: float, delta: float, epsilon: float) -> None:
    assert gdp_epsilon(GDP(mu), delta) == pytest.approx(epsilon, rel=1e-10)
    assert gdp_delta(GDP(1.0), 1.0) == pytest.approx(0.1269367375066, rel=1e-10)


def test_a_budget_by_renyi_dp_needs_the_noise_of_the_reference() -> None:
    rho = 1 / (2 * 4.530877117**2)
    assert zcdp_epsilon(ZCDP(rho), 1e-6) == pytest.approx(1.0, rel=1e-7)


def test_pure_guarantees_convert_to_every_form() -> None:
    claim = PureDP(1.0)
    assert pure_to_zcdp(claim).rho == pytest.approx(math.tanh(0.5))
    assert pure_to_rdp(claim, (2.0, 1e6)).epsilons[1] == pytest.approx(1.0, rel=1e-5)
    corner = pure_delta(claim, 0.0)
    assert gdp_delta(pure_to_gdp(claim), 0.0) == pytest.approx(corner)
    assert pure_delta(claim, 1.0) == 0.0
    assert pure_delta(claim, 0.5) == pytest.approx((math.e - math.exp(0.5)) / (1 + math.e))


def test_zero_and_infinite_losses_convert_to_themselves() -> None:
    assert zcdp_epsilon(ZCDP(0.0), 1e-6) == 0.0
    assert math.isinf(zcdp_epsilon(ZCDP(math.inf), 1e-6))
    assert (zcdp_delta(ZCDP(0.0), 1.0), zcdp_delta(ZCDP(math.inf), 1.0)) == (0.0, 1.0)
    assert gdp_epsilon(GDP(0.0), 1e-6) == 0.0
    assert math.isinf(gdp_epsilon(GDP(math.inf), 1e-6))
    assert math.isinf(pure_to_zcdp(PureDP(math.inf)).rho)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, 2.0])
def test_a_delta_that_is_no_small_probability_is_refused(delta: float) -> None:
    for convert in (lambda: rdp_epsilon(RDP((2.0,), (1.0,)), delta), lambda: zcdp_epsilon(ZCDP(1.0), delta)):
        with pytest.raises(InvalidArgument, match="delta"):
            convert()


def test_an_unknown_conversion_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="conversion"):
        rdp_epsilon(RDP((2.0,), (1.0,)), 1e-6, "loose")  # type: ignore[arg-type]


@given(st.floats(1e-3, 50), st.floats(1e-3, 100))
def test_textbook_zcdp_is_the_gaussian_tail(rho: float, epsilon: float) -> None:
    truth = math.exp(-(max(0.0, epsilon - rho) ** 2) / (4 * rho))
    assert truth * (1 - 1e-14) <= zcdp_delta(ZCDP(rho), epsilon, "textbook") <= truth * (1 + 1e-9) + 1e-300


def test_a_gaussian_guarantee_has_half_its_square_as_rho() -> None:
    assert 2.0 <= gdp_to_zcdp(GDP(2.0)).rho <= 2.0 * (1 + 1e-13)
