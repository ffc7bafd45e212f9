"""Tables that anybody may see, and that private tables may be joined with at no cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import ibis
import pyarrow as pa

from discreet import _check
from discreet.analytics.engine import running
from discreet.analytics.table.source import Loaded, arrow_table, load_beside, loading, require_narrow, source_of

#: The most rows of a public table in an engine that a partition copies.
MAX_COPIED = 1 << 20


@dataclass(frozen=True, eq=False)
class Public:
    """A table that anybody may see. Made by `public`; `Private.join` takes it, and it costs nothing."""

    table: Any

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.table.columns if isinstance(self.table, ibis.Table) else self.table.column_names)

    @property
    def in_engine(self) -> bool:
        """Whether it lies in an engine, where it may change."""
        return isinstance(self.table, ibis.Table)

    @cached_property
    def fingerprint(self) -> str:
        """A text that differs for tables of different content."""
        assert isinstance(self.table, pa.Table)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table.combine_chunks())
        return sha256(sink.getvalue()).hexdigest()

    @cached_property
    def loaded(self) -> Loaded:
        """How it is loaded into an embedded engine."""
        assert isinstance(self.table, pa.Table)
        return loading(self.table, f"public {self.fingerprint}", by_content=True)

    def beside(self, table: Any) -> Any:
        """A copy of it in the engine of another table."""
        loaded = load_beside(table, self.loaded)
        return self._literal if loaded is None else loaded

    @cached_property
    def _literal(self) -> Any:
        """A copy that travels with a query, for engines that are not embedded."""
        return ibis.memtable(self.table)

    def stable_sql(self, sql: str) -> str:
        """A query with this table's name in place of the one that its copy has in this process alone."""
        return sql.replace(self._literal.op().name, f"public {self.fingerprint}")

    def copied(self) -> Public:
        """A local copy of a table in an engine, as it is now, in an order that does not depend on the engine."""
        try:
            arrow = running.arrow(self.table.limit(MAX_COPIED + 1))
        except Exception as error:
            kind = type(error).__name__
            failed = _check.fail("engine", "answer before anything is charged", kind, "check the public table")
        else:
            if arrow.num_rows > MAX_COPIED:
                remedy = "aggregate it to fewer rows, or store the column in the private table"
                raise _check.fail("public table", f"have at most {MAX_COPIED} rows in a partition", "more", remedy)
            return Public(_sorted(arrow))
        raise failed

    def __repr__(self) -> str:
        return f"<Public table: {', '.join(self.columns)}>"


def public(table: object) -> Public:
    """A table that is public: anybody may see all of it, and no private fact is in it.

    Args:
        table: pandas, polars, Arrow, columns by name, a path, or an Ibis table. An Ibis table of the private table's
            own engine is read there; all others are read now, and copied to that engine.

    Guarantee: none. What this table contains is not protected, and a private table must never be passed here.
    """
    if isinstance(table, ibis.Table):
        return Public(source_of(table).table)
    local = isinstance(table, str) or hasattr(table, "__fspath__")
    arrow = source_of(table).table.to_pyarrow() if local else arrow_table(table)
    require_narrow(arrow)
    return Public(_decoded(arrow))


def _sorted(arrow: pa.Table) -> pa.Table:
    """A table in the order of its columns; as it is where a type has no order."""
    try:
        return arrow.sort_by([(name, "ascending") for name in arrow.column_names])
    except pa.ArrowException:
        return arrow  # the same rows in another order then count as another table


def _decoded(arrow: pa.Table) -> pa.Table:
    """A table without dictionaries, which engines store as types of their own."""
    fields = [
        pa.field(column.name, column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in arrow.schema
    ]
    return arrow.cast(pa.schema(fields))
