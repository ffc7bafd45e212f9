"""Runs a query in the user's engine: the SQL is compiled once, and a small Arrow table comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import ibis.expr.operations as ops
import pyarrow as pa

from discreet.mechanisms import observation


@dataclass(frozen=True)
class Prepared:
    """A query's engine and SQL, and whether it reads tables in memory, which must be registered with the engine."""

    engine: Any
    sql: str
    in_memory: bool


#: Compiled queries that are still in use: compiling takes longer than running a query on a small table.
_prepared: WeakKeyDictionary[Any, Prepared] = WeakKeyDictionary()


def prepare(query: Any) -> Prepared:
    """Compile a query once; fails if the engine lacks a function, and looks at no data."""
    operation, engine = query.op(), query.get_backend()
    earlier = _prepared.get(operation)
    # Ibis treats any two in-memory databases as equal, and so their queries: one must never answer for the other.
    if earlier is not None and earlier.engine is engine:
        return earlier
    sql = _plain(engine.compile(query), engine.name)
    prepared = _prepared[operation] = Prepared(engine, sql, bool(operation.find(ops.InMemoryTable)))
    return prepared


@dataclass(frozen=True)
class Planned:
    """A query that its engine has planned, to be run once; `bound` is what the engine keeps of it, if anything."""

    query: Any
    prepared: Prepared
    bound: Any = None

    def arrow(self) -> pa.Table:
        """The engine's whole answer."""
        observation.statement(self.prepared.sql)
        if self.bound is None:
            return self.query.to_pyarrow()
        # For Spark, Ibis would go through pandas.
        return self.bound.to_arrow_table() if self.prepared.engine.name == "duckdb" else self.bound.toArrow()


def plan(query: Any) -> Planned:
    """Compile a query and let the engine plan it: fails if a type does not fit, and reads no row."""
    planned = bind(query)
    engine = planned.prepared.engine
    if engine.name == "postgres":
        with engine.begin() as cursor:
            cursor.execute(f"EXPLAIN {planned.prepared.sql}")
    return planned


def bind(query: Any) -> Planned:
    """A query as DuckDB or Spark have bound it. DuckDB binds it again when it runs, to the tables as they are then."""
    prepared = prepare(query)
    engine = prepared.engine
    if prepared.in_memory:
        engine._run_pre_execute_hooks(query)
    if engine.name not in ("duckdb", "pyspark"):
        return Planned(query, prepared)
    session = engine.con if engine.name == "duckdb" else engine._session
    return Planned(query, prepared, session.sql(prepared.sql))


def _plain(sql: str, engine: str) -> str:
    """SQL that an engine reads literally: Spark would replace ${…} by settings and environment variables.

    A text would then be compared with another text, perhaps another of the listed ones. In Spark's text literals the $
    can be an escape, which is read after that replacement. In a column's name it cannot; Spark then refuses the name.
    """
    return sql.replace("${", "\\u0024{") if engine == "pyspark" else sql


def arrow(query: Any) -> pa.Table:
    """The engine's whole answer to a query."""
    return bind(query).arrow()


def rows(query: Any) -> list[dict[str, Any]]:
    """The same answer, as one dictionary for each row."""
    answer: list[dict[str, Any]] = arrow(query).to_pylist()
    return answer
