"""Generalized randomized response: report one category, usually the true one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet import events
from discreet.mechanisms.local.frequencies import FrequencyProtocol, Influence, moved
from discreet.mechanisms.local.reports import Payloads, bytes_to_integers, integers_to_bytes
from discreet.mechanisms.sampling import entropy


@dataclass(frozen=True)
class GeneralizedResponse(FrequencyProtocol):
    """The truth with probability e^ε/(e^ε + d − 1), else one of the other d − 1 categories (Kairouz et al. 2014).

    Best for few categories: its variance grows with d, and is below that of the others while d < 3e^ε + 2.
    """

    @property
    def truth(self) -> float:
        return 1 / (1 + (len(self.categories) - 1) * math.exp(-self.epsilon))

    @property
    def noise(self) -> float:
        return math.exp(-self.epsilon) / (1 + (len(self.categories) - 1) * math.exp(-self.epsilon))

    @property
    def bits(self) -> float:
        return math.log2(len(self.categories))

    @property
    def size(self) -> int:
        return max(1, math.ceil((len(self.categories) - 1).bit_length() / 8))

    @property
    def event(self) -> events.Event:
        return events.RandomizedResponse(self.epsilon, len(self.categories))

    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        return integers_to_bytes(moved(held, self.epsilon, len(self.categories), bits), self.size)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return bytes_to_integers(payloads) < len(self.categories)

    def support(self, payloads: Payloads) -> NDArray[np.int64]:
        return np.bincount(bytes_to_integers(payloads), minlength=len(self.categories)).astype(np.int64)

    def probability(self, payload: bytes, held: int) -> float:
        reported = int.from_bytes(payload, "little")
        if reported >= len(self.categories):
            return 0.0
        return self.truth if reported == held else self.noise

    def influence(self) -> Influence:
        apart = self.truth - self.noise
        told, others = (1 - self.noise) / apart, self.noise / apart
        return Influence(told, told + (len(self.categories) - 1) * others)
