"""Laplace noise under an L2 bound: (ε, δ)-DP."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.accounting import closed_forms
from discreet.bounded import Bounded
from discreet.guarantees import ZCDP, ApproxDP
from discreet.mechanisms.additive import Additive, sensitivity_of
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import Relation
from discreet.numeric.rounding import float_root_down, root_up, rounded_up, up
from discreet.release import NoiseLaw, Release


@dataclass(frozen=True)
class L2Laplace(Additive):
    """Laplace noise Lap(λ), rounded to the value's grid, with `scale` λ in the value's units.

    The value lies on the grid, so this is post-processing of continuous Laplace noise (docs/decisions/0001).

    Privacy: (ε, δ)-DP with ε = min{Δ₁/λ, (Δ₂/λ)(Δ₂/2λ + √(2 ln(1/δ)))} for every δ (Andersson, Pagh, Steiner &
    Torkamani, arXiv 2408.07021, Theorem 3), and ρ-zCDP with ρ = Δ₂²/2λ². Event: `L2Laplace(λ/Δ₂, λ/Δ₁)`, and with the
    shift if one unit moves a single coordinate, so that an accountant can be tighter than the theorem.

    Error: standard deviation about √2·λ; P(|noise| > t) ≤ exp(−(t − g/2)/λ) on a grid of step g.
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check.positive("scale", self.scale, "it is the λ of exp(−|x|/λ)"))

    @classmethod
    def for_epsilon(
        cls, bounded: Bounded, epsilon: float, delta: float, relation: Relation | str | None = None
    ) -> L2Laplace:
        """The least noise for which Theorem 3 gives (ε, δ): by its L2 or its L1 branch, whichever needs less."""
        sensitivity = sensitivity_of(bounded, relation)
        multiplier = up(closed_forms.l2_laplace_noise_multiplier(epsilon, delta))
        by_l2 = root_up(Fraction(multiplier) ** 2 * sensitivity.l2_squared)
        by_l1 = rounded_up(sensitivity.l1 / _check.epsilon(epsilon))
        return cls(min(by_l1, by_l2) * bounded.granularity)

    def event(self, bounded: Bounded, relation: Relation | str | None = None) -> events.L2Laplace:
        sensitivity = sensitivity_of(bounded, relation)
        scale = self.scale / bounded.granularity
        by_l1 = float_root_down((scale / sensitivity.l1) ** 2)
        shift = (up(1 / by_l1),) if sensitivity.l0 == 1 else None
        return events.L2Laplace(float_root_down(scale**2 / sensitivity.l2_squared), by_l1, shift)

    def guarantee(self, bounded: Bounded, relation: Relation | str | None = None) -> ZCDP:
        return ZCDP(up(0.5 / self.event(bounded, relation).noise_multiplier ** 2))

    def noise_law(self, granularity: Fraction) -> NoiseLaw:
        return NoiseLaw(gaussian=False, rounded=True, scale=float(self.scale / granularity))

    def draw(self, granularity: Fraction, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        return samplers.rounded_laplace(self.scale / granularity, size, bits)


def l2_laplace(
    bounded: Bounded,
    *,
    epsilon: float,
    delta: float,
    relation: Relation | str | None = None,
    insecure_seed: int | None = None,
) -> Release[Any]:
    """Release `bounded` with (ε, δ)-DP: Laplace noise calibrated to the L2 sensitivity.

    The scale is the exact inverse of the theorem, not the widespread "practical" Δ₂√(2 ln(1.25/δ))/ε, which costs more
    than ε. On the L2 branch, Gaussian noise has less variance at the same (ε, δ); Laplace noise gives a pure ε of Δ₁/λ
    in addition, which holds without any δ. If one unit moves few coordinates, the L1 branch is better.

    Args:
        bounded: the result of a query.
        epsilon: the privacy loss ε > 0 of this release.
        delta: the slack 0 < δ < 1 in this bound; everything may leak with this probability.
        relation: which neighbors to protect; by default the first one that the query is bounded for.
        insecure_seed: repeatable noise, for tests and teaching only.

    Guarantee: (ε, δ)-DP for one unit under `relation` (see `L2Laplace`). The noise is exact and its bits come from the
    operating system. Not protected: the event, the grid and the labels, which are public.

    >>> from discreet.queries import histogram
    >>> l2_laplace(histogram(list("abca"), categories="abc"), epsilon=1.0, delta=1e-6).value.shape
    (3,)
    """
    mechanism = L2Laplace.for_epsilon(bounded, epsilon, delta, relation)
    promise = ApproxDP(float(epsilon), float(delta))
    return mechanism.release_as(bounded, promise, relation=relation, insecure_seed=insecure_seed)
