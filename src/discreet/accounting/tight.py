"""What an event costs, tightly and from both sides: ε at a δ, and δ at an ε.

The event is collapsed and priced in both directions by the method that `choose` picks. The directions (a unit removed,
a unit added) are composed separately and the larger price is taken at the end (arXiv 2405.20769). Both ends of the
answer are certified. `accounting.methods` lists the steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.accounting import shuffle
from discreet.accounting.forms.conversions import rdp_delta, rdp_epsilon
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import DEFAULT_ORDERS, rdp
from discreet.accounting.forms.rdp import curve as rdp_curve
from discreet.accounting.interval import Interval, largest
from discreet.accounting.losses import of_events
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.collapse import Way, collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.families import has_closed_form, in_families
from discreet.accounting.losses.mixtures import GroupLoss
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import chernoff, single, smoothing
from discreet.accounting.methods.choose import choose
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.target import Target
from discreet.errors import DiscreetError, UnknownEvent
from discreet.events import Composed, Event, Repeated, Shuffled, ShuffledEpoch
from discreet.guarantees import RDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation
from discreet.numeric.rounding import down, float_down, float_up, reported

#: Covers the round-off of an event's own numbers (1/σ, Σ1/σ², products of rates): thousands of roundings.
PAD = 1e-12
# Relative width from which on pure and Rényi DP are asked too, as one of them may have a lower upper end.
_LOOSE = 1e-3
# Parts of compositions whose Rényi DP is remembered: 136 numbers each.
_PARTS_REMEMBERED = 4096
# Views from above whose estimates differ by less than this, relatively, are all tried.
_CLOSE_CALL = 0.1
# With more different losses than this, a grid takes longer than anyone waits for the last digits.
_MOST_ON_GRID = 12
# ln of the smallest top atom that is used: e^{−700} is a normal float.
_LEAST_LOG_MASS = -700.0
# Orders whose moments are remembered during one Chernoff bound, which asks for about 110.
_REMEMBERED = 512

Pair = tuple[float, float]
#: δ as a function of ε, from both sides.
Profile = Callable[[float], Interval]


def epsilon(event: Event, delta: float, relation: Relation = ADD_REMOVE) -> Interval:
    """The smallest ε for which `event` is (ε, δ)-DP, as an interval; its upper end is what to charge.

    >>> from discreet.events import Gaussian, PoissonSampled, Repeated
    >>> round(epsilon(Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10_000), 1e-5).upper, 6)
    6.187712
    """
    exact = _check.delta(delta)
    least, most = float_down(exact), float_up(exact)
    bounds = _answer(event, Target(delta=least), relation)
    if least < most:  # δ is between two floats: less δ costs no less, and more δ no more
        lower = _answer(event, Target(delta=most), relation).lower if most < 1 else 0.0
        return Interval(min(lower, bounds.lower), bounds.upper)
    return bounds


def delta(event: Event, epsilon: float, relation: Relation = ADD_REMOVE) -> Interval:
    """The smallest δ for which `event` is (ε, δ)-DP, as an interval; its upper end is what to charge.

    >>> from discreet.events import Gaussian
    >>> round(delta(Gaussian(1.0), 1.0).upper, 9)
    0.126936738
    """
    remedy = "it is the ε at which δ is asked for"
    exact = _check.nonnegative("epsilon", epsilon, remedy)
    least, most = float_down(exact), float_up(exact)
    bounds = _answer(event, Target(epsilon=least), relation)
    lower = bounds.lower if least == most else min(_answer(event, Target(epsilon=most), relation).lower, bounds.lower)
    return Interval(min(lower, 1.0), min(bounds.upper, 1.0))


def _answer(event: Event, target: Target, relation: Relation) -> Interval:
    if not isinstance(event, Event):
        raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
    which = as_relation(relation)
    if isinstance(event, Shuffled):
        return _shuffled(event, target, which)
    try:
        with np.errstate(all="ignore"):  # every method bounds or declines its own overflows
            bounds = largest([_price(way, target, which) for way in collapse(event, which)])
    except DiscreetError:
        raise
    except ArithmeticError:
        # A number left the range of floats: `_lowered` may still find a bound. Any other error is a mistake of ours.
        bounds = Interval(0.0, math.inf if target.epsilon is None else 1.0)
    # The batches of a shuffled epoch are priced as if the unit's batch were known, so the lower end does not hold.
    one_sided = any(isinstance(part, ShuffledEpoch) for part in event.walk())
    bounds = padded(0.0 if one_sided else bounds.lower, bounds.upper)
    return bounds if _narrow((bounds.lower, bounds.upper), _LOOSE) else _lowered(bounds, event, target, which)


def padded(lower: float, upper: float) -> Interval:
    """Bounds, widened by the round-off of the event's own numbers."""
    return Interval(lower * (1 - PAD) + 0.0, upper * (1 + PAD) + 0.0)


