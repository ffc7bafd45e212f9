"""How likely it is that the privacy loss exceeds ε. This is not δ: δ(ε) also weighs by how much it exceeds ε."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import special

from discreet import _check
from discreet.accounting import tight
from discreet.accounting.closed_forms import ARGUMENT_ERROR, ERFCX_LIMIT
from discreet.accounting.interval import Interval, largest
from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import ACCOUNTANT, Way, collapse
from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import answer, curves
from discreet.accounting.methods.target import Target
from discreet.accounting.refusal import unknown
from discreet.events import Claimed, Event, Parallel, Shuffled, ShuffledEpoch
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import SLACK, down, float_down, float_up, up

# Distances from ε at which δ is asked for, to bound its slope: the best of them is used on either side.
_DISTANCES = tuple(2.0**-k for k in range(10))
# Relative round-off of a slope: some ten operations, and as much for ε ± a distance, relative to the distance.
_SLOPE_ERROR = 2.0**-48
# The relative width of δ near ε that slopes are taken from.
_NARROW = 1e-4
# Losses beyond which P has less than this are left out; relative errors of the place of an atom, and of a sum of masses
# (`discretize.MASS_ERROR`, and thousands of roundings).
_NEGLIGIBLE, _PLACE_ERROR, _MASS_ERROR = 1e-300, 1e-14, 4e-12
# The losses of these events are not known, only bounds on them.
_BOUNDED_ONLY = Claimed | Parallel | Shuffled | ShuffledEpoch


def loss_exceeds(event: Event, epsilon: float, relation: Relation = ADD_REMOVE) -> Interval:
    """P(privacy loss > ε), infinite losses included, for the neighbors at which the event's noise hides least.

    Gaussian noise has a formula: Φ(μ/2 − ε/μ). Otherwise it is δ(ε) − δ′(ε), because δ(ε) = P(L > ε) − e^ε Q(L > ε) and
    δ′(ε) = −e^ε Q(L > ε); as δ is convex in e^ε, certified bounds on δ at other ε bound that slope from both sides. The
    larger of the two directions is given. Raises `UnknownEvent` where only a bound on the losses is known.
    """
    exact = _check.nonnegative("epsilon", epsilon, "it is the ε that the loss may exceed")
    for nested in event.walk():
        if isinstance(nested, _BOUNDED_ONLY):
            raise unknown(nested, ACCOUNTANT, "its privacy losses are not known, only bounds on them")
    low, high = float_down(exact), float_up(exact)
    with np.errstate(all="ignore"):
        answers = [_way(event, way, (low, high), relation) for way in collapse(event, relation)]
    return largest(answers)


def _way(event: Event, way: Way, at: tuple[float, float], relation: Relation) -> Interval:
    changes = itertools.product(of_events.directions(way), of_events.splits(way))
    return largest(_change(event, way, at, relation, *change) for change in changes)


def _change(
    event: Event, way: Way, at: tuple[float, float], relation: Relation, adding: bool, opposite: int
) -> Interval:
    losses = of_events.losses(way, View(relation, adding, True, opposite))
    if not losses.exact or losses.concentrated > 0 or of_events.variants(way, upper=True) > 1:
        raise unknown(event, ACCOUNTANT, "its privacy losses are not known, only bounds on them")
    match losses.for_grid(adding=adding):
        case [] if not losses.sampled:
            return Interval(0.0, 0.0)
        case [(ContinuousLoss(GaussianShift(mu), rate), 1)] if rate >= 1:
            return Interval(gaussian(at[1], mu)[0], gaussian(at[0], mu)[1])
        case [(loss, 1)]:
            return Interval(_alone(loss, at[1])[0], _alone(loss, at[0])[1])
    near_curve = curves.near(losses, Target(epsilon=at[0]), adding, _NARROW)
    if near_curve is None:
        return Interval(0.0, 1.0)
    curve = near_curve

    def delta(epsilon: float) -> Interval:
        return tight.padded(*curve(epsilon))

    lower = _by_slope(delta, at[1]).lower
    return Interval(lower, max(lower, _by_slope(delta, at[0]).upper))


def _alone(loss: PrivacyLoss, epsilon: float) -> tuple[float, float]:
    """P(loss > ε) of one loss, from below and from above: its atoms, its density and its infinite part add up."""
    tail = _NEGLIGIBLE if loss.unbounded else 0.0
    end = loss.support(_NEGLIGIBLE)[1]
    smooth = float(loss.cells(np.array([epsilon, end])).p[0]) if end > epsilon else 0.0
    atom_losses, p, _ = loss.atoms()
    # An atom within the round-off of ε may lie on either side of it.
    moved = _PLACE_ERROR * (abs(epsilon) + np.abs(atom_losses))
    atoms = [float(np.sum(p[atom_losses > epsilon + side * moved])) for side in (1, -1)]
    lower = (atoms[0] + smooth + loss.infinite) * (1 - _MASS_ERROR)
    return max(0.0, lower), min(1.0, (atoms[1] + smooth + loss.infinite) * (1 + _MASS_ERROR) + tail)


def gaussian(epsilon: float, mu: float) -> tuple[float, float]:
    """Φ(μ/2 − ε/μ), from below and from above, for μ = Δ₂/σ."""
    wide = epsilon / mu + mu / 2
    near = epsilon / mu - mu / 2
    error = 2 * (ARGUMENT_ERROR + answer.PAD) * wide  # also that of μ, which comes from the event's own numbers
    return _tail(near + error, -1), min(1.0, _tail(near - error, 1))


def _tail(z: float, side: int) -> float:
    """P(N(0, 1) > z), rounded up (side 1) or down (side −1)."""
    if z < ERFCX_LIMIT:
        inside = float(special.ndtr(z))
        return up(1 - down(inside)) if side > 0 else down(1 - up(inside))
    exponent = -z * z / 2
    value = 0.5 * float(special.erfcx(z / math.sqrt(2))) * math.exp(exponent + side * SLACK * (1 + abs(exponent)))
    return up(value) if side > 0 else max(0.0, down(value))


def _by_slope(delta: tight.DeltaBounds, epsilon: float) -> Interval:
    """δ(ε) − δ′(ε) from δ around ε. With t = e^ε, the slope in t lies between those of the chords to either side."""
    here = delta(epsilon)
    least, most = 0.0, 1.0
    for distance in _DISTANCES:
        margin = _SLOPE_ERROR * (1 + (1 + epsilon) / distance)
        beyond = delta(epsilon + distance)
        least = max(least, (here.lower - beyond.upper) / math.expm1(distance) * (1 - margin))
        if distance <= epsilon:
            before = delta(epsilon - distance)
            most = min(most, (before.upper - here.lower) / -math.expm1(-distance) * (1 + margin))
    lower = min(1.0, here.lower + least)
    return Interval(max(0.0, down(lower)) if lower > 0 else 0.0, max(lower, min(1.0, up(here.upper + most))))
