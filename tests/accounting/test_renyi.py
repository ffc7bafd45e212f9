"""Closed forms of Rényi divergences: never below the truth, and hardly above it, at any order."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from discreet.accounting.forms import renyi

mp = mpmath.mp
ORDERS = [1.01, 2.0, 3.7, 100.5, 1e4]
LOSSES = [1e-6, 0.1, 1.0, 40.0]


def _laplace(a: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    gain, loss = a / (2 * a - 1), (a - 1) / (2 * a - 1)
    return mpmath.log(gain * mpmath.exp((a - 1) * e) + loss * mpmath.exp(-a * e)) / (a - 1)


def _response(categories: int) -> Callable[[mpmath.mpf, mpmath.mpf], mpmath.mpf]:
    def divergence(a: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
        whole = mpmath.exp(e) + categories - 1
        return mpmath.log((mpmath.exp(a * e) + mpmath.exp((1 - a) * e) + categories - 2) / whole) / (a - 1)

    return divergence


def _range(a: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    def moment(t: mpmath.mpf) -> mpmath.mpf:
        p = (mpmath.exp(e) - mpmath.exp(t)) / mpmath.expm1(e)
        return mpmath.log(p * mpmath.exp((a - 1) * t) + (1 - p) * mpmath.exp((a - 1) * (t - e))) / (a - 1)

    low, high = mpmath.mpf(0), e
    for _ in range(120):  # (2/3)^120 < 1e-21, and a maximum is flat
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if moment(left) < moment(right) else (low, right)
    return moment(low)


@pytest.mark.parametrize(
    ("ours", "oracle", "slack"),
    [
        (renyi.laplace, _laplace, 1e-10),
        (lambda a, e: renyi.randomized_response(a, e, 2), _response(2), 1e-10),
        (lambda a, e: renyi.randomized_response(a, e, 9), _response(9), 1e-10),
        (renyi.pure, _response(2), 1e-10),
        (renyi.bounded_range, _range, 1e-4),
    ],
)
def test_formulas_bound_the_truth_from_above_and_closely(
    ours: Callable[[renyi.Floats, float], renyi.Floats],
    oracle: Callable[[mpmath.mpf, mpmath.mpf], mpmath.mpf],
    slack: float,
) -> None:
    with mpmath.workdps(60):
        for loss in LOSSES:
            values = ours(np.array(ORDERS), loss)
            for order, value in zip(ORDERS, values, strict=True):
                truth = oracle(mpmath.mpf(order), mpmath.mpf(loss))
                assert truth * (1 - mpmath.mpf(10) ** -40) <= float(value) <= truth * (1 + slack), (order, loss)


@pytest.mark.parametrize("sensitivity", [1, 2, 7])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(20)])
def test_discrete_laplace_is_the_sum_over_the_integers(sensitivity: int, scale: Fraction) -> None:
    with mpmath.workdps(40):
        decay = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
        reach = int(100 * max(scale, 1))
        whole = mpmath.fsum(decay ** abs(x) for x in range(-reach, reach + 1))
        for order in (1.3, 2.0, 5.5):
            moment = mpmath.fsum(
                decay ** (order * abs(x) + (1 - order) * abs(x - sensitivity)) for x in range(-reach, reach + 1)
            )
            truth = mpmath.log(moment / whole) / (order - 1)
            value = float(renyi.discrete_laplace(np.array([order]), sensitivity, scale)[0])
            assert truth <= value * (1 + 1e-15)
            assert value <= truth * (1 + 1e-9)


def test_a_fine_grid_costs_what_laplace_noise_costs() -> None:
    orders = np.array(ORDERS)
    fine = renyi.discrete_laplace(orders, 10**6, Fraction(10**6))
    assert np.allclose(fine, renyi.laplace(orders, 1.0), rtol=1e-6)


def test_no_formula_exceeds_the_pure_loss_or_goes_below_zero() -> None:
    orders = np.array([1.0001, 2.0, 1e4, 1e8])
    for loss in (0.0, 1e-300, 1e-12, 1.0, 700.0, 1e5):
        for formula in (renyi.laplace, renyi.pure, renyi.bounded_range):
            values = formula(orders, loss)
            assert np.all((values >= 0) & (values <= loss * (1 + 1e-15))), (formula, loss)
