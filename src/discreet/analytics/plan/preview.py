"""What a release would cost and how good it would be, from public facts alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet import _check
from discreet.accounting.adaptive.advice import room_words
from discreet.analytics.aggregates.measurement import LEVEL, Choice, Sums
from discreet.analytics.plan.question import Question
from discreet.analytics.plan.spending import AdditiveNoise, PricedMeasurement, ReleasePlan
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.neighbors import Neighbors, Relation, Rows
from discreet.release import Error


@dataclass(frozen=True)
class Expected:
    """One column of an answer: its share of the budget, its noise, and the error that 95% of its numbers stay within.

    `error` is in the column's own units unless `unit` says otherwise: " in rank" for a quantile (how many rows may lie
    between the answer and the true quantile), " in count" for a choice (how much rarer than the best category left a
    chosen one may be).
    """

    name: str
    epsilon: float | None
    error: float
    share: float = 1.0
    noise: str = "Laplace"
    unit: str = ""


@dataclass(frozen=True, repr=False)
class Preview:
    """What a release would cost and how good it would be: `print` it. Nothing was spent and no data was touched.

    `sql` is what would run in the engine. `remaining` and `afterwards` are in the account's own terms: for an (ε, δ)
    budget at each Rényi order. The printed text says how large one more answer may be. `covers` says what the ± covers
    and what it does not.
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
    covers: str = ""

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
            spent = f"{100 * column.share:.3g}%" if column.epsilon is None else f"ε = {column.epsilon:.4g}"
            lines.append(f"  {column.name:<{width}}  {spent:<12}  ± {column.error:.4g}{column.unit}  ({column.noise})")
        lines += [f"covers     {self.covers}"] if self.covers else []
        lines.append(
            f"remaining  {room_words(self.remaining, self.budget)}"
            + ("" if self.affordable else ": NOT ENOUGH for this answer")
        )
        lines += [] if self.afterwards is None else [f"afterwards {room_words(self.afterwards, self.budget)}"]
        return "\n".join(lines)


def key_note(plan: ReleasePlan, question: Question) -> str:
    """How frequent a key must be to be discovered."""
    if plan.selection is None:
        return ""
    whose = "rows" if isinstance(question.unit, Rows) else "persons"
    often, sure = plan.selection.threshold, plan.selection.certain(LEVEL)
    return f"come out half of the time with {often:,} {whose}, and 95% of the time with {sure:,}"


def expected(question: Question, plan: ReleasePlan, relation: Relation, rows: int) -> list[Expected]:
    """The error of each column in a group of `rows` rows whose values lie in the middle of the bounds."""
    _check.integer("rows", rows, "it is a guess of how many rows a group has; means get better with it")
    columns = [_expected(question, name, priced, relation, rows) for name, priced in plan.parts.items()]
    totals = [
        _expected(question, f"total of {n}", priced, relation, rows, groups=1) for n, priced in plan.totals.items()
    ]
    return columns + totals


def _expected(
    question: Question,
    name: str,
    priced: PricedMeasurement,
    relation: Relation,
    rows: int,
    *,
    groups: int | None = None,
) -> Expected:
    epsilon = None if priced.epsilon is None else float(priced.epsilon)
    measurement, error_in = priced.measurement, priced.measurement.aggregate.error_in
    if isinstance(measurement, Choice):
        error = measurement.score_error(priced.drawing, relation)
    else:
        assert isinstance(measurement, Sums)
        assert isinstance(priced.mechanism, AdditiveNoise)
        noise = priced.mechanism.noise_law(question.shape(measurement, relation, groups=groups).granularity)
        low, high = Error(measurement.summed.finish, measurement.summed.typical(rows), noise).interval(LEVEL)
        error = float(np.max(np.subtract(high, low))) / 2
    return Expected(name, epsilon, error, float(priced.share), priced.noise, f" in {error_in}" if error_in else "")
