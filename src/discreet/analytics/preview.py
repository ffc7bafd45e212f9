"""What a release would cost and how good it would be, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from discreet.analytics.compiling import Asked
from discreet.events import DiscreteLaplace, Event
from discreet.guarantees import Guarantee
from discreet.neighbors import Neighbors, Relation, Unit
from discreet.queries import aggregated
from discreet.release import Error, Noise

_LEVEL = 0.95


@dataclass(frozen=True)
class Expected:
    """One column of an answer: its share of ε, and the error that 95% of its numbers stay within.

    `error` is in the column's own units; for a quantile it is in ranks: so many rows may lie between the answer and the
    true quantile.
    """

    name: str
    epsilon: float
    error: float
    ranks: bool = False


@dataclass(frozen=True)
class Preview:
    """What a release would be: `print` it. Nothing was spent and no data was touched."""

    epsilon: float
    event: Event
    neighbors: Neighbors
    groups: int
    rows: int
    columns: tuple[Expected, ...]
    sql: str
    remaining: Guarantee
    affordable: bool

    def __str__(self) -> str:
        width = max(len(column.name) for column in self.columns)
        groups = "1 group" if self.groups == 1 else f"{self.groups:,} groups"
        lines = [
            f"costs      ε = {self.epsilon:.6g}, {self.neighbors}",
            f"answers    {groups}; errors at 95% for a group of {self.rows:,} rows:",
        ]
        for column in self.columns:
            unit = " in rank" if column.ranks else ""
            lines.append(f"  {column.name:<{width}}  ε = {column.epsilon:<8.4g}  ± {column.error:.4g}{unit}")
        lines.append(f"remaining  {self.remaining}" + ("" if self.affordable else ": NOT ENOUGH for this answer"))
        return "\n".join([*lines, "runs", *("  " + line for line in self.sql.splitlines())])


def expected(
    name: str, asked: Asked, epsilon: Fraction, event: Event, unit: Unit, relation: Relation, rows: int
) -> Expected:
    """The error of one statistic in a group of `rows` rows whose values lie in the middle of the bounds."""
    if isinstance(event, DiscreteLaplace):
        counted = rows * asked.statistic.scale if asked.statistic.coordinates > 1 else 0
        typical = [[0] * (asked.statistic.coordinates - 1) + [counted]]
        middle = aggregated.bounded(asked.statistic, typical, unit, relation=relation)
        noise = Noise(gaussian=False, rounded=False, scale=float(event.scale))
        low, high = Error(asked.statistic.finish, np.asarray(middle.values), noise).interval(_LEVEL)
        return Expected(name, float(epsilon), (float(high) - float(low)) / 2)
    return Expected(name, float(epsilon), rank_error(asked, epsilon, unit, relation), ranks=True)


def rank_error(asked: Asked, epsilon: Fraction, unit: Unit, relation: Relation) -> float:
    """By how many ranks a quantile is off at most, with probability 95% (Dwork & Roth 2014, Corollary 3.12)."""
    assert asked.statistic.rank is not None
    assert asked.statistic.grid is not None
    many = asked.statistic.grid.upper - asked.statistic.grid.lower + 1
    moved = aggregated.scores(asked.statistic, [0] * many, unit, relation=relation).sensitivity(relation)
    below = 2 * moved / float(epsilon) * (math.log(many) + math.log(1 / (1 - _LEVEL)))
    return below / (asked.statistic.rank.denominator * asked.statistic.scale)
