"""`FederatedPlan`: a federated training, fixed in advance, whose noise is added by a trusted server.

Everything that decides the price is in the plan: who can be drawn and how often, how an update is clipped, the noise
and the number of rounds. So the whole training is one event, and its guarantee is known before the first message.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

from discreet import _check, events
from discreet.errors import InvalidArgument
from discreet.events import Event
from discreet.guarantees import ApproxDP, Guarantee, PureDP
from discreet.learning import pricing
from discreet.learning.clipping import Adaptive, Clipping, Flat, checked_norm
from discreet.learning.federated.registry import Registry, registry_of
from discreet.neighbors import ADD_REMOVE, Neighbors, Relation

_RATE = "it is the probability that a client is drawn for a round"
_ROUNDS = "it is the number of noisy sums that are released"


@dataclass(frozen=True)
class RoundsPlan(ABC):
    """What every plan of rounds over a registry of clients has. Abstract.

    Attributes:
        clients: the frozen registry.
        rounds: the number of rounds.
        delta: the δ at which the guarantee is stated.
        insecure_seed: makes draws and noise repeatable, for tests; the event then guarantees nothing.
    """

    clients: Registry
    rounds: int
    delta: float
    insecure_seed: int | None = field(default=None, repr=False, kw_only=True)
    _target: float | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.clients, Registry):
            raise _check.fail("clients", "be a Registry", self.clients, "make one with clients(1000)")
        _check.settle_integers(self, "rounds", remedy=_ROUNDS)
        object.__setattr__(self, "delta", float(_check.delta(self.delta)))
        if self.insecure_seed is not None:
            _check.integer("insecure_seed", self.insecure_seed, "it makes noise repeatable", at_least=0)

    @property
    @abstractmethod
    def relation(self) -> Relation:
        """Which federations count as neighbors."""

    @abstractmethod
    def _rounds_event(self, rounds: int) -> Event:
        """The event of the first `rounds` rounds, if all randomness is secure."""

    @abstractmethod
    def explain(self) -> str:
        """The plan in words: who takes part, what is added, what it costs, and whom it protects."""

    @property
    def event(self) -> Event:
        """The whole training as one event, which a ledger is charged."""
        return self.event_of(self.rounds)

    def event_of(self, rounds: int) -> Event:
        """The first `rounds` rounds as one event."""
        whole = self._rounds_event(rounds)
        return whole if self.insecure_seed is None else events.Insecure(whole)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole training, and whom it protects."""
        certified = self.guarantee_after(self.rounds)
        if self._target is not None and isinstance(certified, ApproxDP) and certified.epsilon <= self._target:
            return self._stated(self._target)  # the noise was calibrated to this ε
        return certified

    def guarantee_after(self, rounds: int) -> Guarantee:
        """The guarantee of the first `rounds` rounds."""
        return self._stated(self.epsilon_after(rounds))

    def epsilon_after(self, rounds: int) -> float:
        """ε of the first `rounds` rounds at the plan's δ."""
        return 0.0 if rounds == 0 else pricing.price(self.event_of(rounds), self.delta, self.relation).epsilon

    def _stated(self, epsilon: float) -> Guarantee:
        guarantee = PureDP(epsilon) if math.isinf(epsilon) else ApproxDP(epsilon, self.delta)
        return guarantee.protecting(self.neighbors)

    @property
    def neighbors(self) -> Neighbors:
        """Whom the plan protects, and under which relation."""
        return Neighbors(self.relation, self.clients.unit)

    @property
    def fingerprint(self) -> str:
        """A hash that two plans share only if they agree in everything that decides the price or the updates."""
        return hashlib.sha256(repr((type(self).__name__, self, self.event, self.neighbors)).encode()).hexdigest()

    def of_person(self, step: Event) -> Event:
        """A round's event for the unit: a client, or a person with several, who may all change together."""
        return step if self.clients.group == 1 else events.Group(step, self.clients.group)


