"""How many rows have each combination of public categories of some columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, ResultColumn
from discreet.analytics.aggregates.categories import MAX_CELLS, public_values
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import InCell
from discreet.neighbors import Unit
from discreet.queries.aggregated import summed_counts


@dataclass(frozen=True)
class Marginal(Aggregate):
    """Counts of all combinations of categories, which are disjoint: together they cost as much as one count."""

    name = "marginal"
    counts = True

    categories: tuple[tuple[str, tuple[Any, ...]], ...]

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        # Checked here, however it is made: a value that is listed twice would count a row twice.
        checked = tuple((column, public_values(column, values)) for column, values in self.categories)
        object.__setattr__(self, "categories", checked)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that have categories."""
        return tuple(column for column, _ in self.categories)

    @property
    def cell_columns(self) -> tuple[str, ...]:
        """All of them."""
        return self.columns

    @property
    def cells(self) -> tuple[tuple[Any, ...], ...]:
        """All combinations of categories."""
        return tuple(product(*(values for _, values in self.categories)))

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves one cell by 1."""
        cells, columns = self.cells, self.columns
        terms = tuple(InCell(columns, cells, cell) for cell in range(len(cells)))
        return Sums(self, unit, terms, summed_counts(self.name, unit, cells=len(cells)))

    def outputs(self, alias: str) -> tuple[ResultColumn, ...]:
        """One column for each cell: alias[value, …]."""
        names = [f"{alias}[{', '.join(str(value) for value in cell)}]" for cell in self.cells]
        return tuple(ResultColumn(name, f"{name}_error") for name in names)


def marginal(*columns: str, categories: Mapping[str, Iterable[Any]], share: float = 1.0) -> Aggregate:
    """How many rows have each combination of public categories of some columns: one number for each cell.

    All cells together cost as much as one count.
    """
    if not columns or set(columns) != set(categories) or len(set(columns)) != len(columns):
        raise _check.fail(
            "categories", f"be given for {columns}", tuple(categories), "list each column's public values"
        )
    listed = tuple((column, public_values(column, categories[column])) for column in columns)
    cells = math.prod(len(values) for _, values in listed)
    if cells > MAX_CELLS:
        remedy = "ask people.marginal(…) by itself, which has one row for each cell"
        raise _check.fail("categories", f"make at most {MAX_CELLS} cells", cells, remedy)
    return Marginal(listed, share=share)
