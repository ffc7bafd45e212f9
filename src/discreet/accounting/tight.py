"""What an event costs, tightly and from both sides: ε at a δ, and δ at an ε.

The event is collapsed and priced in both directions by the method that `choose` picks. The directions (a unit removed,
a unit added) are composed separately and the larger price is taken at the end (arXiv 2405.20769). Both ends of the
answer are certified. `accounting.methods` lists the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from discreet import _check
from discreet.accounting import shuffle
from discreet.accounting.forms.conversions import rdp_delta, rdp_epsilon
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.interval import Interval, largest
from discreet.accounting.losses import of_events
from discreet.accounting.losses.closed import closed_form
from discreet.accounting.losses.collapse import Way, collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import chernoff, concentration, single
from discreet.accounting.methods.choose import choose
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier import relaxed
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.accounting.methods.fourier.saddle import Saddle
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.jumps import bounds as jumps
from discreet.accounting.methods.jumps.guess import Coarse
from discreet.accounting.methods.target import Target
from discreet.errors import DiscreetError, UnknownEvent
from discreet.events import Event, Shuffled, ShuffledEpoch
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation
from discreet.numeric.rounding import float_down, float_up

#: Covers the round-off of an event's own numbers (1/σ, Σ1/σ², products of rates): thousands of roundings.
PAD = 1e-12
# Relative width from which on pure and Rényi DP are asked too, as one of them may have a lower upper end.
_LOOSE = 1e-3
# Sampled Gaussians go to a grid at once below the first number of steps: few of them have no smooth sum. A contour off
# the saddle is tried from the second on. From the third on, round-off may leave no lower end.
_FEW_STEPS, _MANY_STEPS, _VERY_MANY_STEPS = 20, 500, 10**5
# Error of an exponent in Chernoff's bound, relative to its terms.
_CHERNOFF_ERROR = 1e-12
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
        moments = rdp(event, relation=relation)
    except (UnknownEvent, ArithmeticError):
        return bounds
    if target.epsilon is not None:
        upper = 0.0 if target.epsilon >= always else min(upper, rdp_delta(moments, target.epsilon))
    else:
        assert target.delta is not None
        upper = min(upper, always, rdp_epsilon(moments, target.delta))
    return Interval(bounds.lower, max(bounds.lower, upper))


def _shuffled(event: Shuffled, target: Target, relation: Relation) -> Interval:
    """Shuffled reports by themselves: their upper end is certified; no lower one is known."""
    if target.epsilon is not None:
        return Interval(0.0, shuffle.shuffled_delta(event, target.epsilon, relation))
    assert target.delta is not None
    return Interval(0.0, shuffle.shuffled_epsilon(event, target.delta, relation))


def _price(way: Way, target: Target, relation: Relation) -> Interval:
    """One way to meet an event: the worse of its two directions."""
    removing = Interval(*one_direction(way, target, relation, False))
    if not has_directions(way) or _adds_no_more(way, target, relation, removing.lower):
        return removing
    return largest((removing, Interval(*one_direction(way, target, relation, True))))


def _adds_no_more(way: Way, target: Target, relation: Relation, removing: float) -> bool:
    """Whether Chernoff's bound shows that adding a unit costs no more than `removing`, a lower bound for removing one.

    Usually it does, and then the price of adding need not be known.
    """
    losses = of_events.losses(way, View(relation, True, True))
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


def has_directions(way: Way) -> bool:
    """Whether removing and adding a unit differ, which they do only under sampling."""
    return any(len(leaf.parts()) > 0 for leaf, _ in way)


def one_direction(way: Way, target: Target, relation: Relation, adding: bool) -> Pair:
    """The best of the bounds that are known for one direction, on either side."""
    views = {
        upper: [
            of_events.losses(way, View(relation, adding, upper, variant))
            for variant in range(of_events.variants(way, upper=upper))
        ]
        for upper in (True, False)
    }
    first = views[True][0]
    if first.exact and len(views[True]) == 1:
        return _bounds(first, target, adding)
    upper = min(_one_side(losses, target, adding)[1] for losses in views[True])
    lower = max(_one_side(losses, target, adding)[0] for losses in views[False])
    return min(lower, upper), upper


def _one_side(losses: Losses, target: Target, adding: bool) -> Pair:
    """Bounds from losses that stand for the event on one side, corrected by their shift and inflation."""
    if losses.shift == 0 and losses.inflation == 0:
        return _bounds(losses, target, adding)
    grown = math.expm1(losses.inflation)
    if target.epsilon is not None:
        _, upper = _bounds(losses, Target(epsilon=max(target.epsilon - losses.shift, 0.0)), adding)
        lower, _ = _bounds(losses, Target(epsilon=target.epsilon + losses.shift), adding)
        return max(0.0, lower * (1 - grown)), min(1.0, upper * (1 + grown))
    assert target.delta is not None
    _, upper = _bounds(losses, Target(delta=target.delta / (1 + grown)), adding)
    low_delta = target.delta / (1 - grown) if grown < 1 else 1.0
    lower = _bounds(losses, Target(delta=low_delta), adding)[0] if low_delta < 1 else 0.0
    return max(0.0, lower - losses.shift), upper + losses.shift


def _bounds(losses: Losses, target: Target, adding: bool) -> Pair:
    """Bounds on the answer by the method that fits, with a lower end from two moments where it found none."""
    lower, upper = _by_method(losses, target, adding)
    if lower > 0 or not upper > 0 or losses.concentrated > 0 or losses.steps < _VERY_MANY_STEPS:
        return lower, upper
    return min(upper, concentration.lower(losses.for_grid(adding=adding), target)), upper


def _by_method(losses: Losses, target: Target, adding: bool) -> Pair:
    """Bounds on the answer by the method that `choose` picks."""
    infinite = losses.infinite_mass()
    if target.epsilon is not None and target.epsilon >= losses.largest_loss(adding=adding):
        return infinite
    if target.delta is not None and infinite[0] > target.delta:
        return math.inf, math.inf
    match choose(losses):
        case "nothing":
            return 0.0, 0.0
        case "everything":
            return (math.inf, math.inf) if target.epsilon is None else (1.0, 1.0)
        case "moments":
            return 0.0, _by_moments(losses, target, adding)
        case "gaussian":
            mu = math.sqrt(losses.mu_squared)
            return _by_formula(lambda e: single.gaussian(e, mu), target)
        case "one sample":
            ((rate, sampled_mu, _),) = losses.sampled
            return _by_formula(lambda e: single.sampled_gaussian(e, sampled_mu, rate, adding=adding), target)
        case "fourier":
            mixed = losses.others or losses.mu_squared > 0
            if not mixed and losses.steps < _FEW_STEPS:
                return _small_rates(losses, target, adding)
            by_fourier = _by_fourier(losses, target, adding)
            if by_fourier is not None and _narrow(by_fourier):
                return by_fourier
            other = _on_grid(losses, target, adding) if mixed else _small_rates(losses, target, adding)
            return other if by_fourier is None else _intersection(by_fourier, other)
        case _:
            return _on_grid(losses, target, adding)


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


def _on_grid(losses: Losses, target: Target, adding: bool) -> Pair:
    parts = losses.for_grid(adding=adding)
    lower, upper = grid.bounds(parts, target)
    infinite = losses.infinite_mass()[1]
    if math.isinf(upper) and infinite < (target.delta or 0.0):
        upper = _by_moments(losses, target, adding)
    if target.delta is not None and infinite <= target.delta:
        upper = min(upper, max(0.0, losses.largest_loss(adding=adding)))
    return lower, upper


def _by_moments(losses: Losses, target: Target, adding: bool) -> float:
    """Chernoff's bound from every moment that is known."""
    parts = Losses(others=losses.others).for_grid(adding=adding)
    rest = smooth(losses, adding, others=False)

    @lru_cache(maxsize=_REMEMBERED)
    def log_moment(order: float) -> float:
        total = losses.concentrated * order * (order + 1) + rest.log_moment(order)
        return total + grid.log_moment(parts, order)

    infinite = losses.infinite_mass()[1]
    if target.epsilon is not None:
        return min(1.0, infinite + chernoff.delta(log_moment, target.epsilon))
    assert target.delta is not None
    left = target.delta - infinite
    return chernoff.epsilon(log_moment, left) if left > 0 else math.inf


