"""The base of protocols that estimate how many people hold each category (frequency oracles).

All of them follow one scheme (Wang, Blocki, Li & Jha 2017, "pure" protocols): a report supports some categories; it
supports the person's own with probability p and any other with probability q < p. If c of n reports support a category,
its share is estimated as (c/n − q)/(p − q), without bias, whatever the other shares are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from discreet import _check, events
from discreet.guarantees import PureDP
from discreet.mechanisms.local.reports import Payloads, Reports, header, opened
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import REPLACE_ONE, Neighbors, Rows
from discreet.numeric.rounding import float_up, rounded_down
from discreet.queries.statistics.histogram import categorized

Floats = NDArray[np.float64]


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
class Estimate:
    """Estimated shares, with errors that cover the randomness of the reports.

    Attributes:
        categories: the public categories.
        shares: unbiased estimates of the shares; they may be negative or exceed 1.
        standard_errors: their standard errors.
        reports: the number of valid reports.
        rejected: the number of reports that were malformed or belong to another protocol.
    """

    categories: tuple[Any, ...]
    shares: Floats
    standard_errors: Floats
    reports: int
    rejected: int

    @property
    def counts(self) -> Floats:
        """The estimated number of persons in each category."""
        return self.shares * self.reports

    def intervals(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Ranges that hold all shares at once with probability `confidence`.

        They use the normal approximation of the number of supporting reports, which is a sum of independent coins, and
        divide the error probability among the categories (Bonferroni).
        """
        tail = float(1 - _check.probability("confidence", confidence, "such as 0.95")) / len(self.categories)
        half = -special.ndtri(tail / 2) * self.standard_errors
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
class FrequencyProtocol(ABC):
    """How often each of some public categories occurs among people who send one randomized report each. Abstract.

    Attributes:
        epsilon: the privacy loss ε of one report.
        categories: the public categories. Any other answer is replaced by a uniformly random category.
    """

    epsilon: Fraction
    categories: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))
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

    @property
    @abstractmethod
    def bits(self) -> float:
        """The information in one report, in bits; the wire rounds it up to bytes and adds a header of five bytes."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes of a payload."""

    @abstractmethod
    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        """One randomized payload for each position in `categories`."""

    @abstractmethod
    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Which payloads a device could have sent."""

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

    @cached_property
    def _head(self) -> bytes:
        return header(self)

    @property
    def event(self) -> events.Event:
        """The event of one person's report."""
        return events.Claimed(float_up(self.epsilon))

    @property
    def guarantee(self) -> PureDP:
        """ε-DP for one person's value under replace-one, whoever reads the report."""
        return PureDP(float_up(self.epsilon), protects=Neighbors(REPLACE_ONE, Rows()))

    def client(self) -> Callable[[Any], bytes]:
        """What a device runs: a function from a value to a report.

        Guarantee: ε-DP for the value, under replace-one, against everybody who reads the report. Each call spends ε
        again: a device that reports the same value twice has spent 2ε. Not protected: that a device reports at all.
        """
        return lambda value: next(iter(self.simulate([value])))

    def simulate(self, values: ArrayLike, *, insecure_seed: int | None = None) -> Reports:
        """The reports of many people at once, in their order: for studies, and for servers that already hold the data.

        Guarantee: as `client`, for each person. With an `insecure_seed` the reports are repeatable and not private.
        """
        event = self.event if insecure_seed is None else events.Insecure(self.event)
        bits = entropy.bits(insecure_seed)
        held, labels = categorized(values, self.categories)
        held = held.astype(np.int64)
        outside = np.flatnonzero(held < 0)
        held[outside] = samplers.uniform(len(labels), outside.size, bits)
        return Reports(self._head, self.encode(held, bits), event)

    def estimate(self, reports: Reports | Iterable[bytes]) -> Estimate:
        """The shares of the categories. Malformed and foreign reports are rejected and counted.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = opened(reports, self._head, self.size)
        accepted = self.valid(payloads)
        rejected += int(np.count_nonzero(~accepted))
        payloads = payloads[accepted]
        if not len(payloads):
            raise _check.fail("reports", "hold a valid one", f"{rejected} that are not", "check the protocol")
        shares = (self.support(payloads) / len(payloads) - self.noise) / (self.truth - self.noise)
        errors = np.sqrt(self.variance(np.clip(shares, 0, 1), len(payloads)))
        return Estimate(self.categories, shares, errors, len(payloads), rejected)

    def variance(self, share: ArrayLike, people: int) -> Floats:
        """The exact variance of an estimated share, for a true share and a number of people.

        (f·p(1 − p) + (1 − f)·q(1 − q))/(n(p − q)²): the f·n people who hold the category support it with probability p,
        the others with probability q, independently.
        """
        p, q = self.truth, self.noise
        true = np.asarray(share, dtype=np.float64)
        return np.asarray((true * p * (1 - p) + (1 - true) * q * (1 - q)) / (people * (p - q) ** 2))
