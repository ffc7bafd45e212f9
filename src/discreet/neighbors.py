"""Who is protected: the unit of privacy, and which datasets count as neighbors.

A guarantee compares two datasets that differ in one *unit*. The *relation* says how they differ:

- `ADD_REMOVE`: one dataset has a unit that the other lacks. The size of the data is private.
- `REPLACE_ONE`: one unit's data is replaced by any other. The number of units is public.
- `ZERO_OUT`: one unit's data is replaced by a record that contributes nothing. The number of units is public.

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
    for member in Relation:
        if value in (member.value, member.name, member.name.lower()):
            return member
    raise _check.fail(
        "relation",
        "be one of " + ", ".join(repr(member.value) for member in Relation),
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
    """The unit is a person, who may have many rows. A query counts at most `max_rows` of them.

    `column` names the column with the person's id; it is None if the ids were given as an array.

    In a private table, a person with more rows (after filters and keys) counts as `max_rows` rows in total: each row
    weighs a little less, and none is left out. `max_groups` matters only where persons are counted by group: a person
    in more groups counts as `max_groups` persons in total, spread over their groups; None means `max_rows`. `queries`
    on arrays use the first `max_rows` rows.
    """

    column: str | None
    max_rows: int
    max_groups: int | None = None

    def __post_init__(self) -> None:
        _check.settle_integers(self, "max_rows", remedy="it is how many rows of one person a query may use")
        if self.max_groups is not None:
            _check.settle_integers(self, "max_groups", remedy="it is how many groups one person may count in")
        if self.column is not None and not isinstance(self.column, str):
            raise _check.fail("column", "be a string", self.column, "it names the column that holds the person's id")

    def __str__(self) -> str:
        return f"one person (at most {self.max_rows} rows)"


@dataclass(frozen=True)
class Client:
    """The unit is one client of a federation, such as a phone or a hospital, with all the data that it holds.

    With `per_person` above 1 the unit is a person whose data lie with at most that many clients, all of which may
    change together. If clients are `shared`, they hold data of others too: without the person they are still there, and
    behave differently.
    """

    per_person: int = 1
    shared: bool = False

    def __post_init__(self) -> None:
        _check.settle_integers(self, "per_person", remedy="it is the most clients that hold data of one person")
        _instance("shared", self.shared, bool, "it says whether a client may hold data of several people")

    def __str__(self) -> str:
        if self.per_person == 1 and not self.shared:
            return "one client"
        kind = "shared " if self.shared else ""
        return f"one person (at most {self.per_person} {kind}client{'s' if self.per_person > 1 else ''})"


#: The units of a table.
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
        column: the column with the person's id; rows without an id are ignored.
        max_rows: a person with more rows counts as this many in total. The noise grows with it, so choose a number that
            most people stay below.
        max_groups: where persons are counted by group, a person in more groups counts as this many persons in total;
            by default `max_rows`.

    >>> str(person("user_id", max_rows=20))
    'one person (at most 20 rows)'
    """
    return Person(column, max_rows, max_groups)


def client(*, per_person: int = 1, shared: bool = False) -> Client:
    """Protect one client of a federation with all of its data, or a person with up to `per_person` clients.

    `shared` says that a client may hold data of several people, as a hospital does.

    >>> str(client()), str(client(per_person=2))
    ('one client', 'one person (at most 2 clients)')
    >>> str(client(shared=True))
    'one person (at most 1 shared client)'
    """
    return Client(per_person, shared)


@dataclass(frozen=True)
class Neighbors:
    """A relation and its unit: what a guarantee protects."""

    relation: Relation = ADD_REMOVE
    unit: Unit | Client = Rows()

    def __str__(self) -> str:
        verb = {ADD_REMOVE: "add or remove", REPLACE_ONE: "replace", ZERO_OUT: "zero out"}[self.relation]
        return f"{verb} {self.unit}"

    def __post_init__(self) -> None:
        _instance("relation", self.relation, Relation, "use dp.ADD_REMOVE, dp.REPLACE_ONE or dp.ZERO_OUT")
        _instance("unit", self.unit, (Rows, Person, Client), "use dp.rows(), dp.person(...) or dp.client()")


def _instance(name: str, value: Any, kind: Any, remedy: str) -> None:
    if not isinstance(value, kind):
        raise _check.fail(name, "be of the right kind", value, remedy)
