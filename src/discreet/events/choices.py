"""Selections from candidates, and local reports."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from discreet import _check
from discreet.events.base import Event, settle_rational


@dataclass(frozen=True)
class Exponential(Event):
    """One draw of the exponential mechanism: ε-DP and ε-bounded-range (Durfee & Rogers 2019)."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        settle_rational(self, "epsilon")


@dataclass(frozen=True)
class DeclaredExponentials(Event):
    """`count` draws of the exponential mechanism whose scores were all declared before the first draw.

    Every draw is ε-DP and ε-bounded-range, as in `Exponential`. What this event requires in addition: the candidates,
    the score functions and the sensitivities of all `count` draws are fixed before the first of them is made, and
    nothing that is released after that, by these draws or by any other mechanism, changes one of them. They may
    depend on what was released before the first draw. Draws that are chosen one after the other, such as peeling off
    the best candidate and selecting again, are `Repeated(Exponential(ε), count)`, which costs more.
    """

    epsilon: Fraction
    count: int

    def __post_init__(self) -> None:
        settle_rational(self, "epsilon")
        _check.settle_integers(self, "count", remedy="it is the number of draws that were declared together")


@dataclass(frozen=True)
class NoisyMax(Event):
    """One private arg-max by permute-and-flip: ε-DP (McKenna & Sheldon 2020)."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        settle_rational(self, "epsilon")


@dataclass(frozen=True)
class SparseVector(Event):
    """A whole above-threshold run that stops after `answers` positive answers: ε-DP (Lyu, Su & Li 2017)."""

    epsilon: Fraction
    answers: int = 1

    def __post_init__(self) -> None:
        settle_rational(self, "epsilon")
        _check.settle_integers(self, "answers", remedy="the run stops after this many positive answers")


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """A local report: the truth with probability e^ε/(e^ε + k − 1), else one of the other k − 1 categories."""

    epsilon: Fraction
    categories: int = 2

    def __post_init__(self) -> None:
        settle_rational(self, "epsilon")
        _check.settle_integers(self, "categories", remedy="a report chooses among them", at_least=2)


@dataclass(frozen=True)
class LocalReport(Event):
    """A report that a person randomizes before sending it: its privacy loss is ε, −ε or 0.

    `informative` bounds the probability that the loss is not 0. Binary randomized response has 1, which covers every
    ε-DP report. Unary encoding in its optimized form (the true bit kept with probability 1/2, the others set with
    1/(1 + e^ε)) has 1/2; local hashing into g buckets (1 − 1/g)(e^ε + 1)/(e^ε + g − 1), again 1/2 at g = 1 + e^ε; a
    choice among k categories (e^ε + 1)/(e^ε + k − 1). It protects the value that is reported, not whether one reports:
    it has no price where the relation adds or removes a person.
    """

    epsilon: Fraction
    informative: float = 1.0

    def __post_init__(self) -> None:
        settle_rational(self, "epsilon")
        remedy = "it is the probability that the report tells two values apart at all; 1 covers every report"
        _check.settle(self, "informative", _check.probability, remedy)
