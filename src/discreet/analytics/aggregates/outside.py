"""How many rows lie outside a column's bounds, and how far: what clamping changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, ResultColumn
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import Holds
from discreet.analytics.table.expressions import Column, Expression
from discreet.neighbors import Unit
from discreet.queries.aggregated import summed_counts

#: How far outside of the bounds a cell ends, in widths of the bounds; the last cell on each side has no end.
STEPS = (0.25, 1.0, 4.0, 16.0)

#: No cell ends beyond this, which every engine can compare with.
_LARGEST = 1e300


@dataclass(frozen=True)
class OutsideBounds(Aggregate):
    """How many rows lie within the bounds of a column, and how many in each of some public cells below and above."""

    name = "outside"
    counts = True

    column: str
    bounds: Bounds

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        _check.bounds(self.bounds)

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def edges(self) -> tuple[float, ...]:
        """The ends between cells, ascending: those below, the bounds, those above."""
        low, high = (float(end) for end in self.bounds)
        steps = [step * (high - low) for step in STEPS]
        ends = (*(low - step for step in reversed(steps)), low, high, *(high + step for step in steps))
        return tuple(min(max(end, -_LARGEST), _LARGEST) for end in ends)

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """One row moves one cell by 1."""
        value, edges = Column(self.column), self.edges
        middle = len(STEPS)  # the place of the lower bound
        below = [(value >= a) & (value < b) for a, b in pairwise(edges[: middle + 1])]
        inside: Expression = (value >= edges[middle]) & (value <= edges[middle + 1])
        above = [(value > a) & (value <= b) for a, b in pairwise(edges[middle + 1 :])]
        cells = [value < edges[0], *below, inside, *above, value > edges[-1]]
        terms = tuple(Holds(cell) for cell in cells)
        return Sums(self, unit, terms, summed_counts(self.name, unit, cells=len(cells)), lower=0.0)

    def outputs(self, alias: str) -> tuple[ResultColumn, ...]:
        """One column for each cell: alias[below 0 by 25-100], …; distances are in the column's own units."""
        low, high = (float(end) for end in self.bounds)
        ends = [f"{step * (high - low):.6g}" for step in STEPS]
        far = [f"{a}-{b}" for a, b in pairwise(["0", *ends])] + [f"{ends[-1]}+"]
        below = [f"{alias}[below by {distance}]" for distance in reversed(far)]
        names = [*below, f"{alias}[inside]", *(f"{alias}[above by {distance}]" for distance in far)]
        return tuple(ResultColumn(name, f"{name}_error") for name in names)
