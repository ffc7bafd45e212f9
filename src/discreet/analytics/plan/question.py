"""What is asked: the rows, the groups, who is protected and the aggregates; and its exact answer, which nobody sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from discreet.analytics.aggregates.aggregate import Bounds
from discreet.analytics.aggregates.measurement import Measurement, Sums
from discreet.analytics.aggregates.terms import EachCut, EachLevel, EachMark, PersonsBy
from discreet.analytics.engine import compiling, grouping, persons
from discreet.analytics.plan import discovery
from discreet.analytics.plan.discovery import Discover
from discreet.analytics.plan.keys import MAX_KEYS, Keys
from discreet.bounded import Bounded, Scores
from discreet.neighbors import Person, Relation, Unit
from discreet.queries.statistics.quantile import RefinedScores


@dataclass(frozen=True)
class Question:
    """The engine's rows, the groups, who is protected, and what is measured under each name.

    Where the groups are to be discovered, `keys` is an example that stands for them until `with_keys` puts in those
    that were released. The sensitivities then hold for any number of groups. Where `keys` is None, `pooled` may hold
    keys whose rows are asked about all together: other rows are left out. `clamped` are the columns whose values are
    clamped, with their bounds.
    """

    table: Any
    keys: Keys | None
    unit: Unit
    asked: Mapping[str, Measurement]
    discover: Discover | None = None
    pooled: Keys | None = None
    clamped: Mapping[str, Bounds] = field(default_factory=dict)

    def __str__(self) -> str:
        asked = ", ".join(f"{name}={measurement}" for name, measurement in self.asked.items())
        by = "" if self.keys is None else f" by {', '.join(self.keys.columns)}"
        return asked + by + ("" if self.discover is None else " (discovered)")

    @property
    def groups(self) -> int:
        """How many groups are answered."""
        return 1 if self.keys is None else len(self.keys.values)

    @property
    def universe(self) -> int:
        """How many groups there can be: those that are listed, or any number of discovered ones."""
        return self.groups if self.discover is None else MAX_KEYS

    @property
    def grouping(self) -> tuple[str, ...]:
        """The columns whose values decide in which group or cell a row counts."""
        cells = [name for measurement in self.asked.values() for name in measurement.aggregate.cell_columns]
        chosen = self.keys or self.pooled
        return (*(() if chosen is None else chosen.columns), *cells)

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns in which different values must never be equal: those of groups and cells, and the person's."""
        return (*self.grouping, *([str(self.unit.column)] if isinstance(self.unit, Person) else []))

    def with_keys(self, keys: Keys) -> Question:
        """The same question about the keys that were discovered."""
        return replace(self, keys=keys)

    def candidates(self, secret: int) -> Any:
        """The query that finds candidates for keys."""
        assert self.keys is not None
        assert self.discover is not None
        return discovery.candidates(self.table, self.keys.columns, self.unit, self.discover.least, secret)

    def queries(self) -> list[Any]:
        """What runs in the engine: one query for all sums, then one for each quantile and each count of values."""
        return self._built

    @cached_property
    def _built(self) -> list[Any]:
        shared = [measurement.terms for measurement in self._shared().values()]
        built = []
        if shared:
            totals = compiling.totals(self.table, shared, self.keys or self.pooled, self.unit)
            built = [totals if self.pooled is None else persons.pooled(totals)]
        return built + [self._alone(measurement) for name, measurement in self.asked.items() if name in self._own()]

    def _alone(self, measurement: Measurement) -> Any:
        """The query of a measurement that shares none: values, rows by level or cut, or persons by rows or groups."""
        keys = self.keys or self.pooled
        if measurement.different is not None:
            return compiling.value_counts(self.table, measurement.different.column, keys, self.unit)
        own = measurement.levels
        if isinstance(own, EachLevel):
            return compiling.level_counts(self.table, own, keys, self.unit)
        if isinstance(own, EachCut):
            return compiling.cut_counts(self.table, own, keys, self.unit)
        if isinstance(own, EachMark):
            return compiling.mark_counts(self.table, own, keys, self.unit)
        assert isinstance(own, PersonsBy)
        assert isinstance(self.unit, Person)
        return persons.persons_by(self.table, own, self.pooled, self.unit)

    def _own(self) -> set[str]:
        """What has a query of its own."""
        return {name for name in self.asked if name not in self._shared()}

    def _shared(self) -> dict[str, Measurement]:
        """What is summed in one query."""
        return {
            name: measurement
            for name, measurement in self.asked.items()
            if measurement.levels is None and measurement.different is None
        }

    def shape(self, sums: Sums, relation: Relation, *, groups: int | None = None) -> Bounded:
        """The sensitivity of sums without their value: zeros for each group, for calibration."""
        if groups is not None:
            return sums.shape(groups, groups, relation)
        return sums.shape(self.groups, self.universe, relation)

    def values(
        self, tables: list[pa.Table], relation: Relation
    ) -> dict[str, Sequence[Bounded | Scores | RefinedScores]]:
        """The exact, unprotected values from the answers to `queries`: one of all groups, or scores of each group."""
        labels = None if self.keys is None else self.keys.labels()
        if not self.groups:  # no key was discovered, and nothing was asked of the engine
            return {name: asked.values([], relation, labels, self.universe) for name, asked in self.asked.items()}
        remaining = iter(tables)
        shared = self._shared()
        together = next(remaining) if shared else None
        totals = {
            name: _totals(together, position, measurement, self.keys)
            for position, (name, measurement) in enumerate(shared.items())
        }
        for name, measurement in self.asked.items():
            if name not in shared:
                by_group = None if isinstance(measurement.levels, PersonsBy) else self.keys or self.pooled
                totals[name] = _own_totals(next(remaining), measurement, by_group)
        return {name: self.asked[name].values(own, relation, labels, self.universe) for name, own in totals.items()}


def _totals(answer: pa.Table, position: int, measurement: Measurement, keys: Keys | None) -> list[list[int]]:
    """One measurement's integers for each public group, in the order of the keys."""
    return grouping.totals(answer, keys, [f"c{position}_{j}" for j in range(measurement.coordinates)])


def _own_totals(answer: pa.Table, measurement: Measurement, keys: Keys | None) -> list[list[int]]:
    """For each public group, how many rows lie on each level of the grid, or how many values there are."""
    if measurement.different is not None:
        return grouping.totals(answer, keys, ["values"])
    assert measurement.levels is not None
    return grouping.level_totals(answer, keys, measurement.levels.lowest, measurement.coordinates)
