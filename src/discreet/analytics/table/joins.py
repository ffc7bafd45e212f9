"""Joins: with public tables, and between private tables by the person (docs/proofs/joins.md).

A join of two private tables always compares the persons, whatever else it compares: each row of the result is made of
rows of one person. So the result is a private table like any other, and a person's rows are limited after the join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ibis
import pyarrow as pa

from discreet import _check
from discreet.analytics.aggregates.measurement import Measurement
from discreet.analytics.engine import running
from discreet.analytics.engine.collation import require_exact
from discreet.analytics.table.public import Public
from discreet.analytics.table.source import brought_together
from discreet.analytics.table.spec import TableSpec, origins
from discreet.errors import EngineFailed
from discreet.neighbors import Person, Rows

#: The kinds of joins; those that keep rows of the right table alone would give rows without a person.
KINDS = ("inner", "left", "semi", "anti")
#: The most rows of a public table that may match one private row, where rows are protected.
MAX_COPIES = 1 << 10
#: Names of the right table's keys while a join is built.
_KEY = "discreet_key_{}"

ColumnPair = tuple[str, str]


@dataclass(frozen=True)
class Naming:
    """What a right table's columns are called: the form of those whose names the left table has already.

    With `keep_keys`, keys of one name stay on both sides: in an outer join the right one tells whether a row matched.
    """

    form: str = "{name}_right"
    keep_keys: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.form, str) or "{name}" not in self.form or set("{}") & set(self.of("")):
            raise _check.fail("rname", "be text with {name} in it, and no other braces", self.form, "'{name}_right'")

    def of(self, name: str) -> str:
        """What a column is called whose name the left table has already."""
        return self.form.replace("{name}", name)


def join(
    left: TableSpec, other: TableSpec | Public, on: object, how: object, naming: Naming
) -> tuple[TableSpec, dict[str, str]]:
    """What the join of a private table with a public one, or with another private table of its account, knows.

    Also what the right table's columns are called there.
    """
    _check.one_of("how", how, KINDS, "a right or outer join would give rows without a person")
    if isinstance(other, Public):
        return _with_public(left, other, pairs_of(on), str(how), naming)
    return _with_private(left, other, [] if on is None else pairs_of(on), str(how), naming)


def pairs_of(on: object) -> list[ColumnPair]:
    """The columns that a join compares: a name, a pair of names, several of these, or a mapping from left to right."""
    if isinstance(on, str):
        return [(on, on)]
    if isinstance(on, Mapping):
        return [_pair(names) for names in on.items()]
    # A tuple of two names is one pair, as in Ibis; a list of two names is two columns.
    if isinstance(on, tuple) and len(on) == 2 and all(isinstance(name, str) for name in on):
        return [_pair(on)]
    if isinstance(on, Sequence) and on:
        return [(item, item) if isinstance(item, str) else _pair(item) for item in on]
    raise _check.fail("on", "name the columns to compare", on, 'such as "ward", ["ward", "year"] or {"ward": "id"}')


def _pair(pair: object) -> ColumnPair:
    if isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(name, str) for name in pair):
        return pair[0], pair[1]
    raise _check.fail("on", "hold names or pairs of names", pair, 'such as "ward" or ("ward", "id")')


# --- a public table


def _with_public(
    left: TableSpec, other: Public, pairs: list[ColumnPair], how: str, naming: Naming
) -> tuple[TableSpec, dict[str, str]]:
    if isinstance(other.table, ibis.Table) and origins(other.table) & left.origins:
        remedy = "what is made of private rows is private: join it as dp.Private(…), by the person"
        raise _check.fail("public table", "not come from the private one", "a table made of it", remedy)
    in_place = isinstance(other.table, ibis.Table) and other.table.get_backend() is left.table.get_backend()
    if not in_place and isinstance(other.table, ibis.Table):
        other = Public(other.table.to_pyarrow())
    table = other.table if in_place else other.beside(left.table)
    # A public column is no stored fact about a row, as a computed one is none: it must not say whose a row is.
    right = TableSpec(table, left.account, Rows(), other.columns, {}, computed=frozenset(other.columns))
    _require_comparable(left, right, pairs)
    keys = [name for _, name in pairs]
    copies = left.copies
    if isinstance(left.unit, Rows) and how in ("inner", "left"):
        most = _multiplicity(table, keys) if in_place else _multiplicity_of(other.table, keys)
        copies *= max(most, 1)
        if copies > MAX_COPIES:
            remedy = "aggregate the public table to fewer rows for each key, or protect persons"
            raise _check.fail("join", f"match at most {MAX_COPIES} public rows to each row", copies, remedy)
        # Enforced in the query as well, by the engine's own equality: a stored table may have grown since its rows were
        # counted, and an engine may read keys as equal that were counted apart.
        own = table.count().over(ibis.window(group_by=keys))
        right = replace(right, table=table.filter(own <= max(most, 1)))
    joined, renamed = _joined(left, right, pairs, how, naming)
    return replace(joined, lookups=(*left.lookups, other), copies=copies), renamed


def _multiplicity(table: Any, keys: list[str]) -> int:
    """The largest number of rows with one key, as the engine counts them."""
    there = table.filter(*(table[name].notnull() for name in keys))
    counted = there.group_by(keys).aggregate(n=there.count())
    try:
        ((most,),) = (tuple(row.values()) for row in running.rows(counted.aggregate(most=counted["n"].max())))
    except Exception as error:
        failed = EngineFailed(error)
    else:
        return int(most or 0)
    raise failed


def _multiplicity_of(arrow: pa.Table, keys: list[str]) -> int:
    counted = arrow.select(keys).drop_null().group_by(keys).aggregate([([], "count_all")])["count_all"]
    return max(counted.to_pylist(), default=0)


def copied(measured: Measurement, copies: int) -> Measurement:
    """A measurement of rows that a join may repeat.

    A row that becomes `copies` rows moves a statistic as far as a person with that many rows does, each of weight 1.
    """
    return measured if copies == 1 else replace(measured, unit=Person(None, copies))


# --- another private table


def _with_private(
    left: TableSpec, right: TableSpec, pairs: list[ColumnPair], how: str, naming: Naming
) -> tuple[TableSpec, dict[str, str]]:
    if not isinstance(left.unit, Person) or not isinstance(right.unit, Person):
        remedy = "open the account with unit=dp.person(column, max_rows=…), or pass dp.public(table) if it is public"
        raise _check.fail("join", "be of tables whose account protects persons", str(left.unit), remedy)
    if not left.account.is_same(right.account):
        remedy = "one account protects a person in all tables: make both with the same account"
        raise _check.fail("join", "be of tables of one account", [left.account.name, right.account.name], remedy)
    if left.part is not None or right.part is not None:
        remedy = "join first, and partition the result"
        raise _check.fail("join", "be of whole tables", "a part of a partition", remedy)
    persons = (str(left.unit.column), str(right.unit.column))
    table = brought_together(left.table, right.table)
    if origins(table) & origins(left.table):
        table = table.view()  # a table joined with itself needs a second name
    brought = replace(right, table=table)
    # The person is compared whatever else is: a row of the result is made of one person's rows.
    compared = [persons, *(pair for pair in pairs if pair != persons)]
    _require_comparable(left, brought, compared)
    joined, renamed = _joined(left, brought, compared, how, naming)
    # Rows are limited after the join, whatever the limit was before.
    account_unit = left.account.neighbors.unit
    assert isinstance(account_unit, Person)  # both tables have persons
    unit = replace(account_unit, column=persons[0])
    joined = replace(
        joined,
        unit=unit,
        origins=left.origins | right.origins,
        identity=f"{left.identity} joined with {right.identity}",
        lookups=(*left.lookups, *right.lookups),
    )
    return joined, renamed


def owned(table: TableSpec, parent: TableSpec, on: object) -> TableSpec:
    """A table without persons, whose rows belong to the persons of the rows that they refer to in another table.

    `on` compares the parent's column with this table's. A row that refers to rows of several persons counts for each.
    """
    if not isinstance(parent.unit, Person):
        remedy = "without persons there is nobody to reach: leave through out"
        raise _check.fail("through", "be a table whose account protects persons", str(parent.unit), remedy)
    if not table.account.is_same(parent.account):
        remedy = "one account protects a person in all tables: make both with the same account"
        raise _check.fail("through", "be a table of the same account", parent.account.name, remedy)
    if parent.part is not None:
        raise _check.fail("through", "be a whole table", "a part of a partition", "give the table itself")
    pairs = pairs_of(on)
    computed = [name for name, _ in pairs if name in parent.computed]
    if computed:
        remedy = "rows belong to whom the stored key refers to: give the table as it was before mutate or join"
        raise _check.fail("through", "be joined by its own stored columns", computed, remedy)
    person = str(parent.unit.column)
    if person in table.columns:
        remedy = "rename that column, or make the table with person= if it holds the person's id"
        raise _check.fail("table", f"have no column {person!r} of its own", person, remedy)
    brought = replace(parent, table=brought_together(table.table, parent.table))
    turned = [(mine, theirs) for theirs, mine in pairs]
    _require_comparable(table, brought, turned)
    keys = [name for name in dict.fromkeys(theirs for _, theirs in turned) if name != person]
    there = brought.table.filter(brought.table[person].notnull())
    owners = replace(brought, table=there.select(*keys, person).distinct(), columns=(*keys, person), bounds={}, bins={})
    joined, _ = _joined(table, owners, turned, "inner", Naming())
    kept = joined.table.select(*table.columns, person)
    identity = f"{table.identity} through {parent.identity}"
    return replace(
        table,
        table=kept,
        unit=parent.unit,
        columns=(*table.columns, person),
        origins=table.origins | parent.origins,
        identity=identity,
        lookups=parent.lookups,
    )


# --- what all joins share


def _require_comparable(left: TableSpec, right: TableSpec, pairs: list[ColumnPair]) -> None:
    """Refuse columns of types whose equality may fail, or may treat different values as equal; looks at no row."""
    for mine, theirs in pairs:
        left.require_stored(mine)
        right.require_stored(theirs)
        left_type, right_type = left.table[mine].type(), right.table[theirs].type()
        exact = (
            left_type.is_integer() and right_type.is_integer(),
            left_type.is_string() and right_type.is_string(),
            left_type.is_boolean() and right_type.is_boolean(),
            left_type.is_date() and right_type.is_date(),
            left_type.is_uuid() and right_type.is_uuid(),
            left_type.is_decimal() and left_type == right_type,
        )
        if not any(exact):
            remedy = "cast both to integers, text or dates, in the tables or in views of them"
            got = f"{mine} of type {left_type} and {theirs} of type {right_type}"
            raise _check.fail("on", "compare columns of one type whose equality is exact", got, remedy)
    require_exact(left.table, [mine for mine, _ in pairs])
    require_exact(right.table, [theirs for _, theirs in pairs])


def _joined(
    left: TableSpec, right: TableSpec, pairs: list[ColumnPair], how: str, naming: Naming
) -> tuple[TableSpec, dict[str, str]]:
    """The join itself, with only the columns that may be asked about, and the persons' ids."""
    person = [str(left.unit.column)] if isinstance(left.unit, Person) and left.unit.column is not None else []
    mine = left.table.select(*dict.fromkeys((*left.columns, *(name for name, _ in pairs), *person)))
    names = _right_names(mine.columns, right, pairs, naming) if how in ("inner", "left") else {}
    _require_distinct((*mine.columns, *names.values()))
    keys = {_KEY.format(i): right.table[theirs] for i, (_, theirs) in enumerate(pairs)}
    theirs = right.table.select(**{new: right.table[name] for name, new in names.items()}, **keys)
    matches = [mine[column] == theirs[_KEY.format(i)] for i, (column, _) in enumerate(pairs)]
    table = mine.join(theirs, matches, how=how)
    if how in ("inner", "left"):
        table = table.drop(*keys)
    joined = replace(
        left,
        table=table,
        columns=(*left.columns, *names.values()),
        bounds={**left.bounds, **{names[name]: pair for name, pair in right.bounds.items() if name in names}},
        bins={**left.bins, **{names[name]: edges for name, edges in right.bins.items() if name in names}},
        computed=left.computed | {names[name] for name in right.computed if name in names},
    )
    return joined, names


def _right_names(mine: Sequence[str], right: TableSpec, pairs: list[ColumnPair], naming: Naming) -> dict[str, str]:
    """What the columns of a right table are called in the join; those that would be there twice are left out.

    These are the keys that both sides call the same, and the right table's person, who is the left one's.
    """
    twice = {theirs for column, theirs in pairs if column == theirs}
    if isinstance(right.unit, Person) and right.unit.column in mine:
        twice.add(str(right.unit.column))
    kept = [name for name in right.columns if naming.keep_keys or name not in twice]
    return {name: naming.of(name) if name in mine else name for name in kept}


def _require_distinct(names: Sequence[str]) -> None:
    lowered = [name.lower() for name in names]
    twice = sorted({name for name in names if lowered.count(name.lower()) > 1})
    if twice:
        remedy = "rename a column before the join, or give rname another form, such as '{name}_of_ward'"
        raise _check.fail("join", "give columns whose names differ by more than case", twice, remedy)
