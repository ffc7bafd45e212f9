"""What a query does to its rows before they are aggregated, in the order in which it is applied to a private table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discreet.analytics.aggregates.aggregate import Aggregate
from discreet.analytics.table.doors import replaced
from discreet.analytics.table.expressions import Expression


@dataclass(frozen=True, eq=False)
class Where:
    """Keep the rows for which a condition holds."""

    condition: Expression

    def apply(self, private: Any) -> Any:
        """The private table after this step."""
        return private.where(self.condition)


@dataclass(frozen=True, eq=False)
class Mutate:
    """Add or replace columns; names that differ in case alone are one name in SQL."""

    columns: Mapping[str, Expression]

    def apply(self, private: Any) -> Any:
        """The private table after this step."""
        return replaced(private, self.columns) if self.columns else private


@dataclass(frozen=True)
class Keep:
    """Keep some columns."""

    names: tuple[str, ...]

    def apply(self, private: Any) -> Any:
        """The private table after this step."""
        return private.select(*self.names)


@dataclass(frozen=True)
class PerPerson:
    """One row for each person, and for each value of some columns."""

    by: tuple[str, ...]
    values: Mapping[str, Aggregate]

    def apply(self, private: Any) -> Any:
        """The private table after this step."""
        return private.per_person(*self.by, **self.values)


@dataclass(frozen=True, eq=False)
class OfPersons:
    """Keep the rows of persons who have a row for which a condition holds; with `negated`, those of the others."""

    condition: Expression
    negated: bool

    def apply(self, private: Any) -> Any:
        """The private table after this step."""
        return private.where_person(self.condition, negate=self.negated)


@dataclass(frozen=True, eq=False)
class Matched:
    """Keep the rows of persons whom another private table has ("semi"), or does not have ("anti")."""

    other: Any
    how: str

    def apply(self, private: Any) -> Any:
        """The private table after this step."""
        return private.join(self.other, how=self.how)


TableStep = Where | Mutate | Keep | PerPerson | OfPersons | Matched
