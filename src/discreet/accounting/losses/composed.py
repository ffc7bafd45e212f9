"""The losses of a whole composition, sorted by what the methods can do with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from discreet.accounting.losses.atoms import AtomLoss, ListedLoss
from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.losses.mixtures import GroupLoss

# Relative error allowed for sums of logarithms of one sign: a few units in the last place each, so 32 units are ample.
_SUM_ERROR = 2.0**-48
# Losses that P exceeds with a smaller probability than this do not matter at any δ that a float can hold.
_NEGLIGIBLE = 1e-300
# Relative margin for the round-off of the supports that `largest_loss` adds up.
_SUPPORT_ERROR = 1e-12


@dataclass(frozen=True, eq=False)
class Losses:
    """A composition's losses in one direction, from one side.

    Attributes:
        mu_squared: Σμ² of all Gaussians on the whole data.
        sampled: (rate, μ, count) of each Gaussian on a Poisson sample.
        others: every other loss, with how often it runs.
        concentrated: the ρ of events that are known to be zCDP and nothing more (upper side only).
        shift: how far the losses were moved in replacing an event by a nearby one.
        inflation: by how much, as a logarithm, its masses were scaled.
        exact: whether the view from the other side is the same.
    """

    mu_squared: float = 0.0
    sampled: tuple[tuple[float, float, int], ...] = ()
    others: tuple[tuple[PrivacyLoss, int], ...] = ()
    concentrated: float = 0.0
    shift: float = 0.0
    inflation: float = 0.0
    exact: bool = True

    @classmethod
    def of(cls, loss: PrivacyLoss) -> Losses:
        """One loss, once."""
        return cls(others=((loss, 1),))

    def __add__(self, other: Losses) -> Losses:
        return Losses(
            self.mu_squared + other.mu_squared,
            self.sampled + other.sampled,
            self.others + other.others,
            self.concentrated + other.concentrated,
            self.shift + other.shift,
            self.inflation + other.inflation,
            self.exact and other.exact,
        )

    def times(self, count: int) -> Losses:
        """The same composition, `count` times."""
        return Losses(
            self.mu_squared * count,
            tuple((rate, mu, times * count) for rate, mu, times in self.sampled),
            tuple((loss, times * count) for loss, times in self.others),
            self.concentrated * count,
            self.shift * count,
            self.inflation * count,
            self.exact,
        )

    @property
    def nothing_lost(self) -> bool:
        """Whether the composition reveals nothing at all."""
        return not self.sampled and not self.others and self.mu_squared == 0 and self.concentrated == 0

    def only_loss(self) -> AtomLoss | GroupLoss | None:
        """The one loss of this composition, if there is just one and it has a formula for its profile."""
        if self.sampled or self.mu_squared > 0 or self.concentrated > 0:
            return None
        match self.others:
            case (((AtomLoss() | GroupLoss()) as only, 1),):
                return only
            case ((ListedLoss() as only, 1),):
                return only.listed
            case _:
                return None

    @property
    def steps(self) -> int:
        """How many losses are composed, all Gaussians on the whole data counted as one."""
        return (self.mu_squared > 0) + sum(count for _, _, count in self.sampled) + sum(n for _, n in self.others)

    def infinite_mass(self) -> tuple[float, float]:
        """P that some loss is infinite, from below and from above."""
        if any(loss.infinite >= 1.0 for loss, _ in self.others):
            return 1.0, 1.0
        match [(loss, count) for loss, count in self.others if loss.infinite > 0]:
            case [(AtomLoss(infinite_is_exact=True) as only, 1)]:
                return only.infinite, only.infinite
        # All terms have one sign, so the sum and its expm1 are good to a few units in the last place.
        mass = -math.expm1(math.fsum(count * math.log1p(-loss.infinite) for loss, count in self.others))
        return mass * (1 - _SUM_ERROR), min(1.0, mass * (1 + _SUM_ERROR))

    def largest_loss(self, *, adding: bool) -> float:
        """A bound on every finite loss of the composition; inf where there is none."""
        if self.mu_squared > 0 or self.concentrated > 0 or (self.sampled and not adding):
            return math.inf
        terms = [-count * math.log1p(-rate) for rate, _, count in self.sampled]
        for loss, count in self.others:
            if loss.unbounded:
                return math.inf
            terms.append(count * loss.support(_NEGLIGIBLE)[1])
        return math.fsum(terms) * (1 + _SUPPORT_ERROR)

    def top_atom(self) -> tuple[float, float] | None:
        """The largest finite loss and ln of its probability, both rounded down; None where it has no atom."""
        if self.mu_squared > 0 or self.sampled or self.concentrated > 0:
            return None
        loss = log_mass = 0.0
        for each, count in self.others:
            losses, p, _ = each.atoms()
            if len(losses) == 0 or losses[-1] < each.support(_NEGLIGIBLE)[1] or not p[-1] > 0:
                return None
            loss, log_mass = loss + count * float(losses[-1]), log_mass + count * math.log(p[-1])
        return loss - abs(loss) * _SUPPORT_ERROR, log_mass - abs(log_mass) * _SUPPORT_ERROR - _SUPPORT_ERROR

    def for_grid(self, *, adding: bool) -> list[tuple[PrivacyLoss, int]]:
        """All losses in a form that fits on a grid, each with its count."""
        repeated: list[tuple[PrivacyLoss, int]] = list(self.others)
        if self.mu_squared > 0:
            repeated.append((ContinuousLoss(GaussianShift(math.sqrt(self.mu_squared))), 1))
        repeated += [(ContinuousLoss(GaussianShift(mu), rate, adding), count) for rate, mu, count in self.sampled]
        return repeated
