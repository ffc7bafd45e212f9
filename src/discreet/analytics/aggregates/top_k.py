"""The k most frequent of some public categories, without their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds
from discreet.analytics.aggregates.categories import public_values
from discreet.analytics.aggregates.measurement import LEVEL, Choice, DrawingMechanism
from discreet.analytics.aggregates.terms import InCell
from discreet.bounded import Scores
from discreet.mechanisms import TopK
from discreet.neighbors import Relation, Unit
from discreet.queries.statistics.histogram import scores_of_counts
from discreet.queries.weighted import scale


@dataclass(frozen=True)
class TopCategories(Aggregate):
    """The most frequent categories; errors say how much rarer than the best one left a chosen one may be."""

    name = "top_k"
    error_in = "count"

    column: str
    categories: tuple[Any, ...]
    k: int

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        # Checked here, however it is made: a value that is listed twice would count a row twice.
        object.__setattr__(self, "categories", public_values(self.column, self.categories))
        remedy = "it is how many categories to choose"
        _check.settle_integers(self, "k", remedy=remedy, at_most=len(self.categories))

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """The column."""
        return self.columns

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Choice:
        """One row raises one score by 1."""
        cells = tuple((value,) for value in self.categories)
        terms = tuple(InCell(self.columns, cells, cell) for cell in range(len(cells)))
        return _MostFrequent(self, unit, terms, scale(unit), self.categories, self.k)


@dataclass(frozen=True)
class _MostFrequent(Choice):
    """Counts as scores, in units of 1/`scale`."""

    scale: int
    categories: tuple[Any, ...]
    k: int

    @property
    def draws(self) -> int:
        """One for each category that is chosen."""
        return self.k

    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        return scores_of_counts(counts, self.categories, self.unit, scale=self.scale, relation=relation)

    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> TopK:
        return TopK(epsilon, self.k)

    def score_error(self, mechanism: DrawingMechanism, relation: Relation) -> float:
        """In rows: by how much the rarest chosen category may fall short of the best one left out."""
        assert isinstance(mechanism, TopK)
        scores = self.scores([0] * len(self.categories), relation)
        return mechanism.loss_bound(scores, LEVEL, relation) / self.scale


def top_k(column: str, *, k: int, categories: Iterable[Any], share: float = 1.0) -> Aggregate:
    """The `k` most frequent of some public categories of `column`, most frequent first, without their counts."""
    return TopCategories(column, public_values(column, categories), k, share=share)
