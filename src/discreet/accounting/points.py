"""δ at many ε at once: a few Fourier inversions serve all of them, because each is certified at every ε."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import tight
from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import Way
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.families import has_closed_form
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import answer, smoothing
from discreet.accounting.methods.choose import choose
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier import saddle
from discreet.accounting.methods.target import Target
from discreet.neighbors import Relation

Floats = NDArray[np.float64]
Pair = tuple[Floats, Floats]

# The δ whose saddles the inversions go through. One with little tilt is good to 1e-8 in absolute terms wherever δ is
# large; the others keep the digits of smaller δ.
_ANCHORS = (0.1, 1e-4, 1e-9)
# Inversions whose relative error at an ε is above this are joined there by one of their own.
_POOR = 0.02
# δ below this may stay poor: at the type I errors that a curve shows they make no difference.
_NEGLIGIBLE = 1e-5


def reach(way: Way, relation: Relation, adding: bool, delta: float) -> float:
    """About the ε at which all but `delta` of δ comes from infinite losses; not certified, for choosing points."""
    losses = of_events.losses(way, View(relation, adding, True))
    least = losses.infinite_mass()[0]
    if least + delta >= 1:
        return 0.0
    largest = losses.largest_loss(adding=adding)
    if choose(losses) in {"fourier", "smoothed"} or (losses.others and _all_closed(losses)):
        return min(largest, max(0.0, fourier.locate(answer.smooth(losses, adding), delta=delta).epsilon))
    return min(largest, tight.one_direction(way, Target(delta=least + delta), relation, adding)[1])


def is_quick(way: Way, relation: Relation, adding: bool) -> bool:
    """Whether many ε take little longer than one: not where each needs a grid of its own."""
    losses = of_events.losses(way, View(relation, adding, True))
    return choose(losses) != "grid" or _all_closed(losses)


def infinite(way: Way, relation: Relation, adding: bool) -> float:
    """A lower bound on the mass of infinite losses."""
    losses = of_events.losses(way, View(relation, adding, False))
    return max(0.0, losses.infinite_mass()[0] * (1 - losses.inflation - answer.PAD))


def bounds(way: Way, relation: Relation, adding: bool, epsilons: Floats) -> Pair:
    """Lower and upper bounds on δ of one way in one direction, at increasing ε ≥ 0."""
    views = {
        upper: [
            of_events.losses(way, View(relation, adding, upper, variant))
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


def _one_side(losses: Losses, epsilons: Floats, adding: bool) -> Pair:
    """As `tight` does at one ε: corrected by the shift and the inflation of losses that stand for others."""
    if losses.shift == 0 and losses.inflation == 0:
        return _many(losses, epsilons, adding)
    grown = math.expm1(losses.inflation)
    _, upper = _many(losses, np.maximum(epsilons - losses.shift, 0.0), adding)
    lower, _ = _many(losses, epsilons + losses.shift, adding)
    return np.maximum(lower * (1 - grown), 0.0), np.minimum(upper * (1 + grown), 1.0)


def _many(losses: Losses, epsilons: Floats, adding: bool) -> Pair:
    method = choose(losses)
    if method in {"fourier", "smoothed"} or (method == "grid" and _all_closed(losses)):
        return _by_inversions(losses, epsilons, adding)
    found = [answer.of_losses(losses, Target(epsilon=float(epsilon)), adding) for epsilon in epsilons]
    return np.array([pair[0] for pair in found]), np.array([pair[1] for pair in found])


def _all_closed(losses: Losses) -> bool:
    return losses.concentrated == 0 and all(has_closed_form(loss) for loss, _ in losses.others)


def _by_inversions(losses: Losses, epsilons: Floats, adding: bool) -> Pair:
    """The best of a few inversions at each ε; where all are poor, one through that ε, or the grid."""
    least, most = losses.infinite_mass()
    composition = answer.smooth(losses, adding)
    largest = losses.largest_loss(adding=adding)
    lower, upper = np.full(len(epsilons), least), np.ones(len(epsilons))
    upper[epsilons >= largest] = most

    def use(samples: fourier.Inversion | None) -> None:
        if samples is None:
            return
        for index, epsilon in enumerate(epsilons):
            if epsilon < largest:
                low, high = samples.at(float(epsilon))
                lower[index] = max(lower[index], low + least)
                upper[index] = min(upper[index], high + most)

    anchors = [fourier.locate(composition, delta=delta) for delta in _ANCHORS if delta < 1 - most]
    for point in anchors:
        use(_inverted(composition, point, Target(epsilon=max(point.epsilon, 0.0))))
    top = losses.top_atom()
    if top is not None:  # δ(ε) ≥ P(L = l)(1 − e^{ε−l}) for the largest loss l
        of_top = -math.exp(top[1]) * np.expm1(np.minimum(epsilons - top[0], 0.0)) * (1 - answer.PAD)
        lower = np.maximum(lower, least + of_top)
    poor = np.flatnonzero((upper - lower > _POOR * upper) & (upper > _NEGLIGIBLE) & (epsilons < largest))
    for index in poor:
        if upper[index] - lower[index] > _POOR * upper[index]:
            low, high = answer.of_losses(losses, Target(epsilon=float(epsilons[index])), adding)
            lower[: index + 1] = np.maximum(lower[: index + 1], low)
            upper[index:] = np.minimum(upper[index:], high)
    return lower, upper


def _inverted(composition: fourier.Smooth, point: saddle.Saddle, target: Target) -> fourier.Inversion | None:
    if composition.mu_squared > 0 or len(composition.sampled.rate):
        samples = fourier.invert(composition, point)
        if samples is not None:
            return samples
    return smoothing.invert(composition, point, target, quick=True)
