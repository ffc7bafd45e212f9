"""Quantiles of sums of noises are upper bounds, and close ones."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from discreet.numeric.noise_sums import laplace_sum_quantile

TAILS = [0.3, 0.05, 1e-3, 1e-9]


@pytest.mark.parametrize("tail", TAILS)
def test_the_quantile_of_two_equal_laplace_noises(tail):
    """P(|X + Y| > t) = (1 + t/2)e^{−t}; equal scales are moved apart by 3%."""
    t = float(laplace_sum_quantile(np.array([1.0, 1.0]), tail))
    assert (1 + t / 2) * math.exp(-t) <= tail
    assert (1 + t / 2.06) * math.exp(-t / 1.03) >= tail * (1 - 1e-6)


@pytest.mark.parametrize("tail", TAILS)
def test_the_quantile_of_different_laplace_noises(tail):
    scales = [mp.mpf(1), mp.mpf(2), mp.mpf(5)]

    def beyond(t):
        shares = [mp.fprod(b * b / (b * b - c * c) for c in scales if c != b) * mp.exp(-t / b) for b in scales]
        return mp.fsum(shares)

    with mp.workdps(40):
        exact = mp.findroot(lambda t: mp.log(beyond(t) / tail), 5 * math.log(2 / tail))
        t = laplace_sum_quantile(np.array([[5.0], [1.0], [2.0]]), tail)
        assert exact <= t[0] <= exact * (1 + 1e-8)


def test_no_noise_has_no_width():
    assert laplace_sum_quantile(np.zeros((3, 2)), 0.05).tolist() == [0.0, 0.0]
    assert laplace_sum_quantile(np.array([[0.0, 1.0]]), 0.05)[0] == 0.0
