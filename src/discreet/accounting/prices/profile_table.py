"""Upper bounds on an event's δ at enough ε to bound it everywhere, and the tests of its outputs that they allow.

The tight accountant answers one question at a time. A table needs some hundred answers, so here each composition is
inverted, or put on a grid, for a few sizes of δ only, and asked for δ at every ε.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from discreet.accounting.forms.conversions import rdp_delta
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import Way, collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import answer
from discreet.accounting.methods.choose import choose, formula
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.target import Target
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.neighbors import Relation
from discreet.numeric.rounding import Floats, up

#: δ at an ε ≥ 0, from above.
UpperDelta = Callable[[float], float]

# The table ends where δ is below the first, or where it stops falling, or at the second: no float holds e^ε beyond 709.
_SMALL_DELTA, _LARGEST_EPSILON = 1e-22, 600.0
# An interval is halved while the chord across it is above δ in its middle by more than this, relatively.
_CHORD_ERROR = 0.01
# Points of a table at most. A profile with a long tail may need them; most need about 150.
_MOST_POINTS = 320
# δ counts as constant, at the mass of infinite losses, if doubling ε lowers it by less than this.
_CONSTANT = 0.999
# The sizes of δ for which a composition is inverted or put on a grid. Between them, the better of two bounds is used.
_LEVELS = (1e-1, 1e-3, 1e-6, 1e-10, 1e-15, 1e-20)
# A grid's error grows with the number of composed losses n; √(n/60) times the first grid keeps it near 1%.
_LOSSES_PER_GRID, _FINEST, _FIRST = 60, 16.0, 2.0
# Round-off of an interpolation between two points: a few operations.
_INTERPOLATION = 1 + 2.0**-46
# Round-off, relative and absolute, of the share of outputs that a test can reach: sums and products of numbers ≤ 1.
_SHARE_RELATIVE, _SHARE_ABSOLUTE = 1 + 2.0**-44, 2.0**-50


@dataclass(frozen=True, eq=False)
class ProfileTable:
    """Upper bounds `deltas` on δ at `epsilons`, which increase from 0; both directions are covered."""

    epsilons: Floats
    deltas: Floats

    def delta(self, epsilon: Floats) -> Floats:
        """An upper bound on δ at any real ε. δ is convex in e^ε, so it lies below the chord between two points."""
        size = np.abs(epsilon)
        at = np.minimum(size, self.epsilons[-1])
        if len(self.epsilons) == 1:
            value = np.full_like(at, self.deltas[0])
        else:
            right = np.clip(np.searchsorted(self.epsilons, at, side="right"), 1, len(self.epsilons) - 1)
            start, end = self.epsilons[right - 1], self.epsilons[right]
            weight = np.expm1(at - start) / np.expm1(end - start)
            value = (1 - weight) * self.deltas[right - 1] + weight * self.deltas[right]
        # At −ε: H_{1/α}(P, Q) = 1 − 1/α + H_α(Q, P)/α.
        value = np.where(epsilon < 0, -np.expm1(-size) + np.exp(-size) * value, value)
        return np.asarray(np.minimum(1.0, value * _INTERPOLATION), dtype=np.float64)

    def most_likely(self, share: Floats) -> Floats:
        """The largest probability, on a neighbor, of any set of outputs with probability at most `share`.

        By each (ε, δ) of the table a share u becomes at most e^ε u + δ; and the complement's 1 − u at least
        e^{−ε}(1 − u − δ).
        """
        u = share[:, None]
        grown = np.min(np.exp(self.epsilons) * u + self.deltas, axis=1)
        kept = 1 - np.max(np.exp(-self.epsilons) * (1 - u - self.deltas), axis=1) + _SHARE_ABSOLUTE
        return np.asarray(np.minimum(1.0, np.minimum(grown * _SHARE_RELATIVE, kept)), dtype=np.float64)


@lru_cache(maxsize=64)
def profile_table(event: Event, relation: Relation) -> ProfileTable:
    """The table of one event. Remembered, because every order and every ε asks for the same one."""
    bound = _Bound(event, relation)
    last = bound.always
    if not last <= _LARGEST_EPSILON:
        last = 1.0
        while last < _LARGEST_EPSILON and bound(last) > _SMALL_DELTA and bound(2 * last) < _CONSTANT * bound(last):
            last *= 2
        last = min(last, _LARGEST_EPSILON)
    at, gaps = {0.0, last}, [(-bound.above(0.0, last), 0.0, last)]
    while len(at) < _MOST_POINTS and -gaps[0][0] > _CHORD_ERROR:
        _, start, end = heapq.heappop(gaps)
        middle = (start + end) / 2
        at.add(middle)
        heapq.heappush(gaps, (-bound.above(start, middle), start, middle))
        heapq.heappush(gaps, (-bound.above(middle, end), middle, end))
    epsilons = np.array(sorted(at))
    # δ falls in ε, so a bound at one ε holds at every larger one.
    return ProfileTable(epsilons, np.minimum.accumulate([bound(epsilon) for epsilon in epsilons]))


class _Bound:
    """The upper end of δ at each ε, remembered."""

    def __init__(self, event: Event, relation: Relation) -> None:
        self._ask = upper_delta(event, relation)
        self._known: dict[float, float] = {}
        #: The ε from which on δ is 0; inf where there is none.
        self.always = pure(event, relation).epsilon

    def __call__(self, epsilon: float) -> float:
        if epsilon not in self._known:
            self._known[epsilon] = 0.0 if epsilon >= self.always else self._ask(epsilon)
        return self._known[epsilon]

    def above(self, start: float, end: float) -> float:
        """How far the chord between two ε lies above δ in the middle, relatively; 0 where δ is small there."""
        middle = (start + end) / 2
        if not start < middle < end:
            return 0.0
        weight = math.expm1(middle - start) / math.expm1(end - start)
        chord = (1 - weight) * self(start) + weight * self(end)
        return chord / max(self(middle), _SMALL_DELTA) - 1


def upper_delta(event: Event, relation: Relation) -> UpperDelta:
    """δ at every ε ≥ 0, from above: by the tight accountant's methods, or by Rényi DP where they do not apply."""
    try:
        return _worst([_way(way, relation) for way in collapse(event, relation)])
    except UnknownEvent:
        moments = rdp(event, relation=relation)
        return lambda epsilon: rdp_delta(moments, epsilon)


