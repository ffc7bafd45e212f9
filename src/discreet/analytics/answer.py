"""An answer that has not been given yet: what it would cost and how good it would be, and then the release itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ibis

from discreet import _check
from discreet.analytics import compiling
from discreet.analytics.compiling import Asked
from discreet.analytics.keys import Keys
from discreet.analytics.preview import Expected, Preview, expected
from discreet.analytics.result import Result
from discreet.bounded import Bounded, Scores
from discreet.errors import EngineFailed, Exhausted
from discreet.events import Composed, Event
from discreet.ledger import Account
from discreet.mechanisms import Exponential, Laplace
from discreet.neighbors import Relation, Unit
from discreet.queries import aggregated
from discreet.release import Release


@dataclass(frozen=True)
class Question:
    """What is asked: the engine's rows, the public groups, who is protected, and the statistics by name."""

    table: Any
    keys: Keys | None
    unit: Unit
    asked: Mapping[str, Asked]

    def __str__(self) -> str:
        parts = [f"{name}={one.statistic.kind}({one.column or ''})" for name, one in self.asked.items()]
        by = "" if self.keys is None else f" by {', '.join(self.keys.columns)}"
        return ", ".join(parts) + by

    @property
    def groups(self) -> int:
        """How many groups are answered."""
        return 1 if self.keys is None else len(self.keys.values)

    def sums(self) -> dict[str, Asked]:
        """The statistics that are sums, which share one pass."""
        return {name: one for name, one in self.asked.items() if one.statistic.kind != "quantile"}

    def queries(self) -> list[Any]:
        """What runs in the engine: one query for all sums, then one for each quantile."""
        sums = list(self.sums().values())
        found = [compiling.totals(self.table, sums, self.keys, self.unit)] if sums else []
        ranks = [one for one in self.asked.values() if one.statistic.kind == "quantile"]
        return found + [compiling.cells(self.table, one, self.keys, self.unit) for one in ranks]

    def values(self, tables: list[list[dict[str, Any]]], relation: Relation) -> dict[str, list[Bounded | Scores]]:
        """The exact, unprotected values out of the answers of `queries`: one of all groups, or scores of each group."""
        left = iter(tables)
        found: dict[str, list[Bounded | Scores]] = {}
        labels = None if self.keys is None else self.keys.labels()
        sums = self.sums()
        table = next(left) if sums else []
        for place, (name, one) in enumerate(sums.items()):
            totals = _totals(table, place, one, self.keys)
            found[name] = [aggregated.bounded(one.statistic, totals, self.unit, relation=relation, labels=labels)]
        for name, one in self.asked.items():
            if name not in sums:
                counts = _counts(next(left), one, self.keys)
                found[name] = [aggregated.scores(one.statistic, c, self.unit, relation=relation) for c in counts]
        return found


@dataclass(frozen=True)
class Part:
    """One statistic with its noise."""

    asked: Asked
    epsilon: Fraction
    mechanism: Laplace | Exponential
    event: Event


