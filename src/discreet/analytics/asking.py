"""The aggregates as methods, for a whole private table and for its groups alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from discreet.analytics import aggregates
from discreet.analytics.aggregates import HIGHEST, LOWEST, Aggregate, Bounds
from discreet.analytics.answer import Answer


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
        return self.aggregate(count=aggregates.count(column))

    def count_distinct(self) -> Answer:
        """The number of persons."""
        return self.aggregate(persons=aggregates.count_distinct())

    def sum(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The sum of `column`, each row clamped to `bounds`."""
        return self.aggregate(sum=aggregates.sum(column, bounds=bounds))

    def mean(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The mean of `column`, each row clamped to `bounds`."""
        return self.aggregate(mean=aggregates.mean(column, bounds=bounds))

    def variance(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The variance of `column` (divided by n), each row clamped to `bounds`."""
        return self.aggregate(variance=aggregates.variance(column, bounds=bounds))

    def std(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The standard deviation of `column`, each row clamped to `bounds`."""
        return self.aggregate(std=aggregates.std(column, bounds=bounds))

    def covariance(self, one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None) -> Answer:
        """The covariance of two columns (divided by n), each clamped to its bounds before they are multiplied."""
        return self.aggregate(covariance=aggregates.covariance(one, two, bounds=bounds))

    def correlation(self, one: str, two: str, *, bounds: Mapping[str, Bounds] | None = None) -> Answer:
        """The correlation of two columns, each clamped to its bounds before they are multiplied."""
        return self.aggregate(correlation=aggregates.correlation(one, two, bounds=bounds))

    def quantile(self, column: str, quantile: float, *, bounds: Bounds | None = None) -> Answer:
        """A quantile of `column`, chosen among about a thousand levels of `bounds`."""
        return self.aggregate(quantile=aggregates.quantile(column, quantile, bounds=bounds))

    def median(self, column: str, *, bounds: Bounds | None = None) -> Answer:
        """The median of `column`, chosen among about a thousand levels of `bounds`."""
        return self.aggregate(median=aggregates.median(column, bounds=bounds))

    def min(self, column: str, *, bounds: Bounds | None = None, rank: float = LOWEST) -> Answer:
        """A low quantile of `column`, by default the 1% quantile: the minimum itself is one person's value."""
        return self.aggregate(min=aggregates.min(column, bounds=bounds, rank=rank))

    def max(self, column: str, *, bounds: Bounds | None = None, rank: float = HIGHEST) -> Answer:
        """A high quantile of `column`, by default the 99% quantile: the maximum itself is one person's value."""
        return self.aggregate(max=aggregates.max(column, bounds=bounds, rank=rank))

    def top_k(self, column: str, *, k: int, categories: Iterable[Any]) -> Answer:
        """The `k` most frequent of some public categories of `column`, most frequent first, without their counts."""
        return self.aggregate(top_k=aggregates.top_k(column, k=k, categories=categories))
