"""Tables that anybody may see, and that private tables may be joined with at no cost."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import ibis
import pyarrow as pa

from discreet.analytics.table.source import Loaded, arrow_table, loading, source_of


@dataclass(frozen=True, eq=False)
class Public:
    """A table that anybody may see. Made by `public`; `Private.join` takes it, and it costs nothing."""

    table: Any

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.table.columns if isinstance(self.table, ibis.Table) else self.table.column_names)

    @cached_property
    def fingerprint(self) -> str:
        """A text that differs for different tables; a table in an engine, which may change, differs from all others."""
        if isinstance(self.table, ibis.Table):
            return f"a table in an engine, {uuid.uuid4().hex}"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table.combine_chunks())
        return sha256(sink.getvalue()).hexdigest()

    @cached_property
    def loaded(self) -> Loaded:
        """How it is loaded into an embedded engine."""
        assert isinstance(self.table, pa.Table)
        return loading(self.table, f"public {self.fingerprint}", by_content=True)

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
    return Public(_decoded(arrow))


def _decoded(arrow: pa.Table) -> pa.Table:
    """A table without dictionaries, which engines store as types of their own."""
    fields = [
        pa.field(one.name, one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in arrow.schema
    ]
    return arrow.cast(pa.schema(fields))
