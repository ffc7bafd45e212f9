"""Minimizers of noisy objectives."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import _check
from discreet.events.base import Event, settle_multiplier


@dataclass(frozen=True)
class PerturbedObjective(Event):
    """The exact minimizer θ of Σ φᵢ(xᵢ·θ) + (Λ/2)‖θ‖² + b·θ, with b ~ N(0, σ²I) (docs/proofs/convex-minima.md).

    Each unit adds one convex loss φᵢ(xᵢ·θ) of a linear model, with ‖∇‖ ≤ L and curvature |φᵢ″|‖xᵢ‖² ≤ β.
    `noise_multiplier` is σ/L and `curvature` is β/Λ. Whatever is computed from θ without the data has this event too.
    """

    noise_multiplier: float
    curvature: float

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise_multiplier")
        _check.settle(self, "curvature", _check.nonnegative, "it is one unit's curvature over the regularizer's")
