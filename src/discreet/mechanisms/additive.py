"""The base of all mechanisms that add noise: take a `Bounded`, add exact integer noise, finish, and state the event."""

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
from discreet.mechanisms import observation
from discreet.mechanisms.protection import marked, require_bounded
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import Relation
from discreet.release import Error, NoiseLaw, Release

#: Noisy values are clipped to ±this, so that no draw, however unlikely, wraps around 64 bits. Since |value| ≤ 2^60 and
#: draws are clipped to ±2^62 first, the result is the same function of value + noise for every value.
_CLIP = (1 << 62) - LARGEST


@dataclass(frozen=True)
class Additive(ABC):
    """NoiseLaw of a fixed scale, in the units of the value it is added to. Abstract."""

    @abstractmethod
    def event(self, bounded: Bounded, relation: Relation | str | None = None) -> events.Event:
        """The event of releasing `bounded`. It depends on the sensitivity, never on the value."""

    @abstractmethod
    def guarantee(self, bounded: Bounded, relation: Relation | str | None = None) -> Guarantee:
        """What releasing `bounded` promises."""

    @abstractmethod
    def noise_law(self, granularity: Fraction) -> NoiseLaw:
        """The distribution of the noise in grid units, for error bars and previews. It draws and spends nothing."""

    @abstractmethod
    def draw(self, granularity: Fraction, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        """Draw `size` exact noise integers in grid units. It sees no data; `release` adds them to a value."""

    def standard_error(self, bounded: Bounded) -> float:
        """The standard deviation of the noise on each coordinate of `bounded`, in its units. It spends nothing."""
        return self.noise_law(bounded.granularity).standard_deviation() * float(bounded.granularity)

    def release(
        self,
        bounded: Bounded,
        *,
        relation: Relation | str | None = None,
        insecure_seed: int | None = None,
    ) -> Release[Any]:
        """Add the noise.

        Args:
            bounded: the result of a query.
            relation: which neighbors to protect; by default the first one that the query is bounded for.
            insecure_seed: repeatable noise, for tests and teaching only; the event is marked and guarantees nothing.

        Guarantee: as `guarantee(bounded)` says, for the sensitivity that travels with `bounded`.
        """
        promise = self.guarantee(bounded, relation)
        return self.release_as(bounded, promise, relation=relation, insecure_seed=insecure_seed)

    def release_as(
        self,
        bounded: Bounded,
        promise: Guarantee,
        *,
        relation: Relation | str | None = None,
        insecure_seed: int | None = None,
    ) -> Release[Any]:
        """Add the noise and state `promise`: for functions that calibrated this mechanism to it.

        Guarantee: `promise` is stated as given and is not checked. The event is computed from the mechanism and the
        sensitivity of `bounded`, so a ledger charges what ran whatever `promise` says.
        """
        wanted = require_bounded(bounded, relation)
        event, promise = marked(self.event(bounded, wanted), promise, bounded.unit, wanted, insecure_seed)
        return observation.through(
            self, bounded, wanted, event, lambda: self._released(bounded, event, promise, insecure_seed)
        )

    def _released(
        self, bounded: Bounded, event: events.Event, promise: Guarantee, insecure_seed: int | None
    ) -> Release[Any]:
        noise = self.draw(bounded.granularity, bounded.dimension, entropy.bits(insecure_seed))
        noisy = np.clip(
            bounded.values + np.clip(noise, -(1 << 62), 1 << 62).reshape(bounded.values.shape), -_CLIP, _CLIP
        )
        noisy = np.asarray(noisy)
        assert bounded.finish is not None
        error = Error(bounded.finish, noisy, self.noise_law(bounded.granularity))
        return Release(bounded.finish.value(noisy), event, promise, error, bounded.labels)


def sensitivity_of(bounded: Bounded, relation: Relation | str | None) -> Sensitivity:
    """The sensitivity of `bounded` under `relation`, which noise is calibrated to."""
    wanted = require_bounded(bounded, relation)
    return bounded.sensitivity(wanted)
