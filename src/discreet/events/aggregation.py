"""Sums that are aggregated securely: each party adds a share of the noise, and only the noisy sum is seen."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from discreet import _check
from discreet.events.base import Event, settle_rational


class _NoisySum(Event):
    """A sum to which every party adds noise. Abstract; the fields are those of `DistributedDiscreteGaussian`."""

    sensitivity_squared: int
    variance: Fraction
    parties: int
    dropouts: int
    coordinates: int

    def __post_init__(self) -> None:
        _check.settle_integers(self, "sensitivity_squared", remedy="it is the integer Δ₂² in grid units")
        settle_rational(self, "variance")
        _check.settle_integers(self, "parties", remedy="it is the number of parties that add noise")
        remedy = "it is how many of the parties may leave or collude; the noise of at least one must be left"
        _check.settle_integers(self, "dropouts", remedy=remedy, at_least=0, at_most=self.parties - 1)
        _check.settle_integers(self, "coordinates", remedy="it is the number of coordinates that one unit may move")

    @property
    def total_variance(self) -> Fraction:
        """The variance (for discrete Gaussian noise its parameter σ²) of the noise that is left in the worst case."""
        return self.variance * (self.parties - self.dropouts)


@dataclass(frozen=True)
class DistributedDiscreteGaussian(_NoisySum):
    """A sum of integer vectors in which every party adds discrete Gaussian noise (Kairouz, Liu & Steinke 2021).

    `sensitivity_squared` is the integer Δ₂² of the sum and `variance` the parameter σ² of one party's noise, both in
    grid units. Of `parties`, at most `dropouts` do not contribute noise that stays secret: those that leave, and those
    that share what they know with the observer. Who drops out must not depend on the data that are protected. The
    price is for the noise that is left with the largest number of dropouts; noise of more parties only hides more.
    `coordinates` is how many coordinates one unit may move. That the sum is taken modulo some number does not matter.
    """

    sensitivity_squared: int
    variance: Fraction
    parties: int
    dropouts: int = 0
    coordinates: int = 1


@dataclass(frozen=True)
class Skellam(_NoisySum):
    """A sum of integer vectors in which every party adds Skellam noise (Agarwal, Kairouz & Liu 2021).

    A Skellam number is the difference of two Poisson numbers of mean `variance`/2. Sums of them are Skellam numbers
    too, so a single party with the whole variance is the same event. The fields are those of
    `DistributedDiscreteGaussian`, with `variance` the true variance of one party's noise.
    """

    sensitivity_squared: int
    variance: Fraction
    parties: int = 1
    dropouts: int = 0
    coordinates: int = 1
