"""The list of aggregates, in which SQL looks up names; and the same aggregates as methods of tables and groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, rank_suffix
from discreet.analytics.aggregates.count import Count, CountDistinct, count, count_distinct
from discreet.analytics.aggregates.covariance import Correlation, Covariance, correlation, covariance
from discreet.analytics.aggregates.distinct import CountValues, count_values
from discreet.analytics.aggregates.marginal import Marginal
from discreet.analytics.aggregates.mean import Mean, mean
from discreet.analytics.aggregates.outside import OutsideBounds as OutsideBounds
from discreet.analytics.aggregates.quantile import (
    HIGHEST,
    LEVELS,
    LOWEST,
    GridGap,
    Quantile,
    max,
    median,
    min,
)
from discreet.analytics.aggregates.quantile import quantile as quantile_of
from discreet.analytics.aggregates.rows_per_person import GroupsPerPerson as GroupsPerPerson
from discreet.analytics.aggregates.rows_per_person import RowsPerPerson as RowsPerPerson
from discreet.analytics.aggregates.sum import Sum, sum
from discreet.analytics.aggregates.top_k import TopCategories, top_k
from discreet.analytics.aggregates.value_range import EXPONENTS, RangeEnd, range_ends
from discreet.analytics.aggregates.variance import Std, Variance, std, variance

if TYPE_CHECKING:
    from discreet.analytics.answer import Answer

#: Every aggregate, in the order in which messages list their SQL functions.
AGGREGATES: tuple[type[Aggregate], ...] = (
    Count,
    CountDistinct,
    CountValues,
    Sum,
    Mean,
    Variance,
    Std,
    Covariance,
    Correlation,
    Quantile,
    Marginal,
    TopCategories,
    RowsPerPerson,
    GroupsPerPerson,
    OutsideBounds,
    RangeEnd,
    GridGap,
)

#: The aggregates that a question can name, each with the function that makes it from its parameters.
FUNCTIONS: dict[str, tuple[type[Aggregate], Callable[..., Aggregate]]] = {
    "count": (Count, count),
    "count_distinct": (CountDistinct, count_distinct),
    "count_values": (CountValues, count_values),
    "sum": (Sum, sum),
    "mean": (Mean, mean),
    "variance": (Variance, variance),
    "std": (Std, std),
    "covariance": (Covariance, covariance),
    "correlation": (Correlation, correlation),
    "quantile": (Quantile, quantile_of),
    "top_k": (TopCategories, top_k),
}


class Asking(ABC):
    """What can be asked of rows, or of each group of them. Abstract."""

    @abstractmethod
    def aggregate(self, **asked: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""

    @abstractmethod
    def marginal(self, *columns: str, categories: Mapping[str, Iterable[Any]] | None = None) -> Answer:
        """How many rows have each combination of public categories of some columns, for the price of one count."""

    def count(self, column: str | None = None) -> Answer:
        """The number of rows, or of rows where `column` has a value."""
        return self.aggregate(count=count(column))

    def count_distinct(self) -> Answer:
        """The number of persons."""
        return self.aggregate(persons=count_distinct())

    def count_values(self, column: str) -> Answer:
        """The number of different values of `column`; of each person at most `max_rows` of them count."""
        return self.aggregate(values=count_values(column))

    def sum(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The sum of `column`, each row clamped to `bounds`."""
        return self.aggregate(sum=sum(column, bounds=bounds))

    def mean(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The mean of `column`, each row clamped to `bounds`."""
        return self.aggregate(mean=mean(column, bounds=bounds))

    def variance(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The variance of `column` (divided by n), each row clamped to `bounds`."""
        return self.aggregate(variance=variance(column, bounds=bounds))

    def std(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The standard deviation of `column`, each row clamped to `bounds`."""
        return self.aggregate(std=std(column, bounds=bounds))

    def covariance(self, one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None) -> Answer:
        """The covariance of two columns (divided by n), each clamped to its bounds before they are multiplied."""
        return self.aggregate(covariance=covariance(one, two, bounds=bounds))

    def correlation(self, one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None) -> Answer:
        """The correlation of two columns, each clamped to its bounds before they are multiplied."""
        return self.aggregate(correlation=correlation(one, two, bounds=bounds))

    def quantile(
        self,
        column: str,
        quantile: float | Sequence[float],
        *,
        bounds: Bounds | None = None,
        levels: int = LEVELS,
        candidates: Iterable[float] | None = None,
        refine: bool = False,
    ) -> Answer:
        """A quantile of `column`, chosen among about `levels` values within `bounds`, or among listed `candidates`.

        A list such as `[0.25, 0.5]` asks for several, which share the budget: `quantile_25` and `quantile_50`. With
        `refine` an eighth of its ε first finds the right scale, and the levels are placed there: for skewed columns
        and wide bounds.
        """
        listed = tuple(candidates) if isinstance(candidates, Iterator) else candidates  # it is read for each rank

        def asked(rank: float) -> Aggregate:
            return quantile_of(column, rank, bounds=bounds, levels=levels, candidates=listed, refine=refine)

        if not isinstance(quantile, list | tuple):
            return self.aggregate(quantile=asked(cast(float, quantile)))
        several = {f"quantile{rank_suffix(rank)}": asked(rank) for rank in quantile}
        if not several or len(several) != len(quantile):
            remedy = "list different ranks, such as [0.25, 0.5, 0.75]"
            raise _check.fail("quantile", "be a number or a list of different ones", quantile, remedy)
        return self.aggregate(**several)

    def find_bounds(self, column: str, *, inside: float = 0.98, exponents: tuple[int, int] = EXPONENTS) -> Answer:
        """A private range of `column`, `lower` and `upper`, for bounds that nobody knows. It costs as any answer.

        Ends are 0 and ± powers of two. With probability at least 90% the share of rows within the range is at least
        `inside`, less both rank errors; `preview` shows these. Values beyond the largest power may lie outside.

        Args:
            column: a column of numbers.
            inside: the share of rows that should lie within the range, 0.5 to 0.998.
            exponents: the exponents of the least and the largest power of two to choose among.
        """
        return self.aggregate(**range_ends(inside, exponents, column))

    def median(
        self, column: str, *, bounds: Bounds | None = None, levels: int = LEVELS, refine: bool = False
    ) -> Answer:
        """The median of `column`, chosen among about `levels` values within `bounds`; `refine` as in `quantile`."""
        return self.aggregate(median=median(column, bounds=bounds, levels=levels, refine=refine))

    def min(self, column: str, *, bounds: Bounds | None = None, rank: float = LOWEST) -> Answer:
        """A low quantile of `column`, by default the 1% quantile: the minimum itself is one person's value."""
        return self.aggregate(min=min(column, bounds=bounds, rank=rank))

    def max(self, column: str, *, bounds: Bounds | None = None, rank: float = HIGHEST) -> Answer:
        """A high quantile of `column`, by default the 99% quantile: the maximum itself is one person's value."""
        return self.aggregate(max=max(column, bounds=bounds, rank=rank))

    def top_k(self, column: str, *, k: int, categories: Iterable[Any]) -> Answer:
        """The `k` most frequent of some public categories of `column`, most frequent first, without their counts."""
        return self.aggregate(top_k=top_k(column, k=k, categories=categories))


def bounds(table: Asking, column: str, *, inside: float = 0.98, exponents: tuple[int, int] = EXPONENTS) -> Answer:
    """A private range of a table's column, or of each of its groups: `table.find_bounds(column, …)`.

    Preview it for free, and release it for a price: `dp.bounds(people, "pay").release(epsilon=0.1)` has the columns
    `lower` and `upper`.

    Args:
        table: a private table, or groups of one.
        column: a column of numbers.
        inside: the share of rows that should lie within the range, 0.5 to 0.998.
        exponents: the exponents of the least and the largest power of two to choose among.
    """
    return table.find_bounds(column, inside=inside, exponents=exponents)
