"""Who is protected: the unit of privacy, and which datasets count as neighbors.

A guarantee compares two datasets that differ in one *unit*. What "differ" means is the *relation*:

- `ADD_REMOVE`: one unit is present in one of them and absent from the other. The size of the data is private.
- `REPLACE_ONE`: one unit's data is exchanged for any other. The number of units is public.
- `ZERO_OUT`: one unit's data is exchanged for a record that contributes nothing. The number of units is public.

A replacement is a removal and an addition, so a guarantee for `ADD_REMOVE` gives one for `REPLACE_ONE` at group size 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from discreet import _check


class Relation(Enum):
    """Which pairs of datasets count as neighbors."""

    ADD_REMOVE = "add/remove"
    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"

    def __repr__(self) -> str:
        return f"dp.{self.name}"


ADD_REMOVE = Relation.ADD_REMOVE
REPLACE_ONE = Relation.REPLACE_ONE
ZERO_OUT = Relation.ZERO_OUT


def relation(value: object) -> Relation:
    """The relation named by a `Relation` or by its text, such as "replace-one"."""
    if isinstance(value, Relation):
        return value
    for known in Relation:
        if value in (known.value, known.name, known.name.lower()):
            return known
    raise _check.fail(
        "relation",
        "be one of " + ", ".join(repr(known.value) for known in Relation),
        value,
        "it says which datasets count as neighbors",
    )


@dataclass(frozen=True)
class Rows:
    """The unit is one row: right when each person has one row."""

    def __str__(self) -> str:
        return "one row"


@dataclass(frozen=True)
class Person:
    """The unit is a person, who may have many rows, of which a query counts at most `max_rows`.

    `column` names the person's id in a table; it is None where the ids were given as an array.

    In a private table a person with more rows (of those that filters and keys leave) counts as `max_rows` rows
    in all: each row counts a little less, none is left out. `max_groups` matters only where persons are counted by
    group: a person in more groups counts as `max_groups` persons in all, spread over their groups; None means as many
    as `max_rows`. `queries` on arrays use the first `max_rows` rows.
    """

    column: str | None
    max_rows: int
    max_groups: int | None = None

    def __post_init__(self) -> None:
        _check.settle_integers(self, "max_rows", remedy="it is the number of rows of one person that a query may use")
        if self.max_groups is not None:
            _check.settle_integers(self, "max_groups", remedy="it is the number of groups one person may count in")
        if self.column is not None and not isinstance(self.column, str):
            raise _check.fail("column", "be a string", self.column, "it names the column that holds the person's id")

    def __str__(self) -> str:
        return f"one person (at most {self.max_rows} rows)"


Unit = Rows | Person


def rows() -> Rows:
    """Protect one row: right when each person has one row.

    >>> str(rows())
    'one row'
    """
    return Rows()


def person(column: str, *, max_rows: int, max_groups: int | None = None) -> Person:
    """Protect a person with all of their rows, found by the id in `column`.

    Args:
        column: where the person's id is; rows without one count in nothing.
        max_rows: a person with more rows counts as so many in all. The noise grows with it, so choose what most people
            stay below.
        max_groups: where persons are counted by group, a person in more groups counts as so many persons in all; by
            default as many as `max_rows`.

    >>> str(person("user_id", max_rows=20))
    'one person (at most 20 rows)'
    """
    return Person(column, max_rows, max_groups)


@dataclass(frozen=True)
class Neighbors:
    """A relation together with the unit it speaks of: what a guarantee protects."""

    relation: Relation = ADD_REMOVE
    unit: Unit = Rows()

    def __str__(self) -> str:
        verb = {ADD_REMOVE: "add or remove", REPLACE_ONE: "replace", ZERO_OUT: "zero out"}[self.relation]
        return f"{verb} {self.unit}"

    def __post_init__(self) -> None:
        _instance("relation", self.relation, Relation, "use dp.ADD_REMOVE, dp.REPLACE_ONE or dp.ZERO_OUT")
        _instance("unit", self.unit, (Rows, Person), "use dp.rows() or dp.person(...)")


def _instance(name: str, value: Any, kind: Any, remedy: str) -> None:
    if not isinstance(value, kind):
        raise _check.fail(name, "be of the right kind", value, remedy)
