"""Samplers for correlated noise: one unit's steps follow a pattern that the price knows.

In a fixed order of epochs, or with groups that take turns, two steps of one unit are a known number of steps apart.
`PatternGuard` checks each batch against that, as a second line of defense.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import ClassVar

import numpy as np

from discreet import _check, events
from discreet.errors import DiscreetError
from discreet.events import Event
from discreet.learning.data.records import Indices
from discreet.learning.data.sampling import Sampler, fixed_order, joining, same_number
from discreet.learning.noise import NoiseCorrelation, Secret
from discreet.neighbors import ADD_REMOVE, ZERO_OUT, Neighbors, Person


@dataclass(frozen=True)
class PatternedSampler(Sampler):
    """Batches in which one unit's steps are far apart, so that noise may be correlated. Abstract.

    Guarantee: a unit is in at most ⌈steps/separation⌉ of `steps` steps, and any two of them are at least `separation`
    apart.
    """

    @property
    @abstractmethod
    def separation(self) -> int:
        """The least distance of two steps of one unit."""

    def participations(self, steps: int) -> int:
        """The most of `steps` steps that one unit is in."""
        return ceil(steps / self.separation)

    def correlated(self, correlation: NoiseCorrelation, noise_multiplier: float, steps: int) -> Event:
        """The event of `steps` steps with correlated noise."""
        return correlation.event(noise_multiplier, steps, self.participations(steps), self.separation)

    def check_neighbors(self, neighbors: Neighbors) -> None:
        """Refuse neighbors for which the batches of everybody else could change."""
        return

    def sampled(self, event: Event) -> Event:
        raise _check.fail(
            "noise", f"be 'gaussian' for sampling={self.name!r}", event, "only Gaussian noise has a price there"
        )


@dataclass(frozen=True)
class OrderedEpochs(PatternedSampler):
    """Passes over all units in one random order, which stays the same in all of them; no amplification.

    The number of units is public. The last batch of a pass may be smaller, and is still divided by batch_size.

    >>> OrderedEpochs(100, 1000).participations(30)
    3
    """

    name: ClassVar[str] = "ordered"
    secret_order: ClassVar[bool] = False

    @property
    def separation(self) -> int:
        return ceil(self.examples / self.batch_size)

    def check_neighbors(self, neighbors: Neighbors) -> None:
        if neighbors.relation is ADD_REMOVE:
            remedy = "one row more would move the others to other batches; use dp.REPLACE_ONE, or sampling='cyclic'"
            raise _check.fail("relation", "not be add/remove for sampling='ordered'", neighbors.relation, remedy)
        if isinstance(neighbors.unit, Person) and neighbors.relation is not ZERO_OUT:
            # Persons are numbered by their ids, and another id may come at another place.
            remedy = "another person's id would move the others to other batches; use dp.ZERO_OUT, or sampling='cyclic'"
            raise _check.fail("unit", "be dp.rows() for sampling='ordered'", neighbors.unit, remedy)

    def in_words(self, unit: str) -> str:
        return (
            f"each pass goes through all {self.examples} {unit}s in the same order, {self.batch_size} in a batch, and "
            "is priced without amplification"
        )

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        same_number(units, self.examples)
        batch = step % self.separation
        return fixed_order(secret, 0, units)[batch * self.batch_size : (batch + 1) * self.batch_size]

    def steps(self, epochs: float) -> int:
        return max(1, round(epochs * self.separation))


@dataclass(frozen=True)
class CyclicGroups(PatternedSampler):
    """Each unit draws one of `groups` groups, once. Step i samples group i mod `groups`: each of its units may join.

    With fewer groups than examples / batch_size the probability is below 1, and the price is amplified if the noise has
    at most as many bands as there are groups.

    Guarantee:
        Groups are drawn for each unit independently, and are secret, as the draws within them are: as in
        `PoissonSampler`, the true rate is below `rate` by less than 2⁻⁶⁴. A resumed run needs the same groups, which
        are in the secret file with the pending noise, and nowhere else.

    >>> CyclicGroups(100, 1000, groups=5).rate
    0.5
    """

    groups: int
    name: ClassVar[str] = "cyclic"

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.examples // self.batch_size
        remedy = "it is the number of groups that take turns; more than examples / batch_size leave batches too small"
        _check.settle_integers(self, "groups", remedy=remedy, at_most=most)

    @property
    def separation(self) -> int:
        return self.groups

    @property
    def rate(self) -> float:
        """The probability that a unit of the step's group joins its batch."""
        return self.batch_size * self.groups / self.examples

    def continues(self, step: int) -> bool:
        return step > 0

    def correlated(self, correlation: NoiseCorrelation, noise_multiplier: float, steps: int) -> Event:
        inner = super().correlated(correlation, noise_multiplier, steps)
        if self.rate >= 1:
            return inner
        if not isinstance(inner, events.ToeplitzNoise | events.SquareRootNoise):
            raise _check.fail(
                "correlation",
                "be banded if only some of a group join a batch",
                correlation,
                f"use SquareRootCorrelation(bands={self.groups}), or groups={self.examples // self.batch_size}, "
                "so that all join",
            )
        bands = inner.bands if isinstance(inner, events.SquareRootNoise) else len(inner.coefficients)
        if bands > self.groups:
            remedy = (
                "then the steps of one unit share no noise, which amplification needs; take more groups or fewer bands"
            )
            raise _check.fail("correlation", f"have at most {self.groups} bands, as many as groups", bands, remedy)
        return events.CyclicSampled(self.rate, self.groups, inner)

    def in_words(self, unit: str) -> str:
        joined = "all join" if self.rate >= 1 else f"each joins with probability {self.rate:.4g}"
        return (
            f"each {unit} draws one of {self.groups} groups, which take turns, and of the group whose turn it is "
            f"{joined}, {self.batch_size} on average"
        )

    def draw(self, step: int, units: int, secret: Secret) -> Indices:
        members = np.flatnonzero(_groups(secret, units, self.groups) == step % self.groups).astype(np.int64)
        return members[joining(self.rate, len(members), secret.stream("cyclic", step))]


@lru_cache(maxsize=2)
def _groups(secret: Secret, units: int, groups: int) -> Indices:
    """The group of each unit."""
    return secret.stream("groups").integers(0, groups, size=units).astype(np.int64)


class PatternGuard:
    """Refuses a batch that breaks the pattern of its sampler: a unit too often, or too soon."""

    def __init__(self, sampler: PatternedSampler, steps: int, units: int) -> None:
        self._most, self._separation = sampler.participations(steps), sampler.separation
        self._count = np.zeros(units, dtype=np.int64)
        self._last = np.full(units, -sampler.separation, dtype=np.int64)

    def admit(self, step: int, units: Indices) -> None:
        """Note who is in the batch of a step. Steps come in order."""
        soon = (step - self._last[units] < self._separation).any() or len(np.unique(units)) < len(units)
        if soon or (self._count[units] >= self._most).any():
            raise DiscreetError(
                f"a unit must be in at most {self._most} batches, {self._separation} steps apart, but in step {step} "
                "one comes too often or too soon: the price of correlated noise does not cover such an order"
            )
        self._count[units] += 1
        self._last[units] = step