def _lowered(bounds: Interval, event: Event, target: Target, relation: Relation) -> Interval:
    """Lower the upper end to that of pure or Rényi DP, where one of them is better."""
    upper = bounds.upper
    try:
        always = pure(event, relation).epsilon
        moments = _moments(event, relation)
    except (UnknownEvent, ArithmeticError):
        return bounds
    if target.epsilon is not None:
        upper = 0.0 if target.epsilon >= always else min(upper, rdp_delta(moments, target.epsilon))
    else:
        assert target.delta is not None
        upper = min(upper, always, rdp_epsilon(moments, target.delta))
    return Interval(bounds.lower, max(bounds.lower, upper))


def _moments(event: Event, relation: Relation) -> RDP:
    """The Rényi DP of an event. Those of its parts are remembered: a ledger's history is priced again and again."""
    if not isinstance(event, Composed):
        return rdp(event, relation=relation)
    total = np.zeros(len(DEFAULT_ORDERS))
    for part, times in Counter(event.events).items():
        inner, count = (part.event, part.count * times) if isinstance(part, Repeated) else (part, times)
        if count:
            total += count * _leaf_moments(inner, relation)
    # One rounding for each product and each sum.
    total *= 1 + (len(event.events) + 2) * 2.0**-52
    return RDP(tuple(map(float, DEFAULT_ORDERS)), tuple(reported(float(value)) for value in total))


@lru_cache(maxsize=_PARTS_REMEMBERED)
def _leaf_moments(event: Event, relation: Relation) -> NDArray[np.float64]:
    return rdp_curve(event, relation)


def _shuffled(event: Shuffled, target: Target, relation: Relation) -> Interval:
    """Shuffled reports by themselves, from above by the sum over their clones, from below by an attack."""
    way: Way = frozenset([(event, 1)])
    attack = of_events.losses(way, View(relation, False, False))
    lower = of_losses(attack, target, False)[0] * (1 - PAD)
    if target.epsilon is not None:
        upper = shuffle.shuffled_delta(event, target.epsilon, relation)
    else:
        assert target.delta is not None
        upper = shuffle.shuffled_epsilon(event, target.delta, relation)
    return Interval(min(lower, upper), upper)


def _price(way: Way, target: Target, relation: Relation) -> Interval:
    """One way to meet an event: the worst of its directions."""
    directions = [False, True] if has_directions(way) else [False]
    return largest(
        Interval(*one_direction(way, target, relation, adding, opposite))
        for adding in directions
        for opposite in of_events.splits(way)
    )


def has_directions(way: Way) -> bool:
    """Whether removing and adding a unit differ, which they do only under sampling."""
    return any(len(leaf.parts()) > 0 and not isinstance(leaf, Shuffled) for leaf, _ in way)


def one_direction(way: Way, target: Target, relation: Relation, adding: bool, opposite: int = 0) -> Pair:
    """The best of the bounds that are known for one direction, on either side."""
    views = {
        upper: [
            of_events.losses(way, View(relation, adding, upper, variant, opposite))
            for variant in range(of_events.variants(way, upper=upper))
        ]
        for upper in (True, False)
    }
    first = views[True][0]
    if first.exact and len(views[True]) == 1:
        return of_losses(first, target, adding)
    upper = min(_from_above(losses, target, adding) for losses in _promising(views[True], target, adding, upper=True))
    lower = max(_from_below(losses, target, adding) for losses in _promising(views[False], target, adding, upper=False))
    return min(lower, upper), upper


def _promising(views: list[Losses], target: Target, adding: bool, *, upper: bool) -> list[Losses]:
    """Of many different losses seen in several ways, the view that looks best; a few losses are tried in all ways.

    Every view is a bound, so a poor choice costs width, never truth.
    """
    if len(views) == 1 or len(views[0].others) <= _MOST_ON_GRID:
        return views
    if not all(has_closed_form(loss) for losses in views for loss, _ in losses.others):
        return views
    looks = [_estimate(losses, target, adding) for losses in views]
    if not upper:
        return [views[looks.index(max(looks))]]
    best = min(looks)
    # Chernoff's bound on a part of which only ρ is known lies somewhat above its estimate.
    return [losses for losses, look in zip(views, looks, strict=True) if abs(look - best) <= _CLOSE_CALL * abs(best)]


