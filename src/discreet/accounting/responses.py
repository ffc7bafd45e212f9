"""Shuffled randomized response, from above and nearly exactly: what the histogram of all reports reveals about one.

Proof: docs/proofs/shuffled-responses.md. With two categories, the others' answers are known up to how many of them hold
each value, and every such number is covered. With more categories each of the others answers at random with some
probability; who does is taken as known (the privacy blanket of Balle, Bell, Gascón & Nissim 2019), and the histogram of
those answers and of the one report is compared.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from discreet.numeric.rounding import Floats

# Points of a profile, up to this many standard deviations of the loss, and beyond them.
_NEAR, _NEAR_POINTS, _FAR_POINTS = 12.0, 200, 32
# Probability of counts outside of a window; it is added in full.
_OUTSIDE = 1e-20
# Masses below this are left out too: quotients of them are not accurate.
_NEGLIGIBLE = 1e-200
# Two categories: groups of numbers of others with the value 1, and the multiplications that are spent on them.
_MOST_GROUPS, _LEAST_GROUPS, _WORK = 128, 4, 1.2e9
# More categories: blocks of how many answered at random; blocks of how many of them chose one of two categories, within
# this many standard deviations, and beyond.
_ANSWERED, _CHOSEN, _CHOSEN_WITHIN, _CHOSEN_BEYOND = 10, 56, 4.0, 6
# Relative error allowed for a binomial mass or tail, and the most reports: up to there SciPy's have at most a twentieth
# of it (beyond 10¹¹ they exceed it).
_RELATIVE, _MOST_REPORTS = 1e-10, 10**7
# Probability that fewer answer at random than in any block, and that more do. The first is priced as if nobody did, the
# second with the last block.
_OUTSIDE_BLOCKS = 1e-14
# A probability that may only be too small is rounded down by this.
_ROUNDING = 1e-14
# Relative margin of a table for the round-off of its sums.
_MARGIN = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class DeltaTable:
    """Upper bounds on δ at several ε ≥ 0 in increasing order. The last one is ε₀, where δ is 0."""

    epsilons: Floats
    deltas: Floats

    def delta(self, epsilons: Floats) -> Floats:
        """δ at each ε ≥ 0: it is convex in e^ε, so it lies below the chord between two points."""
        at = np.minimum(epsilons, self.epsilons[-1])
        right = np.clip(np.searchsorted(self.epsilons, at, side="right"), 1, len(self.epsilons) - 1)
        start, end = self.epsilons[right - 1], self.epsilons[right]
        share = np.expm1(at - start) / np.expm1(end - start)
        return np.asarray(((1 - share) * self.deltas[right - 1] + share * self.deltas[right]) * _MARGIN)


@lru_cache(maxsize=64)
def table(others: int, loss: float, categories: int) -> DeltaTable | None:
    """The profile of one report of randomized response among `others`; None where they are too many."""
    if others > _MOST_REPORTS:
        return None
    odds = math.exp(-loss)
    lie = odds / (1 + (categories - 1) * odds)
    truth = lie / odds
    # The standard deviation of the loss, about: a hint where points are needed.
    if categories == 2:
        spread = (truth - lie) / math.sqrt(1 + others * truth * lie)
    else:
        spread = (truth - lie) * math.sqrt(2 / (lie * (1 + others)))
    near = min(loss, _NEAR * spread)
    points = [np.linspace(0.0, near, _NEAR_POINTS)]
    if near < loss:
        points.append(np.linspace(near, loss, _FAR_POINTS)[1:])
    epsilons = np.concatenate(points)
    epsilons[-1] = loss
    if categories == 2:
        deltas = _binary(others, truth, lie, epsilons)
    else:
        deltas = _among_random(others, truth, lie, categories, epsilons)
    if deltas is None:
        return None
    alone = truth - np.exp(epsilons) * lie
    deltas = np.minimum(deltas, np.maximum(alone, 0.0)) * _MARGIN
    deltas[-1] = 0.0
    return DeltaTable(epsilons, np.minimum.accumulate(deltas))


# --- two categories


def _binary(others: int, truth: float, lie: float, epsilons: Floats) -> Floats | None:
    """The largest δ over the number of others with the value 1, in groups of consecutive numbers.

    The others' sum S is Bin(ones, p) + Bin(zeros, 1−p). Within a group, those who may hold either value are left out:
    without their answers nothing is hidden better. δ(ε) = max over m of a·P(S = m−1) − (e^ε − 1)·P(S ≥ m) with
    a = p − e^ε(1−p).
    """
    length = 2 * _reach(others * truth * lie / 2) + 1
    groups = min(_MOST_GROUPS, others + 1, int(_WORK / min(length, others + 1) ** 2))
    if groups < min(_LEAST_GROUPS, others + 1):
        return None
    edges = np.unique(np.linspace(0, others + 1, groups + 1).astype(np.int64)).tolist()
    growth = np.expm1(epsilons)
    first = truth - np.exp(epsilons) * lie
    second = np.exp(epsilons) * truth - lie
    largest = np.zeros_like(epsilons)
    for start, end in itertools.pairwise(edges):
        # A person with the value 1 answers 1 unless they lie, so the masses of the number of lies are reversed.
        mass = np.convolve(_masses(start, lie)[::-1], _masses(others - end + 1, lie))
        mass = mass[mass > _NEGLIGIBLE]
        tail = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
        # P(S = m)/P(S = m−1) falls with m: S is a sum of independent bits. The best m is the first one below a/b.
        falls = np.minimum.accumulate(np.append(mass[1:] / mass[:-1], 0.0))
        best = np.minimum(np.searchsorted(-falls, -first / second, side="right"), len(mass) - 1)
        deltas = first * mass[best] * (1 + _RELATIVE) - growth * tail[best] * (1 - _RELATIVE)
        # A ratio that round-off moved past a/b by 2θ loses at most 2θ·a·P(S ≥ m−1).
        deltas += 4 * _RELATIVE * first * (mass[best] + tail[best])
        largest = np.maximum(largest, deltas)
    return largest + 4 * _OUTSIDE


def _masses(count: int, chance: float) -> Floats:
    """P(Bin(n, p) = k) for the k of a window that leaves out at most `_OUTSIDE`; where it starts does not matter."""
    reach = _reach(count * chance * (1 - chance))
    low = max(0, math.floor(count * chance) - reach)
    high = min(count, math.ceil(count * chance) + reach)
    return np.asarray(binomial().pmf(np.arange(low, high + 1), count, chance), dtype=np.float64)


def _reach(variance: float) -> int:
    """How far from its mean a sum of bits of this variance is with probability ≤ `_OUTSIDE` at most (Bernstein)."""
    size = math.log(2 / _OUTSIDE)
    return math.ceil(size / 3 + math.sqrt(size * size / 9 + 2 * variance * size))


# --- more categories


def _among_random(others: int, truth: float, lie: float, categories: int, epsilons: Floats) -> Floats:
    """δ given N, the report and those of the others who answered at random, averaged over N.

    Given N, T of them chose one of the two categories, of which n₀ the first: with c = −q(e^ε − 1)N and d = p − q the
    excess of P over e^ε Q is (k/N)·(c + d(n₀ − e^ε(T − n₀)))₊ times the probability under uniform answers.
    """
    count = binomial()(others, categories * lie * (1 - _ROUNDING))
    low, high = int(count.ppf(_OUTSIDE_BLOCKS)), int(count.isf(_OUTSIDE_BLOCKS))
    edges = np.unique(np.linspace(low, high + 1, min(_ANSWERED, high + 1 - low) + 1).astype(np.int64))
    at_least = count.sf(edges - 1) * (1 + _RELATIVE)
    at_least[-1] = 0.0
    # Fewer answers at random hide less: each block is priced at its smallest number, and those below at none.
    total = np.maximum(truth - np.exp(epsilons) * lie, 0.0) * float(count.cdf(low - 1)) * (1 + _RELATIVE)
    for number, weight in zip((edges[:-1] + 1).tolist(), (at_least[:-1] - at_least[1:]).tolist(), strict=True):
        if weight > 0:
            total = total + weight * (1 + _RELATIVE) * _given(number, truth, lie, categories, epsilons)
    # Errors of the tails, which are at most `_RELATIVE`, add up to no more than twice that at the first block.
    return total + 4 * _RELATIVE * _given(int(edges[0]) + 1, truth, lie, categories, epsilons)


def _given(number: int, truth: float, lie: float, categories: int, epsilons: Floats) -> Floats:
    """δ if `number` reports are uniform, except that one of them is the report in question."""
    chosen = binomial()(number, 2 / categories)
    edges = _chosen_edges(number, categories)
    first, last = edges[:-1], edges[1:] - 1
    below, beyond = chosen.cdf(edges - 1), chosen.sf(edges - 1)
    from_below = below[1:] - below[:-1] + _RELATIVE * (below[1:] + below[:-1])
    from_beyond = beyond[:-1] - beyond[1:] + _RELATIVE * (beyond[1:] + beyond[:-1])
    weights = np.minimum(from_below, from_beyond)
    growth, ratio = np.expm1(epsilons)[:, None], np.exp(epsilons)[:, None]
    # For T in [first, last], E(c + dW_T)₊ ≤ E(c + d(last − T)(e^ε − 1)/2 + dW_last)₊ by Jensen's inequality. With X ~
    # Bin(last, ½) this is d(1 + e^ε)(m/2)·P(X = m) − (e^ε − 1)(qN + d·first/2)·P(X ≥ m) at the best m.
    apart, steep = truth - lie, (truth - lie) * (1 + ratio) / 2
    needed = growth * (lie * number + apart * first / 2)
    least = np.clip(np.floor((needed + steep * last) / (2 * steep)) + 1, 0.0, last + 1)
    inside = np.clip(least, 0.0, last)
    mass = binomial().pmf(inside, last, 0.5)
    tail = np.where(least > 0, special.betainc(np.maximum(inside, 1.0), last - inside + 1, 0.5), 1.0)
    gain = steep * least * mass * (1 + _RELATIVE) - needed * tail * (1 - _RELATIVE)
    gain = np.where(least > last, 0.0, gain)
    # P of a T is at most k·p times that of uniform answers.
    outside = float(below[0] + beyond[-1]) * truth * categories
    return np.asarray((np.maximum(gain, 0.0) @ weights) * (categories / number) + outside * (1 + _RELATIVE))


def _chosen_edges(number: int, categories: int) -> Floats:
    """Edges of blocks of T ~ Bin(N, 2/k), narrow ones within a few standard deviations of its mean."""
    mean, variance = 2 * number / categories, 2 * number * (categories - 2) / categories**2
    near, far = _CHOSEN_WITHIN * math.sqrt(variance), _reach(variance)
    edges = np.concatenate(
        (
            np.linspace(mean - far, mean - near, _CHOSEN_BEYOND + 1),
            np.linspace(mean - near, mean + near, _CHOSEN + 1),
            np.linspace(mean + near, mean + far, _CHOSEN_BEYOND + 1),
        )
    )
    return np.unique(np.clip(np.round(edges), 0.0, number + 1.0))


def binomial() -> Any:
    """SciPy's binomial, imported on demand: scipy.stats takes as much memory as the rest of this library."""
    from scipy import stats

    return stats.binom
