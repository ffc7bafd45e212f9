"""Shuffling: what local reports cost when they arrive in random order and without names.

The bound is the numerical one of Feldman, McMillan & Talwar (arXiv 2012.12803, Theorem 3.1 and Section 5). For general
local randomizers the later, stronger reduction of arXiv 2208.04591 is **not** used: its authors withdrew it for them
(see the errata of that paper). It holds for randomized response, where it is the privacy blanket; `responses` prices
that more tightly still.

Neighbors replace the data behind one report; the number of reports is public.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from discreet import _check
from discreet import events as ev
from discreet.accounting import closed_forms, responses
from discreet.accounting.forms.pure import pure
from discreet.accounting.refusal import check_fixed_size, unknown
from discreet.accounting.responses import binomial
from discreet.neighbors import REPLACE_ONE, Relation
from discreet.numeric.rounding import SLACK, Floats, down, float_down, float_up, up

#: SciPy's binomial tails have a relative error of about 1e-13 here; a thousand times that is allowed.
TAIL_ERROR = 1e-10
# The probability that the number of clones falls outside of the window on either side; it is added in full.
_OUTSIDE = 1e-14
# Blocks of clone counts. Each is priced at its smallest count, so more blocks are tighter and slower.
_BLOCKS = 512
#: math.exp overflows above 709. A report with a larger ε₀ hides nothing, so shuffling it is priced as one report.
LARGEST_LOSS = 700
# How close to ε₀ a search for a smaller ε is still tried.
_NEARLY_ALL = 1e-9


@dataclass(frozen=True)
class Clones:
    """How the other reports hide one: each of `others` looks like one of its two values with probability `rate`.

    `loss` is ε₀ between the two values, and `share` bounds the probability that the report is one of the two at all.
    `categories` is the number of categories of randomized response, where more is known; 0 for any other report.
    """

    others: int
    rate: float
    loss: float
    share: float = 1.0
    categories: int = 0


def clones(event: ev.Shuffled, relation: Relation = REPLACE_ONE) -> Clones:
    """The clones of a shuffled event.

    Any ε₀-DP report: each other report is, with probability e^{−ε₀}, an even coin between the two values (arXiv
    2012.12803, Lemma 3.3). k-ary randomized response: with probability 2/(e^ε + k − 1), because it is a mixture of the
    truth and a uniform category (Balle, Bell, Gascón & Nissim 2019), and one report is either value with probability
    (e^ε + 1)/(e^ε + k − 1).
    """
    check_fixed_size(event, relation, "shuffle accounting")
    loss = pure(event.event, relation).epsilon
    if math.isinf(loss):
        raise unknown(event.event, "shuffle accounting", "amplification is proved for reports that are ε₀-DP")
    if isinstance(event.event, ev.RandomizedResponse):
        loss = float_up(event.event.epsilon)
        lie_odds = (event.event.categories - 1) * math.exp(-loss)
        share = min(1.0, up((1 + math.exp(-loss)) / (1 + lie_odds)))
        return Clones(
            event.reports - 1, down(2 * math.exp(-loss) / (1 + lie_odds)), loss, share, event.event.categories
        )
    return Clones(event.reports - 1, down(math.exp(-loss)), loss)


def shuffled_epsilon(event: ev.Shuffled, delta: float, relation: Relation = REPLACE_ONE) -> float:
    """An upper bound on ε at `delta` of `event`: never above the ε₀ of one report.

    >>> round(shuffled_epsilon(ev.Shuffled(10_000, ev.Laplace(1.0)), 1e-6), 4)
    0.053
    """
    target, hidden = float_down(_check.delta(delta)), clones(event, relation)
    if hidden.loss <= 0 or clones_delta(hidden, 0.0) <= target:
        return 0.0
    fits = clones_delta(hidden, hidden.loss * (1 - _NEARLY_ALL)) <= target
    return closed_forms.least(lambda e: clones_delta(hidden, e) <= target, start=hidden.loss) if fits else hidden.loss


def shuffled_delta(event: ev.Shuffled, epsilon: float, relation: Relation = REPLACE_ONE) -> float:
    """An upper bound on δ at `epsilon` of `event`; truncation and round-off are added."""
    at = float_down(_check.nonnegative("epsilon", epsilon, "it is the ε at which δ is asked for"))
    return clones_delta(clones(event, relation), at)


def clones_delta(hidden: Clones, epsilon: float) -> float:
    """δ(ε) of one report among its clones, an upper bound."""
    return float(clones_profile(hidden, np.array([epsilon]))[0])


def clones_profile(hidden: Clones, epsilons: Floats, blocks: int = _BLOCKS) -> Floats:
    """δ at each ε ≥ 0, from above.

    It is δ(ε) between (A + B, C − A + 1 − B) and (A + 1 − B, C − A + B), averaged over the number of clones C.
    C ~ Bin(n−1, rate), A ~ Bin(C, 1/2), B ~ Bernoulli(e^{ε₀}/(1 + e^{ε₀})). Given C, more clones only help, so counts
    are taken in blocks at the smallest count of each. The two directions are mirror images.
    """
    alone = -np.expm1(np.minimum(epsilons - hidden.loss, 0.0)) / (1 + math.exp(-hidden.loss)) * (1 + SLACK)
    if hidden.loss > LARGEST_LOSS:
        return np.minimum(1.0, alone)
    count = binomial()(hidden.others, hidden.rate)
    low, high = max(0, int(count.ppf(_OUTSIDE)) - 1), min(hidden.others, int(count.isf(_OUTSIDE)) + 1)
    edges = np.unique(np.linspace(low, high + 1, min(blocks, high - low + 1) + 1).astype(np.int64))
    # Counts above the window cost no more than its last block, and counts below it no more than no clones at all.
    above = count.sf(edges[:-1] - 1)
    weights = above - np.append(above[1:], 0.0)
    inside = np.minimum(epsilons, hidden.loss)[:, None]
    within = _given_clones(edges[:-1].astype(np.float64), inside, hidden.loss)
    below = float(count.cdf(low - 1)) if low > 0 else 0.0
    mean = within @ weights + TAIL_ERROR * np.max(within, axis=1) + 2 * below * alone
    bound = hidden.share * mean * (1 + 2 * TAIL_ERROR) * (1 + SLACK)
    if hidden.categories and (table := responses.table(hidden.others, hidden.loss, hidden.categories)) is not None:
        bound = np.minimum(bound, table.delta(epsilons))
    return np.where(epsilons >= hidden.loss, 0.0, np.minimum(1.0, np.minimum(alone, bound)))


def _given_clones(count: Floats, epsilon: Floats, loss: float) -> Floats:
    """δ(ε) given the number of clones c, an upper bound: one row for each ε.

    The likelihood ratio grows with the first coordinate a, and exceeds e^ε for a > t(c+1), with
    t = (βe^ε − (1−β))/((2β−1)(1+e^ε)), β = e^{ε₀}/(1+e^{ε₀}). The sum over a above the threshold consists of two
    binomial tails. The neighboring thresholds are tried too, so that rounding t cannot lose a term.
    """
    stays, flips = 1 / (1 + math.exp(-loss)), 1 / (1 + math.exp(loss))
    factor = np.exp(epsilon)
    threshold = (stays * factor - flips) / (math.tanh(loss / 2) * (1 + factor))
    first = np.floor(threshold * (count + 1)) + 1
    best = np.zeros_like(first)
    tails = [binomial().sf(first + offset, count, 0.5) for offset in (-3, -2, -1, 0)]
    for shifted, plain in itertools.pairwise(tails):
        gain = shifted * (stays - factor * flips) + plain * (flips - factor * stays)
        best = np.maximum(best, gain + TAIL_ERROR * (shifted + factor * plain))
    return best
