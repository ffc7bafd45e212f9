"""Quantiles of weighted sums of independent noises, for intervals: each is an upper bound on the true quantile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

#: Scales of a Laplace sum are moved this factor apart, upward: the formula divides by differences of their squares.
_APART = 1.03
#: Scales below this part of the largest one are raised to it: they hardly matter, and cannot be told from 0.
_SMALLEST = 1e-3
#: Newton's steps end when they move the quantile by less than this part of it, or after this many steps.
_CLOSE, _MOST_STEPS = 1e-12, 60
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
    b = np.where(largest > 0, ordered / unit, 1.0)
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
    # A sum of log-concave noises is log-concave, and so is its tail (Prékopa 1973): from the right, Newton's steps for
    # the logarithm of the tail never pass the quantile, so each of them is an upper bound too.
    t = np.log(b.shape[0] / tail) * b.sum(axis=0)  # by a union bound
    for _ in range(_MOST_STEPS):
        terms = weights * np.exp(-t / b)
        beyond = terms.sum(axis=0)
        step = np.log(tail * (1 - _ROUND_OFF) / beyond) * beyond / (terms / b).sum(axis=0)
        t = t - np.maximum(step, 0.0)
        if np.all(step <= _CLOSE * t):
            break
    return np.asarray(np.where(largest > 0, t * unit, 0.0))


def gaussian_sum_quantile(scales: NDArray[np.float64], tail: float) -> NDArray[np.float64]:
    """The same t for independent Gaussian noises with these standard deviations."""
    return np.asarray(-special.ndtri(tail / 2) * np.sqrt(np.sum(np.square(scales), axis=0)))
