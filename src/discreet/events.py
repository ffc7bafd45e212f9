"""Events: records of what was run. Mechanisms emit them, and accountants price them.

An event is a frozen value made of numbers and other events. It holds only public facts (noise, sensitivity, rates,
counts), reads like what happened, and nests:

>>> step = PoissonSampled(rate=0.01, event=Gaussian(noise_multiplier=1.0))
>>> Composed((Repeated(step, 1000), DiscreteLaplace(sensitivity=1, scale=Fraction(10))))
Composed(events=(Repeated(event=PoissonSampled(rate=0.01, event=Gaussian(noise_multiplier=1.0)), count=1000), \
DiscreteLaplace(sensitivity=1, scale=Fraction(10, 1))))

Its numbers are settled when it is made: a number of numpy becomes the Python number that equals it, and a number that
Python cannot hold exactly is refused. So equal events have equal prices, in whatever type their numbers came.

The meaning of an event never changes: a new meaning gets a new event. An accountant that does not know an event raises
`UnknownEvent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from discreet import _check
from discreet.errors import InvalidArgument

# How deeply events may nest. Accountants take up to four calls for each level, and Python allows a thousand.
_DEEPEST = 150


class Event:
    """The base of everything that can be priced. Abstract; every concrete event is a final frozen dataclass."""

    __slots__ = ()

    def parts(self) -> tuple[Event, ...]:
        """The events directly inside this one; empty for a leaf."""
        return ()

    def walk(self) -> Iterator[Event]:
        """This event and all events inside it, outermost first."""
        yield self
        for part in self.parts():
            yield from part.walk()


def _settle_multiplier(event: Event, name: str) -> None:
    remedy = "it is the noise's scale over the sensitivity; no noise at all is events.NonPrivate()"
    _check.settle(event, name, _check.positive, remedy, infinite=True)


def _check_depth(event: Event) -> None:
    """Refuse an event that is nested too deeply for the recursive functions that price it."""
    depth = 1 + max((getattr(part, "_depth", 0) for part in event.parts()), default=0)
    if depth > _DEEPEST:
        remedy = "put the events into one Composed, or raise the count of one Repeated"
        raise _check.fail("event", f"be nested at most {_DEEPEST} deep", f"{depth} levels", remedy)
    object.__setattr__(event, "_depth", depth)  # no field: it is no part of the event's value


def _event(name: str, value: object) -> None:
    if not isinstance(value, Event):
        raise _check.fail(name, "be an event", value, "events are the dataclasses in discreet.events")


# --- additive noise -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise N(0, σ²) on each coordinate of a value with L2 sensitivity Δ₂.

    `noise_multiplier` is σ/Δ₂. Any function of the noisy value, such as rounding it to a grid, has this event too.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _settle_multiplier(self, "noise_multiplier")


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale b on each coordinate of a value with L1 sensitivity Δ₁; `noise_multiplier` is b/Δ₁."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _settle_multiplier(self, "noise_multiplier")


@dataclass(frozen=True)
class L2Laplace(Event):
    """Laplace noise of scale λ on each coordinate of a value with L2 sensitivity Δ₂ (arXiv 2408.07021).

    `noise_multiplier` is λ/Δ₂. `l1_noise_multiplier` is λ/Δ₁ if an L1 bound is also known. `shift` holds the |xᵢ|/λ of
    every coordinate that a neighbor moves, if the neighbors' difference x is known exactly up to sign. Each of them
    makes the price tighter.
    """

    noise_multiplier: float
    l1_noise_multiplier: float | None = None
    shift: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _settle_multiplier(self, "noise_multiplier")
        if self.l1_noise_multiplier is not None:
            _settle_multiplier(self, "l1_noise_multiplier")
        if self.shift is not None:
            _tuple("shift", self.shift)
            _check.settle_each(self, "shift", _check.positive, "it lists |xᵢ|/λ of the coordinates that move")


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """Discrete Gaussian noise on integers: P(x) ∝ exp(−x²/2σ²) (Canonne, Kamath & Steinke 2020).

    `sensitivity_squared` is the integer Δ₂² and `variance` the rational parameter σ², both in grid units.
    `coordinates` is how many coordinates one unit may move: with 1 the price is exact, with more it is a bound.
    """

    sensitivity_squared: int
    variance: Fraction
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check.settle_integers(self, "sensitivity_squared", remedy="it is the integer Δ₂² in grid units")
        _check.settle_integers(self, "coordinates", remedy="it is the number of coordinates that one unit may move")
        _settle_rational(self, "variance")


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Discrete Laplace noise on integers: P(x) ∝ exp(−|x|/b), under an integer L1 sensitivity Δ₁.

    `sensitivity` is Δ₁ and `scale` the rational b, both in grid units: it is Δ₁/b-DP.
    """

    sensitivity: int
    scale: Fraction

    def __post_init__(self) -> None:
        _check.settle_integers(self, "sensitivity", remedy="it is the integer Δ₁ in grid units")
        _settle_rational(self, "scale")


# --- selection and local reports ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exponential(Event):
    """One draw of the exponential mechanism: ε-DP and ε-bounded-range (Durfee & Rogers 2019)."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        _settle_rational(self, "epsilon")


@dataclass(frozen=True)
class NoisyMax(Event):
    """One private arg-max by permute-and-flip: ε-DP (McKenna & Sheldon 2020)."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        _settle_rational(self, "epsilon")


