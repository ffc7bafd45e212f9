"""`CorrelatedPlan`: noise that is correlated over rounds, for devices that come when they like (DP-FTRL).

No sampling is needed: what counts is how often a client takes part, and how far apart, and the server keeps count. The
noise of a round takes back a part of the noise of earlier rounds, so the sum of all rounds, which is the model, has
less noise than with fresh noise in each.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from discreet import _check, events
from discreet.accounting.correlation import square_root_coefficients
from discreet.events import Event
from discreet.learning import pricing
from discreet.learning.clipping import Flat, checked_norm
from discreet.learning.federated.plan import RoundsPlan
from discreet.learning.federated.registry import Registry, registry_of
from discreet.learning.noise import GaussianNoise, Secret
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import ZERO_OUT, Relation
from discreet.numeric.rounding import float_down

Floats = NDArray[np.float64]
#: Diagonals of the encoder by default: the server keeps the noise of one round less than that.
BANDS = 8


@dataclass(frozen=True)
class CorrelatedPlan(RoundsPlan):
    """A federated training with correlated noise as one event. Make it with `CorrelatedPlan.make`.

    Attributes:
        clients_per_round: the most clients in a round, and what sums are divided by, however many come.
        participations: the most rounds that one client takes part in.
        separation: the rounds from one participation of a client to its next are at least this many.
        clipping: how a client's whole update is bounded.
        bands: diagonals of the encoder, the square root of the prefix sum.
        noise_multiplier: the standard deviation of the noise before it is correlated, over the clip norm.

    Guarantee:
        Neighbors: zero out one client (or a person, as a group of m = `clients.group` clients): its data are replaced
        by none, while it is still asked. (With a client more, others could be asked in other rounds.) The releases are
        functions of Cx + z, with x the sums of the rounds, z Gaussian noise and C the banded square root (Kalinin &
        Lampert 2024, arXiv 2405.13763); DP-FTRL is this with the participations of clients kept by the server (Kairouz
        et al. 2021, arXiv 2103.00039; Choquette-Choo et al. 2023, arXiv 2211.06530). The m clients of a group move Cx
        by the sum of their moves, at most m times as far as one, so the event has a noise multiplier m times smaller.
        Who takes part when is not secret.
    """

    clients_per_round: int
    participations: int
    separation: int
    clipping: Flat
    bands: int
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "it is the most clients in a round, so at most all of them"
        _check.settle_integers(self, "clients_per_round", remedy=remedy, at_most=self.clients.number)
        _check.settle_integers(self, "participations", remedy="it is the most rounds that one client takes part in")
        _check.settle_integers(self, "separation", remedy="it is how many rounds a client waits until its next one")
        _check.settle_integers(self, "bands", remedy="it is the number of diagonals", at_most=self.rounds)
        if not isinstance(self.clipping, Flat) or self.clipping.order != 2:
            raise _check.fail("clipping", "be Flat(norm)", self.clipping, "correlated noise needs a fixed norm")
        _ = self._rounds_event(self.rounds)  # checks the multiplier

    @classmethod
    def make(
        cls,
        clients: Registry | int,
        *,
        rounds: int,
        delta: float,
        clients_per_round: int,
        participations: int,
        separation: int,
        clip_norm: float,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        bands: int | None = None,
    ) -> CorrelatedPlan:
        """The plan with the least noise for (ε, δ), or with a given noise multiplier.

        Args:
            clients: the registry, from `clients(…)`, or its public number of clients.
            rounds: the number of rounds.
            delta: the δ at which the guarantee is stated.
            clients_per_round: the most clients in a round; sums are divided by it.
            participations: the most rounds that one client takes part in.
            separation: the least number of rounds from one participation to the next.
            clip_norm: the largest L2 norm of one client's whole update.
            epsilon: the ε of the whole training. Give this or
            noise_multiplier: the noise's standard deviation before it is correlated, over the clip norm.
            bands: diagonals of the encoder; 8 by default, or the rounds if they are fewer.
        """
        _check.exactly_one(epsilon=epsilon, noise_multiplier=noise_multiplier)
        registry, clipping = registry_of(clients), Flat(checked_norm("clip_norm", clip_norm))
        number = _check.integer("rounds", rounds, "it is the number of noisy sums that are released")
        width = min(BANDS, number) if bands is None else bands
        remedy = "without noise there is no guarantee"
        multiplier = (
            1.0 if epsilon is not None else float(_check.positive("noise_multiplier", noise_multiplier, remedy))
        )
        draft = cls(registry, number, delta, clients_per_round, participations, separation, clipping, width, multiplier)
        if epsilon is None:
            return draft
        target = float(_check.epsilon(epsilon))
        multiplier = pricing.least_noise(
            lambda z: replace(draft, noise_multiplier=z)._rounds_event(number), target, delta, ZERO_OUT
        )
        return replace(draft, noise_multiplier=multiplier, _target=target)

    @property
    def relation(self) -> Relation:
        return ZERO_OUT

    @property
    def expected_clients(self) -> float:
        """The public number that every sum is divided by."""
        return float(self.clients_per_round)

    @property
    def sum_multiplier(self) -> float:
        """The noise multiplier of the sums, before the noise is correlated."""
        return self.noise_multiplier

    def _rounds_event(self, rounds: int) -> Event:
        each = float_down(Fraction(self.noise_multiplier) / self.clients.group)
        return events.SquareRootNoise(each, min(self.bands, rounds), rounds, self.participations, self.separation)

    def explain(self) -> str:
        """The plan in words: who takes part, what is added, what it costs, and whom it protects."""
        return "\n".join(
            [
                f"{self.rounds} rounds of at most {self.clients_per_round} of {self.clients.number} clients.",
                f"A client takes part in at most {self.participations}, at least {self.separation} rounds apart.",
                f"A client's whole update is {self.clipping.in_words(f'{self.clipping.norm:g}')}.",
                f"The noise is correlated over {self.bands} rounds; sums are divided by {self.clients_per_round}.",
                self.guarantee.explain(),
            ]
        )


class Calendar:
    """Who took part when. It gives no client more rounds than the plan, nor closer together.

    Args:
        plan: the plan.
        ids: the frozen registry.
        times: how often each client took part.
        last: the last round of each client; 0 if it never took part.
    """

    def __init__(
        self, plan: CorrelatedPlan, ids: NDArray[np.uint64], times: NDArray[np.int64], last: NDArray[np.int64]
    ) -> None:
        self._plan, self.ids, self.times, self.last = plan, ids, times, last

    @classmethod
    def empty(cls, plan: CorrelatedPlan, ids: Iterable[int]) -> Calendar:
        """Nobody took part yet."""
        client_ids = np.array(sorted(ids), dtype=np.uint64)
        return cls(plan, client_ids, np.zeros(len(client_ids), np.int64), np.zeros(len(client_ids), np.int64))

    def choose(self, number: int, present: Iterable[int]) -> frozenset[int]:
        """Some of those who are present and may take part in round `number`. They count as having taken part."""
        plan = self._plan
        here = np.isin(self.ids, np.array(sorted(present), dtype=np.uint64))
        rested = (self.times == 0) | (number - self.last >= plan.separation)
        may = np.flatnonzero(here & rested & (self.times < plan.participations))
        chosen = may[samplers.permutation(len(may), entropy.bits(plan.insecure_seed))[: plan.clients_per_round]]
        self.times[chosen] += 1
        self.last[chosen] = number
        return frozenset(int(each) for each in self.ids[chosen])


class CorrelatedNoise:
    """The noise C⁻¹z, row by row: each row is fresh noise minus parts of the rows before it.

    Args:
        plan: the plan.
        recent: the noise of the last rounds, the newest first.
        number: the round of the newest.
    """

    def __init__(self, plan: CorrelatedPlan, recent: list[Floats] | None = None, number: int = 0) -> None:
        self._plan, self.number = plan, number
        self.recent = [] if recent is None else recent
        self._coefficients = square_root_coefficients(plan.bands)

    def skip(self, size: int) -> None:
        """Leave out a round that was lost: nothing of its noise is taken back later.

        Its noise is gone with the process that drew it, and perhaps its release was seen. No row of Cx + z is released
        twice then, and none uses more of the data than before (docs/proofs/correlated-noise.md, section 5).
        """
        self.number += 1
        self.recent = [np.zeros(size), *self.recent][: self._plan.bands - 1]

    def next(self, size: int, secret: Secret) -> Floats:
        """The noise of the next round, for sums of `size` numbers. Rows are drawn in order, each once."""
        plan = self._plan
        self.number += 1
        scale = plan.noise_multiplier * plan.clipping.norm
        drawn = GaussianNoise(plan.noise_multiplier).flat(
            size, scale, secret.at("correlated", self.number), dtype=torch.float64
        )
        row: Floats = drawn.numpy()
        for coefficient, earlier in zip(self._coefficients[1:], self.recent, strict=False):
            row -= coefficient * earlier
        self.recent = [row, *self.recent][: plan.bands - 1]
        return row.copy()
