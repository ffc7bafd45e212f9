"""The discrete Gaussian mechanism: ρ-zCDP under an L2 bound, on the integers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.bounded import Bounded
from discreet.guarantees import ZCDP
from discreet.mechanisms.additive import Additive, sensitivity_of
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import Relation
from discreet.numeric.rounding import float_up, rounded_up
from discreet.release import NoiseLaw, Release


@dataclass(frozen=True)
class DiscreteGaussian(Additive):
    """Discrete Gaussian noise, P(x) ∝ exp(−x²/2σ²) on the value's grid, with `variance` σ² in the value's units.

    Privacy: ρ-zCDP with ρ = Δ₂²/2σ², exactly (Canonne, Kamath & Steinke 2020, Theorems 4 and 14). Event:
    `DiscreteGaussian`. For (ε, δ) use `Gaussian`, which is priced tightly in every dimension.

    Error: standard deviation at most σ; P(|noise| > t) ≤ 2Φ(−(t − g)/σ) on a grid of step g.
    """

    variance: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _check.positive("variance", self.variance, "it is the σ² of the noise"))

    @classmethod
    def for_rho(cls, bounded: Bounded, rho: float, relation: Relation | str | None = None) -> DiscreteGaussian:
        """The least noise that makes `bounded` ρ-zCDP: σ² = Δ₂²/2ρ, rounded up to a simple fraction."""
        sensitivity = sensitivity_of(bounded, relation)
        exact = _check.positive("rho", rho, "it bounds the slope of the Rényi divergence in its order")
        return cls(rounded_up(sensitivity.l2_squared / (2 * exact)) * bounded.granularity**2)

    def event(self, bounded: Bounded, relation: Relation | str | None = None) -> events.DiscreteGaussian:
        sensitivity = sensitivity_of(bounded, relation)
        return events.DiscreteGaussian(
            sensitivity.l2_squared, self.variance / bounded.granularity**2, coordinates=sensitivity.l0
        )

    def guarantee(self, bounded: Bounded, relation: Relation | str | None = None) -> ZCDP:
        event = self.event(bounded, relation)
        return ZCDP(float_up(event.sensitivity_squared / (2 * event.variance)))

    def noise_law(self, granularity: Fraction) -> NoiseLaw:
        return NoiseLaw(gaussian=True, rounded=False, scale=float(self.variance / granularity**2) ** 0.5)

    def draw(self, granularity: Fraction, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        return samplers.discrete_gaussian(self.variance / granularity**2, size, bits)


def discrete_gaussian(
    bounded: Bounded,
    *,
    rho: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Release `bounded` with ρ-zCDP: discrete Gaussian noise with σ² = Δ₂²/2ρ.

    Args:
        bounded: the result of a query.
        rho: the ρ > 0 of this release.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable noise, for tests and teaching only.

    Guarantee: ρ-zCDP for one unit under `relation` (see `DiscreteGaussian`). The noise is exact and its bits come from
    the operating system. Not protected: the event, the grid and the labels, which are public.

    >>> from discreet.queries import count
    >>> discrete_gaussian(count([1, 2, 3]), rho=0.5).event
    DiscreteGaussian(sensitivity_squared=1, variance=Fraction(1, 1), coordinates=1)
    """
    mechanism = DiscreteGaussian.for_rho(bounded, rho, relation)
    return mechanism.release(bounded, relation=relation, insecure_seed=insecure_seed)
