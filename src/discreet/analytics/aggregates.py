"""The aggregates that may be asked for, several of them in one `aggregate(…)` call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from discreet import _check
from discreet.analytics.compiling import Asked
from discreet.analytics.semantics import literal
from discreet.neighbors import Rows, Unit
from discreet.queries.aggregated import Kind, plan

Bounds = tuple[float, float]

#: More cells than this are refused inside `aggregate`, where each is a column; a table's own `marginal` takes more.
MAX_CELLS = 1024
#: The quantiles that stand for the extremes, which belong to single people.
LOWEST, HIGHEST = 0.01, 0.99


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: what is computed, of which columns, within which public bounds, for which share of the budget."""

    kind: Kind
    column: str | None = None
    bounds: Bounds | Mapping[str, Bounds] | None = None
    rank: float | None = None
    share: float = 1.0
    other: str | None = None
    categories: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    k: int | None = None

    def __post_init__(self) -> None:
        _check.positive("share", self.share, "an aggregate gets a part of the budget in proportion to its share")
        # Checked here, whoever makes it: a value that is listed twice would count a row twice.
        listed = tuple((name, _public(name, values)) for name, values in self.categories)
        object.__setattr__(self, "categories", listed)
        if self.k is not None:
            cells = len(self.categories[0][1])
            _check.settle_integers(self, "k", remedy="it is how many categories to choose", at_most=cells)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is computed from."""
        named = (self.column, self.other, *(name for name, _ in self.categories))
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def asked(self, unit: Unit, declared: Mapping[str, Bounds]) -> Asked:
        """The plan for a unit, with the bounds given here or declared for the table."""
        if self.kind == "persons" and isinstance(unit, Rows):
            remedy = "with dp.rows() each row is its own person: ask count(), or open the account with dp.person(…)"
            raise _check.fail("count_distinct", "count persons", str(unit), remedy)
        if self.kind in ("count", "persons"):
            return Asked(plan(self.kind, unit), self.column, self.share)
        if self.categories:
            names, lists = tuple(name for name, _ in self.categories), [values for _, values in self.categories]
            cells = tuple(product(*lists))
            return Asked(
                plan(self.kind, unit, cells=len(cells)), None, self.share, columns=names, cells=cells, k=self.k
            )
        own = self._bounds(self.column, declared)
        if self.other is None:
            return Asked(plan(self.kind, unit, bounds=own, rank=self.rank), self.column, self.share)
        statistic = plan(self.kind, unit, bounds=own, other_bounds=self._bounds(self.other, declared))
        return Asked(statistic, self.column, self.share, other=self.other)

    def _bounds(self, column: str | None, declared: Mapping[str, Bounds]) -> Bounds:
        given = self.bounds.get(str(column)) if isinstance(self.bounds, Mapping) else self.bounds
        found = declared.get(str(column)) if given is None else given
        if found is None:
            remedy = "give (lower, upper) from what you know without looking at the data, here or once on the table"
            raise _check.fail("bounds", f"be given for {column!r}", None, remedy)
        return found


def count(column: str | None = None, *, share: float = 1.0) -> Aggregate:
    """The number of rows, or of rows where `column` has a value."""
    return Aggregate("count", column, share=share)


def count_distinct(*, share: float = 1.0) -> Aggregate:
    """The number of persons."""
    return Aggregate("persons", share=share)


def sum(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The sum of `column`, each row clamped to `bounds`."""
    return Aggregate("sum", column, bounds, share=share)


def mean(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The mean of `column`, each row clamped to `bounds`."""
    return Aggregate("mean", column, bounds, share=share)


def variance(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The variance of `column` (divided by n), each row clamped to `bounds`."""
    return Aggregate("variance", column, bounds, share=share)


def std(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The standard deviation of `column`, each row clamped to `bounds`."""
    return Aggregate("std", column, bounds, share=share)


def covariance(one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None, share: float = 1.0) -> Aggregate:
    """The covariance of two columns (divided by n), each clamped to its `bounds` before they are multiplied.

    Rows that lack one of the two values are left out.
    """
    return Aggregate("covariance", one, _by_column(bounds), share=share, other=two)


def correlation(one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None, share: float = 1.0) -> Aggregate:
    """The correlation of two columns, within ±1, each clamped to its `bounds` before they are multiplied.

    Rows that lack one of the two values are left out.
    """
    return Aggregate("correlation", one, _by_column(bounds), share=share, other=two)


def quantile(column: str, quantile: float, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """A quantile of `column`, chosen among about a thousand levels of `bounds`."""
    return Aggregate("quantile", column, bounds, quantile, share)


def median(column: str, *, bounds: Bounds | None = None, share: float = 1.0) -> Aggregate:
    """The median of `column`, chosen among about a thousand levels of `bounds`."""
    return Aggregate("quantile", column, bounds, 0.5, share)


def min(column: str, *, bounds: Bounds | None = None, rank: float = LOWEST, share: float = 1.0) -> Aggregate:
    """A low quantile of `column`, by default the 1% quantile: the minimum itself is one person's value."""
    return Aggregate("quantile", column, bounds, rank, share)


def max(column: str, *, bounds: Bounds | None = None, rank: float = HIGHEST, share: float = 1.0) -> Aggregate:
    """A high quantile of `column`, by default the 99% quantile: the maximum itself is one person's value."""
    return Aggregate("quantile", column, bounds, rank, share)


def top_k(column: str, *, k: int, categories: Iterable[Any], share: float = 1.0) -> Aggregate:
    """The `k` most frequent of some public categories of `column`, most frequent first, without their counts."""
    return Aggregate("top_k", share=share, categories=((column, _public(column, categories)),), k=k)


def marginal(*columns: str, categories: Mapping[str, Iterable[Any]], share: float = 1.0) -> Aggregate:
    """How many rows have each combination of public categories of some columns: one number for each cell.

    All cells together cost as much as one count.
    """
    if not columns or set(columns) != set(categories) or len(set(columns)) != len(columns):
        raise _check.fail(
            "categories", f"be given for {columns}", tuple(categories), "list each column's public values"
        )
    lists = tuple((name, _public(name, categories[name])) for name in columns)
    cells = 1
    for _, values in lists:
        cells *= len(values)
    if cells > MAX_CELLS:
        remedy = "ask people.marginal(…) by itself, which has one row for each cell"
        raise _check.fail("categories", f"make at most {MAX_CELLS} cells", cells, remedy)
    return Aggregate("marginal", share=share, categories=lists)


def _by_column(bounds: object) -> Mapping[str, Bounds] | None:
    if bounds is not None and not isinstance(bounds, Mapping):
        remedy = "such as {'age': (0, 120), 'pay': (0, 1e6)}"
        raise _check.fail("bounds", "be a pair for each of the two columns by name", bounds, remedy)
    return bounds


def _public(column: str, categories: object) -> tuple[Any, ...]:
    if not isinstance(categories, Iterable) or isinstance(categories, str | bytes):
        raise _check.fail("categories", f"be a list of public values of {column!r}", categories, "list them")
    found = tuple(literal(value) for value in categories)
    # Engines compare numbers as 64-bit floats: of two integers that are the same float, a row would lie in both cells.
    compared = {float(value) if isinstance(value, int) else value for value in found}
    if not 0 < len(found) <= MAX_CELLS or len(compared) != len(found):
        remedy = "they are public facts, never taken from data; numbers must differ as 64-bit floats"
        raise _check.fail("categories", f"be between 1 and {MAX_CELLS} distinct values", len(found), remedy)
    return found