def _estimate(losses: Losses, target: Target, adding: bool) -> float:
    """About the answer, by the saddle point; a ρ counts as the Gaussian noise of that ρ, which costs about as much."""
    composition = smooth(replace(losses, mu_squared=losses.mu_squared + 2 * losses.concentrated), adding)
    if target.epsilon is not None:
        return fourier.locate(composition, epsilon=target.epsilon).log_delta
    assert target.delta is not None
    return fourier.locate(composition, delta=target.delta).epsilon


def _from_above(losses: Losses, target: Target, adding: bool) -> float:
    """An upper end from losses that stand for the event from above, corrected by their shift and inflation."""
    grown = math.expm1(losses.inflation)
    if target.epsilon is not None:
        moved = Target(epsilon=max(target.epsilon - losses.shift, 0.0))
        return min(1.0, of_losses(losses, moved, adding)[1] * (1 + grown))
    assert target.delta is not None
    return of_losses(losses, Target(delta=target.delta / (1 + grown)), adding)[1] + losses.shift


def _from_below(losses: Losses, target: Target, adding: bool) -> float:
    """A lower end from losses that stand for the event from below, corrected by their shift and inflation."""
    grown = math.expm1(losses.inflation)
    if target.epsilon is not None:
        moved = Target(epsilon=target.epsilon + losses.shift)
        return max(0.0, of_losses(losses, moved, adding)[0] * (1 - grown))
    assert target.delta is not None
    low_delta = target.delta / (1 - grown) if grown < 1 else 1.0
    return max(0.0, of_losses(losses, Target(delta=low_delta), adding)[0] - losses.shift) if low_delta < 1 else 0.0


def of_losses(losses: Losses, target: Target, adding: bool) -> Pair:
    """Bounds on the answer for these losses in one direction, by the method that fits."""
    infinite = losses.infinite_mass()
    if target.epsilon is not None and target.epsilon >= losses.largest_loss(adding=adding):
        return infinite
    if target.delta is not None and infinite[0] > target.delta:
        return math.inf, math.inf
    if (only := losses.only_loss()) is not None:
        return _by_profile(only, infinite[1], target)
    match choose(losses):
        case "nothing":
            return 0.0, 0.0
        case "everything":
            return (math.inf, math.inf) if target.epsilon is None else (1.0, 1.0)
        case "moments":
            return 0.0, by_moments(losses, target, adding)
        case "gaussian":
            mu = math.sqrt(losses.mu_squared)
            return _by_formula(lambda e: single.gaussian(e, mu), target)
        case "one sample":
            ((rate, sampled_mu, _),) = losses.sampled
            return _by_formula(lambda e: single.sampled_gaussian(e, sampled_mu, rate, adding=adding), target)
        case "fourier":
            by_fourier = _by_fourier(losses, target, adding)
            if by_fourier is not None and _narrow(by_fourier):
                return by_fourier
            return _rough(losses, target, adding, by_fourier)
        case "smoothed":
            return _rough(losses, target, adding, None)
        case _:
            return _on_grid(losses, target, adding)


def _rough(losses: Losses, target: Target, adding: bool, known: Pair | None) -> Pair:
    """Bounds on losses that are not smooth enough for Fourier inversion, which gave `known` or declined.

    Smoothing takes any number of different losses. The grid is finer than any smoothing for a few of them.
    """
    bounds = known or (0.0, math.inf if target.epsilon is None else 1.0)
    if all(has_closed_form(loss) for loss, _ in losses.others):
        smoothed = _by_fourier(losses, target, adding, smoothed=True)
        bounds = bounds if smoothed is None else _intersection(bounds, smoothed)
        if _narrow(bounds):
            return bounds
    if len(losses.others) <= _MOST_ON_GRID:
        return _intersection(bounds, _on_grid(losses, target, adding))
    upper = by_moments(losses, target, adding)
    if target.delta is not None and losses.infinite_mass()[1] <= target.delta:
        upper = min(upper, max(0.0, losses.largest_loss(adding=adding)))
    return _intersection(bounds, (_by_top_atom(losses, target), upper))


