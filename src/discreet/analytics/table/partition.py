"""Disjoint parts of a private table, each charged for itself: questions about different parts cost less than their sum.

A row lies in at most one part. A person counts in at most `max_parts` of them: the first ones in the order of the keys
in which they have a row, whatever is asked about a part. The ledger keeps what was charged to each part
(docs/proofs/partitions.md).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import ibis

from discreet import _check
from discreet.analytics.engine.collation import require_exact
from discreet.analytics.engine.grouping import code_of
from discreet.analytics.plan.keys import Keys
from discreet.analytics.table.spec import TableSpec, origins
from discreet.codec import canonical
from discreet.ledger import Part
from discreet.ledger.partitions import MAX_PARTS
from discreet.neighbors import Person

if TYPE_CHECKING:
    from discreet.analytics.table.private import Private


class Partition:
    """A private table in disjoint parts, made by `Private.partition`: `months["2024-01"]` is a private table."""

    def __init__(self, spec: TableSpec, keys: Keys, max_parts: int | None, name: str | None) -> None:
        self._keys = keys
        self._max_parts = _most(spec, keys, max_parts)
        self._name = ", ".join(keys.columns) if name is None else name
        _require_whole(spec)
        self._spec = spec = _settled(spec)
        if len(keys.values) > MAX_PARTS:
            raise _check.fail("keys", f"make at most {MAX_PARTS} parts", len(keys.values), "merge some of them")
        require_exact(spec.table, keys.columns)
        labels = keys.labels()
        self._places = {label: index for index, label in enumerate(labels)}
        self._texts = [_text(label) for label in labels]
        if len(set(self._texts)) != len(labels):
            raise _check.fail("keys", "differ as text", self._name, "the ledger knows the parts by their text")
        self._definition = _definition(spec, keys, self._max_parts)

    @property
    def keys(self) -> tuple[Any, ...]:
        """The public keys of the parts."""
        return self._keys.labels()

    def part(self, key: Any) -> Part:
        """How the ledger knows one part."""
        return Part(self._name, self._texts[self._place(key)], self._max_parts, self._definition)

    def __getitem__(self, key: Any) -> Private:
        """The private table of one part. What is released from it is charged to that part."""
        from discreet.analytics.table.private import Private

        table = _rows_of_part(self._spec, self._keys, self._place(key), self._max_parts)
        return Private._of(replace(self._spec, table=table, part=self.part(key)))

    def items(self) -> Iterator[tuple[Any, Private]]:
        """Each key with its part."""
        return ((key, self[key]) for key in self.keys)

    def __len__(self) -> int:
        return len(self._keys.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys)

    def __repr__(self) -> str:
        return f"<Partition {self._name!r} in {len(self)} parts, rows hidden>"

    def _place(self, key: Any) -> int:
        try:
            return self._places[key]
        except (KeyError, TypeError):
            raise _check.fail("key", "be one of the partition's", key, ", ".join(self._texts[:20])) from None


def _most(spec: TableSpec, keys: Keys, max_parts: int | None) -> int:
    if not isinstance(spec.unit, Person):
        if max_parts not in (None, 1):
            raise _check.fail("max_parts", "be left out where rows are protected", max_parts, "a row lies in one part")
        return 1
    remedy = "it is in how many parts one person counts: the price is the sum of that many of the costliest parts"
    if max_parts is None:
        raise _check.fail("max_parts", "be given where persons are protected", None, remedy)
    return _check.integer("max_parts", max_parts, remedy)


def _require_whole(spec: TableSpec) -> None:
    if spec.part is not None:
        remedy = "partition the whole table by both columns at once"
        raise _check.fail("partition", "be made of a whole table", f"part {spec.part}", remedy)
    if spec.copies > 1:
        remedy = "partition the table before the join, or join a public table that has each key once"
        raise _check.fail("partition", "be made of rows that no join repeats", f"{spec.copies} copies", remedy)


def _rows_of_part(spec: TableSpec, keys: Keys, index: int, max_parts: int) -> Any:
    """The rows of one part, without those of persons who count in `max_parts` earlier parts already.

    Which parts a person counts in depends on that person's rows alone, and not on what is asked.
    """
    table, mine = spec.table, int(keys.codes[index])
    code = code_of(table, keys)
    here = table.filter(code == ibis.literal(mine, type="int64"))
    earlier = [int(other) for other in keys.codes if other < mine]
    if not isinstance(spec.unit, Person) or len(earlier) < max_parts:
        return here
    person = str(spec.unit.column)
    before = table.select(person=table[person], part=code)
    before = before.filter(before["person"].notnull(), before["part"].isin(earlier)).distinct()
    counted = before.group_by("person").aggregate(parts=before.count())
    full = counted.filter(counted["parts"] >= max_parts).select(counted_elsewhere=counted["person"])
    return here.join(full, here[person] == full["counted_elsewhere"], how="anti")


def _settled(spec: TableSpec) -> TableSpec:
    """The same rows, with a copy of each public table that lies in the engine.

    Such a table may change, and rows would move to other parts. The copy is what the definition holds and what every
    query of the partition reads.
    """
    copies = {lookup: lookup.copied() for lookup in spec.lookups if lookup.in_engine}
    if not copies:
        return spec
    moved = {lookup.table.op(): copy.beside(spec.table) for lookup, copy in copies.items()}
    cast = {op: copy.cast(op.schema) for op, copy in moved.items()}
    table = spec.table.op().replace({op: copy.op() for op, copy in cast.items()}).to_expr()
    if origins(table) & {stored for lookup in copies for stored in origins(lookup.table)}:
        remedy = "pass dp.public(table.to_pyarrow()), a copy that stays as it is"
        raise _check.fail("partition", "be made with public tables that cannot change", "one in the engine", remedy)
    return replace(spec, table=table, lookups=tuple(copies.get(lookup, lookup) for lookup in spec.lookups))


def _definition(spec: TableSpec, keys: Keys, max_parts: int) -> str:
    """A text that differs for partitions in which a unit may lie in other parts.

    A record may be in several tables of an account, in other parts of each, so the table itself belongs to the
    definition. So do the rows of the public tables that were joined.
    """
    sql = str(ibis.to_sql(spec.table))
    for lookup in spec.lookups:
        sql = lookup.stable_sql(sql)
    person = spec.unit.column if isinstance(spec.unit, Person) else None
    facts = {
        "columns": list(keys.columns),
        "keys": [[f"{type(value).__name__} {value}" for value in key] for key in keys.values],
        "lookups": [lookup.fingerprint for lookup in spec.lookups],
        "max_parts": max_parts,
        "person": person,
        "sql": sql,
        "table": spec.identity,
        "types": [[name, str(spec.table[name].type())] for name in keys.columns],
    }
    return sha256(canonical(facts).encode()).hexdigest()


def _text(label: Any) -> str:
    """A key as the ledger shows it."""
    if isinstance(label, tuple):
        return ", ".join(_text(value) for value in label)
    if isinstance(label, dt.datetime | dt.date):
        return label.isoformat()
    return str(label) or "''"
