"""The noisy vote: how the counts of the teachers become an answer, and what one answer costs.

Noise is drawn on a grid so fine that ties hardly happen. A count is a multiple of the grid's step, so adding rounded
noise is the same as adding continuous noise and rounding the sum: the answer is computed from the noisy counts that the
events price, and from nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.mechanisms.sampling import entropy, samplers

#: Steps of the grid in one vote.
_STEPS = 1 << 20
_NOISE_REMEDY = "it is the noise on each count, in votes"

VoteCounts = NDArray[np.int64]
Labels = NDArray[np.int64]


class Voting(ABC):
    """How teachers' votes are aggregated. `check` and `vote` see counts of one row per question."""

    @abstractmethod
    def vote_event(self) -> events.Event:
        """What one answer costs, for all votes."""

    @abstractmethod
    def _noise(self, shape: tuple[int, int], bits: entropy.Bits) -> VoteCounts: ...

    def check_event(self) -> events.Event | None:
        """What it costs to decide whether a question is answered; None if all are."""
        return None

    def check(self, counts: VoteCounts, bits: entropy.Bits = entropy.SYSTEM) -> NDArray[np.bool_]:
        """Which questions are answered. Charge `check_event` for each of them first."""
        return np.ones(len(counts), dtype=np.bool_)

    def vote(self, counts: VoteCounts, bits: entropy.Bits = entropy.SYSTEM) -> Labels:
        """The class with the most votes after noise, for each question. Charge `vote_event` for each of them first.

        Guarantee: that of `vote_event` for each question, if one unit changes at most one teacher's votes.
        """
        questions, classes = counts.shape
        noisy = counts * _STEPS + self._noise((questions, classes), bits)
        return np.asarray(noisy.argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class GaussianVoting(Voting):
    """GNMax (Papernot et al. 2018): N(0, noise²) on each count."""

    noise: float

    def __post_init__(self) -> None:
        _check.positive("noise", self.noise, _NOISE_REMEDY)

    def vote_event(self) -> events.GaussianVotes:
        """`events.GaussianVotes`: α/noise²-RDP at every order α."""
        return events.GaussianVotes(self.noise)

    def _noise(self, shape: tuple[int, int], bits: entropy.Bits) -> VoteCounts:
        return _gaussian(self.noise, shape, bits)


@dataclass(frozen=True)
class LaplaceVoting(Voting):
    """Noisy plurality with Laplace noise of scale `noise` on each count (Papernot et al. 2017)."""

    noise: float

    def __post_init__(self) -> None:
        _check.positive("noise", self.noise, _NOISE_REMEDY)

    def vote_event(self) -> events.LaplaceVotes:
        """`events.LaplaceVotes`: 2/noise-DP."""
        return events.LaplaceVotes(self.noise)

    def _noise(self, shape: tuple[int, int], bits: entropy.Bits) -> VoteCounts:
        scale = Fraction(self.noise) * _STEPS
        return samplers.rounded_laplace(scale, shape[0] * shape[1], bits).reshape(shape)


@dataclass(frozen=True)
class ConfidentVoting(GaussianVoting):
    """Confident-GNMax (Papernot et al. 2018): answer only if the largest count plus N(0, check_noise²) ≥ threshold."""

    threshold: float
    check_noise: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.positive("check_noise", self.check_noise, "it is the noise on the largest count, in votes")
        _check.real("threshold", self.threshold, "it is a number of votes, such as 80% of the teachers")

    def check_event(self) -> events.GaussianVoteCheck:
        """`events.GaussianVoteCheck`: α/2·check_noise² at every order α, for each question."""
        return events.GaussianVoteCheck(self.check_noise)

    def check(self, counts: VoteCounts, bits: entropy.Bits = entropy.SYSTEM) -> NDArray[np.bool_]:
        """Which questions have a noisy largest count of at least `threshold`.

        Guarantee: that of `check_event` for each question, if one unit changes at most one teacher's votes.
        """
        noise = _gaussian(self.check_noise, (len(counts), 1), bits)[:, 0]
        least = -(-Fraction(self.threshold) * _STEPS // 1)
        return np.asarray(counts.max(axis=1) * _STEPS + noise >= int(least))


def _gaussian(noise: float, shape: tuple[int, int], bits: entropy.Bits) -> VoteCounts:
    variance = (Fraction(noise) * _STEPS) ** 2
    return samplers.rounded_gaussian(variance, shape[0] * shape[1], bits).reshape(shape)
