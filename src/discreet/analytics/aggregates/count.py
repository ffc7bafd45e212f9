"""How many rows or persons there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfPerson
from discreet.analytics.aggregates.distinct import CountValues
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import EachPerson, EachRow, Holds
from discreet.analytics.table.expressions import Column, Present
from discreet.neighbors import Rows, Unit
from discreet.queries.aggregated import summed_counts

if TYPE_CHECKING:
    from discreet.analytics.plan.sql import AggregateCall


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of rows, or of rows where a column has a value."""

    name = "count"
    sql_names = ("COUNT",)
    counts = True
    adds_up = True

    column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The column, if there is one."""
        return () if self.column is None else (self.column,)

    @property
    def counts_units(self) -> bool:
        """All rows, unless those with a value in a column are counted."""
        return self.column is None

    @property
    def of_person(self) -> OfPerson:
        """The number of rows."""
        return OfPerson.ROWS

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves it by 1."""
        term = EachRow() if self.column is None else Holds(Present(Column(self.column)))
        return Sums(self, unit, (term,), summed_counts(self.name, unit))

    @classmethod
    def from_sql(cls, call: AggregateCall) -> tuple[str, Aggregate]:
        """COUNT(*), COUNT(column), COUNT(DISTINCT person), or COUNT(DISTINCT column)."""
        if call.star:
            return "count", cls()
        distinct = call.distinct
        if distinct is not None:
            if len(distinct) != 1:
                raise call.refused("COUNT(DISTINCT column) of one column")
            if distinct == [call.person]:
                return "persons", CountDistinct()
            return f"values_{distinct[0]}", CountValues(distinct[0])
        column = call.column()
        return f"count_{column}", cls(column)


@dataclass(frozen=True)
class CountDistinct(Aggregate):
    """The number of persons."""

    name = "persons"
    counts = True
    limited_by = "groups"

    @property
    def columns(self) -> tuple[str, ...]:
        """None: the person's column is the account's."""
        return ()

    @property
    def counts_units(self) -> bool:
        """All persons."""
        return True

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """A person moves it by 1 in each of at most `max_groups` groups."""
        if isinstance(unit, Rows):
            remedy = "with dp.rows() each row is its own person: ask count(), or open the account with dp.person(…)"
            raise _check.fail("count_distinct", "count persons", str(unit), remedy)
        return Sums(self, unit, (EachPerson(),), summed_counts(self.name, unit, counts_persons=True))


def count(column: str | None = None, *, share: float = 1.0) -> Aggregate:
    """The number of rows, or of rows where `column` has a value."""
    return Count(column, share=share)


def count_distinct(*, share: float = 1.0) -> Aggregate:
    """The number of persons."""
    return CountDistinct(share=share)
