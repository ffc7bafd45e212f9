"""What an event costs, tightly and from both sides: ε at a δ, and δ at an ε.

An event is collapsed, looked at in both directions (a unit removed, a unit added: composed apart, the larger taken at
the end, arXiv 2405.20769), and priced by the engine that the gate chooses. Both ends are certified.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from discreet import _check
from discreet.accounting import shuffle
from discreet.accounting.forms.conversions import rdp_delta, rdp_epsilon
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.interval import Interval, largest
from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import Way, collapse
from discreet.accounting.losses.of_events import Losses, View
from discreet.accounting.methods import chernoff, single
from discreet.accounting.methods.choose import choose
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.grid.refine import Question
from discreet.errors import DiscreetError, UnknownEvent
from discreet.events import Event, Shuffled, ShuffledEpoch
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation

# Relative width up to which a Fourier answer is taken as it is.
_WIDE = 3e-4
# Covers the round-off of an event's own numbers (1/σ, Σ1/σ², rates that were multiplied).
_PAD = 1e-12

Pair = tuple[float, float]


def epsilon(event: Event, delta: float, relation: Relation = ADD_REMOVE) -> Interval:
    """The smallest ε for which `event` is (ε, δ)-DP, as an interval; its upper end is what to charge.

    >>> from discreet.events import Gaussian, PoissonSampled, Repeated
    >>> round(epsilon(Repeated(PoissonSampled(0.01, Gaussian(1.0)), 10_000), 1e-5).upper, 6)
    6.187712
    """
    delta = float(_check.delta(delta))
    return _answer(event, Question(delta=delta), relation)


def delta(event: Event, epsilon: float, relation: Relation = ADD_REMOVE) -> Interval:
    """The smallest δ for which `event` is (ε, δ)-DP, as an interval; its upper end is what to charge.

    >>> from discreet.events import Gaussian
    >>> round(delta(Gaussian(1.0), 1.0).upper, 9)
    0.126936738
    """
    remedy = "it is the ε at which δ is asked for"
    epsilon = float(_check.nonnegative("epsilon", epsilon, remedy))
    found = _answer(event, Question(epsilon=epsilon), relation)
    return Interval(min(found.lower, 1.0), min(found.upper, 1.0))


def _answer(event: Event, question: Question, relation: Relation) -> Interval:
    if not isinstance(event, Event):
        raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
    which = as_relation(relation)
    if isinstance(event, Shuffled):
        return _shuffled(event, question, which)
    try:
        with np.errstate(all="ignore"):  # what overflows is bounded or declined where it happens
            found = largest([_price(way, question, which) for way in collapse(event, which)])
    except DiscreetError:
        raise
    except (ArithmeticError, ValueError, IndexError):
        # Some number left the range of floats: nothing is known but what `_lowered` finds.
        found = Interval(0.0, math.inf if question.epsilon is None else 1.0)
    # Batches of an epoch that was shuffled are priced as if the unit's batch were known, which it need not be.
    known = 0.0 if any(isinstance(part, ShuffledEpoch) for part in event.walk()) else found.lower * (1 - _PAD)
    found = Interval(known + 0.0, found.upper * (1 + _PAD) + 0.0)
    return found if _narrow((found.lower, found.upper), 1e-3) else _lowered(found, event, question, which)


def _lowered(found: Interval, event: Event, question: Question, relation: Relation) -> Interval:
    """Where the event is known from one side only, pure and Rényi DP may know it better."""
    upper = found.upper
    try:
        always = pure(event, relation).epsilon
        moments = rdp(event, relation=relation)
    except (UnknownEvent, ArithmeticError):
        return found
    if question.epsilon is not None:
        upper = 0.0 if question.epsilon >= always else min(upper, rdp_delta(moments, question.epsilon))
    else:
        assert question.delta is not None
        upper = min(upper, always, rdp_epsilon(moments, question.delta))
    return Interval(found.lower, max(found.lower, upper))


def _shuffled(event: Shuffled, question: Question, relation: Relation) -> Interval:
    """Shuffled reports by themselves: there is a certified upper end, and no lower one is known."""
    if question.epsilon is not None:
        return Interval(0.0, shuffle.shuffled_delta(event, question.epsilon, relation))
    assert question.delta is not None
    return Interval(0.0, shuffle.shuffled_epsilon(event, question.delta, relation))


def _price(way: Way, question: Question, relation: Relation) -> Interval:
    """One way to meet an event: the worse of its two directions."""
    directions = [False, True] if _has_directions(way, relation) else [False]
    return largest(Interval(*_direction(way, question, relation, adding)) for adding in directions)


def _has_directions(way: Way, relation: Relation) -> bool:
    """Whether removing and adding differ: only under sampling."""
    return any(len(leaf.parts()) > 0 for leaf, _ in way)


def _direction(way: Way, question: Question, relation: Relation, adding: bool) -> Pair:
    views = {
        upper: [
            of_events.losses(way, View(relation, adding, upper, variant))
            for variant in range(of_events.variants(way, upper=upper))
        ]
        for upper in (True, False)
    }
    first = views[True][0]
    if first.exact and len(views[True]) == 1:
        return _bounds(first, first, question, adding)
    upper = min(_one_side(found, question, adding)[1] for found in views[True])
    lower = max(_one_side(found, question, adding)[0] for found in views[False])
    return min(lower, upper), upper


def _one_side(found: Losses, question: Question, adding: bool) -> Pair:
    """Bounds for losses that stand for the event from one side, moved and scaled as they say."""
    if found.shift == 0 and found.inflation == 0:
        return _bounds(found, found, question, adding)
    grown = math.expm1(found.inflation)
    if question.epsilon is not None:
        _, upper = _bounds(found, found, Question(epsilon=max(question.epsilon - found.shift, 0.0)), adding)
        lower, _ = _bounds(found, found, Question(epsilon=question.epsilon + found.shift), adding)
        return max(0.0, lower * (1 - grown)), min(1.0, upper * (1 + grown))
    assert question.delta is not None
    _, upper = _bounds(found, found, Question(delta=question.delta / (1 + grown)), adding)
    low_delta = question.delta / (1 - grown) if grown < 1 else 1.0
    lower = _bounds(found, found, Question(delta=low_delta), adding)[0] if low_delta < 1 else 0.0
    return max(0.0, lower - found.shift), upper + found.shift


def _bounds(upper: Losses, lower: Losses, question: Question, adding: bool) -> Pair:
    """Bounds on the answer by the engine that fits."""
    none, all_ = (0.0, 0.0), (math.inf, math.inf) if question.epsilon is None else (1.0, 1.0)
    infinite = of_events.infinite_mass(upper)
    if question.epsilon is not None and question.epsilon >= of_events.largest_loss(upper, adding=adding):
        return infinite
    if question.delta is not None and infinite[0] > question.delta:
        return math.inf, math.inf
    match choose(upper):
        case "nothing":
            return none
        case "everything":
            return all_
        case "moments":
            return 0.0, _by_moments(upper, question, adding)
        case "gaussian":
            mu = math.sqrt(upper.mu_squared)
            return _by_formula(lambda e: single.gaussian(e, mu), question)
        case "one sample":
            ((rate, own, _),) = upper.sampled
            return _by_formula(lambda e: single.sampled_gaussian(e, own, rate, adding=adding), question)
        case "fourier":
            found = _by_fourier(upper, question, adding)
            if found is not None and _narrow(found):
                return found
            return _combine(found, _on_grid(upper, lower, question, adding))
        case _:
            return _on_grid(upper, lower, question, adding)


def _narrow(found: Pair, width: float = _WIDE) -> bool:
    low, high = found
    return math.isfinite(high) and (high - low <= width * high)


def _combine(one: Pair | None, other: Pair) -> Pair:
    return other if one is None else (max(one[0], other[0]), min(one[1], other[1]))


def _by_formula(bounds: single.Bounds, question: Question) -> Pair:
    if question.epsilon is not None:
        return bounds(question.epsilon)
    assert question.delta is not None
    return single.solve(bounds, question.delta)


def _on_grid(upper: Losses, lower: Losses, question: Question, adding: bool) -> Pair:
    up = of_events.as_grid_losses(upper, adding=adding)
    low = up if lower is upper else of_events.as_grid_losses(lower, adding=adding)
    found = grid.bounds(up, low, question)
    infinite = of_events.infinite_mass(upper)[1]
    if math.isinf(found[1]) and infinite < (question.delta or 0.0):
        found = (found[0], _by_moments(upper, question, adding))
    if question.delta is not None and infinite <= question.delta:
        found = (found[0], min(found[1], max(0.0, of_events.largest_loss(upper, adding=adding))))
    return found


def _by_moments(found: Losses, question: Question, adding: bool) -> float:
    """Chernoff's bound with everything that is known of the moments."""
    parts = of_events.as_grid_losses(Losses(others=found.others), adding=adding)
    rest = smooth(found, adding, others=False)

    @lru_cache(maxsize=512)
    def log_moment(order: float) -> float:
        total = found.concentrated * order * (order + 1) + rest.log_moment(order)
        return total + grid.log_moment(parts, order)

    infinite = of_events.infinite_mass(found)[1]
    if question.epsilon is not None:
        return min(1.0, infinite + chernoff.delta(log_moment, question.epsilon))
    assert question.delta is not None
    left = question.delta - infinite
    return chernoff.epsilon(log_moment, left) if left > 0 else math.inf