@dataclass(frozen=True)
class SparseVector(Event):
    """A whole above-threshold run that stops after `answers` positive answers: ε-DP (Lyu, Su & Li 2017)."""

    epsilon: Fraction
    answers: int = 1

    def __post_init__(self) -> None:
        _settle_rational(self, "epsilon")
        _check.settle_integers(self, "answers", remedy="the run stops after this many positive answers")


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """A local report: the truth with probability e^ε/(e^ε + k − 1), else one of the other k − 1 categories."""

    epsilon: Fraction
    categories: int = 2

    def __post_init__(self) -> None:
        _settle_rational(self, "epsilon")
        _check.settle_integers(self, "categories", remedy="a report chooses among them", at_least=2)


# --- claims -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claimed(Event):
    """Something that is (ε, δ)-DP by an external proof; nothing more is known about it."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        _check.settle(self, "epsilon", _check.nonnegative, "it is the ε that was proved")
        _check.settle(self, "delta", _check.probability, "it is the δ that was proved")


@dataclass(frozen=True)
class MayFail(Event):
    """`event`, except with `probability`: then everything about everyone may be revealed, whatever the data are.

    Its price at ε is δ = p + (1 − p)·δ(ε) of the event, exactly. It stands for mechanisms that can break down, such
    as one whose noise is drawn correctly with probability 1 − p only.
    """

    probability: float
    event: Event

    def __post_init__(self) -> None:
        remedy = "it is the probability that everything is revealed"
        _check.settle(self, "probability", _check.probability, remedy)
        _event("event", self.event)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class NonPrivate(Event):
    """A release without any guarantee. Its price is infinite."""


@dataclass(frozen=True)
class Insecure(Event):
    """`event`, run with reproducible noise. Whoever knows the seed can remove the noise, so the price is infinite."""

    event: Event

    def __post_init__(self) -> None:
        _event("event", self.event)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


# --- sampling -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoissonSampled(Event):
    """`event` on a batch that each unit joins independently with probability `rate`."""

    rate: float
    event: Event

    def __post_init__(self) -> None:
        _check.settle(self, "rate", _check.probability, "it is the probability that one unit joins a batch")
        _event("event", self.event)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class SampledWithoutReplacement(Event):
    """`event` on a uniformly random subset of exactly `size` of `population` units."""

    size: int
    population: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "population", remedy="it is the public number of units")
        _check.settle_integers(self, "size", remedy="it is the number of units in a batch", at_most=self.population)
        _event("event", self.event)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class Shuffled(Event):
    """`reports` local reports, each made by `event` on one unit's data, released in random order without names."""

    reports: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "reports", remedy="it is the public number of reports that are shuffled together")
        _event("event", self.event)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class ShuffledEpoch(Event):
    """One pass over `examples` units in random order, `event` on each batch of `batch_size` in turn.

    Each unit is in exactly one batch, so the epoch is not a sequence of Poisson samples and gets no amplification.
    """

    batch_size: int
    examples: int
    event: Event

    def __post_init__(self) -> None:
        _check.settle_integers(self, "examples", remedy="it is the public number of units in an epoch")
        _check.settle_integers(self, "batch_size", remedy="it is the number of units in a batch", at_most=self.examples)
        _event("event", self.event)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


# --- composition --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repeated(Event):
    """`event`, `count` times, each with fresh randomness."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        _event("event", self.event)
        _check.settle_integers(self, "count", remedy="it is the number of times the event runs", at_least=0)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


@dataclass(frozen=True)
class Composed(Event):
    """All of `events` on the same data, fixed in advance."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _tuple("events", self.events)
        for part in self.events:
            _event("events", part)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return self.events


@dataclass(frozen=True)
class Parallel(Event):
    """Each of `events` on its own part of the data; the parts are disjoint and every unit lies in one part."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        _tuple("events", self.events)
        for part in self.events:
            _event("events", part)
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return self.events


@dataclass(frozen=True)
class Group(Event):
    """`event`, priced for `people` units that change together instead of one."""

    event: Event
    people: int

    def __post_init__(self) -> None:
        _event("event", self.event)
        _check.settle_integers(self, "people", remedy="it is the number of units that change together")
        _check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


def is_secure(event: Event) -> bool:
    """Whether no part of `event` was run with reproducible noise.

    >>> is_secure(Repeated(Insecure(Gaussian(1.0)), 3))
    False
    """
    return not any(isinstance(part, Insecure) for part in event.walk())


def _tuple(name: str, value: object) -> None:
    if not isinstance(value, tuple):
        raise _check.fail(name, "be a tuple", value, "events hold only immutable values")


def _settle_rational(event: Event, name: str) -> None:
    value = getattr(event, name)
    if not isinstance(value, Fraction):
        raise _check.fail(name, "be a fractions.Fraction", value, "exact mechanisms carry exact numbers")
    if value <= 0:
        raise InvalidArgument(f"{name} must be > 0, got {value}: it is a parameter of the mechanism")
    object.__setattr__(event, name, _check.number(name, value, "it is a parameter of the mechanism"))
