"""What would fit: the largest amount of a refused event that a budget still has room for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from discreet import events as ev
from discreet.accounting.rounding import exact, infinite
from discreet.events import Event

Fits = Callable[[Event], bool]

_MOST_NOISE = 2.0**40
_CLOSE = 1e-6


def largest(event: Event, fits: Fits) -> Event | None:
    """The same event, as much of it as fits: fewer repetitions, or else more noise; None where no amount fits."""
    if isinstance(event, ev.Repeated):
        fewer = _repetitions(event, fits)
        if fewer > 0:
            return replace(event, count=fewer)
    return _noisier(event, fits)


def words(event: Event, amount: Event | None) -> str:
    """The advice as the end of a sentence."""
    if amount is None:
        return "no amount of it fits"
    if isinstance(event, ev.Repeated) and isinstance(amount, ev.Repeated) and amount.event == event.event:
        return f"the largest that fits is {amount.count} of these {event.count} repetitions"
    return f"the largest that fits is {amount!r}"


def _repetitions(event: ev.Repeated, fits: Fits) -> int:
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
    low, high = 1.0, 2.0
    while (found := _scaled(event, high)) is not None and not fits(found):
        if high > _MOST_NOISE:
            return None
        low, high = high, high * 4
    if found is None:
        return None
    while high / low > 1 + _CLOSE:
        middle = math.sqrt(low * high)
        closer = _scaled(event, middle)
        if closer is not None and fits(closer):
            high, found = middle, closer
        else:
            low = middle
    return found


def _scaled(event: Event, factor: float) -> Event | None:
    """`event` with `factor` times the noise, rounded to more noise at six digits; None where it has no noise."""
    match event:
        case ev.Gaussian(multiplier) | ev.Laplace(multiplier):
            return replace(event, noise_multiplier=_more(multiplier, factor))
        case ev.L2Laplace(multiplier, by_l1, shift):
            return ev.L2Laplace(
                _more(multiplier, factor),
                None if by_l1 is None else _more(by_l1, factor),
                None if shift is None else tuple(_less(part, factor) for part in shift),
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
            | ev.Repeated(event=inner)
            | ev.Group(event=inner)
        ):
            scaled = _scaled(inner, factor)
            return None if scaled is None else replace(event, event=scaled)
        case ev.Composed(parts) | ev.Parallel(parts):
            several = [_scaled(part, factor) for part in parts]
            known = tuple(part for part in several if part is not None)
            return replace(event, events=known) if known and len(known) == len(several) else None
        case _:
            return None


def _more(value: float, factor: float) -> float:
    return value if infinite(value) else float(_digits(exact(value) * Fraction(factor), up=True))


def _less(value: float, factor: float) -> float:
    return float(_digits(exact(value) / Fraction(factor), up=False))


def _rational(value: Fraction, factor: float, *, up: bool) -> Fraction:
    return _digits(value * Fraction(factor), up=up)


def _digits(value: Fraction, *, up: bool) -> Fraction:
    """`value` to six significant digits, rounded up or down."""
    if value == 0:
        return value
    size = math.floor(math.log10(value)) - 6
    unit = Fraction(10) ** size
    return (math.ceil(value / unit) if up else max(1, math.floor(value / unit))) * unit