def smooth(losses: Losses, adding: bool, *, others: bool = True) -> fourier.Smooth:
    """The losses in the form that Fourier inversion takes."""
    terms = np.array(losses.sampled, dtype=np.float64).reshape(-1, 3)
    closed = tuple(
        (form, count) for form, count in ((closed_form(loss), count) for loss, count in losses.others) if form
    )
    sampled = SampledGaussians(terms[:, 0].copy(), terms[:, 1].copy(), terms[:, 2].copy(), adding)
    return fourier.Smooth(losses.mu_squared, sampled, closed if others else ())


def _small_rates(losses: Losses, target: Target, adding: bool) -> Pair:
    """Sampled Gaussians whose rare large losses rule at the saddle: a contour off the saddle, or a cut and a grid."""
    coarse = Coarse.of(losses.sampled, adding)
    guess = coarse.guess(target)
    point = None
    if losses.steps >= _MANY_STEPS:
        point = relaxed.below(smooth(losses, adding), guess.point, guess.epsilon, guess.delta)
    found = None if point is None else _by_fourier(losses, target, adding, point)
    if found is not None and _narrow(found):
        return found
    cut = jumps.bounds(coarse, guess, target)
    return cut if found is None else _intersection(found, cut)


def _by_fourier(losses: Losses, target: Target, adding: bool, point: Saddle | None = None) -> Pair | None:
    """Fourier inversion at its saddle, or at another point; None where it declines."""
    least, most = losses.infinite_mass()
    composition = smooth(losses, adding)
    if target.epsilon is not None:
        point = point or fourier.locate(composition, epsilon=target.epsilon)
        samples = fourier.invert(composition, point)
        if samples is None:
            return None
        low, high = samples.at(target.epsilon)
        return low + least, min(1.0, high + most)
    assert target.delta is not None
    left = target.delta - most
    if left <= 0:
        return None
    point = point or fourier.locate(composition, delta=left)
    samples = fourier.invert(composition, point)
    if samples is None:
        return None
    low, high = samples.solve(left, point.epsilon)
    if most > 0:  # from below, more of δ may be left for the finite losses
        low = samples.solve(target.delta - least, point.epsilon)[0]
    if not high > 0:
        # ε = 0 may be enough already.
        return (0.0, 0.0) if samples.at(0.0)[1] <= left else (0.0, max(high, 0.0))
    return max(low, 0.0), high
