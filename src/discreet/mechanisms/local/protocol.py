"""The base of all protocols: one report of each person, randomized on the device, opened on the server."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.guarantees import PureDP
from discreet.mechanisms.local.reports import VERSION, Payloads, Reports, header, opened
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import REPLACE_ONE, Neighbors, Rows
from discreet.numeric.rounding import SLACK, float_up, rounded_down

# Beyond this ε the formulas overflow floats in some protocols.
_LARGEST_EPSILON = 256


@dataclass(frozen=True)
class Protocol(ABC):
    """What a device and a server share: how a value becomes a report, and what a report looks like. Abstract.

    Attributes:
        epsilon: the privacy loss ε of one report.
    """

    epsilon: Fraction

    def __post_init__(self) -> None:
        exact = rounded_down(_check.epsilon(self.epsilon))
        if exact > _LARGEST_EPSILON:
            remedy = "a report with a larger ε hides nothing: send the value itself"
            raise _check.fail("epsilon", f"be ≤ {_LARGEST_EPSILON}", self.epsilon, remedy)
        object.__setattr__(self, "epsilon", exact)

    # --- what each protocol defines

    @property
    @abstractmethod
    def bits(self) -> float:
        """The information in one report, in bits; the wire rounds it up to bytes and adds a header of five bytes."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of bytes of a payload."""

    @abstractmethod
    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        """Which payloads a device could have sent."""

    @abstractmethod
    def _randomized(self, values: Any, bits: entropy.Bits) -> Payloads:
        """One randomized payload for each person's value."""

    @property
    def version(self) -> int:
        """The version of the reports on the wire: their first byte."""
        return VERSION

    @property
    def informative(self) -> float:
        """A bound on the probability that a report tells two values apart at all, for the worst pair of values."""
        return 1.0

    # --- what all of them share

    @cached_property
    def _head(self) -> bytes:
        return header(self, self.version)

    @property
    def event(self) -> events.Event:
        """The event of one person's report."""
        return events.LocalReport(self.epsilon, self.informative)

    @property
    def guarantee(self) -> PureDP:
        """ε-DP for one person's value under replace-one, whoever reads the report."""
        return PureDP(float_up(self.epsilon), protects=Neighbors(REPLACE_ONE, Rows()))

    def shuffled(self, people: int) -> events.Event:
        """The event of `people` reports that somebody trusted shuffles, so that nobody sees who sent which.

        Anonymous reports reveal far less than ε each. Accountants price the event, and ledgers take it like any other.
        """
        return events.Shuffled(_check.integer("people", people, "it is the public number of reports"), self.event)

    def client(self) -> Callable[[Any], bytes]:
        """What a device runs: a function from a value to a report.

        Guarantee: ε-DP for the value, under replace-one, against everybody who reads the report. Each call spends ε
        again: a device that reports the same value twice has spent 2ε. Not protected: that a device reports at all.
        """
        return lambda value: next(iter(self.simulate([value])))

    def simulate(self, values: Any, *, insecure_seed: int | None = None) -> Reports:
        """The reports of many people at once, in their order: for studies, and for servers that already hold the data.

        Guarantee: as `client`, for each person. With an `insecure_seed` the reports are repeatable and not private.
        """
        event = self.event if insecure_seed is None else events.Insecure(self.event)
        return Reports(self._head, self._randomized(values, entropy.bits(insecure_seed)), event)

    def _accepted(self, reports: Reports | Iterable[bytes], at_least: int = 1) -> tuple[Payloads, int]:
        """The payloads that a device of this protocol could have sent, and how many reports were rejected."""
        payloads, rejected = opened(reports, self._head, self.size)
        accepted = self.valid(payloads)
        rejected += int(np.count_nonzero(~accepted))
        if len(payloads) - np.count_nonzero(~accepted) < at_least:
            rule = "hold a valid one" if at_least == 1 else "hold at least two valid ones"
            raise _check.fail("reports", rule, f"{rejected} that are not", "check the protocol")
        return payloads[accepted], rejected


def bounded_share(informative: float) -> float:
    """A computed probability that must not be too small: raised above its rounding errors, and at most 1."""
    return min(1.0, informative * (1 + SLACK))


def odds_of_disjoint_sets(epsilon: Fraction, size: int, count: int) -> float:
    """`informative` where a person's `size` of `count` outcomes are e^ε times as likely as the others.

    The loss is not 0 if the outcome lies in exactly one of two persons' sets, which is most likely if these are
    disjoint: then with probability size·(e^ε + 1)/(size·e^ε + count − size).
    """
    less = math.exp(-epsilon)
    return bounded_share(size * (1 + less) / (size + (count - size) * less))
