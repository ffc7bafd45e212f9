"""How many persons have how many rows, and are in how many groups: what limits cost, and which to choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, ResultColumn
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import PersonsBy
from discreet.neighbors import Rows, Unit
from discreet.queries.aggregated import summed_units
from discreet.queries.weighted import MAX_PERSON_ROWS

#: The cells' upper ends: 1, 2, 3, 4, 6, 8, 12, …, so that each cell's ends differ by at most a half.
_CUTS = tuple(
    sorted({cut for power in range(19) for cut in (1 << power, 3 << power >> 1) if 1 <= cut <= MAX_PERSON_ROWS})
)


@dataclass(frozen=True)
class RowsPerPerson(Aggregate):
    """How many rows persons have: a histogram with one column for each public cell, over all groups together.

    `limit` is one more end of a cell, so that the persons above it can be told from those within it.
    """

    name = "rows_per_person"
    counts = True
    limited_by = ""
    groups: ClassVar[bool] = False

    limit: int = 1

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        _check.settle_integers(self, "limit", remedy="it is a number of rows at which a cell should end")

    @property
    def columns(self) -> tuple[str, ...]:
        """None: the person's column is the account's."""
        return ()

    @property
    def cuts(self) -> tuple[int, ...]:
        """The upper ends of the cells; the last cell has none."""
        return tuple(cut for cut in sorted({*_CUTS, self.limit}) if cut <= self.most)

    @property
    def most(self) -> int:
        """The largest end of a cell."""
        return MAX_PERSON_ROWS

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        """A person moves one cell by 1, however many rows they have."""
        if isinstance(unit, Rows):
            remedy = "with dp.rows() each row is its own person, and there is no limit to choose"
            raise _check.fail(self.name, "be asked of persons", str(unit), remedy)
        term = PersonsBy(self.cuts, self.groups)
        return Sums(self, unit, (term,), summed_units(self.name, term.size), lower=0.0)

    def outputs(self, alias: str) -> tuple[ResultColumn, ...]:
        """One column for each cell: alias[5-6]."""
        starts = (1, *(cut + 1 for cut in self.cuts))
        cells = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts[:-1], self.cuts, strict=True)]
        names = [f"{alias}[{cell}]" for cell in (*cells, f"{starts[-1]}+")]
        return tuple(ResultColumn(name, f"{name}_error") for name in names)


@dataclass(frozen=True)
class GroupsPerPerson(RowsPerPerson):
    """In how many of `listed` groups persons are."""

    name = "groups_per_person"
    groups = True

    listed: int = MAX_PERSON_ROWS

    @property
    def most(self) -> int:
        """The number of groups."""
        return self.listed
