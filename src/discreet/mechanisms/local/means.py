"""Protocols that estimate the mean of one bounded number of each person.

A value is clamped to public bounds and rounded to a public grid of 2L + 1 levels −L, …, L. From there on everything is
an integer, so that reports are drawn with exactly the stated probabilities and come from a finite set. The estimate is
unbiased for the mean of the clamped and rounded values.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from discreet import _check
from discreet.mechanisms.local.protocol import Protocol, bounded_share, odds_of_disjoint_sets
from discreet.mechanisms.local.reports import Payloads, Reports, bytes_to_integers, integers_to_bytes
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import coins, logistic

#: L: the grid has 2L + 1 levels. Rounding moves a value by at most 1/2L of half the range.
LEVELS = 1 << 11

# Below this ε the one-bit report has the smaller worst-case variance at every mixture (Wang et al. 2019, §III-C).
_HYBRID_FROM = 0.61


@dataclass(frozen=True)
class MeanEstimate:
    """An estimated mean.

    Attributes:
        mean: an unbiased estimate of the mean of the clamped values.
        standard_error: from the spread of the reports; it covers their randomness and that of choosing the people.
        reports: the number of valid reports.
        rejected: the number of reports that were malformed or belong to another protocol.
    """

    mean: float
    standard_error: float
    reports: int
    rejected: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """A range that holds the mean with probability `confidence`, by the normal approximation."""
        tail = float(1 - _check.probability("confidence", confidence, "such as 0.95"))
        half = -float(special.ndtri(tail / 2)) * self.standard_error
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class MeanProtocol(Protocol):
    """The mean of one number of each person, from one randomized report each. Abstract.

    Attributes:
        epsilon: the privacy loss ε of one report.
        bounds: public bounds; values outside are clamped, and missing ones count as the middle.
    """

    bounds: tuple[Fraction, Fraction]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", _check.bounds(self.bounds))
        if self.bounds[0] == self.bounds[1]:
            raise _check.fail("bounds", "have a lower end below the upper", self.bounds, "the mean is known otherwise")

    # --- what each protocol defines

    @abstractmethod
    def encode(self, levels: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        """One randomized payload for each level."""

    @abstractmethod
    def readings(self, payloads: Payloads) -> NDArray[np.float64]:
        """An unbiased estimate of each person's level, as a number in units of L (so that values lie in [−1, 1])."""

    @abstractmethod
    def probability(self, payload: bytes, level: int) -> float:
        """The probability of a payload from a person at a level."""

    @abstractmethod
    def spread(self, level: int) -> float:
        """The exact variance of the reading of a person at a level, in units of L."""

    # --- what all of them share

    def _randomized(self, values: ArrayLike, bits: entropy.Bits) -> Payloads:
        return self.encode(self.levels(values), bits)

    def levels(self, values: ArrayLike) -> NDArray[np.int64]:
        """The level of each value: clamped, scaled and rounded; the middle level 0 for a missing value.

        Guarantee: none: it is what a device computes before it randomizes.
        """
        lower, upper = (float(bound) for bound in self.bounds)
        numbers = np.asarray(values, dtype=np.float64).ravel()
        clamped = np.clip(np.where(np.isnan(numbers), (lower + upper) / 2, numbers), lower, upper)
        scaled = (clamped - lower) / (upper - lower) * (2 * LEVELS) - LEVELS
        return np.clip(np.rint(scaled), -LEVELS, LEVELS).astype(np.int64)

    def estimate(self, reports: Reports | Iterable[bytes]) -> MeanEstimate:
        """The mean. Malformed and foreign reports are rejected and counted.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = self._accepted(reports, at_least=2)
        readings = self.readings(payloads)
        lower, upper = (float(bound) for bound in self.bounds)
        scale, middle = (upper - lower) / 2, (upper + lower) / 2
        error = float(readings.std(ddof=1)) / math.sqrt(readings.size)
        return MeanEstimate(middle + scale * float(readings.mean()), scale * error, readings.size, rejected)

    def influence(self) -> float:
        """The most that one dishonest report can add to the sum of all values, in units of half the range."""
        return float(np.max(np.abs(self.readings(self._extremes()))))

    @abstractmethod
    def _extremes(self) -> Payloads:
        """Payloads with the largest readings."""


@dataclass(frozen=True)
class OneBit(MeanProtocol):
    """One bit: the value rounded at random to one of the bounds, then randomized response (Duchi et al. 2018).

    P(+1) = 1/2 + x(e^ε − 1)/(2(e^ε + 1)) for x ∈ [−1, 1], so ±(e^ε + 1)/(e^ε − 1) is an unbiased reading. The
    worst case of its variance is near the best for ε ≤ 0.61.
    """

    @property
    def bits(self) -> float:
        return 1.0

    @property
    def size(self) -> int:
        return 1

    @property
    def _gain(self) -> float:
        return 1 / math.tanh(self.epsilon / 2)

    def encode(self, levels: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        up = samplers.uniform(2 * LEVELS, levels.size, bits) < levels + LEVELS
        kept = coins(logistic(self.epsilon), levels.size, bits)
        return np.asarray(up == kept, dtype=np.uint8)[:, None]

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return np.asarray(payloads[:, 0] <= 1)

    def readings(self, payloads: Payloads) -> NDArray[np.float64]:
        return np.where(payloads[:, 0] == 1, self._gain, -self._gain)

    def probability(self, payload: bytes, level: int) -> float:
        if payload[0] > 1:
            return 0.0
        return 0.5 + (level if payload[0] else -level) / LEVELS / self._gain / 2

    def spread(self, level: int) -> float:
        return self._gain**2 - (level / LEVELS) ** 2

    def _extremes(self) -> Payloads:
        return np.array([[1]], dtype=np.uint8)


@dataclass(frozen=True)
class Piecewise(MeanProtocol):
    """A number on a wider grid, e^ε times as likely inside a window around the value as outside (Wang et al. 2019).

    On the grid −M, …, M the window of 2w + 1 points is centered at the person's level i, with w/L = (C − 1)/(C + 1) for
    C = (e^{ε/2} + 1)/(e^{ε/2} − 1) as in the continuous form, and M = L + w. The mean of a report is i times a
    constant, which the reading divides by. ε-DP: each point has one of two probabilities, with the ratio e^ε.
    """

    @property
    def _half_window(self) -> int:
        root = math.exp(self.epsilon / 2)
        wide = (root + 1) / (root - 1)
        return max(1, round(LEVELS * (wide - 1) / (wide + 1)))

    @property
    def _reach(self) -> int:
        return LEVELS + self._half_window

    @property
    def bits(self) -> float:
        return math.log2(2 * self._reach + 1)

    @property
    def size(self) -> int:
        return math.ceil((2 * self._reach).bit_length() / 8)

    @property
    def informative(self) -> float:
        return odds_of_disjoint_sets(self.epsilon, 2 * self._half_window + 1, 2 * self._reach + 1)

    @property
    def _outside(self) -> float:
        """The probability of each point outside of the window."""
        inside = 2 * self._half_window + 1
        return 1 / (2 * self._reach + 1 + inside * math.expm1(self.epsilon))

    @property
    def _slope(self) -> float:
        """The mean of a report, per level."""
        return self._outside * math.expm1(self.epsilon) * (2 * self._half_window + 1)

    def encode(self, levels: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        inside, points = 2 * self._half_window + 1, 2 * self._reach + 1
        # e^ε·inside against the points outside: inside with probability e^ε/(e^ε + (points − inside)/inside).
        near = coins(logistic(self.epsilon, Fraction(points - inside, inside)), levels.size, bits)
        within = levels - self._half_window + samplers.uniform(inside, levels.size, bits)
        beyond = samplers.uniform(points - inside, levels.size, bits) - self._reach
        beyond = np.where(beyond >= levels - self._half_window, beyond + inside, beyond)
        return integers_to_bytes(np.where(near, within, beyond) + self._reach, self.size)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return bytes_to_integers(payloads) <= 2 * self._reach

    def readings(self, payloads: Payloads) -> NDArray[np.float64]:
        return np.asarray((bytes_to_integers(payloads) - self._reach) / (self._slope * LEVELS))

    def probability(self, payload: bytes, level: int) -> float:
        point = int.from_bytes(payload, "little") - self._reach
        if point > self._reach:
            return 0.0
        near = abs(point - level) <= self._half_window
        return self._outside * (math.exp(self.epsilon) if near else 1.0)

    def spread(self, level: int) -> float:
        def squares(half: int) -> float:  # Σ j² for |j| ≤ half
            return half * (half + 1) * (2 * half + 1) / 3

        width = self._half_window
        around = squares(width) + (2 * width + 1) * level**2
        second = self._outside * (squares(self._reach) + math.expm1(self.epsilon) * around)
        return (second / self._slope**2 - level**2) / LEVELS**2

    def _extremes(self) -> Payloads:
        return integers_to_bytes(np.array([2 * self._reach]), self.size)


@dataclass(frozen=True)
class Hybrid(MeanProtocol):
    """`Piecewise` with probability 1 − e^{−ε/2}, else `OneBit`; for ε ≤ 0.61 always `OneBit`.

    Wang et al. 2019, §III-C. The choice does not depend on the value and is part of the report, so a mixture of
    ε-DP reports is ε-DP. Its worst-case variance is the smallest of the three.
    """

    @property
    def _parts(self) -> tuple[OneBit, Piecewise]:
        return OneBit(self.epsilon, self.bounds), Piecewise(self.epsilon, self.bounds)

    @property
    def _mixes(self) -> bool:
        return float(self.epsilon) > _HYBRID_FROM

    @property
    def _share(self) -> float:
        """The probability of a piecewise report."""
        return -math.expm1(-self.epsilon / 2) if self._mixes else 0.0

    @property
    def bits(self) -> float:
        return 1 + self._parts[1].bits if self._mixes else 1.0

    @property
    def size(self) -> int:
        return 1 + self._parts[1].size

    @property
    def informative(self) -> float:
        return bounded_share(1 - self._share * (1 - self._parts[1].informative))

    def encode(self, levels: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        coarse, fine = self._parts
        out = np.zeros((levels.size, self.size), dtype=np.uint8)
        chosen = np.zeros(levels.size, dtype=np.bool_)
        if self._mixes:
            chosen = ~samplers.bernoulli_exp(self.epsilon / 2, levels.size, bits)
        out[:, 0] = chosen
        out[~chosen, 1:2] = coarse.encode(levels[~chosen], bits)
        out[chosen, 1:] = fine.encode(levels[chosen], bits)
        return out

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        coarse, fine = self._parts
        plain = (payloads[:, 0] == 0) & coarse.valid(payloads[:, 1:2]) & ~payloads[:, 2:].any(axis=1)
        return np.asarray(plain | ((payloads[:, 0] == 1) & self._mixes & fine.valid(payloads[:, 1:])))

    def readings(self, payloads: Payloads) -> NDArray[np.float64]:
        coarse, fine = self._parts
        return np.where(payloads[:, 0] == 1, fine.readings(payloads[:, 1:]), coarse.readings(payloads[:, 1:2]))

    def probability(self, payload: bytes, level: int) -> float:
        coarse, fine = self._parts
        if payload[0] == 1:
            return self._share * fine.probability(payload[1:], level)
        if payload[0] > 1 or any(payload[2:]):
            return 0.0
        return (1 - self._share) * coarse.probability(payload[1:2], level)

    def spread(self, level: int) -> float:
        coarse, fine = self._parts
        return (1 - self._share) * coarse.spread(level) + self._share * fine.spread(level)

    def _extremes(self) -> Payloads:
        coarse, fine = self._parts
        both = np.zeros((2, self.size), dtype=np.uint8)
        both[0, 1:2] = coarse._extremes()
        both[1, 1:] = fine._extremes()
        both[1, 0] = 1
        return both if self._mixes else both[:1]


def best_mean_for(epsilon: float, bounds: tuple[float, float] = (-1.0, 1.0)) -> MeanProtocol:
    """The protocol with the smallest worst-case variance at this ε."""
    exact = _check.epsilon(epsilon)
    candidates: list[MeanProtocol] = [kind(exact, _check.bounds(bounds)) for kind in (OneBit, Piecewise, Hybrid)]
    return min(candidates, key=lambda protocol: max(protocol.spread(level) for level in (0, LEVELS)))
