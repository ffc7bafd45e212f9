"""What a release would cost and how good it would be, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet import _check
from discreet.accounting.adaptive.advice import room_words
from discreet.analytics.compiling import Asked
from discreet.analytics.question import Question
from discreet.analytics.spending import Part, Plan
from discreet.bounded import Bounded
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.mechanisms import Exponential, TopK
from discreet.neighbors import Neighbors, Relation, Rows, Unit
from discreet.queries import aggregated
from discreet.release import Error

_LEVEL = 0.95


@dataclass(frozen=True)
class Expected:
    """One column of an answer: its share of the budget, its noise, and the error that 95% of its numbers stay within.

    `error` is in the column's own units; for a quantile it is in ranks: so many rows may lie between the answer and the
    true quantile; for a choice it is in counts: so much rarer than the best one left may a chosen category be.
    """

    name: str
    epsilon: float | None
    error: float
    ranks: bool = False
    share: float = 1.0
    noise: str = "Laplace"
    unit: str = ""


@dataclass(frozen=True, repr=False)
class Preview:
    """What a release would be: `print` it. Nothing was spent and no data was touched.

    `remaining` and `afterwards` are in the account's own terms: for an (ε, δ) budget at each Rényi order. What is
    printed says how large one more answer may be.
    """

    epsilon: float | None
    cost: str
    noise: str
    keys: str
    event: Event
    neighbors: Neighbors
    groups: int | None
    rows: int
    columns: tuple[Expected, ...]
    sql: str
    budget: Guarantee
    remaining: Guarantee
    afterwards: Guarantee | None

    @property
    def affordable(self) -> bool:
        """Whether the account has room for the release now."""
        return self.afterwards is not None

    def __repr__(self) -> str:
        return str(self)  # what a notebook shows

    def __str__(self) -> str:
        width = max(len(column.name) for column in self.columns)
        groups = (
            "discovered groups" if self.groups is None else "1 group" if self.groups == 1 else f"{self.groups:,} groups"
        )
        lines = [f"costs      {self.cost}, {self.neighbors}"]
        lines += [f"noise      {self.noise}"] if self.noise else []
        lines += [f"keys       {self.keys}"] if self.keys else []
        lines.append(f"answers    {groups}; errors at 95% for a group of {self.rows:,} rows:")
        for column in self.columns:
            own = f"{100 * column.share:.3g}%" if column.epsilon is None else f"ε = {column.epsilon:.4g}"
            lines.append(f"  {column.name:<{width}}  {own:<12}  ± {column.error:.4g}{column.unit}  ({column.noise})")
        lines.append(
            f"remaining  {room_words(self.remaining, self.budget)}"
            + ("" if self.affordable else ": NOT ENOUGH for this answer")
        )
        lines += [] if self.afterwards is None else [f"afterwards {room_words(self.afterwards, self.budget)}"]
        return "\n".join([*lines, "runs", *("  " + line for line in self.sql.splitlines())])


def key_note(plan: Plan, question: Question) -> str:
    """How common a key must be to be discovered."""
    if plan.selection is None:
        return ""
    whose = "rows" if isinstance(question.unit, Rows) else "persons"
    often, sure = plan.selection.threshold, plan.selection.certain(_LEVEL)
    return f"come out half of the time with {often:,} {whose}, and 95% of the time with {sure:,}"


def expected(question: Question, plan: Plan, relation: Relation, rows: int) -> list[Expected]:
    """The error of each statistic in a group of `rows` rows whose values lie in the middle of the bounds."""
    _check.integer("rows", rows, "it is a guess of how many rows a group has; means get better with it")
    found = [_expected(question, name, part, relation, rows) for name, part in plan.parts.items()]
    whole = [_expected(question, f"total of {n}", part, relation, rows, groups=1) for n, part in plan.totals.items()]
    return found + whole


def _expected(
    question: Question, name: str, part: Part, relation: Relation, rows: int, *, groups: int | None = None
) -> Expected:
    own = None if part.epsilon is None else float(part.epsilon)
    share = float(part.share)
    if isinstance(part.mechanism, Exponential | TopK):
        ranks = isinstance(part.mechanism, Exponential)
        error = selection_error(part, question.unit, relation)
        return Expected(name, own, error, ranks, share, part.noise, " in rank" if ranks else " in count")
    shape = question.shape(part.asked, relation, groups=groups)
    noise = part.mechanism.noise_law(shape.granularity)
    statistic = part.asked.statistic
    low, high = Error(statistic.finish, _typical(shape, part.asked, rows), noise).interval(_LEVEL)
    return Expected(name, own, float(np.max(np.subtract(high, low))) / 2, False, share, part.noise)


def _typical(shape: Bounded, asked: Asked, rows: int) -> np.ndarray:
    """The coordinates of one group of `rows` rows in the middle of the bounds."""
    statistic = asked.statistic
    if statistic.cells > 1 or statistic.coordinates == 1:
        return np.zeros(statistic.coordinates if statistic.cells > 1 else (), dtype=np.int64)
    found = np.zeros(statistic.coordinates, dtype=np.int64)
    found[-1] = rows * statistic.scale * statistic.per_count
    return found


def selection_error(part: Part, unit: Unit, relation: Relation) -> float:
    """By how many ranks a quantile is off, or by how many rows a chosen category is rarer than the best one left.

    At most so many with probability 95%, in each draw (Dwork & Roth 2014, Corollary 3.12).
    """
    statistic, own = part.asked.statistic, float(part.epsilon or 0)
    if isinstance(part.mechanism, TopK):
        many = statistic.cells
        scores = aggregated.choices(statistic, [0] * many, part.asked.labels, unit, relation=relation)
        factor = (1 if scores.is_monotone(relation) else 2) * part.mechanism.k
        divided = float(statistic.scale)
    else:
        assert statistic.rank is not None
        assert statistic.grid is not None
        many = statistic.grid.upper - statistic.grid.lower + 1
        scores = aggregated.scores(statistic, [0] * many, unit, relation=relation)
        factor, divided = 2, float(statistic.rank.denominator * statistic.scale)
    return factor * scores.sensitivity(relation) / own * (math.log(many) + math.log(1 / (1 - _LEVEL))) / divided