def _by_top_atom(losses: Losses, target: Target) -> float:
    """From below, by the largest loss alone: δ(ε) ≥ P(L = l)(1 − e^{ε−l}). It decides where δ is below that P."""
    top = losses.top_atom()
    if top is None or top[1] < _LEAST_LOG_MASS:
        return 0.0
    loss, log_mass = top
    least = losses.infinite_mass()[0]
    if target.epsilon is not None:
        return down(least - math.exp(log_mass) * math.expm1(min(target.epsilon - loss, 0.0)) * (1 - PAD))
    assert target.delta is not None
    share = (target.delta - least) / math.exp(log_mass) * (1 + PAD)
    return max(0.0, (loss + math.log1p(-share)) * (1 - PAD)) if 0 < share < 1 else 0.0


def _narrow(bounds: Pair, width: float = grid.WIDE) -> bool:
    low, high = bounds
    return math.isfinite(high) and (high - low <= width * high)


def _intersection(first: Pair, second: Pair) -> Pair:
    return max(first[0], second[0]), min(first[1], second[1])


def _by_formula(bounds: single.Bounds, target: Target) -> Pair:
    if target.epsilon is not None:
        return bounds(target.epsilon)
    assert target.delta is not None
    return single.solve(bounds, target.delta)


def _by_profile(only: AtomLoss | GroupLoss, infinite: float, target: Target) -> Pair:
    """One loss that has a formula for its profile. `infinite` bounds P of an infinite loss."""
    low, high = _by_formula(only.profile, target)
    if target.delta is None or infinite > target.delta or isinstance(only, GroupLoss):
        return low, high
    most = max(0.0, only.support(0.0)[1])  # no loss beyond it is finite, and δ covers the infinite ones
    return min(low, most), min(high, most)


def _on_grid(losses: Losses, target: Target, adding: bool) -> Pair:
    parts = losses.for_grid(adding=adding)
    lower, upper = grid.bounds(parts, target)
    infinite = losses.infinite_mass()[1]
    if math.isinf(upper) and infinite < (target.delta or 0.0):
        upper = by_moments(losses, target, adding)
    if target.delta is not None and infinite <= target.delta:
        upper = min(upper, max(0.0, losses.largest_loss(adding=adding)))
    return lower, upper


def by_moments(losses: Losses, target: Target, adding: bool) -> float:
    """Chernoff's bound from every moment that is known."""
    parts = in_families(losses.others)[1]
    rest = smooth(losses, adding)

    @lru_cache(maxsize=_REMEMBERED)
    def others(order: float) -> float:
        return losses.concentrated * order * (order + 1) + grid.log_moment(parts, order)

    def rough(order: float) -> float:
        return rest.cumulants(order)[0] + others(order)

    def certified(order: float) -> float:
        return rest.log_moment(order) + others(order)

    infinite = losses.infinite_mass()[1]
    if target.epsilon is not None:
        return min(1.0, infinite + chernoff.delta(certified, target.epsilon, rough))
    assert target.delta is not None
    left = target.delta - infinite
    return chernoff.epsilon(certified, left, rough) if left > 0 else math.inf


def smooth(losses: Losses, adding: bool) -> fourier.Smooth:
    """The losses in the form that Fourier inversion takes, without those that have no formula."""
    terms = np.array(losses.sampled, dtype=np.float64).reshape(-1, 3)
    sampled = SampledGaussians(terms[:, 0].copy(), terms[:, 1].copy(), terms[:, 2].copy(), adding)
    return fourier.Smooth(losses.mu_squared, sampled, in_families(losses.others)[0])


def _by_fourier(losses: Losses, target: Target, adding: bool, *, smoothed: bool = False) -> Pair | None:
    """Fourier inversion at its saddle, with a little Gaussian noise if `smoothed`; None where it declines."""
    least, most = losses.infinite_mass()
    composition = smooth(losses, adding)
    if target.epsilon is not None:
        point = fourier.locate(composition, epsilon=target.epsilon)
        samples = smoothing.invert(composition, point, target) if smoothed else fourier.invert(composition, point)
        if samples is None:
            return None
        low, high = samples.at(target.epsilon)
        return low + least, min(1.0, high + most)
    assert target.delta is not None
    left = target.delta - most
    if left <= 0:
        return None
    point = fourier.locate(composition, delta=left)
    samples = smoothing.invert(composition, point, target) if smoothed else fourier.invert(composition, point)
    if samples is None:
        return None
    low, high = samples.solve(left, point.epsilon)
    if most > 0:  # from below, more of δ may be left for the finite losses
        low = samples.solve(target.delta - least, point.epsilon)[0]
    if not high > 0:
        # ε = 0 may be enough already.
        return (0.0, 0.0) if samples.at(0.0)[1] <= left else (0.0, max(high, 0.0))
    return max(low, 0.0), high
