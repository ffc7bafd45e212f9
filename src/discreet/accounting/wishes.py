"""What somebody wants from a budget: counts with an error, a training with a noise, a selection with an error.

A wish knows the event that fulfills it at any error. `accounting.allocate` decides which error the budget can pay for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from scipy import special

from discreet import _check
from discreet import events as ev
from discreet.accounting.adaptive.room import significant
from discreet.events import Event

NoiseName = Literal["laplace", "gaussian"]

# Digits of a scale or an ε that is found: enough that rounding does not show, few enough to read.
_DIGITS = 7
# Halvings of the search for a scale, which is then rounded to `_DIGITS`.
_HALVINGS = 60
# Discrete Gaussian noise is summed up to this standard deviation, out to this many of them; P beyond is below 1e-80.
_MOST_SUMMED, _REACH = 1e4, 20.0
# Wider noise is bounded by its continuous form, one step further out: a sum of a falling function is at most the
# integral from one step before, and the normalizer of the discrete noise is at least σ√(2π).
_STEP = 1
# The largest error or noise that is searched for.
_LARGEST = 1e15


@dataclass(frozen=True)
class Wish(ABC):
    """What one part of a plan should achieve.

    Attributes:
        name: what it is called in tables.
        error: what is wanted: the largest error, or for a training the noise multiplier.
        weight: how much it matters. If not all wishes fit, one of weight 2 gives way half as much as one of weight 1.
    """

    name: str
    error: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        remedy = "it names the wish in tables"
        if not isinstance(self.name, str) or not self.name:
            raise _check.fail("name", "be a text", self.name, remedy)
        _check.positive("error", self.error, "it is the error that is wanted")
        _check.positive("weight", self.weight, "a larger one gives way less if not all wishes fit")
        self._check()

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def at(self, error: float) -> Event:
        """The event whose error is at most `error`."""

    @property
    @abstractmethod
    def quantity(self) -> str:
        """What the error is, in words."""


@dataclass(frozen=True)
class CountWish(Wish):
    """A count whose noise is at most `error` with probability `confidence`.

    Attributes:
        sensitivity: how far one unit can move the count.
        times: how many such counts there are, each on the whole data.
        noise: discrete Laplace or discrete Gaussian noise.
        confidence: how sure the error is, for each count.

    >>> round(float(CountWish("households", 20.0).at(20.0).scale), 3)
    6.849
    """

    sensitivity: int = 1
    times: int = 1
    noise: NoiseName = "laplace"
    confidence: float = 0.95

    def _check(self) -> None:
        _check.integer("sensitivity", self.sensitivity, "it is how far one unit moves the count")
        _check.integer("times", self.times, "it is how many such counts there are")
        _check.one_of("noise", self.noise, ("laplace", "gaussian"), "it is the noise that is added")
        _confidence(self.confidence)

    def at(self, error: float) -> Event:
        """The discrete noise of the largest scale that stays within `error`."""
        outside = 1 - self.confidence
        first = math.floor(error) + 1  # noise is an integer: it exceeds the error from here on
        tail = _laplace_tail if self.noise == "laplace" else _gaussian_tail
        low, high = 0.0, min(2.0 * error + 1, _LARGEST)
        while tail(high, first) <= outside and high < _LARGEST:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if tail(middle, first) <= outside else (low, middle)
        scale = significant(Fraction(low), _DIGITS, up=False)
        event: Event = (
            ev.DiscreteLaplace(self.sensitivity, scale)
            if self.noise == "laplace"
            else ev.DiscreteGaussian(self.sensitivity**2, scale**2)
        )
        return event if self.times == 1 else ev.Repeated(event, self.times)

    @property
    def quantity(self) -> str:
        return f"error, {100 * self.confidence:g}%"


@dataclass(frozen=True)
class TrainingWish(Wish):
    """A training by DP-SGD on Poisson batches, whose noise multiplier is at most `error`.

    Attributes:
        examples: how many examples there are; a public number.
        batch_size: how many of them a batch has on average.
        steps: how many steps are made.
    """

    examples: int = 0
    batch_size: int = 0
    steps: int = 0

    def _check(self) -> None:
        _check.integer("examples", self.examples, "it is the public number of examples")
        _check.integer("batch_size", self.batch_size, "a batch is a subset of the examples", at_most=self.examples)
        _check.integer("steps", self.steps, "it is the number of steps")

    def at(self, error: float) -> Event:
        """The training whose noise multiplier is `error`, rounded down."""
        noise = float(significant(Fraction(error), _DIGITS, up=False))
        return ev.Repeated(ev.PoissonSampled(self.batch_size / self.examples, ev.Gaussian(noise)), self.steps)

    @property
    def quantity(self) -> str:
        return "noise multiplier"


@dataclass(frozen=True)
class SelectionWish(Wish):
    """The best of some candidates, off by at most `error` in score with probability `confidence`.

    The exponential mechanism misses the best score by more than (2Δ/ε)·ln(k/β) with probability at most β (McSherry &
    Talwar 2007; Dwork & Roth 2014, Corollary 3.12).

    Attributes:
        candidates: k, how many there are to choose from.
        sensitivity: Δ, how far one unit can move a score.
        confidence: how sure the error is, 1 − β.
    """

    candidates: int = 2
    sensitivity: float = 1.0
    confidence: float = 0.95

    def _check(self) -> None:
        _check.integer("candidates", self.candidates, "it is how many there are to choose from", at_least=2)
        _check.positive("sensitivity", self.sensitivity, "it is how far one unit moves a score")
        _confidence(self.confidence)

    def at(self, error: float) -> Event:
        """The exponential mechanism with the smallest ε that stays within `error`."""
        epsilon = 2 * self.sensitivity * math.log(self.candidates / (1 - self.confidence)) / error
        return ev.Exponential(significant(Fraction(epsilon), _DIGITS, up=True))

    @property
    def quantity(self) -> str:
        return f"score error, {100 * self.confidence:g}%"


def _confidence(value: float) -> None:
    exact = _check.real("confidence", value, "such as 0.95")
    if not 0 < exact < 1:
        raise _check.fail("confidence", "lie between 0 and 1", value, "such as 0.95")


def _laplace_tail(scale: float, first: int) -> float:
    """P(|X| ≥ first) of discrete Laplace noise: 2r^k/(1 + r) with r = e^{−1/b}."""
    if scale <= 0:
        return 0.0
    return 2 * math.exp(-first / scale) / (1 + math.exp(-1 / scale))


def _gaussian_tail(sigma: float, first: int) -> float:
    """P(|X| ≥ first) of discrete Gaussian noise, summed, or bounded by the continuous noise."""
    if sigma <= 0:
        return 0.0
    if sigma > _MOST_SUMMED:
        return 2 * float(special.ndtr(-(first - _STEP) / sigma))
    x = np.arange(0.0, math.ceil(_REACH * sigma) + 2)
    weights = np.exp(-x * x / (2 * sigma * sigma))
    total = 2 * float(np.sum(weights)) - 1.0
    return 2 * float(np.sum(weights[first:])) / total
