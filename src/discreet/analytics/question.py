"""What is asked: the rows, the groups, who is protected and the statistics; and its exact answer, which nobody sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from discreet.analytics import compiling, discovery
from discreet.analytics.compiling import Asked
from discreet.analytics.discovery import Discover
from discreet.analytics.keys import MAX_KEYS, Keys
from discreet.bounded import Bounded, Scores
from discreet.neighbors import Relation, Unit
from discreet.queries import aggregated


@dataclass(frozen=True)
class Question:
    """The engine's rows, the groups, who is protected, and the statistics by name.

    Where the groups are to be discovered, `keys` is an example that stands for them until `found` puts in what came
    out; the sensitivities hold for any number of groups then.
    """

    table: Any
    keys: Keys | None
    unit: Unit
    asked: Mapping[str, Asked]
    discover: Discover | None = None

    def __str__(self) -> str:
        parts = [f"{name}={one}" for name, one in self.asked.items()]
        by = "" if self.keys is None else f" by {', '.join(self.keys.columns)}"
        return ", ".join(parts) + by + ("" if self.discover is None else " (discovered)")

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
        cells = [name for one in self.asked.values() for name in one.columns]
        return (*(() if self.keys is None else self.keys.columns), *cells)

    def found(self, keys: Keys) -> Question:
        """The same question about the keys that were discovered."""
        return replace(self, keys=keys)

    def candidates(self, secret: int) -> Any:
        """What runs in the engine to discover keys."""
        assert self.keys is not None
        assert self.discover is not None
        return discovery.candidates(self.table, self.keys.columns, self.unit, self.discover.least, secret)

    def sums(self) -> dict[str, Asked]:
        """The statistics that are sums, which share one pass."""
        return {name: one for name, one in self.asked.items() if one.statistic.kind != "quantile"}

    def queries(self) -> list[Any]:
        """What runs in the engine: one query for all sums, then one for each quantile."""
        return self._built

    @cached_property
    def _built(self) -> list[Any]:
        sums = list(self.sums().values())
        found = [compiling.totals(self.table, sums, self.keys, self.unit)] if sums else []
        ranks = [one for one in self.asked.values() if one.statistic.kind == "quantile"]
        return found + [compiling.cells(self.table, one, self.keys, self.unit) for one in ranks]

    def shape(self, one: Asked, relation: Relation, *, groups: int | None = None) -> Bounded:
        """A statistic's sensitivity without its value: zeros for each group, for calibration."""
        many = self.groups if groups is None else groups
        empty = [[0] * one.statistic.coordinates] * many
        universe = self.universe if groups is None else groups
        return aggregated.bounded(one.statistic, empty, self.unit, relation=relation, universe=universe)

    def values(self, tables: list[list[dict[str, Any]]], relation: Relation) -> dict[str, list[Bounded | Scores]]:
        """The exact, unprotected values out of the answers of `queries`: one of all groups, or scores of each group."""
        left = iter(tables)
        found: dict[str, list[Bounded | Scores]] = {}
        labels = None if self.keys is None else self.keys.labels()
        sums = self.sums()
        table = next(left) if sums else []
        for place, (name, one) in enumerate(sums.items()):
            totals = _totals(table, place, one, self.keys)
            if one.statistic.kind == "top_k":
                found[name] = [
                    aggregated.choices(one.statistic, each, one.labels, self.unit, relation=relation) for each in totals
                ]
                continue
            found[name] = [
                aggregated.bounded(
                    one.statistic, totals, self.unit, relation=relation, labels=labels, universe=self.universe
                )
            ]
        for name, one in self.asked.items():
            if name not in sums:
                counts = _counts(next(left), one, self.keys)
                found[name] = [aggregated.scores(one.statistic, c, self.unit, relation=relation) for c in counts]
        return found

    def whole(self, name: str, value: Bounded, relation: Relation) -> Bounded:
        """The exact total of a sum over all groups, with the smaller sensitivity that one number has."""
        one = self.asked[name]
        total = sum(int(part) for part in value.values.ravel().tolist())
        return aggregated.bounded(one.statistic, [[total]], self.unit, relation=relation)


def _group(row: dict[str, Any], places: Mapping[Any, int], columns: int) -> int | None:
    key = tuple(row[f"g{i}"] for i in range(columns))
    if key in places or not any(isinstance(value, Decimal) for value in key):
        return places.get(key)
    # To Python 0.1 is another number than a decimal 0.1; to engines, which compare them as floats, it is the same.
    return places.get(tuple(float(value) if isinstance(value, Decimal) else value for value in key))


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
