"""Votes of teachers that were trained on disjoint parts of the data: the noisy plurality (PATE).

A person's records are in the part of one teacher, so one person changes at most one vote: one count falls by 1 and
another rises by 1. That needs parts that do not depend on what the records say: a replaced record stays with its
teacher. The price holds for all votes. Lower bounds that depend on the votes are in `accounting.pate`; they may not be
charged.
"""

from __future__ import annotations

from dataclasses import dataclass

from discreet.events.base import Event, settle_multiplier


@dataclass(frozen=True)
class GaussianVotes(Event):
    """The class with the most votes after N(0, σ²) noise on each count (GNMax, Papernot et al. 2018).

    `noise` is σ. The counts have L2 sensitivity √2, so it is α/σ²-RDP at every order α.
    """

    noise: float

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise")


@dataclass(frozen=True)
class GaussianVoteCheck(Event):
    """Whether the largest count with N(0, σ²) noise reaches a public threshold; `noise` is σ, the sensitivity 1.

    Confident-GNMax (Papernot et al. 2018) pays this for each question, and `GaussianVotes` for those that pass.
    """

    noise: float

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise")


@dataclass(frozen=True)
class LaplaceVotes(Event):
    """The class with the most votes after Laplace noise on each count (LNMax, Papernot et al. 2017).

    `noise` is the scale b = 1/γ. The counts have L1 sensitivity 2, so it is 2/b-DP.
    """

    noise: float

    def __post_init__(self) -> None:
        settle_multiplier(self, "noise")
