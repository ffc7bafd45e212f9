"""The integers of a row that an engine sums, described without naming an engine; `engine.compiling` translates them.

Each of a row's integers depends on that row alone. Wherever a level is used, the column is clamped first, so an
aggregate cannot forget to enforce its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from discreet.analytics.table.expressions import Expression
from discreet.queries.grid import Grid
from discreet.queries.statistics.marks import Marks


@dataclass(frozen=True)
class EachRow:
    """1 for each row."""


@dataclass(frozen=True)
class EachPerson:
    """1 for each person, however many rows they have in a group."""


@dataclass(frozen=True, eq=False)
class Holds:
    """1 for each row for which a condition holds, 0 for the others."""

    condition: Expression


@dataclass(frozen=True)
class Level:
    """The level of a column's value on a public grid; `missing` for a row without a value."""

    column: str
    grid: Grid
    missing: int = 0


@dataclass(frozen=True)
class Combined:
    """An integer computed from the levels of some columns; a row that lacks one of the values counts as nothing.

    `combine` takes one argument for each level and must work on integers, arrays and an engine's columns alike:
    +, −, × and // of a nonnegative number by a constant do. Its size is bounded by the ends of the grids.
    """

    levels: tuple[Level, ...]
    combine: Callable[..., Any]


@dataclass(frozen=True)
class HasValues:
    """1 for each row that has all the values of another term."""

    term: Level | Combined


@dataclass(frozen=True)
class InCell:
    """1 for each row that lies in one of some public cells, which are tuples of values of some columns.

    Cells are tried in order, so a row lies in one of them at most, whatever values the engine calls equal.
    """

    columns: tuple[str, ...]
    cells: tuple[tuple[Any, ...], ...]
    cell: int


@dataclass(frozen=True)
class EachLevel:
    """1 for each row in each of the public cells that the levels of a column make, in a query of their own.

    Cell 2i + 1 holds the rows whose value, clamped to `bounds`, is that of level i, counted from the lowest one; cell
    2i those between the levels i − 1 and i; the first and the last cell reach to the bounds.
    """

    level: Level
    bounds: tuple[float, float]

    @property
    def size(self) -> int:
        """How many cells there are."""
        return 2 * (self.level.grid.upper - self.level.grid.lower + 1) + 1

    @property
    def lowest(self) -> int:
        """The first cell."""
        return 0


@dataclass(frozen=True)
class EachValue:
    """1 for each different value of a column, in a query of its own; of each person at most `max_rows` count."""

    column: str


@dataclass(frozen=True)
class EachCut:
    """1 for each row in each of the cells that ascending public cuts make of a column, in a query of their own.

    Cell 2i + 1 holds the rows whose value is cut i, cell 2i those between the cuts i − 1 and i; the first and the last
    cell have one end only.
    """

    column: str
    cuts: tuple[float, ...]

    @property
    def size(self) -> int:
        """How many cells there are."""
        return 2 * len(self.cuts) + 1

    @property
    def lowest(self) -> int:
        """The first cell."""
        return 0


@dataclass(frozen=True)
class EachMark:
    """1 for each row in each of the cells that public marks make of a column, in a query of their own.

    Cell 2i + 1 holds the rows whose value, clamped to the outermost marks, is mark i; cell 2i those between the marks
    i − 1 and i.
    """

    column: str
    marks: Marks

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.marks.size

    @property
    def lowest(self) -> int:
        """The first cell."""
        return 0


@dataclass(frozen=True)
class PersonsBy:
    """1 for each person in one of some public cells, by how many rows they have, or in how many groups they are.

    Cell i holds those with more than `cuts[i − 1]` and at most `cuts[i]` of them; the last cell all above. It is a
    query of its own, and looks at all groups together.
    """

    cuts: tuple[int, ...]
    groups: bool = False

    @property
    def size(self) -> int:
        """How many cells there are."""
        return len(self.cuts) + 1

    @property
    def lowest(self) -> int:
        """The first cell."""
        return 0


_OwnQuery = EachLevel | EachCut | EachMark | PersonsBy | EachValue
Term = EachRow | EachPerson | Holds | Level | Combined | HasValues | InCell | _OwnQuery
