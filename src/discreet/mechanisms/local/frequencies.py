"""The base of protocols that estimate how many people hold each category (frequency oracles).

All of them follow one scheme (Wang, Blocki, Li & Jha 2017, "pure" protocols): a report supports some categories; it
supports the person's own with probability p and any other with probability q < p. If c of n reports support a category,
its share is estimated as (c/n − q)/(p − q), without bias, whatever the other shares are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from discreet import _check
from discreet.mechanisms.local.protocol import Protocol
from discreet.mechanisms.local.reports import Payloads, Reports
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import coins, logistic
from discreet.mechanisms.sampling.response import response
from discreet.queries.statistics.histogram import categorized

Floats = NDArray[np.float64]

# Reports that are encoded at once: their arrays fit in the processor's cache.
_BLOCK = 1 << 15
# Up to this many values, randomized response takes one 16-bit word; with more, too many words would lie at a cut.
_FEW = 32


@dataclass(frozen=True)
class Influence:
    """The most that one dishonest device can change, in persons.

    Attributes:
        category: how many persons one report can add to (or take from) the count of one category.
        total: the sum of these over all categories.
    """

    category: float
    total: float


@dataclass(frozen=True, eq=False)
class FrequencyEstimate:
    """Estimated shares, with errors that cover the randomness of the reports.

    Attributes:
        categories: the public categories.
        shares: unbiased estimates of the shares; they may be negative or exceed 1.
        standard_errors: their standard errors.
        reports: the number of valid reports.
        rejected: the number of reports that were malformed or belong to another protocol.
        influence: how many persons one dishonest report can add to, or take from, the count of a category.
    """

    categories: tuple[Any, ...]
    shares: Floats
    standard_errors: Floats
    reports: int
    rejected: int
    influence: float

    @property
    def counts(self) -> Floats:
        """The estimated number of persons in each category."""
        return self.shares * self.reports

    def intervals(self, confidence: float = 0.95, dishonest: int = 0) -> tuple[Floats, Floats]:
        """Ranges that hold all shares at once with probability `confidence`.

        They use the normal approximation of the number of supporting reports, which is a sum of independent coins, and
        divide the error probability among the categories (Bonferroni).

        Args:
            confidence: the probability that all ranges hold.
            dishonest: ranges that hold even if this many devices sent whatever they liked. Such a device moves a count
                by at most `influence`, and what its owner holds is missing from it.
        """
        tail = float(1 - _check.probability("confidence", confidence, "such as 0.95")) / len(self.categories)
        devices = _check.integer("dishonest", dishonest, "it is the number of devices that may lie", at_least=0)
        half = -special.ndtri(tail / 2) * self.standard_errors + devices * (self.influence + 1) / self.reports
        return self.shares - half, self.shares + half

    def projected(self) -> Floats:
        """The nearest shares that are nonnegative and add up to 1: free post-processing, with a small bias.

        The Euclidean projection onto the simplex (Wang et al. 2020 call it Norm-Sub).
        """
        descending = np.sort(self.shares)[::-1]
        excess = np.cumsum(descending) - 1
        counts = np.arange(1, len(descending) + 1)
        kept = int(np.flatnonzero(descending - excess / counts > 0)[-1])
        return np.asarray(np.maximum(self.shares - excess[kept] / (kept + 1), 0.0))


@dataclass(frozen=True)
class FrequencyProtocol(Protocol):
    """How often each of some public categories occurs among people who send one randomized report each. Abstract.

    Attributes:
        epsilon: the privacy loss ε of one report.
        categories: the public categories. Any other answer is replaced by a uniformly random category.
    """

    categories: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "categories", tuple(self.categories))
        categorized([], self.categories)  # refuses missing and repeated categories
        if len(self.categories) < 2:
            raise _check.fail("categories", "be at least two", len(self.categories), "a report chooses among them")

    # --- what each protocol defines

    @property
    @abstractmethod
    def truth(self) -> float:
        """p: the probability that a report supports the person's own category."""

    @property
    @abstractmethod
    def noise(self) -> float:
        """q: the probability that a report supports another category."""

    @abstractmethod
    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        """One randomized payload for each position in `categories`."""

    @abstractmethod
    def support(self, payloads: Payloads) -> NDArray[np.int64]:
        """How many of the valid payloads support each category."""

    @abstractmethod
    def probability(self, payload: bytes, held: int) -> float:
        """The probability of a payload from a person who holds the category at position `held`."""

    @abstractmethod
    def influence(self) -> Influence:
        """The most that one dishonest device can change."""

    # --- what all of them share

    def _randomized(self, values: ArrayLike, bits: entropy.Bits) -> Payloads:
        held, labels = categorized(values, self.categories)
        held = held.astype(np.int64, copy=False)
        outside = np.flatnonzero(held < 0)
        held[outside] = samplers.uniform(len(labels), outside.size, bits)
        payloads = np.empty((held.size, self.size), dtype=np.uint8)
        for start in range(0, held.size, _BLOCK):
            payloads[start : start + _BLOCK] = self.encode(held[start : start + _BLOCK], bits)
        return payloads

    def estimate(self, reports: Reports | Iterable[bytes]) -> FrequencyEstimate:
        """The shares of the categories. Malformed and foreign reports are rejected and counted.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = self._accepted(reports)
        shares = (self.support(payloads) / len(payloads) - self.noise) / (self.truth - self.noise)
        errors = np.sqrt(self.variance(np.clip(shares, 0, 1), len(payloads)))
        return FrequencyEstimate(self.categories, shares, errors, len(payloads), rejected, self.influence().category)

    def variance(self, share: ArrayLike, people: int) -> Floats:
        """The exact variance of an estimated share, for a true share and a number of people.

        (f·p(1 − p) + (1 − f)·q(1 − q))/(n(p − q)²): the f·n people who hold the category support it with probability p,
        the others with probability q, independently.
        """
        p, q = self.truth, self.noise
        true = np.asarray(share, dtype=np.float64)
        return np.asarray((true * p * (1 - p) + (1 - true) * q * (1 - q)) / (people * (p - q) ** 2))


def moved(held: NDArray[np.int64], epsilon: Fraction, count: int, bits: entropy.Bits) -> NDArray[np.int64]:
    """Randomized response: each value of [0, count) with probability e^ε/(e^ε + count − 1), else one of the others.

    A product with a boolean is several times as fast as a choice between two arrays: nothing is there to mispredict.
    """
    shift: NDArray[np.int64] = held + _shifts(epsilon, count, held.size, bits)
    shift -= count * (shift >= count)
    return shift


def _shifts(epsilon: Fraction, count: int, size: int, bits: entropy.Bits) -> NDArray[Any]:
    """0 with probability e^ε/(e^ε + count − 1), else uniform from 1 to count − 1."""
    if count <= _FEW:
        return response(epsilon, count).draw(size, bits)
    stays = coins(logistic(epsilon, Fraction(count - 1)), size, bits)
    return (samplers.uniform(count - 1, size, bits) + 1) * ~stays
