"""Discrete noise with too many atoms to sum one by one, or in several coordinates, compared with continuous noise.

A discrete Gaussian of variance σ² lies between two Gaussians, up to factors e^{±λ} on its masses with λ < 1e-16: of
variance σ² − s², from which it can be made, and of variance σ² + s², which can be made from it. Here s² is 2 or 3, so ε
is known to a part of about s²/σ². Proofs: docs/proofs/discrete-gaussians.md, and docs/proofs/pld-discretization.md for
Laplace noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from discreet.accounting.losses.collapse import ACCOUNTANT
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.continuous import ContinuousLoss, LaplaceShift
from discreet.accounting.refusal import unknown
from discreet.events import DiscreteGaussian, DiscreteLaplace
from discreet.numeric.rounding import float_down, float_up

#: Discrete noise with more atoms than this is not summed one by one.
MOST_ATOMS = 200_000
# (reach/σ)² of `atoms.discrete_gaussian`, 2·690 and a little more.
_ATOM_REACH_SQUARED = 1400
# The least variance that is compared with a Gaussian, where the comparison costs 3% of ε; and s², below and from the
# second number on.
_LEAST_VARIANCE, _LARGE_VARIANCE = 32, 4096
_SMALL_SPREAD, _SPREAD = 2, 3
# λ over e^{−2π²r²}: ln((1 + e)/(1 − e)) ≤ 2.1e, with e ≤ 2.0001 e^{−2π²r²}.
_LOG_FACTOR = 4.3

# ln((1 + x)/(1 − x)) ≤ 2.1 x for every ratio x that is accepted; a larger one means noise far below the sensitivity.
_LOG_RATIOS = 2.1
_MOST_LAPLACE_RATIO = 0.05


def gaussian(leaf: DiscreteGaussian, *, upper: bool) -> Losses | None:
    """The Gaussian that bounds a discrete one; None where the atoms of one coordinate are few, or σ² is small.

    From below, one coordinate moves alone: several cannot all move by more than it does.
    """
    moved = min(leaf.coordinates, leaf.sensitivity_squared) if upper else 1
    squared, variance = leaf.sensitivity_squared, leaf.variance
    if moved == 1:
        shift = math.isqrt(squared)
        if math.sqrt(float(variance) * _ATOM_REACH_SQUARED) + shift < MOST_ATOMS / 2:
            return None
        squared = shift * shift
    if variance < _LEAST_VARIANCE:
        if moved > 1:
            return None
        raise unknown(leaf, ACCOUNTANT, "its noise is far smaller than its sensitivity: choose more noise")
    spread = _SMALL_SPREAD if variance < _LARGE_VARIANCE else _SPREAD
    if upper:
        mu_squared, root = float_up(Fraction(squared) / (variance - spread)), float(spread)
    else:
        mu_squared, root = float_down(Fraction(squared) / (variance + spread)), spread / (1 + spread / float(variance))
    factor = moved * _LOG_FACTOR * math.exp(-2 * math.pi**2 * root)
    return Losses(mu_squared=mu_squared, shift=2 * factor, inflation=factor, exact=False)


def laplace(leaf: DiscreteLaplace, *, upper: bool) -> Losses:
    """A discrete Laplace too wide to sum, as a Laplace rounded to integers."""
    scale = float(leaf.scale)
    ratio = 0.3 / scale + 0.3 / scale**2  # the κ of the proof
    if ratio > _MOST_LAPLACE_RATIO:
        raise unknown(leaf, ACCOUNTANT, "its ε is above 30000: choose a larger scale")
    moved = _LOG_RATIOS * ratio + (0.0 if upper else 2 / scale)
    epsilon = float(leaf.sensitivity / leaf.scale)
    return replace(Losses.of(ContinuousLoss(LaplaceShift(epsilon))), shift=moved, inflation=ratio, exact=False)
