"""The test of a claim on one pair of datasets: choose an event on some runs, count it in the others.

The test is repeated at a few sizes, each with its part of α, so that a gross violation is found early (a union bound
over the looks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.auditing import one_run, witnesses
from discreet.auditing.claims import Claim, Curve
from discreet.auditing.counts import Line, Runs
from discreet.auditing.normal import Separation
from discreet.auditing.targets import PairOutputs
from discreet.auditing.verdict import Power, Witness

Floats = NDArray[np.float64]

# The share of the runs that choose the event, and their least number.
_PILOT_SHARE, _LEAST_PILOT = 20, 200
# The test is made at the full size and at up to this many halvings of it, from this size on.
_HALVINGS, _LEAST_LOOK = 4, 2_000
# The last look gets this share of α: it is the one that power is stated for.
_LAST_SHARE = 0.5
# Points of the curves that a report draws.
_DRAWN = 201
# Power is stated for faults up to this share of missing noise.
_MOST_MISSING = 0.99
_PROBABILITY = 0.999
# How far below its estimate the hit rate of a pair, or its distance, is taken, in standard errors, when the power is
# stated.
_CLOSE = 3.0


@dataclass(frozen=True, eq=False)
class PairOutcome:
    """What the test of one pair found; the fields are those of `Audit`."""

    estimator: str
    violated: bool
    witness: Witness
    epsilon_lower: float
    power: Power
    runs: int
    curves: tuple[Floats, Floats, Floats, Floats]


@dataclass(frozen=True, eq=False)
class PairTest:
    """A pair of datasets and the claim about it."""

    number: int
    source: PairOutputs
    claim: Claim
    estimator: str
    distance: int
    #: One in this many runs chooses the event.
    pilot_share: int = _PILOT_SHARE

    def events(self, most: int, alpha: float) -> PairOutcome:
        """Choose an event on the first runs and count it in the others, at several sizes."""
        looks = _looks(most)
        drawn_first, drawn_second, made = [], [], 0
        for size in looks:
            drawn_first.append(self.source.rows(0, size - made))
            drawn_second.append(self.source.rows(1, size - made))
            made = size
            first, second, level = np.concatenate(drawn_first), np.concatenate(drawn_second), _level(looks, size, alpha)
            event, runs, witness = self.look(first, second, level)
            if witness.p_value <= level:
                break
        pilot = len(first) - runs.below
        discrete = witnesses.is_discrete(np.concatenate([first[:pilot], second[:pilot]]))
        null, other = (second, first) if event.backward else (first, second)
        return PairOutcome(
            self.estimator if self.estimator != "auto" else ("histogram" if discrete else "threshold"),
            witness.p_value <= level,
            witness,
            self._epsilon_lower(event, first, second, pilot, level),
            Power(self._missing(event, runs, witness, level), _PROBABILITY),
            len(first) + len(second),
            drawn(self.claim, event, null[pilot:], other[pilot:]),
        )

    def look(self, first: Floats, second: Floats, level: float) -> tuple[witnesses.Distinguisher, Runs, Witness]:
        """One test at `level`: the event that the first outputs chose, and how often it is among the others."""
        pilot = max(_LEAST_PILOT, len(first) // self.pilot_share)
        runs = Runs(len(first) - pilot, len(second) - pilot)
        event = witnesses.chosen(first[:pilot], second[:pilot], self.claim, runs.above, estimator=self.estimator)
        null, other = (second, first) if event.backward else (first, second)
        alarms, hits = event.count(null[pilot:]), event.count(other[pilot:])
        p_value = max(runs.p_value(alarms, hits, line, level) for line in event.lines)
        curves = self.claim.curves(backward=event.backward)
        allowed = max(float(curve.power(np.array([alarms / runs.below]))[0]) for curve in curves)
        counts = (alarms, runs.below), (hits, runs.above)
        return event, runs, Witness(self.number, event.backward, str(event), *counts, allowed, p_value)

    def _epsilon_lower(
        self, event: witnesses.Distinguisher, first: Floats, second: Floats, pilot: int, level: float
    ) -> float:
        """The larger of what two events show, each at half the level: the one tested, and one chosen to show ε."""
        runs = Runs(len(first) - pilot, len(second) - pilot)
        other_event = witnesses.chosen(
            first[:pilot], second[:pilot], self.claim, runs.above, estimator=self.estimator, for_epsilon=True
        )
        bounds = []
        for each in (event, other_event):
            null, other = (second, first) if each.backward else (first, second)
            counts = each.count(null[pilot:]), each.count(other[pilot:])
            bounds.append(runs.epsilon_lower(*counts, delta=self.claim.delta, alpha=level / 2, distance=self.distance))
        return max(bounds)

    def _missing(self, event: witnesses.Distinguisher, runs: Runs, witness: Witness, level: float) -> float | None:
        """The least share of missing noise that the test sees, by the normal approximation."""
        rate, hit_rate = witness.false_alarms[0] / runs.below, witness.hits[0] / runs.above
        curves = self.claim.curves(backward=event.backward)
        critical = [runs.critical(rate, line, level) for line in event.lines]
        reaches = [
            self._reach(curve, line, runs, rate, hit_rate) for curve, line in zip(curves, event.lines, strict=True)
        ]

        def seen(missing: float) -> bool:
            stretched = [
                float(curve.stretched(np.array([rate]), reach / (1 - missing))[0])
                for curve, reach in zip(curves, reaches, strict=True)
            ]
            return all(
                runs.power(rate, hits, line, least) >= _PROBABILITY
                for hits, line, least in zip(stretched, event.lines, critical, strict=True)
            )

        return least_missing(seen)

    @staticmethod
    def _reach(curve: Curve, line: Line, runs: Runs, rate: float, hit_rate: float) -> float:
        """How far apart these datasets are, where the claim has 1: less noise on a pair that is far within the claim
        does not violate it."""
        at = np.array([rate])
        spread = runs.spread(rate, hit_rate, line)
        hit_rate = max(0.0, hit_rate - _CLOSE * spread)  # from below: the stated power must be reached again
        factors = np.linspace(0.0, 1.0, 101)
        reached = np.array([float(curve.stretched(at, float(factor))[0]) for factor in factors])
        return float(np.interp(hit_rate, reached, factors))

    def mu(self, most: int, alpha: float) -> PairOutcome:
        """Student's t along a direction that the first runs chose."""
        pilot = max(_LEAST_PILOT, most // self.pilot_share) if self.source.rows(0, 1).shape[1] > 1 else 0
        first, second = self.source.rows(0, most), self.source.rows(1, most)
        learning = slice(0, pilot or min(len(first), _LEAST_PILOT))
        weights = witnesses.direction(first[learning], second[learning])
        sides = first[pilot:] @ weights, second[pilot:] @ weights
        separation = Separation.of(*sides)
        if separation.statistic < 0:  # the sign of a single number is a choice between two tests
            separation = Separation(-separation.statistic, separation.runs)
        level = alpha if pilot else alpha / 2
        # A violation must violate every curve of a direction, and the claim makes both directions.
        limits = [
            (max(curve.largest_mu() for curve in self.claim.curves(backward=backward)), backward)
            for backward in (False, True)
        ]
        limit, backward = min(limits)
        p_value = separation.p_value(limit) * (1 if pilot else 2)
        middle = (float(sides[0].mean()) + float(sides[1].mean())) / 2
        null, other = (sides[1], sides[0]) if backward else sides
        sign = 1.0 if float(other.mean()) >= float(null.mean()) else -1.0
        event = witnesses.Distinguisher(
            witnesses.Scored("the output" if not pilot else "the separating direction", lambda rows: sign * rows[:, 0]),
            sign * middle,
            backward,
            (),
            0.5,
            0.0,
        )
        alarms, hits = event.count(null[:, None]), event.count(other[:, None])
        runs = separation.runs
        curves = self.claim.curves(backward=backward)
        allowed = max(float(curve.power(np.array([alarms / runs[0]]))[0]) for curve in curves)
        # A direction that was learned, or a pair within the claim, is less far apart than the claim allows. Less noise
        # stretches the distance that was seen, taken from below: the stated power must be reached again.
        reached = min(limit, separation.below(_CLOSE))
        missing = least_missing(
            lambda share: Separation.power(runs, limit, reached / (1 - share), level) >= _PROBABILITY
        )
        return PairOutcome(
            "mu",
            p_value <= alpha,
            Witness(self.number, backward, str(event), (alarms, runs[0]), (hits, runs[1]), allowed, min(1.0, p_value)),
            one_run.epsilon_of(separation.mu_lower(level) / self.distance, self.claim.delta),
            Power(missing, _PROBABILITY),
            2 * most,
            drawn(self.claim, event, null[:, None], other[:, None]),
        )


def _level(looks: list[int], size: int, alpha: float) -> float:
    """The part of α that a look gets; the parts add up to α."""
    if len(looks) == 1:
        return alpha
    return alpha * (_LAST_SHARE if size == looks[-1] else (1 - _LAST_SHARE) / (len(looks) - 1))


def _looks(most: int) -> list[int]:
    sizes = [most >> halving for halving in range(_HALVINGS, -1, -1)]
    return [size for size in sizes if size >= _LEAST_LOOK or size == most]


def least_missing(seen: Callable[[float], bool]) -> float | None:
    """The least share of missing noise that is seen, if a larger share is seen whenever a smaller one is."""
    if not seen(_MOST_MISSING):
        return None
    low, high = 0.0, _MOST_MISSING
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def drawn(
    claim: Claim, event: witnesses.Distinguisher, null: Floats, other: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """For a picture: the claim's curve, and what the event's score reached at all thresholds."""
    rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, _DRAWN)])
    allowed = np.max([curve.power(rates) for curve in claim.curves(backward=event.backward)], axis=0)
    low, high = np.sort(event.scored.score(null)), np.sort(event.scored.score(other))
    thresholds = np.quantile(np.concatenate([low, high]), 1 - rates, method="nearest")
    alarms = 1 - np.searchsorted(low, thresholds) / len(low)
    hits = 1 - np.searchsorted(high, thresholds) / len(high)
    return rates, allowed, np.append(np.insert(alarms, 0, 0.0), 1.0), np.append(np.insert(hits, 0, 0.0), 1.0)
