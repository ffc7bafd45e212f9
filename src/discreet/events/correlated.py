"""Gaussian noise that is correlated over the steps of a stream or a training, by a factorization A = B·C.

The releases are functions of Cx + z, where row i of x is the sum over the batch of step i, z is independent Gaussian
noise, and C is the public *encoder* named by the event. (What is then computed, B(Cx + z) = A(x + C⁻¹z), is
post-processing.) A step's batch may depend on earlier releases. One unit takes part in at most `participations` steps,
any two of them at least `separation` apart. A fixed order of epochs is such a pattern, with `separation` steps in each
of `participations` epochs.

In each of its steps a unit changes the batch's sum by at most Δ₂ in L2; `noise_multiplier` is σ/Δ₂ with σ the standard
deviation of each coordinate of z. It is not divided by the sensitivity of C, which accountants compute.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.events.base import Event, check_depth, check_tuple, settle_multiplier


class _CorrelatedNoise(Event):
    """What all correlated noise has. Abstract: each event declares its own fields, because their order is public."""

    noise_multiplier: float
    steps: int
    participations: int
    separation: int

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise_multiplier")
        _check.settle_integers(self, "steps", remedy="it is the number of steps of the stream or training")
        _check.settle_integers(self, "participations", remedy="it is the most steps that one unit takes part in")
        _check.settle_integers(self, "separation", remedy="any two steps of one unit are at least this far apart")
        self._check_encoder()

    @abstractmethod
    def _check_encoder(self) -> None:
        """Check the fields that define the encoder; those of the pattern are checked."""


@dataclass(frozen=True)
class ToeplitzNoise(_CorrelatedNoise):
    """Noise with a lower triangular Toeplitz encoder, whose first column is `coefficients`, then zeros.

    Fewer coefficients than steps make a banded encoder.
    """

    noise_multiplier: float
    coefficients: tuple[float, ...]
    steps: int
    participations: int
    separation: int

    def _check_encoder(self) -> None:
        check_tuple("coefficients", self.coefficients)
        _check.settle_each(self, "coefficients", _check.real, "they are the first column of the encoder")
        if not 1 <= len(self.coefficients) <= self.steps:
            remedy = "they are the first column of the encoder, without the zeros at its end"
            raise _check.fail("coefficients", f"be 1 to {self.steps} numbers", len(self.coefficients), remedy)
        if not self.coefficients[0] > 0:
            remedy = "the encoder must be invertible"
            raise _check.fail("coefficients", "start with a positive number", self.coefficients[0], remedy)


@dataclass(frozen=True)
class SquareRootNoise(_CorrelatedNoise):
    """Noise with the square root of the prefix-sum matrix as its encoder, cut to `bands` diagonals.

    Its coefficients are C(2j, j)/4ʲ: 1, 1/2, 3/8, 5/16, … (Fichtenberger, Henzinger & Upadhyay 2023; banded: Kalinin &
    Lampert 2024, arXiv 2405.13763).
    """

    noise_multiplier: float
    bands: int
    steps: int
    participations: int
    separation: int

    def _check_encoder(self) -> None:
        _check.settle_integers(self, "bands", remedy="it is the number of diagonals that are kept", at_most=self.steps)


@dataclass(frozen=True)
class BufferedNoise(_CorrelatedNoise):
    """Noise with a buffered linear Toeplitz encoder: coefficients 1 and Σᵢ ωᵢ λᵢ^{j−1} for j ≥ 1 (arXiv 2404.16706).

    `scales` are the ωᵢ > 0 and `decays` the λᵢ in [0, 1), one pair for each buffer.
    """

    noise_multiplier: float
    scales: tuple[float, ...]
    decays: tuple[float, ...]
    steps: int
    participations: int
    separation: int

    def _check_encoder(self) -> None:
        check_tuple("scales", self.scales)
        check_tuple("decays", self.decays)
        _check.settle_each(self, "scales", _check.positive, "each buffer adds its scale times its content")
        _check.settle_each(self, "decays", _check.nonnegative, "each step multiplies a buffer by its decay")
        if len(self.scales) != len(self.decays) or not self.scales:
            lengths = (len(self.scales), len(self.decays))
            raise _check.fail("scales", "be as many as decays, at least one", lengths, "each buffer has one of each")
        if any(decay >= 1 for decay in self.decays):
            raise _check.fail("decays", "be < 1", max(self.decays), "a buffer that does not decay grows without bound")


@dataclass(frozen=True)
class TreeNoise(_CorrelatedNoise):
    """Noise on every node of a complete tree over the steps, in which each node has `branching` children.

    A leaf is one step, an inner node the sum of its steps; the root is a node too.
    """

    noise_multiplier: float
    branching: int
    steps: int
    participations: int
    separation: int

    def _check_encoder(self) -> None:
        remedy = "it is the number of children of a node"
        _check.settle_integers(self, "branching", remedy=remedy, at_least=2)


@dataclass(frozen=True)
class CyclicSampled(Event):
    """Correlated noise on Poisson samples of cyclic groups: step i samples group i mod `groups` at `rate`.

    Each unit belongs to one group, which it drew or was given independently of all data. `event` is correlated noise
    with a banded encoder; its pattern is that of a unit that joins every step of its group, so its separation is
    `groups`, and its participations are ⌈steps/groups⌉.
    """

    rate: float
    groups: int
    event: Event

    def __post_init__(self) -> None:
        remedy = "it is the probability that a unit of the group joins the batch"
        _check.settle(self, "rate", _check.probability, remedy)
        _check.settle_integers(self, "groups", remedy="it is the number of groups that take turns")
        if not isinstance(self.event, ToeplitzNoise | SquareRootNoise):
            remedy = "only a banded encoder makes the steps of one group independent"
            raise _check.fail("event", "be ToeplitzNoise or SquareRootNoise", self.event, remedy)
        wanted = (self.groups, -(-self.event.steps // self.groups))
        if (self.event.separation, self.event.participations) != wanted:
            raise InvalidArgument(
                f"event must have separation {wanted[0]} and participations {wanted[1]}, got {self.event.separation} "
                f"and {self.event.participations}: a unit can join every step of its group, one in {self.groups}"
            )
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)
