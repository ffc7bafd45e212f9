"""Quantiles of weighted sums of independent noises, for intervals: each is an upper bound on the true quantile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

#: Scales of a Laplace sum are moved this factor apart, upward: the formula divides by differences of their squares.
_APART = 1.03
#: Scales below this part of the largest one are raised to it: they hardly matter, and cannot be told from 0.
_SMALLEST = 1e-3
#: Bisections of the quantile, after which it is known to 7 digits; the upper end is used.
_HALVINGS = 25
#: More than the round-off of the sum of exponentials, whose weights stay below 1e6.
_ROUND_OFF = 1e-9


def laplace_sum_quantile(scales: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
    """A t with P(|X₁ + … + X_k| > t) ≤ `tail` for independent Laplace noises with these scales; one row for each noise.

    For distinct scales, partial fractions of the characteristic function Π 1/(1 + bᵢ²s²) give P(|S| > t) = Σ wᵢ
    e^{−t/bᵢ} with wᵢ = Π_{j≠i} bᵢ²/(bᵢ² − bⱼ²). Scales that are close are moved apart upward, which can only raise the
    quantile: all noises are symmetric and unimodal, so a larger scale makes the sum less peaked (Birnbaum 1948).

    >>> round(float(laplace_sum_quantile(np.array([1.0]), 0.05)), 6)  # ln 20
    2.995732
    """
    ordered = np.sort(np.abs(np.asarray(scales, dtype=np.float64)), axis=0)
    largest = ordered[-1]
    unit = np.where(largest > 0, largest, 1.0)
    b = ordered / unit
    if b.shape[0] > 1:
        b[0] = np.maximum(b[0], _SMALLEST)
    for i in range(1, b.shape[0]):
        b[i] = np.maximum(b[i], _APART * b[i - 1])
    squares = b * b
    weights = np.ones_like(b)
    for i in range(b.shape[0]):
        for j in range(b.shape[0]):
            if j != i:
                weights[i] *= squares[i] / (squares[i] - squares[j])
    low, high = np.zeros_like(unit), np.log(b.shape[0] / tail) * b.sum(axis=0)  # by a union bound
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = np.sum(weights * np.exp(-middle / b), axis=0) > tail * (1 - _ROUND_OFF)
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    return np.asarray(np.where(largest > 0, high * unit, 0.0))


def gaussian_sum_quantile(scales: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
    """The same t for independent Gaussian noises with these standard deviations."""
    return np.asarray(-special.ndtri(tail / 2) * np.sqrt(np.sum(np.square(scales), axis=0)))
