"""What every aggregate is: the questions that the flow asks of one, from its plan to its columns in the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from discreet import _check
from discreet.neighbors import Unit

if TYPE_CHECKING:
    from discreet.analytics.aggregates.measurement import Measurement
    from discreet.analytics.plan.sql import AggregateCall

Bounds = tuple[float, float]


class OfPerson(Enum):
    """What an aggregate is exactly, computed of one person's rows alone (`Private.per_person`)."""

    ROWS = "the number of rows"
    VALUES = "the number of different values"
    SUM = "the sum"
    MEAN = "the mean"
    LEAST = "the least value"
    GREATEST = "the greatest value"


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result and the column of its errors; `error_in` as `Aggregate.error_in`.

    `ends` are the columns of the ends between which the answer lies, where it has such.
    """

    name: str
    error: str
    error_in: str = ""
    ends: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All of its columns."""
        return (self.name, self.error, *self.ends)


@dataclass(frozen=True)
class Aggregate(ABC):
    """One aggregate: what is computed, of which columns, within which public bounds, for which share of the budget.

    Abstract: `count()`, `mean(…)` and the other functions make one. Each class has a file of its own.

    Attributes:
        name: the aggregate's name, in messages, releases and purposes.
        sql_names: the functions that SQL has for it.
        counts: whether it counts rows or persons, so its numbers are whole and not negative.
        adds_up: whether the groups' numbers add up to the number of all rows.
        error_in: what its errors count, such as "rank"; empty where they are in the column's own units.
        limited_by: what a person's limit is on: "rows", "groups" (persons are counted once in each), or "" for none.
        share: the part of the budget it gets, relative to the shares of the others.
    """

    name: ClassVar[str]
    sql_names: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    error_in: ClassVar[str] = ""
    limited_by: ClassVar[str] = "rows"

    share: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        _check.positive("share", self.share, "an aggregate gets a part of the budget in proportion to its share")

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it is computed from."""

    @property
    def counts_units(self) -> bool:
        """Whether it counts all rows, or all persons, of a group."""
        return False

    @property
    def counts_members(self) -> bool:
        """Whether it counts rows or persons of a group, all or some of them."""
        return self.counts

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """Those of its columns whose values decide in which public cell a row counts."""
        return ()

    @property
    def of_person(self) -> OfPerson | None:
        """What it is of one person's rows; None where no exact form is known."""
        return None

    def clamps(self, declared: Mapping[str, Bounds]) -> dict[str, Bounds]:
        """The columns whose values are clamped before they are used, with their bounds."""
        return {}

    @abstractmethod
    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Measurement:
        """What is measured for a unit, with the bounds given here or declared for the table."""

    def outputs(self, alias: str) -> tuple[ResultColumn, ...]:
        """The columns of a result under an alias, each with the column of its errors."""
        return (
            ResultColumn(alias, f"{alias}_{self.error_in}_error" if self.error_in else f"{alias}_error", self.error_in),
        )

    @classmethod
    def from_sql(cls, call: AggregateCall) -> tuple[str, Aggregate]:
        """The aggregate that a call in SQL asks for, and its default alias."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.columns)})"


@dataclass(frozen=True)
class OfColumn(Aggregate):
    """An aggregate of one column, each row clamped to bounds. Abstract."""

    column: str
    bounds: Bounds | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def clamps(self, declared: Mapping[str, Bounds]) -> dict[str, Bounds]:
        """The column."""
        return {self.column: resolve_bounds(self.column, self.bounds, declared)}

    @classmethod
    def from_sql(cls, call: AggregateCall) -> tuple[str, Aggregate]:
        """NAME(column) or NAME(CLAMP(column, lower, upper))."""
        column, bounds = call.clamped()
        return call.alias(column), cls(column, bounds)


def resolve_bounds(column: str, given: Bounds | Mapping[str, Bounds] | None, declared: Mapping[str, Bounds]) -> Bounds:
    """The bounds of a column: those given for the aggregate, or else those declared for the table."""
    first = given.get(column) if isinstance(given, Mapping) else given
    bounds = declared.get(column) if first is None else first
    if bounds is None:
        remedy = "give (lower, upper) from what you know without looking at the data, here or once on the table"
        raise _check.fail("bounds", f"be given for {column!r}", None, remedy)
    return bounds


def rank_suffix(rank: float) -> str:
    """What tells the columns of several quantiles apart: `_25` for 0.25."""
    return f"_{float(100 * _check.real('quantile', rank, '0.5 is the median')):g}".replace(".", "_")
