"""Running an event a random number of times, and releasing the best result only."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from discreet import _check
from discreet.events.base import Event, check_depth, check_event

# Far more trials than anyone runs, and far fewer than a float holds.
_MOST_TRIALS = 10**100


@dataclass(frozen=True)
class NegativeBinomialTrials:
    """K ≥ 1 trials with a truncated negative binomial law (Papernot & Steinke 2022, Definition 1).

    `shape` is their η > −1 and `stop` their γ in (0, 1). A shape of 1 is the geometric law: after each trial, stop with
    probability γ. A shape of 0 is the logarithmic law. The mean is (1/γ − 1)·η/(1 − γ^η), which is 1/γ at η = 1 and
    (1/γ − 1)/ln(1/γ) at η = 0.
    """

    shape: float
    stop: float

    def __post_init__(self) -> None:
        _check.settle(self, "shape", _above_minus_one, "1 is the geometric law and 0 the logarithmic one")
        remedy = "it is the probability with which the trials stop after each one, if the shape is 1"
        _check.settle(self, "stop", _inside, remedy)


@dataclass(frozen=True)
class PoissonTrials:
    """A Poisson number of trials. With none, which has probability e^{−mean}, nothing about the data is released."""

    mean: float

    def __post_init__(self) -> None:
        _check.settle(self, "mean", _check.positive, "it is the expected number of trials")


@dataclass(frozen=True)
class BinomialTrials:
    """Each of `most` trials runs with `probability`. With none of them, nothing about the data is released."""

    most: int
    probability: float

    def __post_init__(self) -> None:
        _check.settle_integers(self, "most", remedy="it is the largest number of trials", at_most=_MOST_TRIALS)
        remedy = "each trial runs with this probability; trials that all run are Repeated, and pay for each"
        _check.settle(self, "probability", _inside, remedy)


Trials = NegativeBinomialTrials | PoissonTrials | BinomialTrials


@dataclass(frozen=True)
class SelectedFromRepeats(Event):
    """The best of a random number of runs of `event`, with fresh randomness each (Liu & Talwar 2019).

    Four things must hold. The score is part of what `event` prices: it is computed from the released output of a run,
    or by a private evaluation that `event` includes. Ties are broken without looking at the data. The number of trials
    is drawn from `trials` independently of the data, and stays secret, as do the other runs: how long the search took
    must not show. And each run follows the same law: draw a candidate, such as a setting of hyperparameters, at random
    from a public law, run it, and report it with the result. If candidates cost different amounts, `event` is one that
    costs at least as much as each of them.
    """

    event: Event
    trials: Trials

    def __post_init__(self) -> None:
        check_event("event", self.event)
        _check_law(self.trials)
        check_depth(self)

    def parts(self) -> tuple[Event, ...]:
        return (self.event,)


def _check_law(value: object) -> None:
    if not isinstance(value, Trials):
        remedy = "use NegativeBinomialTrials, PoissonTrials or BinomialTrials"
        raise _check.fail("trials", "be a law of the number of trials", value, remedy)


def _above_minus_one(name: str, value: object, remedy: str) -> Fraction:
    exact = _check.real(name, value, remedy)
    if exact <= -1:
        raise _check.fail(name, "be > -1", value, remedy)
    return exact


def _inside(name: str, value: object, remedy: str) -> Fraction:
    exact = _check.positive(name, value, remedy)
    if exact >= 1:
        raise _check.fail(name, "be < 1", value, remedy)
    return exact