class Answer:
    """Aggregates that were asked for and not yet released. `preview` is free, `release` is charged."""

    def __init__(self, question: Question, account: Account) -> None:
        self._question = question
        self._account = account
        question.queries()  # refuses a column of the wrong type now, not at the release

    @property
    def sql(self) -> str:
        """The SQL that a release runs."""
        return ";\n\n".join(str(ibis.to_sql(query)) for query in self._question.queries())

    def event(self, epsilon: float) -> Event:
        """What a release would be charged as; looks at public facts alone."""
        parts = [part.event for part in self._parts(epsilon).values()]
        return parts[0] if len(parts) == 1 else Composed(tuple(parts))

    def epsilon_for(self, error_target: float | Mapping[str, float], *, rows: int = 1000) -> float:
        """The least ε at which each column's expected error in a group of `rows` rows is within its target.

        Args:
            error_target: one error for all columns, or one for each of some columns by name, as `preview` shows them.
            rows: a guess of how many rows a group has.

        Guarantee: spends nothing and touches no data.
        """
        given = error_target if isinstance(error_target, Mapping) else dict.fromkeys(self._question.asked, error_target)
        remedy = "it is the error that 95% of the column's numbers should stay within"
        targets = {name: float(_check.positive(f"error_target of {name}", e, remedy)) for name, e in given.items()}
        unknown = [name for name in targets if name not in self._question.asked]
        if unknown or not targets:
            raise _check.fail("error_target", "name columns of this answer", unknown, ", ".join(self._question.asked))

        def enough(epsilon: float) -> bool:
            return all(one.error <= targets[one.name] for one in self._expected(epsilon, rows) if one.name in targets)

        low, high = 1e-6, 1e4
        if not enough(high):
            raise _check.fail("error_target", "be reachable with ε ≤ 1e4", error_target, "allow for more, or more rows")
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def preview(
        self,
        *,
        epsilon: float | None = None,
        error_target: float | Mapping[str, float] | None = None,
        rows: int = 1000,
    ) -> Preview:
        """The cost, the expected error at 95% of each column in a group of `rows` rows, the SQL and what remains.

        Args:
            epsilon: what would be spent.
            error_target: instead, the errors that are wanted: the ε for them is found (see `epsilon_for`).
            rows: a guess of how many rows a group has.

        Guarantee: spends nothing and touches no data.
        """
        if (epsilon is None) == (error_target is None):
            raise _check.fail("epsilon", "be given, or error_target, but not both", epsilon, "say which one is wanted")
        if epsilon is None:
            assert error_target is not None
            epsilon = self.epsilon_for(error_target, rows=rows)
        event = self.event(epsilon)
        found = self._expected(epsilon, rows)
        return Preview(
            epsilon=float(_check.epsilon(epsilon)),
            event=event,
            neighbors=self._account.neighbors,
            groups=self._question.groups,
            rows=rows,
            columns=tuple(found),
            sql=self.sql,
            remaining=self._account.remaining(),
            affordable=self._account.would_afford(event, self._account.neighbors),
        )

    def release(self, *, epsilon: float, purpose: str | None = None, key: str | None = None) -> Result:
        """Charge the account, then run the query, then add exact noise.

        Args:
            epsilon: the privacy loss ε > 0 of all columns together, split among them by their shares.
            purpose: what it is for, in the ledger; by default what was asked.
            key: a name for this release in the ledger. A key that was charged before is refused: its noise was drawn.

        Raises:
            BudgetExceeded: the account has no room; the query did not run.
            EngineFailed: the engine broke down after the charge, which stays.

        Guarantee: ε-DP for the account's unit and relation, charged before the query runs. Each of the disjoint groups
        is answered at the full ε of its column. Sums are exact integers on a public grid with exact discrete Laplace
        noise; quantiles are drawn by the exponential mechanism. Not protected: the plan and the time it takes.
        """
        parts = self._parts(epsilon)
        queries = self._question.queries()
        why = str(self._question) if purpose is None else purpose
        receipt = self._account.spend(self.event(epsilon), why, key, self._account.neighbors)
        if receipt.replayed:
            raise Exhausted(f"key {key!r} has paid for a release already: keep that one, or choose another key")
        values = self._question.values(_run(queries), self._relation)
        done = {name: [_noised(parts[name], one, self._relation) for one in values[name]] for name in parts}
        return Result.of(self._question, done, parts, receipt, self._relation)

    def __repr__(self) -> str:
        return f"<Answer, not released: {self._question}>"

    def _expected(self, epsilon: float, rows: int) -> list[Expected]:
        _check.integer("rows", rows, "it is a guess of how many rows a group has; means get better with it")
        return [
            expected(name, part.asked, part.epsilon, part.event, self._question.unit, self._relation, rows)
            for name, part in self._parts(epsilon).items()
        ]

    @property
    def _relation(self) -> Relation:
        return self._account.neighbors.relation

    def _parts(self, epsilon: float) -> dict[str, Part]:
        """Each statistic with its share of ε and its mechanism, calibrated on public facts alone."""
        whole = _check.epsilon(epsilon)
        shares = {name: Fraction(one.share) for name, one in self._question.asked.items()}
        all_shares = sum(shares.values(), Fraction(0))
        found: dict[str, Part] = {}
        for name, one in self._question.asked.items():
            own = whole * shares[name] / all_shares
            if one.statistic.kind == "quantile":
                drawn = Exponential(own)
                found[name] = Part(one, own, drawn, drawn.event())
                continue
            empty = [[0] * one.statistic.coordinates] * self._question.groups
            shape = aggregated.bounded(one.statistic, empty, self._question.unit, relation=self._relation)
            noise = Laplace.for_epsilon(shape, own, self._relation)  # type: ignore[arg-type]  # exact, not a float
            found[name] = Part(one, own, noise, noise.event(shape, self._relation))
        return found


def _noised(part: Part, value: Bounded | Scores, relation: Relation) -> Release[Any]:
    """The release of one value, by the mechanism whose event was charged."""
    if isinstance(value, Bounded) and isinstance(part.mechanism, Laplace):
        released = part.mechanism.release(value, relation=relation)
    else:
        assert isinstance(value, Scores)
        assert isinstance(part.mechanism, Exponential)
        released = part.mechanism.release(value, relation=relation)
    assert released.event == part.event, "what runs is what was charged"
    return released


def _run(queries: list[Any]) -> list[list[dict[str, Any]]]:
    """The rows that the engine answers with; at most one for each public group, or level of a group."""
    try:
        return [query.to_pyarrow().to_pylist() for query in queries]
    except Exception as error:
        failed = EngineFailed(error)
    raise failed


def _group(row: dict[str, Any], places: Mapping[Any, int], columns: int) -> int | None:
    return places.get(tuple(row[f"g{i}"] for i in range(columns)))


def _totals(table: list[dict[str, Any]], place: int, one: Asked, keys: Keys | None) -> list[list[int]]:
    """One statistic's integers for each public group, in the order of the keys; zeros where no row is."""
    places, columns = _places(keys)
    found = [[0] * one.statistic.coordinates for _ in places]
    for row in table:
        group = _group(row, places, columns)
        if group is not None:
            for j in range(one.statistic.coordinates):
                found[group][j] += int(row[f"c{place}_{j}"] or 0)
    return found


def _counts(table: list[dict[str, Any]], one: Asked, keys: Keys | None) -> list[list[int]]:
    """For each public group, how many rows lie on each level of the grid."""
    places, columns = _places(keys)
    grid = one.statistic.grid
    assert grid is not None
    found = [[0] * (grid.upper - grid.lower + 1) for _ in places]
    for row in table:
        group = _group(row, places, columns)
        if group is not None:
            found[group][int(row["level"]) - grid.lower] += int(row["rows"] or 0)
    return found


def _places(keys: Keys | None) -> tuple[dict[Any, int], int]:
    if keys is None:
        return {(): 0}, 0
    return {key: place for place, key in enumerate(keys.values)}, len(keys.columns)
