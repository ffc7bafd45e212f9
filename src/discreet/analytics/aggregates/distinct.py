"""How many different values a column has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfPerson
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import EachValue
from discreet.neighbors import Unit
from discreet.queries.aggregated import summed_counts


@dataclass(frozen=True)
class CountValues(Aggregate):
    """The number of different values; of each person at most `max_rows` values count."""

    name = "values"
    counts = True

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def counts_members(self) -> bool:
        """No: it counts values, which many rows may share."""
        return False

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """The column: different values must never be equal."""
        return self.columns

    @property
    def of_person(self) -> OfPerson:
        """The number of different values."""
        return OfPerson.VALUES

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """A row moves it by 1, and a person by `max_rows` (docs/proofs/distinct-values.md)."""
        return Sums(self, unit, (EachValue(self.column),), summed_counts(self.name, unit))


def count_values(column: str, *, share: float = 1.0) -> Aggregate:
    """The number of different values of `column`; of each person at most `max_rows` of them count."""
    return CountValues(column, share=share)
