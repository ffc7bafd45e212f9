"""The formulas for single mechanisms: on the safe side of 50-digit arithmetic, and tight."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from discreet.accounting import closed_forms as forms
from discreet.errors import InvalidArgument
from tests.accounting.truth import gaussian_delta


def true_gaussian_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        return gaussian_delta(epsilon, mu)


def cases():
    rng = np.random.default_rng(11)
    for _ in range(400):
        yield float(10 ** rng.uniform(-6, 2)), float(10 ** rng.uniform(-5, 1.5))
    for _ in range(100):  # where the terms cancel: ε ≈ μ²/2
        mu = float(10 ** rng.uniform(0, 4))
        yield mu * mu / 2 * float(rng.uniform(0.99, 1.01)), mu
    yield 247401.23535046924, 701.910315877236
    yield 0.0, 1e-9


@pytest.mark.parametrize("case", list(cases()), ids=lambda c: f"{c[0]:.3g}-{c[1]:.3g}")
def test_gaussian_delta_is_an_upper_bound_and_tight(case):
    epsilon, mu = case
    truth, ours = true_gaussian_delta(epsilon, mu), forms.gaussian_delta(epsilon, mu)
    if truth < 1e-290:
        assert ours >= 0
        return
    assert ours >= truth
    assert ours <= min(1.0, truth * (1 + 1e-6)) or ours <= truth + mpmath.mpf(2) ** -40 * truth + 1e-13


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [(1, 1e-5, 3.73063163482), (1, 1e-6, 4.22467888933), (0.1, 1e-6, 36.3046904262), (1e-3, 1e-9, 4122.62973)],
)
def test_the_analytic_calibration_has_the_published_values(epsilon, delta, sigma):
    ours = forms.gaussian_noise_multiplier(epsilon, delta)
    assert ours == pytest.approx(sigma, rel=1e-8)
    assert true_gaussian_delta(epsilon, 1 / ours) <= delta
    assert true_gaussian_delta(epsilon, 1 / (ours * (1 - 1e-6))) > delta


def test_the_gaussian_at_one_has_the_published_values():
    assert forms.gaussian_delta(1.0, 1.0) == pytest.approx(0.1269367375066, rel=1e-12)
    assert forms.gaussian_delta(4.377178095681, 1.0) == pytest.approx(1e-5, rel=1e-10)
    assert forms.gaussian_delta(11.743883025231, 1.0) == pytest.approx(1e-30, rel=1e-10)


def test_the_classical_calibration_is_looser_than_the_analytic_one():
    for epsilon in (0.01, 0.1, 0.5, 0.99):
        assert forms.classical_noise_multiplier(epsilon, 1e-6) > forms.gaussian_noise_multiplier(epsilon, 1e-6)


def test_l2_laplace_inverts_its_theorem_and_the_practical_scale_does_not():
    for epsilon in (0.01, 0.5, 1.0, 4.0):
        for delta in (1e-3, 1e-6, 1e-12):
            multiplier = forms.l2_laplace_noise_multiplier(epsilon, delta)
            ratio, tail = 1 / multiplier, math.sqrt(-2 * math.log(delta))
            assert ratio * (ratio / 2 + tail) <= epsilon
            assert ratio * (ratio / 2 + tail) == pytest.approx(epsilon, rel=1e-9)
    practical = math.sqrt(2 * math.log(1.25 / 1e-5))
    assert forms.l2_laplace_epsilon(1e-5, practical) == pytest.approx(1.012, abs=5e-4)
    assert forms.l2_laplace_epsilon(1e-5, 2.0, l1_noise_multiplier=4.0) == pytest.approx(0.25)


def test_laplace_delta_vanishes_at_its_epsilon():
    assert forms.laplace_delta(1.0, 1.0) <= 0
    assert forms.laplace_delta(0.0, 1.0) == pytest.approx(1 - math.exp(-0.5))


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 50.0, 1e3, 1e6])
@pytest.mark.parametrize("delta", [1e-140, 1e-30, 0.5, 0.999999])
def test_calibration_reaches_every_corner(epsilon, delta):
    multiplier = forms.gaussian_noise_multiplier(epsilon, delta)
    assert forms.gaussian_delta(epsilon, 1 / multiplier) <= delta
    assert forms.gaussian_delta(epsilon, 1 / (multiplier * 0.99)) > delta


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", 5e-324])
def test_bad_arguments_are_refused(bad):
    for call in (
        lambda: forms.gaussian_noise_multiplier(bad, 1e-6),
        lambda: forms.gaussian_noise_multiplier(1.0, bad),
        lambda: forms.classical_noise_multiplier(bad, 1e-6),
        lambda: forms.l2_laplace_noise_multiplier(1.0, bad),
    ):
        with pytest.raises(InvalidArgument):
            call()
