"""What people are told when a budget is short: what remains, and the largest amount of a refused event that fits.

The filter decides what fits; this module searches with it and puts the result into words. The words speak of ε, the
number that was asked for, and never of events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from discreet import events as ev
from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.adaptive.room import significant
from discreet.accounting.prices.price import is_priced, price_of
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import exact, infinite

Fits = Callable[[Event], bool]

# The search for more noise ends here: an event that does not fit with a trillion times its noise fits with none.
_MOST_NOISE = 2.0**40
_FIRST_FACTOR, _NEXT_FACTOR = 2.0, 4
# The factor on the noise is found to within this, relatively, and noise is then rounded to the same precision.
_CLOSE = 1e-6
_DIGITS = 7


def room_words(left: Guarantee, budget: Guarantee) -> str:
    """What remains of `budget`, as a person reads it.

    >>> from discreet.guarantees import RDP, ApproxDP, PureDP
    >>> room_words(PureDP(0.5), PureDP(1.0))
    '0.5-DP'
    >>> room_words(RDP((4.0, 4000.0), (0.5, 1.9)), ApproxDP(2.0, 1e-6))
    'one more answer of up to ε = 1.9, or (2.254, 1e-06)-DP with Gaussian noise'
    """
    return form_of(budget).room_words(left)


def largest(event: Event, fits: Fits) -> Event | None:
    """The same event, as much of it as fits: fewer repetitions, or else more noise; None if no amount fits."""
    if isinstance(event, ev.Repeated):
        fewer = _repetitions(event, fits)
        if fewer > 0:
            return replace(event, count=fewer)
    return _noisier(event, fits)


def words(event: Event, amount: Event | None, budget: Guarantee, relation: Relation = ADD_REMOVE) -> str:
    """The advice as the end of a sentence.

    >>> from discreet.guarantees import ApproxDP
    >>> words(ev.Laplace(1.0), ev.Laplace(8.0), ApproxDP(1.0, 1e-6))
    'the largest that fits is about ε = 0.125'
    """
    if amount is None:
        return "no amount of it fits"
    if isinstance(event, ev.Repeated) and isinstance(amount, ev.Repeated) and amount.event == event.event:
        return f"the largest that fits is {amount.count} of these {event.count} repetitions"
    size = form_of(budget).size_words(amount, relation)
    return f"the largest that fits is about {size}" if size else "a smaller amount of it fits"


def _repetitions(event: ev.Repeated, fits: Fits) -> int:
    """The largest number of repetitions that fit, fewer than asked for; 0 if not even one does."""
    low, high = 0, event.count
    while high - low > 1:
        middle = (low + high) // 2
        if fits(replace(event, count=middle)):
            low = middle
        else:
            high = middle
    return low


def _noisier(event: Event, fits: Fits) -> Event | None:
    """The event with its noise scaled up by as little as it takes."""
    low, high = 1.0, _FIRST_FACTOR
    while (noisier := _scaled(event, high)) is not None and not fits(noisier):
        if high > _MOST_NOISE:
            return None
        low, high = high, high * _NEXT_FACTOR
    if noisier is None:
        return None
    while high / low > 1 + _CLOSE:
        middle = math.sqrt(low * high)
        closer = _scaled(event, middle)
        if closer is not None and fits(closer):
            high, noisier = middle, closer
        else:
            low = middle
    return noisier


def _scaled(event: Event, factor: float) -> Event | None:
    """`event` with `factor` times the noise, rounded up to seven digits; None if it has no noise to scale."""
    match event:
        case ev.Gaussian(multiplier) | ev.Laplace(multiplier):
            return replace(event, noise_multiplier=_more(multiplier, factor))
        case ev.ToeplitzNoise() | ev.SquareRootNoise() | ev.BufferedNoise() | ev.TreeNoise():
            return replace(event, noise_multiplier=_more(event.noise_multiplier, factor))
        case ev.L2Laplace(multiplier, by_l1, shift):
            return ev.L2Laplace(
                _more(multiplier, factor),
                None if by_l1 is None else _more(by_l1, factor),
                None if shift is None else tuple(_less(distance, factor) for distance in shift),
            )
        case ev.DiscreteGaussian(_, variance):
            return replace(event, variance=_rational(variance, factor**2, up=True))
        case ev.DiscreteLaplace(_, scale):
            return replace(event, scale=_rational(scale, factor, up=True))
        case ev.Exponential(epsilon) | ev.NoisyMax(epsilon) | ev.SparseVector(epsilon) | ev.RandomizedResponse(epsilon):
            return replace(event, epsilon=_rational(epsilon, 1 / factor, up=False))
        case ev.Claimed(epsilon):
            return replace(event, epsilon=_less(epsilon, factor))
        case (
            ev.PoissonSampled(event=inner)
            | ev.SampledWithoutReplacement(event=inner)
            | ev.Shuffled(event=inner)
            | ev.ShuffledEpoch(event=inner)
            | ev.TruncatedPoissonSampled(event=inner)
            | ev.CyclicSampled(event=inner)
            | ev.MayFail(event=inner)
            | ev.SelectedFromRepeats(event=inner)
            | ev.Repeated(event=inner)
            | ev.Group(event=inner)
        ):
            scaled = _scaled(inner, factor)
            return None if scaled is None else replace(event, event=scaled)
        case ev.Composed(parts) | ev.Parallel(parts):
            scaled_parts = tuple(noisier for part in parts if (noisier := _scaled(part, factor)) is not None)
            return replace(event, events=scaled_parts) if parts and len(scaled_parts) == len(parts) else None
        case _ if is_priced(event):
            return price_of(event, "advice").scaled(event, factor)
        case _:
            return None


def _more(value: float, factor: float) -> float:
    return value if infinite(value) else float(significant(exact(value) * Fraction(factor), _DIGITS, up=True))


def _less(value: float, factor: float) -> float:
    return float(significant(exact(value) / Fraction(factor), _DIGITS, up=False))


def _rational(value: Fraction, factor: float, *, up: bool) -> Fraction:
    return significant(value * Fraction(factor), _DIGITS, up=up)