def smooth(found: Losses, adding: bool, *, others: bool = True) -> fourier.Smooth:
    """The losses as Fourier inversion takes them."""
    terms = np.array(found.sampled, dtype=np.float64).reshape(-1, 3)
    closed = tuple(
        (form, count) for form, count in ((of_events.closed_form(loss), count) for loss, count in found.others) if form
    )
    sampled = SampledGaussians(terms[:, 0].copy(), terms[:, 1].copy(), terms[:, 2].copy(), adding)
    return fourier.Smooth(found.mu_squared, sampled, closed if others else ())


def _by_fourier(found: Losses, question: Question, adding: bool) -> Pair | None:
    """Fourier inversion at its saddle; None where it declines."""
    least, most = of_events.infinite_mass(found)
    composition = smooth(found, adding)
    if question.epsilon is not None:
        point = fourier.locate(composition, epsilon=question.epsilon)
        samples = fourier.invert(composition, point)
        if samples is None:
            return None
        low, high = samples.at(question.epsilon)
        return low + least, min(1.0, high + most)
    assert question.delta is not None
    left = question.delta - most
    if left <= 0:
        return None
    point = fourier.locate(composition, delta=left)
    samples = fourier.invert(composition, point)
    if samples is None:
        return None
    low, high = samples.solve(left, point.epsilon)
    if most > 0:  # from below, more of δ may be left for the finite losses
        low = samples.solve(question.delta - least, point.epsilon)[0]
    if not high > 0:
        # ε = 0 may be enough already.
        return (0.0, 0.0) if samples.at(0.0)[1] <= left else (0.0, max(high, 0.0))
    return max(low, 0.0), high
