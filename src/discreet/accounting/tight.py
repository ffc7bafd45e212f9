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
from discreet.accounting.losses import of_events, ranges
from discreet.accounting.losses.collapse import Way, collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.families import has_closed_form
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import chernoff
from discreet.accounting.methods.answer import MOST_ON_GRID, PAD, BoundsPair, narrow, of_losses, smooth
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.target import Target
from discreet.errors import DiscreetError, UnknownEvent
from discreet.events import Composed, Event, Repeated, Shuffled, ShuffledEpoch
from discreet.guarantees import RDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation
from discreet.numeric.rounding import UNIT, float_down, float_up, reported

# Relative width from which on pure and Rényi DP are asked too, as one of them may have a lower upper end.
_LOOSE = 1e-3
# Parts of compositions whose Rényi DP is remembered: 136 numbers each.
_PARTS_REMEMBERED = 4096
# Views from above whose estimates differ by less than this, relatively, are all tried.
_CLOSE_CALL = 0.1
# Error of an exponent in Chernoff's bound, relative to its terms.
_CHERNOFF_ERROR = 1e-12

#: δ as a function of ε, from both sides.
DeltaBounds = Callable[[float], Interval]


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
    one_sided = any(isinstance(nested, ShuffledEpoch) for nested in event.walk())
    bounds = padded(0.0 if one_sided else bounds.lower, bounds.upper)
    return bounds if narrow((bounds.lower, bounds.upper), _LOOSE) else _lowered(bounds, event, target, which)


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
    # Two roundings for each part: of its product and of the sum.
    total *= 1 + (len(event.events) + 2) * 2 * UNIT
    return RDP(tuple(map(float, DEFAULT_ORDERS)), tuple(reported(float(value)) for value in total))


@lru_cache(maxsize=_PARTS_REMEMBERED)
def _leaf_moments(event: Event, relation: Relation) -> NDArray[np.float64]:
    return rdp_curve(event, relation)


def _shuffled(event: Shuffled, target: Target, relation: Relation) -> Interval:
    """Shuffled reports by themselves, from above by the sum over their clones, from below by an attack."""
    way: Way = frozenset([(event, 1)])
    attack = of_events.losses(way, View(relation, False, False, opposite=0))
    lower = of_losses(attack, target, False)[0] * (1 - PAD)
    if target.epsilon is not None:
        upper = shuffle.shuffled_delta(event, target.epsilon, relation)
    else:
        assert target.delta is not None
        upper = shuffle.shuffled_epsilon(event, target.delta, relation)
    return Interval(min(lower, upper), upper)


def _price(way: Way, target: Target, relation: Relation) -> Interval:
    """One way to meet an event: the worst of its directions."""
    prices = []
    for opposite in of_events.splits(way):
        removing = Interval(*one_direction(way, target, relation, False, opposite))
        prices.append(removing)
        if True in of_events.directions(way) and not _adds_no_more(way, target, relation, opposite, removing.lower):
            prices.append(Interval(*one_direction(way, target, relation, True, opposite)))
    return largest(prices)


def _adds_no_more(way: Way, target: Target, relation: Relation, opposite: int, removing: float) -> bool:
    """Whether Chernoff's bound shows that adding a unit costs no more than `removing`, a lower bound for removing one.

    Usually it does, and then the price of adding need not be known.
    """
    losses = of_events.losses(way, View(relation, True, True, opposite))
    alone = not losses.others and losses.concentrated == 0 and losses.shift == 0 and losses.inflation == 0
    if not alone or not 0 < removing < math.inf:
        return False
    epsilon, delta = (removing, target.delta) if target.epsilon is None else (target.epsilon, removing)
    assert delta is not None
    if epsilon >= losses.largest_loss(adding=True):
        return True
    composition = smooth(losses, True)
    order = fourier.locate(composition, epsilon=epsilon).tilt
    bound = composition.log_moment(order) - order * epsilon + chernoff.log_constant(order)
    return bound + _CHERNOFF_ERROR * (1 + abs(order * epsilon)) <= math.log(delta)


def one_direction(way: Way, target: Target, relation: Relation, adding: bool, opposite: int) -> BoundsPair:
    """The best of the bounds that are known for one direction, on either side."""
    views = {
        upper: [
            of_events.losses(way, View(relation, adding, upper, opposite, variant))
            for variant in range(of_events.variants(way, upper=upper))
        ]
        for upper in (True, False)
    }
    first = views[True][0]
    if first.exact and len(views[True]) == 1:
        return of_losses(first, target, adding)
    upper = min(_from_above(losses, target, adding) for losses in _promising(views[True], target, adding, upper=True))
    lower = max(_from_below(losses, target, adding) for losses in _promising(views[False], target, adding, upper=False))
    if not narrow((lower, upper), _LOOSE) and ranges.in_groups(way):
        in_groups = of_events.losses(way, View(relation, adding, True, opposite, ranges.GROUPED))
        upper = min(upper, _from_above(in_groups, target, adding))
    return min(lower, upper), upper


def _promising(views: list[Losses], target: Target, adding: bool, *, upper: bool) -> list[Losses]:
    """Of many different losses seen in several ways, the view that looks best; a few losses are tried in all ways.

    Every view is a bound, so a poor choice costs width, never truth.
    """
    if len(views) == 1 or len(views[0].others) <= MOST_ON_GRID:
        return views
    if not all(has_closed_form(loss) for losses in views for loss, _ in losses.others):
        return views
    looks = [_estimate(losses, target, adding) for losses in views]
    if not upper:
        return [views[looks.index(max(looks))]]
    best = min(looks)
    # Where only ρ of a part is known, Chernoff's bound lies somewhat above the estimate.
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
