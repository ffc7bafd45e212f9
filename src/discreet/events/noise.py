"""Additive noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from discreet import _check
from discreet.events.base import Event, check_tuple, settle_multiplier, settle_rational


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise N(0, σ²) on each coordinate of a value with L2 sensitivity Δ₂.

    `noise_multiplier` is σ/Δ₂. Any function of the noisy value, such as rounding it to a grid, has this event too.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise_multiplier")


@dataclass(frozen=True)
class Laplace(Event):
    """Laplace noise of scale b on each coordinate of a value with L1 sensitivity Δ₁; `noise_multiplier` is b/Δ₁."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise_multiplier")


@dataclass(frozen=True)
class L2Laplace(Event):
    """Laplace noise of scale λ on each coordinate of a value with L2 sensitivity Δ₂ (arXiv 2408.07021).

    `noise_multiplier` is λ/Δ₂. `l1_noise_multiplier` is λ/Δ₁ if an L1 bound is also known. `shift` holds the |xᵢ|/λ of
    every coordinate that a neighbor moves, if the neighbors' difference x is known exactly up to sign. Each of them
    makes the price tighter.
    """

    noise_multiplier: float
    l1_noise_multiplier: float | None = None
    shift: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise_multiplier")
        if self.l1_noise_multiplier is not None:
            settle_multiplier(self, "l1_noise_multiplier")
        if self.shift is not None:
            check_tuple("shift", self.shift)
            _check.settle_each(self, "shift", _check.positive, "it lists |xᵢ|/λ of the coordinates that move")


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """Discrete Gaussian noise on integers: P(x) ∝ exp(−x²/2σ²) (Canonne, Kamath & Steinke 2020).

    `sensitivity_squared` is the integer Δ₂² and `variance` the rational parameter σ², both in grid units.
    `coordinates` is how many coordinates one unit may move: with 1 the price is exact, with more it is a bound.
    """

    sensitivity_squared: int
    variance: Fraction
    coordinates: int = 1

    def __post_init__(self) -> None:
        _check.settle_integers(self, "sensitivity_squared", remedy="it is the integer Δ₂² in grid units")
        _check.settle_integers(self, "coordinates", remedy="it is the number of coordinates that one unit may move")
        settle_rational(self, "variance")


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Discrete Laplace noise on integers: P(x) ∝ exp(−|x|/b), under an integer L1 sensitivity Δ₁.

    `sensitivity` is Δ₁ and `scale` the rational b, both in grid units: it is Δ₁/b-DP.
    """

    sensitivity: int
    scale: Fraction

    def __post_init__(self) -> None:
        _check.settle_integers(self, "sensitivity", remedy="it is the integer Δ₁ in grid units")
        settle_rational(self, "scale")
