"""What all mechanisms that add noise share: take a `Bounded`, add exact integer noise, finish, and say what was run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import events
from discreet.bounded import LARGEST, Bounded, Sensitivity
from discreet.guarantees import Guarantee
from discreet.mechanisms.protection import marked, require_bounded
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Relation
from discreet.release import Error, Noise, Release

#: Noisy values are clipped to ±this, so that no draw, however unlikely, wraps around 64 bits. As |value| ≤ 2^60 and
#: draws beyond ±2^62 are clipped to it first, the result is the same function of value + noise for every value.
_CLIP = (1 << 62) - LARGEST


@dataclass(frozen=True)
class Additive(ABC):
    """Noise of a fixed scale, in the units of the value it is added to. Abstract."""

    @abstractmethod
    def event(self, bounded: Bounded, relation: Relation | str | None = None) -> events.Event:
        """What releasing `bounded` will run; looks at its sensitivity, never at its value."""

    @abstractmethod
    def guarantee(self, bounded: Bounded, relation: Relation | str | None = None) -> Guarantee:
        """What releasing `bounded` promises."""

    @abstractmethod
    def _noise(self, granularity: Fraction) -> Noise:
        """The noise in grid units, for error bars."""

    @abstractmethod
    def _draw(self, granularity: Fraction, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        """`size` exact noise integers in grid units."""

    def standard_error(self, bounded: Bounded) -> float:
        """The standard deviation of the noise on each coordinate of `bounded`, in its units; spends nothing."""
        return self._noise(bounded.granularity).standard_deviation() * float(bounded.granularity)

    def release(
        self,
        bounded: Bounded,
        *,
        relation: Relation | str | None = None,
        insecure_seed: int | None = None,
    ) -> Release[Any]:
        """Add the noise.

        Args:
            bounded: what a query made.
            relation: which neighbors to protect; by default the one that the query is bounded for first.
            insecure_seed: for tests and teaching: repeatable noise, whose event is marked and worth nothing.

        Guarantee: as `guarantee(bounded)` says, for the sensitivity that travels with `bounded`.
        """
        return self._release(bounded, relation, insecure_seed, self.guarantee(bounded, relation))

    def _release(
        self, bounded: Bounded, relation: Relation | str | None, insecure_seed: int | None, promise: Guarantee
    ) -> Release[Any]:
        """Add the noise, and state `promise`, which the caller has calibrated for."""
        wanted = require_bounded(bounded, relation)
        event, promise = marked(self.event(bounded, wanted), promise, bounded.unit, wanted, insecure_seed)
        noise = self._draw(bounded.granularity, bounded.dimension, entropy.bits(insecure_seed))
        noisy = np.clip(
            bounded.values + np.clip(noise, -(1 << 62), 1 << 62).reshape(bounded.values.shape), -_CLIP, _CLIP
        )
        noisy = np.asarray(noisy)
        assert bounded.finish is not None
        error = Error(bounded.finish, noisy, self._noise(bounded.granularity))
        return Release(bounded.finish.value(noisy), event, promise, error, bounded.labels)


def sensitivity_of(bounded: Bounded, relation: Relation | str | None) -> Sensitivity:
    """The sensitivity to calibrate for."""
    wanted = require_bounded(bounded, relation)
    return bounded.sensitivity(wanted)
