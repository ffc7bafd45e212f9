"""What splitting losses onto a grid adds to δ, bounded from above: so a grid that is too high also gives a lower bound.

Splitting moves the sum of n losses by D, where E[e^{−D} | losses] = 1 and each loss moves within one step h. Away from
ε this changes nothing: 1 − e^{ε−x} is linear in e^{−x}. At ε it adds at most R(|x − ε|), which falls like a Gaussian of
variance v = nh²/4. The bump b(y) = B·e^{−(y−ε)²/2w²}, w² = 5v/4, has E[b(x + D)] ≥ R(|x − ε|) for the B of `bump`, so
δ(ε) ≥ δ⁺(ε) − E⁺[b]. The loss is of second order in the step. Proof: docs/proofs/pld-discretization.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from discreet.accounting.methods.grid.discretize import MASS_ERROR
from discreet.accounting.methods.grid.fft import ComposedLoss

# w²/v: any number above 1 is valid where it leaves room for the tail; near this one the bump's area is smallest.
_WIDER = 1.25
# The bound below needs v at most this; a larger one would cost the whole δ anyway.
_LARGEST_VARIANCE = 0.25
# Distances, in √v, at which R is bounded; beyond the last, Hoeffding's bound on R is below the bump (proof).
_DISTANCES = np.linspace(0.0, 12.0, 601)
# The bump is summed within this many w of ε. Beyond, e^{−9²/2} is 3e-18 of its height.
_REACH = 9.0
# Relative margin for the round-off of `bump` and of the sum in `added`: thousands of roundings.
_ERROR = 1e-9
# Relative error of the difference that a split is computed from (`losses.continuous.DIFFERENCE_ERROR`, twice and more).
_SPLIT_ERROR = 4e-14
# `solve_lower` aims this much further than a straight line says, grows its distance at least by a factor, starts with a
# change of ln δ where nothing is known, and gives up after some rounds. Any ε that it finds is checked.
_MARGIN, _GROWTH, _FIRST_PAD, _ROUNDS = 1.01, 1.02, 0.01, 40
# Exponents are cut off here; a bound of e^700 decides nothing.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class Bump:
    """B and w of the bump, and by how much E[e^{−D}] may differ from 1 through round-off."""

    height: float
    width: float
    drift: float


def bump(splits: int, step: float) -> Bump | None:
    """The bump for this many splits with this step; None where they move the sum too far."""
    variance = splits * step * step / 4
    if variance > _LARGEST_VARIANCE:
        return None
    root, mean = math.sqrt(variance), variance / 2
    away = root * _DISTANCES
    spread = math.expm1(variance)  # of e^{−D}, at most
    with np.errstate(over="ignore"):
        # By the variance (Scarf), and by Hoeffding's tail; below ε and above it.
        below, above = -np.expm1(-away), np.expm1(away)
        scarf_below = np.exp(away) * spread / (np.sqrt(spread + below**2) + below) / 2
        scarf_above = np.exp(-away) * spread / (np.sqrt(spread + above**2) + above) / 2
        tail_below = np.where(away > mean, math.sqrt(2 * math.pi) * root * special.ndtr((mean - away) / root), 1.0)
        tail_above = (
            math.sqrt(2 * math.pi) * root * np.exp(variance / 2 - away) * special.ndtr((variance - away) / root)
        )
    least_below = np.minimum.accumulate(np.minimum(scarf_below, tail_below))
    least_above = np.minimum.accumulate(np.minimum(scarf_above, tail_above))
    added = np.maximum(least_below, least_above)[:-1]  # R falls, so this holds up to the next distance
    width_squared = _WIDER * variance
    next_away = away[1:]
    exponent = (next_away**2 + 2 * next_away * mean + variance + mean**2) / (2 * width_squared)
    height = float(np.max(added * np.exp(exponent))) * (1 + _ERROR)
    return Bump(height, math.sqrt(width_squared), splits * (4 * MASS_ERROR * step + _SPLIT_ERROR))


def added(composed: ComposedLoss, epsilon: float, shape: Bump) -> float:
    """An upper bound on E⁺[b] at ε, for a composition from above."""
    tilt, width = composed.tilt, shape.width
    if tilt * width > _REACH:
        return 1.0
    first, last = np.searchsorted(composed.losses, (epsilon - _REACH * width, epsilon + _REACH * width))
    gap = composed.losses[first:last] - epsilon
    weight = np.exp(-(gap**2) / (2 * width**2) - tilt * gap)
    inside = float(weight @ np.maximum(composed.masses[first:last], 0.0)) + composed.entry * float(np.sum(weight))
    # A loss may lie up to 2·location below its point, which changes b by no more than this factor.
    moved = math.exp(min(_LARGEST_EXPONENT, 2 * (_REACH + 1) * composed.location * (tilt + 1 / width)))
    # What left the window, and what lies beyond the reach: all tilted mass is below 2.
    most = math.exp(min(_LARGEST_EXPONENT, (tilt * width) ** 2 / 2))
    outside = composed.escaped * most + 2 * math.exp(_REACH * tilt * width - _REACH**2 / 2)
    factor = math.exp(min(_LARGEST_EXPONENT, composed.log_scale - tilt * epsilon)) * (1 + composed.relative + _ERROR)
    return shape.height * factor * moved * (inside + outside)


def lower(above: ComposedLoss, below: ComposedLoss, shape: Bump | None, epsilon: float) -> float:
    """A lower bound on δ(ε), from a composition from above and what it implies from below (`from_below`).

    Without a bump nothing was split.
    """
    if shape is None:
        return below.at(epsilon)
    return max(0.0, below.at(epsilon) - added(above, epsilon, shape) - shape.drift * above.exceeds(epsilon))


def solve_lower(bound: Callable[[float], float], delta: float, start: float, slope: float) -> float:
    """An ε below `start` with bound(ε) ≥ δ, near the largest; 0 where none is found. `slope` is about −d ln δ/dε."""
    value = bound(start)
    if value >= delta:
        return start
    pad = _MARGIN * math.log(delta / value) / slope if value > 0 else _FIRST_PAD / slope
    for _ in range(_ROUNDS):
        epsilon = start - pad
        if epsilon <= 0:
            break
        value = bound(epsilon)
        if value >= delta:
            return epsilon
        pad = max(pad + _MARGIN * math.log(delta / value) / slope, _GROWTH * pad) if value > 0 else 2 * pad
    return 0.0
