"""Rates, gaps and areas from noisy counts, with intervals that hold for the noise.

Every interval says where the number for the given rows lies, with at least the stated probability over the noise. None
of them covers how the rows were sampled from a population.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.release import NoiseLaw

Floats = NDArray[np.float64]

#: An end is found on a grid of this many shares, which is refined this many times: to 1e-6 of the way.
_GRID, _ROUNDS = 33, 4
#: Sums of more noises than this get their width from moments, which is wider by a few percent and never degenerates.
_FEW = 6


@dataclass(frozen=True)
class RateEstimate:
    """A number with an interval. `value` is NaN where the noise leaves nothing to divide by."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"


def rate(
    counts: Floats, hit_cells: NDArray[np.bool_], miss_cells: NDArray[np.bool_], noise: NoiseLaw, tail: float
) -> RateEstimate:
    """The share of the hits among hits and misses, both sums of noisy counts; wrong with probability ≤ `tail`.

    At the true share r, (1 − r)·H − r·M is 0 for the exact sums H and M. So what the noisy sums make of it is noise
    alone, and the interval holds all r at which it is within the noise's width (Fieller 1954).
    """
    hits, misses = float(counts[hit_cells].sum()), float(counts[miss_cells].sum())
    terms = int(hit_cells.sum()), int(miss_cells.sum())

    def excess(shares: Floats) -> Floats:
        """By how much each share is refuted; ≤ 0 if it is not."""
        return np.asarray(np.abs((1 - shares) * hits - shares * misses) - _width(noise, terms, shares, tail))

    total = hits + misses
    value = min(1.0, max(0.0, hits / total)) if total > 0 else math.nan
    if math.isnan(value) or excess(np.array([value]))[0] > 0:  # far below 0: nothing can be said
        return RateEstimate(value, 0.0, 1.0)
    return _ordered(value, _end(excess, value, 0.0), _end(excess, value, 1.0))


def _end(excess: Callable[[Floats], Floats], inside: float, limit: float) -> float:
    """The first share toward `limit` that is refuted, or `limit`.

    Between `inside` and `limit` the deviation grows linearly and the width is convex, so there is one such point.
    """
    if excess(np.array([limit]))[0] <= 0:
        return limit
    for _ in range(_ROUNDS):
        grid = np.linspace(inside, limit, _GRID)
        refuted = int(np.argmax(excess(grid) > 0))
        inside, limit = float(grid[max(refuted - 1, 0)]), float(grid[refuted])
    return limit


def gap(rates: Sequence[RateEstimate]) -> RateEstimate:
    """The largest of some rates less the smallest, if all their intervals hold."""
    low = max(0.0, max(each.low for each in rates) - min(each.high for each in rates))
    high = max(each.high for each in rates) - min(each.low for each in rates)
    values = np.array([each.value for each in rates])
    return _ordered(float(values.max() - values.min()), low, high)


def ratio(rates: Sequence[RateEstimate]) -> RateEstimate:
    """The smallest of some rates over the largest, if all their intervals hold: 1 where all are equal."""
    values = np.array([each.value for each in rates])
    least, most = float(values.min()), float(values.max())
    top_low, top_high = (max(getattr(each, end) for each in rates) for end in ("low", "high"))
    low_low, low_high = (min(getattr(each, end) for each in rates) for end in ("low", "high"))
    value = least / most if most > 0 else math.nan
    low = low_low / top_high if top_high > 0 else 0.0
    high = min(1.0, low_high / top_low) if top_low > 0 else 1.0
    return _ordered(value, low, high)


def area(negatives: Floats, positives: Floats, noise: NoiseLaw, tail: float) -> RateEstimate:
    """The area under the ROC curve of binned scores: how often a positive is in a higher bin; ties count half.

    All counts are within one width of the truth together, with probability 1 − `tail`. Within that box, the area is
    largest where positives are many above some bin and few below, and negatives the other way around: for given
    negatives it is the mean of a function of the bin that grows, so moving weight upwards raises it until a bin from
    which on all is at its largest. The ends are found by trying all pairs of such bins.
    """
    width = noise.half_width(tail / (2 * len(negatives)))
    ends = [(np.maximum(side - width, 0), np.maximum(side + width, 0)) for side in (negatives, positives)]
    (few_negative, many_negative), (few_positive, many_positive) = ends
    cuts = range(len(negatives) + 1)
    low, high = 1.0, 0.0
    for cut in cuts:
        above = np.arange(len(negatives)) >= cut
        up, down = np.where(above, many_positive, few_positive), np.where(above, few_positive, many_positive)
        for negative_cut in cuts:
            below = np.arange(len(negatives)) < negative_cut
            sunk, raised = (np.where(below, many_negative, few_negative), np.where(below, few_negative, many_negative))
            high, low = max(high, _area(sunk, up, 1.0)), min(low, _area(raised, down, 0.0))
    value = _area(np.maximum(negatives, 0), np.maximum(positives, 0), math.nan)
    return _ordered(value, low, high)


def _area(negatives: Floats, positives: Floats, undefined: float) -> float:
    pairs = float(negatives.sum() * positives.sum())
    if not pairs > 0:
        return undefined
    beaten = np.cumsum(negatives) - negatives / 2
    return float(positives @ beaten) / pairs


def _width(noise: NoiseLaw, terms: tuple[int, int], shares: Floats, tail: float) -> Floats:
    """A bound on |Σ (1 − r)·noise + Σ r·noise| for each share r, with this many terms in each sum.

    For many terms a Chernoff bound: P(|S| > t) ≤ 2·e^{−λt}·E[e^{λS}], at the best of some λ. A discrete Laplace noise
    of scale b has E[e^{sX}] = (1 − q)²/((1 − q·e^s)(1 − q·e^{−s})) with q = e^{−1/b}, for |s| < 1/b.
    """
    if sum(terms) <= _FEW:
        weights = np.concatenate([np.tile(1 - shares, (terms[0], 1)), np.tile(shares, (terms[1], 1))])
        return noise.sum_width(weights, tail)
    largest = np.maximum(1 - shares, shares)
    slopes = np.linspace(0.01, 0.99, 99)[:, None] / (noise.scale * largest)
    q = math.exp(-1 / noise.scale)

    def log_moment(at: Floats) -> Floats:
        return np.asarray(2 * math.log1p(-q) - np.log1p(-q * np.exp(at)) - np.log1p(-q * np.exp(-at)))

    exponent = terms[0] * log_moment(slopes * (1 - shares)) + terms[1] * log_moment(slopes * shares)
    return np.asarray(((exponent + math.log(2 / tail)) / slopes).min(axis=0))


def _ordered(value: float, low: float, high: float) -> RateEstimate:
    return RateEstimate(value if math.isnan(value) else min(max(value, low), high), low, high)
