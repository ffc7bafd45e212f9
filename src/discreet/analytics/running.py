"""Running a query in the user's engine: its SQL is compiled once, and a small Arrow table comes back."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

#: The SQL of queries that are still in use: compiling takes longer than running on a small table.
_compiled: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def arrow(query: Any) -> pa.Table:
    """The whole answer of the engine to an Ibis query."""
    engine = query.get_backend()
    if engine.name not in ("duckdb", "pyspark"):
        return query.to_pyarrow()
    engine._run_pre_execute_hooks(query)  # registers tables in memory that the query names
    if engine.name == "duckdb":
        return engine.con.sql(prepare(query)).to_arrow_table()
    return engine._session.sql(prepare(query)).toArrow()  # Ibis would go through pandas


def prepare(query: Any) -> str:
    """The SQL of a query, compiled once; fails where the engine lacks the words, and looks at no data."""
    operation = query.op()
    sql = _compiled.get(operation)
    if sql is None:
        sql = _compiled[operation] = query.get_backend().compile(query)
    return sql


def rows(query: Any) -> list[dict[str, Any]]:
    """The same as one dictionary for each row."""
    found: list[dict[str, Any]] = arrow(query).to_pylist()
    return found
