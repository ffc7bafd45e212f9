"""The Laplace mechanism: pure ε-DP under an L1 bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.bounded import Bounded
from discreet.guarantees import PureDP
from discreet.mechanisms.additive import Additive, sensitivity_of
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import Relation
from discreet.numeric.rounding import float_up, rounded_up
from discreet.release import NoiseLaw, Release


@dataclass(frozen=True)
class Laplace(Additive):
    """Discrete Laplace noise, P(x) ∝ exp(−|x|/b) on the value's grid, with `scale` b in the value's units.

    Privacy: ε = Δ₁/b, exactly, for a vector with L1 sensitivity Δ₁ (Dwork & Roth 2014, Theorem 3.6; on integers Ghosh,
    Roughgarden & Sundararajan 2009, where it is also optimal for counts). Event: `DiscreteLaplace`.

    Error: standard deviation g/(√2 sinh(g/2b)) on a grid of step g, about √2·b; P(|noise| > t) ≤ exp(−(t − g)/b).
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check.positive("scale", self.scale, "it is the b of exp(−|x|/b)"))

    @classmethod
    def for_epsilon(cls, bounded: Bounded, epsilon: float, relation: Relation | str | None = None) -> Laplace:
        """The least noise that makes `bounded` ε-DP: b = Δ₁/ε, rounded up to a simple fraction."""
        sensitivity = sensitivity_of(bounded, relation)
        return cls(rounded_up(sensitivity.l1 / _check.epsilon(epsilon)) * bounded.granularity)

    def event(self, bounded: Bounded, relation: Relation | str | None = None) -> events.DiscreteLaplace:
        return events.DiscreteLaplace(sensitivity_of(bounded, relation).l1, self.scale / bounded.granularity)

    def guarantee(self, bounded: Bounded, relation: Relation | str | None = None) -> PureDP:
        event = self.event(bounded, relation)
        return PureDP(float_up(event.sensitivity / event.scale))

    def noise_law(self, granularity: Fraction) -> NoiseLaw:
        return NoiseLaw(gaussian=False, rounded=False, scale=float(self.scale / granularity))

    def draw(self, granularity: Fraction, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        return samplers.discrete_laplace(self.scale / granularity, size, bits)


def laplace(
    bounded: Bounded,
    *,
    epsilon: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Release `bounded` with ε-DP: discrete Laplace noise of scale Δ₁/ε.

    Args:
        bounded: the result of a query.
        epsilon: the privacy loss ε > 0 of this release.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable noise, for tests and teaching only.

    Guarantee: ε-DP for one unit under `relation` (see `Laplace`). The noise is exact and its bits come from the
    operating system. Not protected: the event, the grid and the labels, which are public.

    >>> from discreet.queries import count
    >>> laplace(count([1, 2, 3]), epsilon=0.5, insecure_seed=1).event.event
    DiscreteLaplace(sensitivity=1, scale=Fraction(2, 1))
    """
    mechanism = Laplace.for_epsilon(bounded, epsilon, relation)
    return mechanism.release(bounded, relation=relation, insecure_seed=insecure_seed)
