"""`SecurePlan`: rounds whose noise the clients add themselves, and whose sum alone is opened by secure aggregation.

No server has to be trusted with updates. It may draw the clients of a round itself, so sampling amplifies nothing: the
price is that of a client that takes part in every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from discreet import _check, events
from discreet.events import Event
from discreet.learning import pricing
from discreet.learning.clipping import checked_norm
from discreet.learning.federated.integers import MOST_BITS, IntegerUpdates
from discreet.learning.federated.plan import RoundsPlan
from discreet.learning.federated.registry import Registry, registry_of
from discreet.neighbors import ZERO_OUT, Relation
from discreet.numeric.rounding import rounded_up

# A coordinate of the sum may have this many standard deviations before it wraps around. Rounding to integers may take
# up to half of that away, where bits are few for the dimension.
_DEVIATIONS, _FEWEST_DEVIATIONS = 8.0, 4.0


@dataclass(frozen=True)
class SecurePlan(RoundsPlan):
    """A federated training with distributed noise, as one event. Make it with `SecurePlan.make`.

    Attributes:
        parties: how many clients take part in a round.
        dropouts: how many of them may leave, or tell the server what they know, without harm.
        updates: how updates become integers.
        noise_multiplier: the standard deviation of the noise that is left with all dropouts, over the sensitivity.

    Guarantee:
        Neighbors: zero out one client (or a person, as a group of `clients.group` clients): its data are replaced by
        none, while it still adds its noise. Each client clips and adds discrete Gaussian noise itself, and the server
        sees the sum modulo 2^bits of at least parties − dropouts of them (Kairouz, Liu & Steinke 2021, Theorem 1; our
        bound on the sum of noises: docs/proofs/secure-aggregation.md, Lemma 1). A client moves the integers by at most
        √`updates.norm_squared`, and a group of m clients by m times that. There is no amplification, because the
        server draws the sample. Assumed: clients run this code, the server follows the protocol (it may keep and
        analyze all it sees), and who drops out does not depend on the data.
    """

    parties: int
    dropouts: int
    updates: IntegerUpdates
    noise_multiplier: float

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = "it is how many clients take part in a round, so at least 2 and at most all of them"
        _check.settle_integers(self, "parties", remedy=remedy, at_least=2, at_most=self.clients.number)
        # With half of the clients or more missing, a server could open two sums with two halves of the others.
        remedy = "fewer than half of the clients of a round may leave: the others must be a majority"
        _check.settle_integers(self, "dropouts", remedy=remedy, at_least=0, at_most=(self.parties - 1) // 2)
        _ = events.Gaussian(self.noise_multiplier)  # checks the multiplier

    @classmethod
    def make(
        cls,
        clients: Registry | int,
        *,
        rounds: int,
        delta: float,
        parties: int,
        dropouts: int,
        dimension: int,
        clip_norm: float,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        bits: int = MOST_BITS,
    ) -> SecurePlan:
        """The plan with the least noise for (ε, δ), or with a given noise multiplier.

        Args:
            clients: the registry, from `clients(…)`, or its public number of clients.
            rounds: the number of rounds.
            delta: the δ at which the guarantee is stated.
            parties: how many clients take part in a round; sums are divided by it.
            dropouts: how many of them may leave or collude; fewer than half.
            dimension: the number of trained parameters.
            clip_norm: the largest L2 norm of one client's whole update.
            epsilon: the ε of the whole training. Give this or
            noise_multiplier: the noise's standard deviation over the sensitivity, with all dropouts.
            bits: sums are modulo 2^bits. Fewer bits make messages smaller and rounding coarser.
        """
        registry = registry_of(clients)
        _check.exactly_one(epsilon=epsilon, noise_multiplier=noise_multiplier)
        multiplier = (
            1.0
            if noise_multiplier is None
            else float(_check.positive("noise_multiplier", noise_multiplier, "without noise there is no guarantee"))
        )
        if epsilon is not None:  # a first guess: that of central noise
            central = events.Gaussian
            multiplier = pricing.least_noise(
                lambda z: events.Repeated(central(z), rounds), float(_check.epsilon(epsilon)), delta, ZERO_OUT
            )
        updates = _updates(clip_norm, dimension, bits, parties, dropouts, multiplier * registry.group)
        draft = cls(registry, rounds, delta, parties, dropouts, updates, multiplier)
        if epsilon is not None:
            target = float(_check.epsilon(epsilon))
            multiplier = pricing.least_noise(
                lambda z: replace(draft, noise_multiplier=z)._rounds_event(draft.rounds), target, delta, ZERO_OUT
            )
            draft = replace(draft, noise_multiplier=multiplier, _target=target)
        if _FEWEST_DEVIATIONS * draft.spread > 1 << (updates.bits - 1):
            remedy = "noise must hide what rounding adds, and at this dimension sums modulo 2^bits would wrap around"
            raise _check.fail("bits", "be more for this many parameters", bits, remedy)
        return draft

    @property
    def relation(self) -> Relation:
        return ZERO_OUT

    @property
    def norm_squared(self) -> int:
        """How far the unit moves the sum of integers: a person with m clients moves it m times as far as one."""
        return self.updates.norm_squared * self.clients.group**2

    @property
    def variance(self) -> Fraction:
        """The parameter σ² of each client's noise, in integers: what is left with all dropouts is (zΔ)²."""
        wanted = Fraction(self.noise_multiplier) ** 2 * self.norm_squared
        return rounded_up(wanted / (self.parties - self.dropouts))

    def _rounds_event(self, rounds: int) -> Event:
        return events.Repeated(
            events.DistributedDiscreteGaussian(
                self.norm_squared, self.variance, self.parties, self.dropouts, self.updates.size
            ),
            rounds,
        )

    @property
    def spread(self) -> float:
        """A bound on the standard deviation of a coordinate of the sum, in integers, over rotations and the noise."""
        updates, count = self.updates, self.parties
        together = updates.scale * updates.clip_norm * count / math.sqrt(updates.size)
        return math.sqrt(together**2 + count / 4 + count * float(self.variance))

    @property
    def threshold(self) -> int:
        """How many clients must be left for a sum to be opened."""
        return self.parties - self.dropouts

    def explain(self) -> str:
        """The plan in words: who takes part, what is added, what it costs, and whom it protects."""
        return "\n".join(
            [
                f"{self.rounds} rounds of {self.parties} clients, of which {self.dropouts} may leave or collude.",
                f"Each clips its update to {self.updates.clip_norm:g} and rounds it to integers.",
                f"It adds discrete Gaussian noise of variance {float(self.variance):.6g}.",
                f"Only the sum modulo 2^{self.updates.bits} of at least {self.threshold} clients is opened.",
                self.guarantee.explain(),
            ]
        )


def _updates(
    clip_norm: float, dimension: int, bits: int, parties: int, dropouts: int, multiplier: float
) -> IntegerUpdates:
    """The finest scale at which sums hardly ever wrap around.

    A coordinate of the rotated sum of n updates of norm C has a standard deviation of at most nC/√D, and the noise one
    of zC√(n/(n−k)), or m times that for a person with m clients. What rounding adds is little at most scales.
    """
    norm = checked_norm("clip_norm", clip_norm)
    size = 1 << max(0, _check.integer("dimension", dimension, "it is the number of parameters") - 1).bit_length()
    left = max(1, _check.integer("parties", parties, "it is how many clients take part", at_least=2) - dropouts)
    bits = _check.integer("bits", bits, "sums are modulo 2^bits", at_least=2, at_most=MOST_BITS)
    spread = norm * math.hypot(parties / math.sqrt(size), multiplier * math.sqrt(parties / left))
    # The norm of integers stays below 2^29, so that its square fits in 64 bits together with that of the rounding.
    scale = min(2.0 ** (bits - 1) / (_DEVIATIONS * spread), 2.0**29 / norm)
    return IntegerUpdates(norm, dimension, scale, bits)