def _way(way: Way, relation: Relation) -> UpperDelta:
    """One way to meet an event: the worst of its directions and splits, each by the least of its bounds."""
    changes = []
    variants = range(of_events.variants(way, upper=True))
    for opposite, adding in itertools.product(of_events.splits(way), of_events.directions(way)):
        views = [View(relation, adding, True, opposite, variant) for variant in variants]
        changes.append(_least([_of_losses(of_events.losses(way, view), adding) for view in views]))
    return _worst(changes)


def _worst(bounds: list[UpperDelta]) -> UpperDelta:
    return lambda epsilon: max((bound(epsilon) for bound in bounds), default=0.0)


def _least(bounds: list[UpperDelta]) -> UpperDelta:
    return lambda epsilon: min((bound(epsilon) for bound in bounds), default=1.0)


def _of_losses(losses: Losses, adding: bool) -> UpperDelta:
    """δ of a composition, corrected for how far its losses were moved and its masses were scaled."""
    plain, grown = _plain(losses, adding), math.exp(losses.inflation) * (1 + answer.PAD)
    return lambda epsilon: min(1.0, up(grown * plain(max(0.0, epsilon - losses.shift))))


def _plain(losses: Losses, adding: bool) -> UpperDelta:
    match choose(losses):
        case "nothing":
            return lambda _: 0.0
        case "everything":
            return lambda _: 1.0
        case "formula":
            profile = formula(losses, adding=adding)
            assert profile is not None
            return lambda epsilon: profile(epsilon)[1]
        case "moments":
            return lambda epsilon: answer.by_moments(losses, Target(epsilon=epsilon), adding)
        case method:
            curves = _inverted(losses, adding) if method == "fourier" else []
            smallest = _least(curves or _gridded(losses, adding))
            infinite, largest = losses.infinite_mass()[1], losses.largest_loss(adding=adding)
            return lambda epsilon: infinite if epsilon >= largest else smallest(epsilon)


def _inverted(losses: Losses, adding: bool) -> list[UpperDelta]:
    """Fourier inversions for several sizes of δ; none where one of them declines."""
    composition, infinite = answer.smooth(losses, adding), losses.infinite_mass()[1]
    inversions = [fourier.invert(composition, fourier.locate(composition, delta=level)) for level in _LEVELS]
    if any(inversion is None for inversion in inversions):
        return []
    return [_from_inversion(inversion, infinite) for inversion in inversions if inversion is not None]


def _from_inversion(inversion: fourier.Inversion, infinite: float) -> UpperDelta:
    return lambda epsilon: inversion.at(epsilon)[1] + infinite


def _gridded(losses: Losses, adding: bool) -> list[UpperDelta]:
    """Grids for several sizes of δ, coarser ones where a fine one is too long."""
    repeated = losses.for_grid(adding=adding)
    fine = min(_FINEST, max(_FIRST, math.sqrt(sum(count for _, count in repeated) / _LOSSES_PER_GRID)))
    tables: list[UpperDelta] = []
    for level in _LEVELS:
        tried = (grid.above(repeated, level, finer) for finer in (fine, 1.0, 1 / _FINEST))
        composed = next((each for each in tried if each is not None), None)
        tables += [] if composed is None else [composed.at]
    return tables
