"""The aggregates that may be asked for, several of them in one `aggregate(…)` call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from discreet import _check
from discreet.analytics.compiling import Asked
from discreet.neighbors import Rows, Unit
from discreet.queries.aggregated import Kind, plan


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: what is computed, of which column, within which public bounds, for which share of ε."""

    kind: Kind
    column: str | None = None
    bounds: tuple[float, float] | None = None
    rank: float | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        _check.positive("share", self.share, "an aggregate gets ε in proportion to its share")

    def asked(self, unit: Unit, declared: Mapping[str, tuple[float, float]]) -> Asked:
        """The plan for a unit, with the bounds given here or declared for the table."""
        if self.kind == "persons" and isinstance(unit, Rows):
            remedy = "with dp.rows() each row is its own person: ask count(), or open the account with dp.person(…)"
            raise _check.fail("count_distinct", "count persons", str(unit), remedy)
        if self.kind in ("count", "persons"):
            return Asked(plan(self.kind, unit), self.column, self.share)
        bounds = declared.get(str(self.column)) if self.bounds is None else self.bounds
        if bounds is None:
            remedy = "give (lower, upper) from what you know without looking at the data, here or once on the table"
            raise _check.fail("bounds", f"be given for {self.column!r}", None, remedy)
        return Asked(plan(self.kind, unit, bounds=bounds, rank=self.rank), self.column, self.share)


def count(column: str | None = None, *, share: float = 1.0) -> Aggregate:
    """The number of rows, or of rows where `column` has a value."""
    return Aggregate("count", column, share=share)


def count_distinct(*, share: float = 1.0) -> Aggregate:
    """The number of persons."""
    return Aggregate("persons", share=share)


def sum(column: str, *, bounds: tuple[float, float] | None = None, share: float = 1.0) -> Aggregate:
    """The sum of `column`, each row clamped to `bounds`."""
    return Aggregate("sum", column, bounds, share=share)


def mean(column: str, *, bounds: tuple[float, float] | None = None, share: float = 1.0) -> Aggregate:
    """The mean of `column`, each row clamped to `bounds`."""
    return Aggregate("mean", column, bounds, share=share)


def variance(column: str, *, bounds: tuple[float, float] | None = None, share: float = 1.0) -> Aggregate:
    """The variance of `column` (divided by n), each row clamped to `bounds`."""
    return Aggregate("variance", column, bounds, share=share)


def std(column: str, *, bounds: tuple[float, float] | None = None, share: float = 1.0) -> Aggregate:
    """The standard deviation of `column`, each row clamped to `bounds`."""
    return Aggregate("std", column, bounds, share=share)


def quantile(
    column: str, quantile: float, *, bounds: tuple[float, float] | None = None, share: float = 1.0
) -> Aggregate:
    """A quantile of `column`, chosen among about a thousand levels of `bounds`."""
    return Aggregate("quantile", column, bounds, quantile, share)


def median(column: str, *, bounds: tuple[float, float] | None = None, share: float = 1.0) -> Aggregate:
    """The median of `column`, chosen among about a thousand levels of `bounds`."""
    return Aggregate("quantile", column, bounds, 0.5, share)
