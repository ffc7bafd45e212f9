"""Rényi divergences of samples, against integrals, sums and random pairs of distributions."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting.forms import renyi, sampled_renyi


def _gaussian_oracle(order: float, rate: float, sigma: float) -> mpmath.mpf:
    a, q, s = mpmath.mpf(order), mpmath.mpf(rate), mpmath.mpf(sigma)

    def integrand(z: mpmath.mpf) -> mpmath.mpf:
        x = q * mpmath.expm1((2 * z - 1) / (2 * s * s))
        return mpmath.npdf(z, 0, s) * ((1 + x) ** a - 1 - a * x)

    nodes = {-20 * s, -8 * s, -3 * s, mpmath.mpf(0), 3 * s, 8 * s, *(a * i / 4 for i in range(5))}
    return mpmath.log1p(mpmath.quad(integrand, sorted(nodes | {a + 4 * s, a + 9 * s, a + 20 * s})))


@pytest.mark.parametrize(
    ("order", "rate", "sigma"),
    [
        (1.5, 0.01, 1.0),
        (1.01, 0.1, 0.3),
        (7.3, 0.5, 1.0),
        pytest.param(31.7, 0.01, 1.0, marks=pytest.mark.slow),
        (2.5, 1e-6, 3.0),
        (1.3, 1e-9, 50.0),
        pytest.param(60.5, 0.99, 0.8, marks=pytest.mark.slow),
        pytest.param(3.3, 0.2, 0.15, marks=pytest.mark.slow),
        pytest.param(200.5, 0.01, 4.0, marks=pytest.mark.slow),
        (5.0, 1e-4, 0.5),
        (64.0, 0.001, 2.0),
    ],
)
def test_sampled_gaussians_match_the_integral_from_above(order: float, rate: float, sigma: float) -> None:
    with mpmath.workdps(40):
        truth = _gaussian_oracle(order, rate, sigma)
        ours = mpmath.mpf(sampled_renyi.gaussian(order, rate, sigma))
        assert truth <= ours <= truth * (1 + mpmath.mpf(10) ** -9)


@pytest.mark.parametrize("order", [300.5, 4096.0, 9999.5, 10_000.0])
@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (1e-6, 0.3), (0.5, 50.0)])
def test_large_orders_stay_between_the_largest_term_and_the_unsampled_price(
    order: float, rate: float, sigma: float
) -> None:
    ours = sampled_renyi.gaussian(order, rate, sigma)
    whole = math.floor(order)
    largest = whole * math.log(rate) + (whole * whole - whole) / (2 * sigma**2)
    assert max(0.0, largest) <= ours <= (order - 1) * order / (2 * sigma**2) * (1 + 1e-12)


def test_the_finite_sum_at_integers_is_exact_at_order_ten_thousand() -> None:
    with mpmath.workdps(50):
        q, s, n = mpmath.mpf("0.01"), mpmath.mpf(3), 10_000
        terms = [
            mpmath.log(mpmath.binomial(n, k))
            + k * mpmath.log(q)
            + (n - k) * mpmath.log(1 - q)
            + (k * k - k) / (2 * s * s)
            for k in range(n - 60, n + 1)
        ]
        truth = max(terms) + mpmath.log(mpmath.fsum(mpmath.exp(t - max(terms)) for t in terms))
        ours = sampled_renyi.gaussian(float(n), float(q), 3.0)
        assert truth * (1 - mpmath.mpf(10) ** -12) <= ours <= truth * (1 + mpmath.mpf(10) ** -10)


@given(st.floats(1.01, 40), st.floats(1e-4, 8), st.floats(1e-6, 0.999))
@settings(max_examples=150, deadline=None)
def test_sampled_pure_events_cover_both_directions(order: float, epsilon: float, rate: float) -> None:
    ours = float(sampled_renyi.symmetric_pure(np.array([order]), epsilon, rate)[0])
    with mpmath.workdps(60):
        a, q, e = mpmath.mpf(order), mpmath.mpf(rate), mpmath.exp(epsilon)
        without = [1 / (1 + e), e / (1 + e)]
        mixed = [(1 - q) * w + q * p for w, p in zip(without, reversed(without), strict=True)]
        removed = mpmath.log(mpmath.fsum(m**a * w ** (1 - a) for m, w in zip(mixed, without, strict=True))) / (a - 1)
        added = mpmath.log(mpmath.fsum(w**a * m ** (1 - a) for m, w in zip(mixed, without, strict=True))) / (a - 1)
        assert added <= removed * (1 + mpmath.mpf(10) ** -30)
        assert removed <= ours * (1 + mpmath.mpf(10) ** -14)
        assert ours <= removed * (1 + mpmath.mpf(10) ** -6) + mpmath.mpf(10) ** -13


def _random_law(rng: np.random.Generator, size: int) -> np.ndarray:
    law = rng.exponential(size=size) ** rng.uniform(0.3, 2.0)
    return np.asarray(law / law.sum())


def _log_moment(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return math.log(float(np.sum(p**order * q ** (1 - order))))


def test_pairs_without_symmetry_are_covered_in_both_directions() -> None:
    rng = np.random.default_rng(7)
    for _ in range(400):
        size = int(rng.integers(2, 6))
        with_unit, without = _random_law(rng, size), _random_law(rng, size)
        rate, order = float(rng.uniform(1e-3, 0.9)), float(rng.uniform(1.05, 12))
        mixed = (1 - rate) * without + rate * with_unit
        k = np.arange(2, math.ceil(order) + 1)
        moments = np.array([_log_moment(with_unit, without, float(n)) for n in k])
        out = sampled_renyi.interpolated(order, lambda n, m=moments, r=rate: sampled_renyi.mixture(n, r, m[: n - 1]))  # type: ignore[misc]
        assert _log_moment(mixed, without, order) <= out * (1 + 1e-12) + 1e-14
        back = sampled_renyi.toward_mixture(order, rate, float(moments[0]), _log_moment(without, with_unit, order))
        assert _log_moment(without, mixed, order) <= back * (1 + 1e-12) + 1e-14


def test_mixtures_with_a_common_part_obey_convexity() -> None:
    rng = np.random.default_rng(8)
    for _ in range(300):
        common, left, right = (_random_law(rng, 4) for _ in range(3))
        rate, order = float(rng.uniform(1e-3, 1)), float(rng.uniform(1.05, 9))
        truth = _log_moment((1 - rate) * common + rate * left, (1 - rate) * common + rate * right, order)
        assert truth <= sampled_renyi.convex(order, rate, _log_moment(left, right, order)) * (1 + 1e-12) + 1e-14


def test_samples_without_replacement_obey_the_ternary_bound() -> None:
    rng = np.random.default_rng(9)
    for _ in range(400):
        base = _random_law(rng, 5)
        laws = [base * np.exp(rng.uniform(-0.4, 0.4, 5) * rng.uniform(0, 3)) for _ in range(3)]
        others, mine, yours = (law / law.sum() for law in laws)
        rate, order = float(rng.uniform(1e-3, 0.5)), int(rng.integers(2, 10))
        pairs = [(a, b) for a in (others, mine, yours) for b in (others, mine, yours)]
        moments = np.array([max(_log_moment(a, b, float(k)) for a, b in pairs) for k in range(2, order + 1)])
        epsilon = max(float(np.max(np.log(a / b))) for a, b in pairs)
        truth = _log_moment((1 - rate) * others + rate * mine, (1 - rate) * others + rate * yours, float(order))
        for known in (epsilon, math.inf):
            bound = sampled_renyi.without_replacement(order, rate, moments.copy(), known)
            assert truth <= bound * (1 + 1e-12) + 1e-14


def test_sampled_laplace_at_integers_is_the_integral() -> None:
    rate, epsilon, order = 0.2, 1.5, 5
    k = np.arange(2, order + 1, dtype=np.float64)
    ours = sampled_renyi.mixture(order, rate, (k - 1) * renyi.laplace(k, epsilon))
    with mpmath.workdps(30):
        q, e = mpmath.mpf(rate), mpmath.mpf(epsilon)

        def both(x: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
            without, with_unit = mpmath.exp(-abs(x)) / 2, mpmath.exp(-abs(x - e)) / 2
            return without, (1 - q) * without + q * with_unit

        nodes = [-90, -10, 0, e / 2, e, 10, 90]
        removed = mpmath.log(mpmath.quad(lambda x: both(x)[1] ** order * both(x)[0] ** (1 - order), nodes))
        added = mpmath.log(mpmath.quad(lambda x: both(x)[0] ** order * both(x)[1] ** (1 - order), nodes))
        assert added < removed <= ours <= removed * (1 + mpmath.mpf(10) ** -9)


def test_the_second_term_without_replacement_has_its_published_constant() -> None:
    rate, second = 0.1, 0.01
    for epsilon, factor in ((math.inf, 4 * math.expm1(second)), (0.1, math.exp(second) * math.expm1(0.1) ** 2)):
        bound = sampled_renyi.without_replacement(2, rate, np.array([second]), epsilon)
        assert bound == pytest.approx(math.log1p(rate**2 * factor), rel=1e-12)
    third = sampled_renyi.without_replacement(3, rate, np.array([second, 3.0]), math.inf)
    assert third == pytest.approx(math.log1p(3 * rate**2 * 4 * math.expm1(second) + rate**3 * 2 * math.exp(3.0)))