@dataclass(frozen=True)
class FederatedPlan(RoundsPlan):
    """A federated training as one event, with noise that a trusted server adds. Make it with `Plan.federated`.

    Attributes:
        rate: the probability that a client is drawn for a round, independently of all others.
        clipping: how a client's whole update is bounded: `Flat`, or `Adaptive` (Andrew et al. 2021).
        noise_multiplier: the standard deviation of the noise over the sensitivity of what a round releases.
        secret_sample: whether nobody but the server learns who was drawn. Only then sampling amplifies privacy.

    Guarantee:
        Neighbors: add or remove one client (or a person, as a group of `clients.group` clients). Each round is
        DP-FedAvg with Poisson sampling over the registry (McMahan et al. 2018, arXiv 1710.06963, Algorithm 1 with
        estimator f̃_f): a client is in the sum with probability at most `rate`, moves it by at most the clip norm, and
        is otherwise ignored. Absent, failed and refused replies count as zero, which is what an absent client
        contributes, so dropouts do not change the guarantee.

    >>> from discreet.learning import Plan
    >>> plan = Plan.federated(1000, clients_per_round=100, rounds=100, clip_norm=1.0, noise_multiplier=1.0, delta=1e-5)
    >>> print(plan.guarantee)
    (7.0466, 1e-05)-DP, add or remove one client
    """

    rate: float
    clipping: Clipping
    noise_multiplier: float
    secret_sample: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rate", float(_check.probability("rate", self.rate, _RATE)))
        if self.rate <= 0:
            raise _check.fail("rate", "be > 0", self.rate, _RATE)
        if not isinstance(self.clipping, Flat | Adaptive) or self.clipping.order != 2:
            remedy = "an update is clipped as a whole, in L2"
            raise _check.fail("clipping", "be Flat(norm) or Adaptive(norm)", self.clipping, remedy)
        _ = events.Gaussian(self.noise_multiplier)  # checks the multiplier
        if isinstance(self.clipping, Adaptive) and 2 * self.clipping.count_noise <= self.noise_multiplier:
            raise InvalidArgument(
                f"clipping.count_noise must be more than half of the plan's {self.noise_multiplier:.4g}, got "
                f"{self.clipping.count_noise}: otherwise the count alone would cost more than the whole round; a "
                "twentieth of the clients in a round is usual"
            )

    @classmethod
    def make(
        cls,
        clients: Registry | int,
        *,
        rounds: int,
        delta: float,
        rate: float | None = None,
        clients_per_round: float | None = None,
        clip_norm: float | None = None,
        clipping: Clipping | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        secret_sample: bool = True,
        insecure_seed: int | None = None,
    ) -> FederatedPlan:
        """The plan with the least noise for (ε, δ), or with a given noise multiplier.

        Args:
            clients: the registry, from `clients(…)`, or its public number of clients.
            rounds: the number of rounds.
            delta: the δ at which the guarantee is stated.
            rate: the probability that a client is drawn for a round. Give this or
            clients_per_round: the expected number of clients in a round.
            clip_norm: the largest L2 norm of one client's whole update. Give this or
            clipping: `Flat(norm)`, or `Adaptive(norm, …)`, whose norm follows a private quantile.
            epsilon: the ε of the whole training. Give this or
            noise_multiplier: the noise's standard deviation over the sensitivity.
            secret_sample: False if others learn who was drawn; the price is then that of all clients in all rounds.
            insecure_seed: repeatable noise, for tests only; it guarantees nothing.
        """
        registry = registry_of(clients)
        _check.exactly_one(rate=rate, clients_per_round=clients_per_round)
        _check.exactly_one(clip_norm=clip_norm, clipping=clipping)
        _check.exactly_one(epsilon=epsilon, noise_multiplier=noise_multiplier)
        if rate is None:
            expected = float(_check.positive("clients_per_round", clients_per_round, "it is the expected number"))
            if expected > registry.number:
                remedy = "at most all clients are drawn"
                raise _check.fail("clients_per_round", f"be ≤ {registry.number}", clients_per_round, remedy)
            rate = expected / registry.number
        if clipping is None:
            clipping = Flat(checked_norm("clip_norm", clip_norm))
        multiplier = (
            1.0
            if noise_multiplier is None
            else float(_check.positive("noise_multiplier", noise_multiplier, "without noise there is no guarantee"))
        )
        draft_clipping = clipping if noise_multiplier is not None else Flat(clipping.norm)
        draft = cls(registry, rounds, delta, rate, draft_clipping, multiplier, secret_sample)
        if epsilon is not None:
            target = float(_check.epsilon(epsilon))
            multiplier = pricing.least_noise(
                lambda z: replace(draft, noise_multiplier=z)._rounds_event(draft.rounds), target, delta, draft.relation
            )
            draft = replace(draft, noise_multiplier=multiplier, clipping=clipping, _target=target)
        return replace(draft, insecure_seed=insecure_seed)

    @property
    def relation(self) -> Relation:
        return ADD_REMOVE

    def _rounds_event(self, rounds: int) -> Event:
        step: Event = events.Gaussian(self.noise_multiplier)
        if self.secret_sample:
            step = events.PoissonSampled(self.rate, step)
        return events.Repeated(self.of_person(step), rounds)

    @property
    def expected_clients(self) -> float:
        """The public number that every sum is divided by: rate × number of clients, whoever replies."""
        return self.rate * self.clients.number

    @property
    def sum_multiplier(self) -> float:
        """The noise multiplier of the sum alone: (z⁻² − (2σ_b)⁻²)^{−1/2} with adaptive clipping, and else z.

        Andrew et al. 2021 (arXiv 1905.03871), Theorem 1: the sum, scaled by its noise, moves by 1/z_Δ and the centered
        count by (1/2)/σ_b, both together by 1/z.
        """
        z = self.noise_multiplier
        if not isinstance(self.clipping, Adaptive):
            return z
        return 1 / math.sqrt(z**-2 - (2 * self.clipping.count_noise) ** -2)

    def explain(self) -> str:
        """The plan in words: who is drawn, what is clipped and added, what it costs, and whom it protects."""
        drawn = f"each of {self.clients.number} clients is drawn with probability {self.rate:.4g}"
        secret = "who is drawn stays secret" if self.secret_sample else "who is drawn may be known: no amplification"
        scale = f"a standard deviation of {self.noise_multiplier:.6g} times the sensitivity"
        lines = [
            f"{self.rounds} rounds; in each round {drawn}, and {secret}.",
            f"A client's whole update is {self.clipping.in_words(f'{self.clipping.norm:g}')}.",
            f"Gaussian noise with {scale} is added to the sum.",
            f"The sum is divided by {self.expected_clients:g}, however many clients reply.",
        ]
        if self.insecure_seed is not None:
            return "\n".join([*lines, "The noise can be reproduced from a seed, so nothing at all is protected."])
        return "\n".join([*lines, self.guarantee.explain()])
