"""δ at many ε at once: a few inversions or grids serve all of them, because each is certified at every ε."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import Way
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import answer, curves
from discreet.accounting.methods.target import Target
from discreet.neighbors import Relation

Floats = NDArray[np.float64]
PointBounds = tuple[Floats, Floats]

# The δ near which curves are made, one after the other while some ε is poor. One with little tilt is good to 1e-8 in
# absolute terms wherever δ is large; the others keep the digits of smaller δ.
_ANCHORS = (1e-2, 1e-5, 0.2)
# A δ is not asked for again where it is as narrow as the first, relatively; where all curves are wider than the second,
# a curve of its own is made for that ε.
_NARROW, _POOR = 1e-4, 0.02
# δ below this may stay poor: at the type I errors that a curve shows they make no difference.
_NEGLIGIBLE = 1e-5
# Views whose losses are remembered: those of one curve.
_REMEMBERED = 8


@lru_cache(maxsize=_REMEMBERED)
def _losses(way: Way, view: View) -> Losses:
    """The losses of one view. A curve asks for the same ones several times, and a ledger has thousands of parts."""
    return of_events.losses(way, view)


def reach(way: Way, relation: Relation, adding: bool, opposite: int, delta: float) -> float:
    """About the ε at which all but `delta` of δ comes from infinite losses; not certified, for choosing points."""
    return curves.reach(_losses(way, View(relation, adding, True, opposite)), delta, adding)


def infinite_mass(way: Way, relation: Relation, adding: bool, opposite: int) -> float:
    """A lower bound on the mass of infinite losses."""
    losses = _losses(way, View(relation, adding, False, opposite))
    return max(0.0, losses.infinite_mass()[0] * (1 - losses.inflation - answer.PAD))


def bounds(way: Way, relation: Relation, adding: bool, opposite: int, epsilons: Floats) -> PointBounds:
    """Lower and upper bounds on δ of one way in one direction, at increasing ε ≥ 0."""
    views = {
        upper: [
            _losses(way, View(relation, adding, upper, opposite, variant))
            for variant in range(of_events.variants(way, upper=upper))
        ]
        for upper in (True, False)
    }
    first = views[True][0]
    if first.exact and len(views[True]) == 1:
        lower, upper = _one_side(first, epsilons, adding)
    else:
        upper = np.min([_one_side(losses, epsilons, adding)[1] for losses in views[True]], axis=0)
        lower = np.max([_one_side(losses, epsilons, adding)[0] for losses in views[False]], axis=0)
    lower, upper = lower * (1 - answer.PAD), np.minimum(upper * (1 + answer.PAD), 1.0)
    # δ falls in ε, so a bound at one ε holds on one side of it.
    lower = np.maximum.accumulate(np.minimum(lower, 1.0)[::-1])[::-1]
    upper = np.minimum.accumulate(upper)
    return np.minimum(lower, upper), upper


def _one_side(losses: Losses, epsilons: Floats, adding: bool) -> PointBounds:
    """As `tight` does at one ε: corrected by the shift and the inflation of losses that stand for others."""
    if losses.shift == 0 and losses.inflation == 0:
        return _many(losses, epsilons, adding)
    grown = math.expm1(losses.inflation)
    _, upper = _many(losses, np.maximum(epsilons - losses.shift, 0.0), adding)
    lower, _ = _many(losses, epsilons + losses.shift, adding)
    return np.maximum(lower * (1 - grown), 0.0), np.minimum(upper * (1 + grown), 1.0)


def _many(losses: Losses, epsilons: Floats, adding: bool) -> PointBounds:
    """The best of a few curves at each ε; where all are poor, one near that ε."""
    least, most = losses.infinite_mass()
    largest = losses.largest_loss(adding=adding)
    lower, upper = np.full(len(epsilons), least), np.ones(len(epsilons))
    upper[epsilons >= largest] = most
    for curve in curves.anchored(losses, _ANCHORS, adding):
        wide = np.flatnonzero(upper - lower > _NARROW * upper)
        pairs = np.array([curve(float(epsilon)) for epsilon in epsilons[wide]]).reshape(-1, 2)
        lower[wide], upper[wide] = np.maximum(lower[wide], pairs[:, 0]), np.minimum(upper[wide], pairs[:, 1])
        if not np.any((upper - lower > _POOR * upper) & (upper > _NEGLIGIBLE)):
            break
    top = losses.top_atom()
    if top is not None:  # δ(ε) ≥ P(L = l)(1 − e^{ε−l}) for the largest loss l
        of_top = -math.exp(top[1]) * np.expm1(np.minimum(epsilons - top[0], 0.0)) * (1 - answer.PAD)
        lower = np.maximum(lower, least + of_top)
    if curves.has_formula(losses):
        return lower, upper
    poor = np.flatnonzero((upper - lower > _POOR * upper) & (upper > _NEGLIGIBLE) & (epsilons < largest))
    for index in poor:
        if upper[index] - lower[index] > _POOR * upper[index]:
            low, high = answer.of_losses(losses, Target(epsilon=float(epsilons[index])), adding)
            lower[: index + 1] = np.maximum(lower[: index + 1], low)
            upper[index:] = np.minimum(upper[index:], high)
    return lower, upper
