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
    if engine.name == "duckdb":
        return engine.con.sql(_sql(engine, query)).to_arrow_table()
    if engine.name == "pyspark":
        return engine._session.sql(_sql(engine, query)).toArrow()  # Ibis would go through pandas
    return query.to_pyarrow()


def _sql(engine: Any, query: Any) -> str:
    operation = query.op()
    sql = _compiled.get(operation)
    if sql is None:
        sql = _compiled[operation] = engine.compile(query)
    engine._run_pre_execute_hooks(query)  # registers tables in memory that the query names
    return sql


def rows(query: Any) -> list[dict[str, Any]]:
    """The same as one dictionary for each row."""
    found: list[dict[str, Any]] = arrow(query).to_pylist()
    return found
