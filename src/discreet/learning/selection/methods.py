"""The ways to choose among candidates, and what each costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from discreet import _check, events
from discreet.learning.selection import trials as laws
from discreet.mechanisms import Exponential, NoisyMax
from discreet.mechanisms.selection import Selection


class Method(ABC):
    """A way to choose. `event` is what the whole choice costs, trainings included."""

    @abstractmethod
    def event(self, run: events.Event, candidates: int) -> events.Event:
        """What it costs to choose among `candidates`, each of whose runs costs `run`."""

    def naive(self, run: events.Event, candidates: int) -> events.Event:
        """What a log of every candidate's run and score costs, if the score is part of the run."""
        return events.Repeated(run, candidates)


@dataclass(frozen=True)
class RandomStopping(Method):
    """Run random candidates a random number of times, and release only the best (Liu & Talwar 2019).

    The price is about two or three times that of one run, however many candidates there are; `event` is
    `events.SelectedFromRepeats`. The score must be part of the run: computed from its output and public data, or by a
    private evaluation whose event the run includes.

    Attributes:
        trials: `events.NegativeBinomialTrials` (1 is geometric, 0 logarithmic), `PoissonTrials` or `BinomialTrials`.
    """

    trials: events.Trials

    def __post_init__(self) -> None:
        laws.check(self.trials)

    def event(self, run: events.Event, candidates: int) -> events.Event:
        """`events.SelectedFromRepeats(run, trials)`: the number of candidates does not matter."""
        return events.SelectedFromRepeats(run, self.trials)


@dataclass(frozen=True)
class PrivateScores(Method):
    """Run every candidate once, and choose by its score on private validation data, which is private too.

    Attributes:
        epsilon: the privacy loss of the choice, beside the runs.
        sensitivity: how far one unit moves a score, such as 1 for the number of rows that a model gets right.
        by: "noisy max" (permute-and-flip) or "exponential" release the winner alone; "laplace" releases all scores with
            noise, each for ε divided by the number of candidates.
        separate: True if the runs saw none of the units that the scores are about: trainings and scores then cost what
            the costlier of the two costs. `pate.shards_of` divides data so.
    """

    epsilon: float
    sensitivity: int = 1
    by: Literal["noisy max", "exponential", "laplace"] = "noisy max"
    separate: bool = False

    def __post_init__(self) -> None:
        _check.epsilon(self.epsilon)
        _check.integer("sensitivity", self.sensitivity, "it bounds how far one unit moves a score", at_least=1)
        if self.by not in ("noisy max", "exponential", "laplace"):
            remedy = 'use "noisy max", "exponential" or "laplace"'
            raise _check.fail("by", "be a way to choose", self.by, remedy)

    def choice(self, candidates: int) -> events.Event:
        """What the choice costs without the runs."""
        mechanism = self.mechanism()
        if mechanism is None:
            return events.Repeated(events.DiscreteLaplace(self.sensitivity, self.scale(candidates)), candidates)
        return mechanism.event()

    def mechanism(self) -> Selection | None:
        """The mechanism that chooses; None if all noisy scores are released."""
        if self.by == "laplace":
            return None
        return (NoisyMax if self.by == "noisy max" else Exponential)(_check.epsilon(self.epsilon))

    def scale(self, candidates: int) -> Fraction:
        """The scale of the noise on each score, if all are released."""
        return candidates * self.sensitivity / _check.epsilon(self.epsilon)

    def event(self, run: events.Event, candidates: int) -> events.Event:
        """All runs, and the choice."""
        runs, choice = events.Repeated(run, candidates), self.choice(candidates)
        return events.Parallel((runs, choice)) if self.separate else events.Composed((runs, choice))

    def naive(self, run: events.Event, candidates: int) -> events.Event:
        """All runs, and every score with the noise that `epsilon` takes for one."""
        noisy_score = events.DiscreteLaplace(self.sensitivity, self.scale(1))
        runs, scores = events.Repeated(run, candidates), events.Repeated(noisy_score, candidates)
        return events.Parallel((runs, scores)) if self.separate else events.Composed((runs, scores))
