"""Which event to test: a set of outputs that tells the two datasets apart, chosen on runs that the test does not use.

A score gives each output a number, and the event is that the score reaches a threshold. Any score may be used, since a
claim bounds every event. Numbers are tried one coordinate at a time and along the direction that separates the two
datasets best; outputs that repeat are ordered by how much likelier they were on one dataset.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.auditing.claims import Claim, Curve
from discreet.auditing.counts import Line

Floats = NDArray[np.float64]
#: From rows of outputs to one number each.
Score = Callable[[Floats], Floats]

# Outputs with at most this many different values are counted value by value.
_MOST_VALUES = 64
# Thresholds that are tried for each score, and coordinates that are tried by themselves.
_THRESHOLDS, _COORDINATES = 65, 24
# A test is laid out to see noise that is too small by about this factor.
_LAYOUT = 1.25
# Deviations of this many standard errors in the pilot count as chance: many events are compared there.
_CHANCE = 5.0
# A pilot that many standard errors below the claim is held against an event, and one that happens less often where it
# should happen more is the last to be chosen.
_SHORTFALL, _WRONG_WAY = 2.0, 1e6
# Standard errors that a test at the usual level of 1e-6 takes off.
_CERTAIN = 5.0
# Relative size of what is added to the variances before they are inverted: a coordinate without noise has none.
_RIDGE = 1e-12


@dataclass(frozen=True, eq=False)
class Scored:
    """A score with its name."""

    name: str
    score: Score


@dataclass(frozen=True, eq=False)
class Distinguisher:
    """A set of outputs, and which dataset is the null hypothesis.

    Attributes:
        scored: the score of an output.
        threshold: the event is that the score is at least this.
        backward: whether false alarms are counted on the second dataset.
        lines: a line above each curve of the claim, lowest near the event's rate.
        rate: the rate of false alarms in the pilot.
        merit: the standard deviations by which a test is expected to see what it is laid out for.
    """

    scored: Scored
    threshold: float
    backward: bool
    lines: tuple[Line, ...]
    rate: float
    merit: float

    def count(self, rows: Floats) -> int:
        """How many outputs lie in the set."""
        return int(np.count_nonzero(self.scored.score(rows) >= self.threshold))

    def __str__(self) -> str:
        return f"{self.scored.name} ≥ {self.threshold:.6g}"


def chosen(
    first: Floats, second: Floats, claim: Claim, runs: int, *, estimator: str = "auto", for_epsilon: bool = False
) -> Distinguisher:
    """The most promising event, by outputs of a pilot on both datasets, for a test with `runs` runs on each.

    With `for_epsilon`, promising means a large lower bound on ε rather than a violation of the claim.
    """
    events = []
    for backward in (False, True):
        null, other = (second, first) if backward else (first, second)
        curves = claim.curves(backward=backward)
        for scored in _scores(null, other, estimator):
            thresholds, rates, hits = _rates(scored.score(null), scored.score(other))
            if for_epsilon:
                merits = _loss(rates, hits, claim.delta, len(null), runs)
            else:
                merits = np.min([_merit(curve, rates, hits, len(null), runs) for curve in curves], axis=0)
            best = int(np.argmax(merits))
            rate = float(rates[best])
            lines = tuple(Line(*curve.line(rate)) for curve in curves)
            events.append(Distinguisher(scored, float(thresholds[best]), backward, lines, rate, float(merits[best])))
    return max(events, key=lambda event: event.merit)


def is_discrete(rows: Floats) -> bool:
    """Whether few different outputs occur, so that each can be counted."""
    return len(np.unique(_keys(rows))) <= min(_MOST_VALUES, len(rows) // 4)


def _scores(null: Floats, other: Floats, estimator: str) -> list[Scored]:
    pooled = np.concatenate([null, other])
    discrete = estimator == "histogram" or (estimator == "auto" and is_discrete(pooled))
    scores = [_likelihood(null, other)] if discrete else []
    if estimator == "histogram":
        return scores
    width = null.shape[1]
    spread = pooled.std(axis=0)
    apart = np.abs(other.mean(axis=0) - null.mean(axis=0)) / np.where(spread > 0, spread, np.inf)
    for column in np.argsort(-apart)[:_COORDINATES].tolist():
        label = "output" if width == 1 else f"coordinate {column}"
        scores += [Scored(label, _coordinate(column, 1.0)), Scored(f"−{label}", _coordinate(column, -1.0))]
    if width > 1:
        scores += [Scored("the separating direction", _projection(direction(null, other)))]
        scores += [Scored("the difference of means", _projection(other.mean(axis=0) - null.mean(axis=0)))]
    return scores


def _coordinate(column: int, sign: float) -> Score:
    return lambda rows: sign * rows[:, column]


def _projection(weights: Floats) -> Score:
    return lambda rows: rows @ weights


def direction(null: Floats, other: Floats) -> Floats:
    """The direction that separates two normal clouds best (Fisher 1936); it finds noise that coordinates share."""
    difference = other.mean(axis=0) - null.mean(axis=0)
    if null.shape[1] == 1:
        return np.where(difference < 0, -1.0, 1.0)
    scatter = (np.cov(null.T) + np.cov(other.T)) / 2
    scale = float(np.trace(scatter)) / len(scatter)
    return np.asarray(np.linalg.solve(scatter + (_RIDGE * scale + 1e-300) * np.eye(len(scatter)), difference))


def _keys(rows: Floats) -> Floats:
    """One number for each row, equal for equal rows, so that rows can be looked up."""
    if rows.shape[1] == 1:
        return rows[:, 0]
    # Multiples of irrational numbers: different short rows of integers give different sums.
    return np.asarray(rows @ np.sqrt(np.arange(2, rows.shape[1] + 2) + 0.5))


def _likelihood(null: Floats, other: Floats) -> Scored:
    """ln of how much likelier each value was on `other`; a value that the pilot has not seen counts as 0."""
    values, inverse = np.unique(np.concatenate([_keys(null), _keys(other)]), return_inverse=True)
    counts = [np.bincount(sample, minlength=len(values)) + 0.5 for sample in np.split(inverse, [len(null)])]
    ratios = np.log(counts[1] / counts[0])

    def score(rows: Floats) -> Floats:
        keys = _keys(rows)
        nearest = np.minimum(np.searchsorted(values, keys), len(values) - 1)
        return np.where(values[nearest] == keys, ratios[nearest], 0.0)

    return Scored("ln of the pilot's likelihood ratio", score)


def _rates(null: Floats, other: Floats) -> tuple[Floats, Floats, Floats]:
    """Thresholds, and how often each of the two samples of scores reaches them."""
    low, high = np.sort(null), np.sort(other)
    pooled = np.concatenate([low, high])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, _THRESHOLDS), method="nearest"))
    if len(thresholds) > 1:
        thresholds = thresholds[1:]  # every score reaches the least one, which tells nothing
    rates = (len(low) - np.searchsorted(low, thresholds) + 0.5) / (len(low) + 1)
    hits = (len(high) - np.searchsorted(high, thresholds) + 0.5) / (len(high) + 1)
    return thresholds, rates, hits


def _loss(rates: Floats, hits: Floats, delta: float, pilot: int, runs: int) -> Floats:
    """About the lower bound on ε that a test of each event would give, less what the pilot may be off by."""
    spread = np.sqrt((1 - hits) / hits + (1 - rates) / rates)
    doubt = _CERTAIN / math.sqrt(runs) + _CHANCE / math.sqrt(pilot)
    return np.asarray(np.log(np.maximum(hits - delta, 1e-300) / rates) - doubt * spread)


def _merit(curve: Curve, rates: Floats, hits: Floats, pilot: int, runs: int) -> Floats:
    """Standard deviations by which the test would see the violation that it is laid out for, or the pilot's own.

    Where the pilot is within chance of the claim, the layout decides; a pilot that is far above the claim adds what it
    saw, and one far below it is held against an event.
    """
    lines = [curve.line(float(rate)) for rate in rates]
    slopes = np.array([slope for slope, _ in lines])
    allowed = np.minimum(1.0, [intercept + slope * rate for (slope, intercept), rate in zip(lines, rates, strict=True)])
    spread = np.sqrt(hits * (1 - hits) + slopes**2 * rates * (1 - rates))
    stretched = np.maximum(curve.stretched(rates, _LAYOUT), allowed)
    laid_out = np.sqrt(stretched * (1 - stretched) + slopes**2 * rates * (1 - rates))
    seen = (hits - allowed) / spread * math.sqrt(pilot)
    beyond = np.maximum(0.0, seen - _CHANCE) + np.minimum(0.0, seen + _SHORTFALL)
    beyond = np.where(hits > rates, beyond, beyond - _WRONG_WAY)
    return np.asarray((stretched - allowed) / laid_out * math.sqrt(runs) + beyond * math.sqrt(runs / pilot))
