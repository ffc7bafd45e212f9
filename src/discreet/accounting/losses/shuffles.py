"""Shuffled reports as privacy losses, so that they compose with other events.

From above: the pair that hides one report among its clones (see `accounting.shuffle`). From below: attacks that count
reports. Neighbors replace the data behind one report. Both directions are the same: either dataset may be the first.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses import atoms, envelopes
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.responses import binomial
from discreet.accounting.shuffle import LARGEST_LOSS, TAIL_ERROR, Clones, clones_profile

Floats = NDArray[np.float64]

# Points of the profile: up to the first number of standard deviations of the loss, up to the second, and beyond.
_NEAR, _FAR = 10.0, 45.0
_NEAR_POINTS, _FAR_POINTS, _LAST_POINTS = 320, 160, 32
# Blocks of counts: that clones are taken in, and that an attack tells apart, with the probability outside of them.
_BLOCKS, _TOLD_APART, _OUTSIDE = 192, 96, 1e-9
# Absolute round-off of a difference of two probabilities.
_DIFFERENCE_ERROR = 1e-15


@lru_cache(maxsize=64)
def above(hidden: Clones) -> AtomLoss:
    """The loss of one report among its clones: δ(ε) at many ε, joined by chords."""
    if hidden.loss > LARGEST_LOSS:
        return atoms.randomized_response(hidden.loss)
    # The loss of a report among c clones is about 2·tanh(ε₀/2)/√c times a standard normal, and less if it may not be
    # one of them at all.
    share = hidden.share if hidden.categories else 1.0
    spread = 2 * share * math.tanh(hidden.loss / 2) / math.sqrt(1 + hidden.others * hidden.rate)
    positive = _points(spread, hidden.loss)
    deltas = clones_profile(hidden, positive, _BLOCKS)
    deltas[-1] = 0.0
    # The pair is symmetric: δ(−ε) = 1 − e^{−ε} + e^{−ε}δ(ε).
    mirrored = (np.exp(-positive) * deltas - np.expm1(-positive))[:0:-1]
    return envelopes.from_above(np.concatenate((-positive[:0:-1], positive)), np.concatenate((mirrored, deltas)))


@lru_cache(maxsize=64)
def counting(reports: int, seen: float, otherwise: float) -> AtomLoss:
    """From below: count the reports in a set that one report hits with probability `seen`, all others `otherwise`.

    P = Bernoulli(a) + Bin(n−1, b) against Q = Bin(n, b). P/Q grows with the count m: it is am/nb + (1−a)(n−m)/n(1−b).
    The pair is given in the other order, (Q, P), which loses more: b is at most ½, and few hits are rarer than many.
    """
    hit, missed = seen / otherwise, (1 - seen) / (1 - otherwise)
    most = min(math.log(hit), LARGEST_LOSS)
    spread = (seen - otherwise) / math.sqrt(reports * otherwise * (1 - otherwise))
    epsilons = _both_sides(spread, most)
    least = np.floor(reports * (np.exp(epsilons) - missed) / (hit - missed)) + 1
    least = np.clip(least, 0, reports + 1)
    count = binomial()(reports - 1, otherwise)
    with_hit, without = count.sf(least - 2), count.sf(least - 1)
    p = (seen * with_hit + (1 - seen) * without) * (1 - TAIL_ERROR)
    q = (otherwise * with_hit + (1 - otherwise) * without) * (1 + TAIL_ERROR)
    return envelopes.of_tests(epsilons, p, q).reversed()


@lru_cache(maxsize=64)
def histogram(reports: int, loss: float, categories: int) -> AtomLoss:
    """From below: k-ary randomized response, one report of category 0 or 1, where all others hold category 2.

    Others look like 0 or 1 with probability 2/(e^ε + k − 1), evenly. The attack knows T, the number of reports 0 and 1.
    It adds fair coins to reach the largest T of a block, which only discards information, and then compares the counts.
    """
    odds = math.exp(-loss)
    norm = 1 + (categories - 1) * odds
    rate, share = 2 * odds / norm, (1 + odds) / norm
    stays, flips = 1 / (1 + odds), odds / (1 + odds)
    count = binomial()(reports - 1, rate)
    low, high = max(1, int(count.ppf(_OUTSIDE))), min(reports - 1, int(count.isf(_OUTSIDE))) + 1
    edges = np.unique(np.linspace(low, high + 1, min(_TOLD_APART, high + 1 - low) + 1).astype(np.int64)).astype(
        np.float64
    )
    first, last = edges[:-1], edges[1:] - 1
    within = share * (count.sf(first - 2) - count.sf(last - 1))
    outside = (1 - share) * (count.sf(first - 1) - count.sf(last))
    epsilons = _both_sides(2 * share * math.tanh(loss / 2) / math.sqrt(1 + reports * rate), min(loss, LARGEST_LOSS))
    ratio = np.exp(epsilons)[:, None]
    share_within = within / np.maximum(within + outside, _DIFFERENCE_ERROR)
    kept, swapped = 2 * share_within * stays + 1 - share_within, 2 * share_within * flips + 1 - share_within
    threshold = (ratio * kept - swapped) / (
        2 * np.maximum(share_within, _DIFFERENCE_ERROR) * (stays - flips) * (1 + ratio)
    )
    least = np.clip(np.floor(last * threshold) + 1, 0, last + 1)
    with_hit, without = binomial().sf(least - 2, last - 1, 0.5), binomial().sf(least - 1, last - 1, 0.5)
    even = (with_hit + without) / 2
    p_in, q_in = stays * with_hit + flips * without, flips * with_hit + stays * without
    less, more = np.maximum(within - _DIFFERENCE_ERROR, 0.0), within + _DIFFERENCE_ERROR
    out_less, out_more = np.maximum(outside - _DIFFERENCE_ERROR, 0.0), outside + _DIFFERENCE_ERROR
    p = np.sum(less * p_in + out_less * even, axis=1) * (1 - 3 * TAIL_ERROR)
    q = np.sum(more * q_in + out_more * even, axis=1) * (1 + 3 * TAIL_ERROR)
    return envelopes.of_tests(epsilons, p, q)


def _both_sides(spread: float, most: float) -> Floats:
    positive = _points(spread, most)
    return np.concatenate((-positive[:0:-1], positive))


def _points(spread: float, most: float) -> Floats:
    """Where to evaluate a profile: 0 to `most`, densely within ten standard deviations."""
    near, far = min(most, _NEAR * spread), min(most, _FAR * spread)
    segments = [np.linspace(0.0, near, _NEAR_POINTS + 1)]
    if far > near:
        segments.append(np.linspace(near, far, _FAR_POINTS + 1)[1:])
    if most > far:
        segments.append(np.geomspace(far, most, _LAST_POINTS + 1)[1:])
    points = np.concatenate(segments)
    points[-1] = most
    return np.asarray(points, dtype=np.float64)
