"""The sensitivity of correlated noise: how far one unit can move Cx in L2, if it moves each of its steps by at most 1.

A unit takes part in at most k steps, any two at least b apart. If the entries of CᵀC are ≥ 0, the worst unit moves all
its steps in the same direction, so the squared sensitivity is the largest Σ_{i,j∈I} ⟨Cᵢ, Cⱼ⟩ over the allowed sets I of
steps (Choquette-Choo et al. 2023, arXiv 2211.06530). Proofs of the bounds: docs/proofs/correlated-noise.md. Each
function returns a lower and an upper bound, both certified; they agree to round-off where the sensitivity is known.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from discreet.numeric.rounding import UNIT, Floats, float_root_down, float_root_up

#: Encoders with more steps than this are not summed entry by entry: the sums hold a few arrays of 32 MiB.
MOST_STEPS = 1 << 22
# Products of step numbers below this fit into 64 bits.
_MOST_PRODUCT = 1 << 62
# Autocorrelations of longer sequences take longer than the bound that they improve is worth.
_MOST_CORRELATED = 1 << 13
# Roundings of one coefficient of the square root, per index: a quotient, a difference and a product.
_RECURRENCE_ROUNDINGS = 3
# Roundings of one coefficient of a buffered encoder: a power, a product, a sum over the buffers on top.
_POWER_ROUNDINGS = 8
# Roundings of a square beside those of the sums that it is in: a few for each product and each power.
_FEW_ROUNDINGS = 64

SensitivityBounds = tuple[float, float]


def square_root_coefficients(count: int) -> Floats:
    """C(2j, j)/4ʲ for j < count: the coefficients of (1 − x)^{−1/2}, each good to three roundings times j.

    >>> square_root_coefficients(5).tolist()
    [1.0, 0.5, 0.375, 0.3125, 0.2734375]
    """
    j = np.arange(1, count, dtype=np.float64)
    return np.concatenate((np.ones(1), np.cumprod(1 - 1 / (2 * j))))


def buffered_coefficients(scales: tuple[float, ...], decays: tuple[float, ...], count: int) -> Floats:
    """1, then Σᵢ ωᵢ λᵢ^{j−1}.

    >>> buffered_coefficients((0.5,), (0.5,), 4).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """
    powers = np.arange(count - 1, dtype=np.float64)
    total = np.zeros(count - 1)
    for scale, decay in zip(scales, decays, strict=True):
        total += float(scale) * np.power(float(decay), powers)
    return np.concatenate((np.ones(1), total))


def square_root_error(count: int) -> float:
    """A bound on the relative error of each of `square_root_coefficients(count)`."""
    return _RECURRENCE_ROUNDINGS * (count + 1) * UNIT


def buffered_error(buffers: int) -> float:
    """A bound on the relative error of each of `buffered_coefficients`, for this many buffers."""
    return (_POWER_ROUNDINGS + 2 * buffers) * UNIT


def toeplitz(
    coefficients: Floats, steps: int, participations: int, separation: int, *, relative_error: float = 0.0
) -> SensitivityBounds:
    """Bounds on the sensitivity of a lower triangular Toeplitz encoder with this first column, then zeros.

    Exact if the coefficients are ≥ 0 and never grow (Kalinin & Lampert 2024, arXiv 2405.13763: the worst unit is in the
    steps 0, b, 2b, …), or if bands do not overlap. `relative_error` bounds that of each coefficient.
    """
    assert steps <= MOST_STEPS
    assert len(coefficients) <= steps
    count = most_participations(steps, participations, separation)
    separation = min(separation, steps)
    size = np.abs(coefficients)
    envelope = np.maximum.accumulate(size[::-1])[::-1]
    # Relative errors of the squares: of two coefficients, of the sum over participations and of that over steps.
    margin = 2 * relative_error + (4 * steps + _FEW_ROUNDINGS) * UNIT
    squares = [_evenly_spaced(envelope, steps, count, separation)[1]]
    if len(size) <= _MOST_CORRELATED:
        squares.append(_by_distance(size, count, separation))
    lower = max(_evenly_spaced(coefficients, steps, count, separation)[0], float(np.sum(coefficients**2)))
    return math.sqrt(lower) * (1 - margin), math.sqrt(min(squares)) * (1 + margin)


def most_participations(steps: int, participations: int, separation: int) -> int:
    """The most steps that one unit can be in: no more than fit at the separation."""
    return min(participations, -(-steps // separation))


def _evenly_spaced(coefficients: Floats, steps: int, count: int, separation: int) -> SensitivityBounds:
    """‖Σ_{j<count} C e_{jb}‖², from below and from above."""
    rows = -(-steps // separation)
    padded = np.zeros(rows * separation)
    padded[: len(coefficients)] = coefficients
    table = padded.reshape(rows, separation)
    total = np.cumsum(table, axis=0)
    # Round-off of a running sum, in either sign, and of the difference of two of them.
    error = 2 * (rows + 2) * UNIT * np.cumsum(np.abs(table), axis=0)
    window = total.copy()
    window[count:] -= total[: rows - count]
    window, error = window.ravel()[:steps], error.ravel()[:steps]
    least = np.maximum(np.abs(window) - error, 0.0)
    most = np.abs(window) + error
    return float(np.sum(least**2)), float(np.sum(most**2))


def _by_distance(size: Floats, count: int, separation: int) -> float:
    """k·r(0) + 2 Σ_{m<k} (k − m)·max_{d ≥ mb} r(d), with r the autocorrelation of |c|: a bound for any coefficients."""
    correlation = np.correlate(size, size, "full")[len(size) - 1 :]
    largest = np.maximum.accumulate(correlation[::-1])[::-1]
    total = count * float(largest[0])
    distances = np.arange(separation, len(size), separation)[: count - 1]
    weights = count - np.arange(1, len(distances) + 1, dtype=np.float64)
    return total + 2 * float(weights @ largest[distances])


def tree(branching: int, steps: int, participations: int, separation: int) -> SensitivityBounds:
    """Bounds on the sensitivity of a complete tree, whose encoder has one row for each node.

    A node over a^l steps holds at most m = min(k, ⌈a^l/b⌉) steps of one unit, so the squares on a level sum to at most
    ⌊k/m⌋m² + (k mod m)². A unit in the steps 0, b, 2b, … attains it if b is a power of a.
    """
    count = most_participations(steps, participations, separation)
    lower = upper = 0
    width = 1
    while True:
        most = min(count, -(-width // separation))
        upper += (count // most) * most**2 + (count % most) ** 2
        lower += _squares_of_counts(width, count, separation)
        if width >= steps:
            break
        width *= branching
    return float_root_down(Fraction(lower)), float_root_up(Fraction(upper))


def _squares_of_counts(width: int, count: int, separation: int) -> int:
    """Σ over nodes of `width` steps of (how many of 0, b, …, (k−1)b lie in it)²."""
    if width <= separation:
        return count
    if count <= MOST_STEPS and count * separation < _MOST_PRODUCT:
        nodes = (np.arange(count, dtype=np.int64) * separation) // width
        return int(np.sum(np.unique(nodes, return_counts=True)[1].astype(np.int64) ** 2))
    return count  # each node holds at least one of them
