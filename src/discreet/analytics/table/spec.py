"""The facts about a private table: its rows in the engine, its account, and what is public about its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ibis
from ibis.expr import operations as ops

from discreet import _check
from discreet.analytics.engine.grouping import require_comparable
from discreet.analytics.plan.keys import Keys, public_keys
from discreet.analytics.table.expressions import Expression
from discreet.analytics.table.public import Public
from discreet.ledger import Account, Part
from discreet.neighbors import Person, Unit


@dataclass(frozen=True)
class TableSpec:
    """What a private table knows.

    Attributes:
        table: the engine's table.
        account: what releases are charged to.
        unit: who is protected.
        columns: the columns that may be asked about.
        bounds: the public bounds that were declared for columns.
        bins: the public keys that columns have themselves, such as the left edges of binned ones.
        origins: the stored tables that the private table is made of, from which keys must not come.
        computed: the columns that no stored row of a private table holds: made by `mutate`, or of a public table.
        identity: what tells the stored tables from others, in every process.
        copies: how many rows one row may have become by joins with public tables, where rows are protected.
        lookups: the public tables that were joined.
        part: the part of a partition that the rows are, if they are one.
    """

    table: Any
    account: Account
    unit: Unit
    columns: tuple[str, ...]
    bounds: Mapping[str, tuple[float, float]]
    bins: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    origins: frozenset[Any] = frozenset()
    computed: frozenset[str] = frozenset()
    identity: str = ""
    copies: int = 1
    lookups: tuple[Public, ...] = ()
    part: Part | None = None

    def require(self, name: object) -> None:
        """Refuse what is not a column, with the names that are."""
        if not isinstance(name, str):
            remedy = (
                "name the column as text; give an expression a name first: table.mutate(ratio=table.cost / table.age)"
            )
            raise _check.fail("column", "be a name", type(name).__name__, remedy)
        if name not in self.columns:
            raise _check.fail("column", "be one of the table's", name, ", ".join(self.columns))

    def require_stored(self, name: object) -> None:
        """Refuse what is neither a column nor the person's id, which stays when columns are selected."""
        if not (isinstance(self.unit, Person) and isinstance(name, str) and name == self.unit.column):
            self.require(name)

    def check(self, expression: Expression) -> None:
        """Refuse an expression that uses a column that the table does not have, or no longer has."""
        for name in expression.names():
            self.require(name)

    def check_grouping(self, columns: tuple[str, ...]) -> None:
        """Refuse columns that cannot be grouped by."""
        if not columns:
            raise _check.fail("group_by", "name a column", columns, "or ask the table itself")
        for name in columns:
            self.require(name)
        if len(set(columns)) != len(columns):
            raise _check.fail("group_by", "name each column once", columns, "leave the repetition out")

    def keys(self, columns: tuple[str, ...], given: object) -> Keys:
        """The public keys of some columns, as given or as bins, checked against the columns' types."""
        self.check_grouping(columns)
        if isinstance(given, ibis.Table) and self.origins & origins(given):
            remedy = "give a table that is public, or keys=dp.discover()"
            raise _check.fail("keys", "not come from the private table", "a table made of it", remedy)
        listed = given
        if given is None or isinstance(given, Mapping):
            by_column: dict[str, Any] = {
                **{name: self.bins[name] for name in columns if name in self.bins},
                **(given or {}),
            }
            lacking = [name for name in columns if name not in by_column]
            if lacking:
                remedy = "list each column's public values, bin() it, or find keys with keys=dp.discover() and a delta"
                raise _check.fail("keys", f"be given for {lacking}", given, remedy)
            listed = by_column
        keys = public_keys(columns, listed)
        require_comparable(self.table, columns, keys.by_column)
        return keys


def origins(table: Any) -> frozenset[Any]:
    """The stored tables that an engine's table is made of."""
    return frozenset(table.op().find(ops.PhysicalTable))
