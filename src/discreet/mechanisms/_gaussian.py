"""The Gaussian mechanism: (ε, δ)-DP under an L2 bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.accounting import closed_forms
from discreet.bounded import Bounded
from discreet.guarantees import GDP, ApproxDP
from discreet.mechanisms.additive import Additive, sensitivity_of
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import Relation
from discreet.numeric.rounding import float_root_down, root_up, up
from discreet.release import NoiseLaw, Release


@dataclass(frozen=True)
class Gaussian(Additive):
    """Gaussian noise N(0, σ²), rounded to the value's grid, with `standard_deviation` σ in the value's units.

    The value lies on the grid, so value + rounded noise is the rounding of value + noise: post-processing of the
    continuous mechanism, whose guarantees hold as they stand, in any dimension and at any σ (docs/decisions/0001).

    Privacy: μ-GDP with μ = Δ₂/σ; δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle & Wang 2018, Theorem 8). Event:
    `Gaussian(σ/Δ₂)`, rounded down.

    Error: standard deviation √(σ² + g²/12) on a grid of step g; P(|noise| > t) ≤ 2Φ(−(t − g/2)/σ).
    """

    standard_deviation: Fraction

    def __post_init__(self) -> None:
        exact = _check.positive("standard_deviation", self.standard_deviation, "it is the σ of the noise")
        object.__setattr__(self, "standard_deviation", exact)

    @classmethod
    def for_epsilon(
        cls,
        bounded: Bounded,
        epsilon: float,
        delta: float,
        *,
        calibration: Literal["analytic", "classical"] = "analytic",
        relation: Relation | str | None = None,
    ) -> Gaussian:
        """The least noise that makes `bounded` (ε, δ)-DP by the chosen calibration."""
        sensitivity = sensitivity_of(bounded, relation)
        _check.one_of("calibration", calibration, ("analytic", "classical"), "analytic is tight for every ε")
        if calibration == "analytic":
            multiplier = closed_forms.gaussian_noise_multiplier(epsilon, delta)
        else:
            multiplier = closed_forms.classical_noise_multiplier(epsilon, delta)
        # Rounded up a little, because the event rounds its multiplier down to a float.
        enough = Fraction(up(multiplier)) ** 2 * sensitivity.l2_squared
        return cls(root_up(enough) * bounded.granularity)

    def event(self, bounded: Bounded, relation: Relation | str | None = None) -> events.Gaussian:
        variance = (self.standard_deviation / bounded.granularity) ** 2
        return events.Gaussian(float_root_down(variance / sensitivity_of(bounded, relation).l2_squared))

    def guarantee(self, bounded: Bounded, relation: Relation | str | None = None) -> GDP:
        return GDP(up(1 / self.event(bounded, relation).noise_multiplier))

    def noise_law(self, granularity: Fraction) -> NoiseLaw:
        return NoiseLaw(gaussian=True, rounded=True, scale=float(self.standard_deviation / granularity))

    def draw(self, granularity: Fraction, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        return samplers.rounded_gaussian((self.standard_deviation / granularity) ** 2, size, bits)


def gaussian(
    bounded: Bounded,
    *,
    epsilon: float,
    delta: float,
    calibration: Literal["analytic", "classical"] = "analytic",
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Release `bounded` with (ε, δ)-DP: Gaussian noise, rounded to the value's grid.

    Args:
        bounded: the result of a query.
        epsilon: the privacy loss ε > 0 of this release.
        delta: the slack 0 < δ < 1 in this bound; everything may leak with this probability.
        calibration: "analytic", the least σ for this (ε, δ), or "classical", the textbook σ for ε < 1.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable noise, for tests and teaching only.

    Guarantee: (ε, δ)-DP for one unit under `relation` (see `Gaussian`). The noise is exact and its bits come from the
    operating system. Not protected: the event, the grid and the labels, which are public.

    >>> from discreet.queries import count
    >>> released = gaussian(count([1, 2, 3]), epsilon=1.0, delta=1e-6)
    >>> round(released.event.noise_multiplier, 5), str(released.guarantee)
    (4.22468, '(1, 1e-06)-DP, add or remove one row')
    """
    mechanism = Gaussian.for_epsilon(bounded, epsilon, delta, calibration=calibration, relation=relation)
    promise = ApproxDP(float(epsilon), float(delta))
    return mechanism.release_as(bounded, promise, relation=relation, insecure_seed=insecure_seed)
