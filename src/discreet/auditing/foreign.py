"""Noise of other libraries in a replay: mark where a value meets its noise, and say how far neighbors may be apart.

    released = declared(value, lambda: value + noise(), kind="normal", scale=sigma, limit=clip_norm)

Outside of a replay this only draws. In a replay the value is compared with that of the neighbor, and the second run
receives what the first released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.events import Event, Gaussian, Laplace, NonPrivate
from discreet.mechanisms import observation
from discreet.neighbors import ADD_REMOVE

Released = TypeVar("Released")
NoiseShape = Literal["laplace", "normal"]

# Sums of doubles in another order differ by less than this much of what they are bounded by.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ForeignNoise:
    """Noise that code outside of this library adds.

    Attributes:
        kind: "laplace" (values are bounded in L1) or "normal" (in L2).
        scale: the scale, or the standard deviation.
        limit: how far apart the values of neighbors may be.
        rounding: the relative error of the arithmetic that made the values.
    """

    kind: NoiseShape
    scale: float
    limit: float
    rounding: float = _ROUNDING

    @property
    def event(self) -> Event:
        """What is claimed of one release."""
        if not 0 < self.limit < math.inf or not 0 < self.scale < math.inf:
            return NonPrivate()
        return (Laplace if self.kind == "laplace" else Gaussian)(self.scale / self.limit)

    def share(self, change: NDArray[np.float64]) -> float:
        """The share of the limit that two neighbors' values use."""
        moved = float(np.abs(change).sum() if self.kind == "laplace" else math.sqrt(float(np.square(change).sum())))
        if math.isnan(moved):
            return math.inf
        if self.limit <= 0:
            return math.inf if moved > 0 else 0.0
        share = moved / self.limit
        return 1.0 if 1 < share <= 1 + self.rounding else share

    def together(self, shares: list[float]) -> float:
        """The share of one limit that several values use, if it bounds all of them at once."""
        return sum(shares) if self.kind == "laplace" else math.hypot(*shares)


def declared(
    value: ArrayLike,
    draw: Callable[[], Released],
    *,
    kind: NoiseShape,
    scale: float,
    limit: float,
    rounding: float = _ROUNDING,
) -> Released:
    """What `draw` releases of `value`; in a replay, `value` must be within `limit` of the neighbor's.

    Args:
        value: what the noise is added to, before it is added.
        draw: adds the noise.
        kind: "laplace" for a bound in L1, "normal" for one in L2.
        scale: the scale of the noise, or its standard deviation; it must not depend on the data.
        limit: the declared sensitivity.
        rounding: how far above the limit a value may be by rounding, relative to it; 1e-6 suits sums in float32.

    Guarantee: none. It marks a place for `replay`.
    """
    _check.one_of("kind", kind, ("laplace", "normal"), "it decides the norm in which values are bounded")
    noise = ForeignNoise(kind, float(scale), float(limit), float(rounding))
    numbers = np.array(value, dtype=np.float64)
    return observation.through(noise, numbers, ADD_REMOVE, noise.event, draw)
