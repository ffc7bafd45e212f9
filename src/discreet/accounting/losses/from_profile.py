"""From a privacy profile to a pair of distributions that has it, so that a bound on δ(ε) composes with other losses.

A pair's H(α) = E_Q[(dP/dQ − α)₊] with α = e^ε is convex in α, and H(0) = 1. Every function that is convex, falling,
and ≥ (1 − α)₊ belongs to a pair (Zhu, Dong & Wang 2022): the kinks of a piecewise linear one are its atoms. A convex
function lies below the chords between points above it, so finitely many upper bounds are enough.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from discreet.accounting.losses.atoms import AtomLoss
from discreet.numeric.rounding import Floats, float_up

# Beyond this ε the profile counts as constant: e^709 is the largest float.
_LARGEST_EPSILON = 600.0


def profile_loss(epsilons: Floats, deltas: Floats) -> AtomLoss:
    """The loss of a pair with H(e^ε) ≥ δ at every ε, given upper bounds `deltas` that hold in both directions.

    `epsilons` are ≥ 0 and increase from 0. What holds at ε in the other direction holds at −ε in this one, by
    H_{1/α}(P, Q) = 1 − 1/α + H_α(Q, P)/α. The answer is its own mirror image.
    """
    kept = epsilons <= _LARGEST_EPSILON
    alphas = [Fraction(alpha) for alpha in np.exp(epsilons[kept])]
    heights = [Fraction(min(1.0, delta)) for delta in deltas[kept]]
    mirrored = [(1 / a, 1 - 1 / a + h / a) for a, h in zip(alphas, heights, strict=True) if a > 1]
    points = [(Fraction(0), Fraction(1)), *reversed(mirrored), *zip(alphas, heights, strict=True)]
    hull = _lower_hull(points)
    slopes = [(h1 - h0) / (a1 - a0) for (a0, h0), (a1, h1) in pairwise(hull)]
    # Beyond the last point the profile stays where it is, at the mass of infinite losses. With a single point
    # besides (0, 1), there is nothing else.
    slopes.append(Fraction(0))
    q = [after - before for before, after in pairwise(slopes)]
    kinks = [alpha for alpha, _ in hull[1:]]
    atoms = [(alpha, mass) for alpha, mass in zip(kinks, q, strict=True) if mass > 0]
    infinite = float_up(hull[-1][1])
    return AtomLoss(
        np.array([math.log(alpha) for alpha, _ in atoms]),
        np.array([float(alpha * mass) for alpha, mass in atoms]),
        np.array([float(mass) for _, mass in atoms]),
        infinite,
        infinite,
    )


def _lower_hull(points: list[tuple[Fraction, Fraction]]) -> list[tuple[Fraction, Fraction]]:
    """The lower convex hull of points that increase in their first coordinate."""
    hull: list[tuple[Fraction, Fraction]] = []
    for point in points:
        while len(hull) > 1 and _above_chord(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _above_chord(
    left: tuple[Fraction, Fraction], middle: tuple[Fraction, Fraction], right: tuple[Fraction, Fraction]
) -> bool:
    """Whether `middle` lies on or above the chord between its neighbors."""
    (a0, h0), (a1, h1), (a2, h2) = left, middle, right
    return (h1 - h0) * (a2 - a0) >= (h2 - h0) * (a1 - a0)
