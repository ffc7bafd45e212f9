"""The price of correlated noise: Gaussian noise over the sensitivity of the encoder, or samples of cyclic groups.

For Gaussian noise the steps may depend on earlier releases if the encoder is lower triangular, that is, if no release
uses a later step (Denisov et al. 2022, arXiv 2202.08312). Proofs, also of this: docs/proofs/correlated-noise.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from discreet.accounting import correlation
from discreet.accounting.correlation import SensitivityBounds
from discreet.accounting.losses.collapse import ACCOUNTANT
from discreet.accounting.losses.composed import Losses
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.prices.reduced import losses_of
from discreet.accounting.refusal import unknown
from discreet.events import (
    BufferedNoise,
    CyclicSampled,
    Event,
    Gaussian,
    PoissonSampled,
    Repeated,
    SquareRootNoise,
    ToeplitzNoise,
    TreeNoise,
)
from discreet.neighbors import REPLACE_ONE, Relation
from discreet.numeric.rounding import UNIT, Floats, exact, float_down, infinite

if TYPE_CHECKING:
    from discreet.accounting.losses.of_events import View

CorrelatedEvent = ToeplitzNoise | SquareRootNoise | BufferedNoise | TreeNoise

# Sensitivities that are remembered: accountants ask for the same one several times, and sums over steps take a while.
_REMEMBERED = 256


def sensitivity(event: CorrelatedEvent) -> SensitivityBounds:
    """How far one unit can move the encoded stream, if it moves each step by at most 1: certified bounds.

    >>> sensitivity(ToeplitzNoise(1.0, (1.0,), steps=100, participations=4, separation=10))[0] > 1.9999999
    True
    """
    match event:
        case TreeNoise(_, branching, steps, participations, separation):
            return correlation.tree(branching, steps, participations, separation)
        case ToeplitzNoise(_, coefficients, steps, participations, separation):
            return _toeplitz(event, ("given", coefficients), steps, participations, separation)
        case SquareRootNoise(_, bands, steps, participations, separation):
            return _toeplitz(event, ("square root", bands), steps, participations, separation)
        case BufferedNoise(_, scales, decays, steps, participations, separation):
            return _toeplitz(event, ("buffered", scales, decays), steps, participations, separation)


def _toeplitz(
    event: Event, factor: tuple[object, ...], steps: int, participations: int, separation: int
) -> SensitivityBounds:
    if steps > correlation.MOST_STEPS:
        why = f"its sensitivity is summed over at most {correlation.MOST_STEPS} steps"
        raise unknown(event, ACCOUNTANT, why)
    return _summed(factor, steps, participations, separation)


@lru_cache(maxsize=_REMEMBERED)
def _summed(factor: tuple[object, ...], steps: int, participations: int, separation: int) -> SensitivityBounds:
    column, error = _column(factor, steps)
    return correlation.toeplitz(column, steps, participations, separation, relative_error=error)


def _column(factor: tuple[object, ...], steps: int) -> tuple[Floats, float]:
    """The first column of a Toeplitz encoder, and a bound on the relative error of its entries."""
    match factor:
        case ("given", tuple(coefficients)):
            return np.array([float(c) for c in coefficients]), UNIT
        case ("square root", int(bands)):
            return correlation.square_root_coefficients(bands), correlation.square_root_error(bands)
        case ("buffered", tuple(scales), tuple(decays)):
            column = correlation.buffered_coefficients(scales, decays, steps)
            # A decay that no float holds is rounded, and its power magnifies that.
            rounded = any(exact(decay) != exact(float(decay)) for decay in decays)
            return column, correlation.buffered_error(len(scales)) + (steps * 2 * UNIT if rounded else 0.0)
    raise AssertionError(factor)


class CorrelatedPrice(EventPrices):
    """Correlated noise in which a unit's steps are known: one Gaussian release of the encoded stream."""

    has_losses = True

    def simpler(self, event: CorrelatedEvent, relation: Relation, accountant: str) -> Event:
        # A replaced unit may have its steps elsewhere: then it is one unit removed and another one added.
        moved = (2 if relation is REPLACE_ONE else 1) * sensitivity(event)[1]
        return Gaussian(_multiplier(event.noise_multiplier, moved))

    def losses(self, event: CorrelatedEvent, view: View) -> Losses:
        if infinite(event.noise_multiplier):
            return Losses()
        moved = sensitivity(event)[1 if view.upper else 0] / float(event.noise_multiplier)
        if view.upper and view.relation is REPLACE_ONE:
            moved *= 2
        return Losses(mu_squared=moved**2, exact=False)


class CyclicPrice(EventPrices):
    """Poisson samples of cyclic groups, whose steps are at least as far apart as the encoder has bands.

    Then the columns of a unit's steps do not overlap, and each step is a Gaussian release of one column, on a sample of
    its own (Choquette-Choo et al. 2023, arXiv 2306.08153; proof: docs/proofs/correlated-noise.md, section 4).
    """

    has_losses = True

    def simpler(self, event: CyclicSampled, relation: Relation, accountant: str) -> Event:
        if relation is REPLACE_ONE:
            raise unknown(event, accountant, "a replaced unit may leave one group and join another")
        inner, bands = _banded(event)
        if bands > event.groups:
            why = f"its encoder has {bands} bands, but one unit's steps are only {event.groups} apart"
            raise unknown(event, accountant, why)
        if bands > correlation.MOST_STEPS:
            raise unknown(event, accountant, f"its columns are summed over at most {correlation.MOST_STEPS} bands")
        return self._steps(event, _column_norm(inner, bands)[1], inner.participations)

    def losses(self, event: CyclicSampled, view: View) -> Losses:
        simple = self.simpler(event, view.relation, ACCOUNTANT)
        if not view.upper:
            # The column of the last step of a group may be cut off by the end.
            inner, bands = _banded(event)
            whole = max(0, (inner.steps - bands) // event.groups + 1)
            simple = self._steps(event, _column_norm(inner, bands)[0], whole)
        return losses_of(simple, event, view)

    def _steps(self, event: CyclicSampled, norm: float, count: int) -> Event:
        step = Gaussian(_multiplier(_banded(event)[0].noise_multiplier, norm))
        return Repeated(PoissonSampled(event.rate, step), count)


def _banded(event: CyclicSampled) -> tuple[ToeplitzNoise | SquareRootNoise, int]:
    """The noise of an event on cyclic groups, and the number of its bands."""
    match event.event:
        case SquareRootNoise() as inner:
            return inner, inner.bands
        case ToeplitzNoise() as inner:
            return inner, len(inner.coefficients)
    raise AssertionError(event)


def _column_norm(event: ToeplitzNoise | SquareRootNoise, bands: int) -> SensitivityBounds:
    """Bounds on the norm of the first column, which is the largest."""
    factor = ("square root", event.bands) if isinstance(event, SquareRootNoise) else ("given", event.coefficients)
    return _summed(factor, bands, 1, 1)


def _multiplier(noise_multiplier: float, norm: float) -> float:
    """σ/Δ, rounded down."""
    return math.inf if infinite(noise_multiplier) else float_down(exact(noise_multiplier) / exact(norm))
