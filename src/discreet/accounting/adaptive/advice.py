"""What would fit: the largest amount of a refused event, and how large one more answer may be.

An (ε, δ) budget is kept at several Rényi orders, of which a spend needs one. They tell a reader nothing, so what
remains and what something costs are said here as the ε and δ of one more answer. The filter decides, not these words.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from discreet import events as ev
from discreet.accounting.forms.conversions import gdp_epsilon, pure_to_rdp, rdp_epsilon
from discreet.accounting.forms.pure import pure
from discreet.accounting.tight import epsilon
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import GDP, RDP, ApproxDP, Guarantee, PureDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import exact, infinite

Fits = Callable[[Event], bool]

_MOST_NOISE = 2.0**40
_CLOSE = 1e-6


@dataclass(frozen=True)
class Room:
    """One more answer that an (ε, δ) budget has room for: any that is ε-DP, or Gaussian noise that is (ε, δ)-DP."""

    epsilon: float
    gaussian: ApproxDP

    @classmethod
    def of(cls, left: RDP, delta: float) -> Room:
        """The room where `left` is what remains at each order, of which one has to do. Rounded down to four digits."""
        low, high = 0.0, max(left.epsilons) + 2 * math.sqrt(max(left.epsilons))
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            price = pure_to_rdp(PureDP(middle), left.orders)
            low, high = (middle, high) if _has(left, price) else (low, middle)
        # αμ²/2 is what Gaussian noise costs at the order α.
        mu = math.sqrt(max(2 * part / order for order, part in zip(left.orders, left.epsilons, strict=True)))
        return cls(_four(low), ApproxDP(_four(gdp_epsilon(GDP(mu), delta)), delta))

    def __str__(self) -> str:
        if not (self.epsilon or self.gaussian.epsilon):
            return "nothing"
        normal = f", or {self.gaussian} with Gaussian noise" if self.gaussian.epsilon else ""
        return f"one more answer of up to ε = {self.epsilon:g}{normal}"


def _has(left: RDP, price: RDP) -> bool:
    return any(part <= room for part, room in zip(price.epsilons, left.epsilons, strict=True))


def _four(value: float) -> float:
    return float(_digits(Fraction(value), up=False, digits=4))


def room_words(left: Guarantee, budget: Guarantee) -> str:
    """What remains of `budget` as a person reads it.

    >>> room_words(PureDP(0.5), PureDP(1.0))
    '0.5-DP'
    >>> room_words(RDP((4.0, 4000.0), (0.5, 1.9)), ApproxDP(2.0, 1e-6))
    'one more answer of up to ε = 1.9, or (2.254, 1e-06)-DP with Gaussian noise'
    """
    if isinstance(left, RDP) and isinstance(budget, ApproxDP):
        return str(Room.of(left, budget.delta))
    return str(left)


def price_words(price: Guarantee, event: Event, budget: Guarantee, relation: Relation = ADD_REMOVE) -> str:
    """What `event` costs as a person reads it, rounded up."""
    if not (isinstance(price, RDP) and isinstance(budget, ApproxDP)):
        return str(price)
    with contextlib.suppress(UnknownEvent):
        whole, known = pure(event, relation), epsilon(event, budget.delta, relation).upper
        # A δ that saves next to nothing is left out: who asked for ε = 0.2 reads that it costs 0.2.
        return str(whole if whole.epsilon <= 1.01 * known else ApproxDP(known, budget.delta))
    return str(ApproxDP(rdp_epsilon(price, budget.delta), budget.delta))


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


def _digits(value: Fraction, *, up: bool, digits: int = 7) -> Fraction:
    """`value` to so many significant digits, rounded up or down."""
    if value == 0:
        return value
    size = math.floor(math.log10(value)) - digits + 1
    unit = Fraction(10) ** size
    return (math.ceil(value / unit) if up else max(1, math.floor(value / unit))) * unit
