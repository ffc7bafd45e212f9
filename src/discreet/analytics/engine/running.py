"""Running a query in the user's engine: its SQL is compiled once, and a small Arrow table comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import ibis.expr.operations as ops
import pyarrow as pa


@dataclass(frozen=True)
class Prepared:
    """A query's engine and SQL, and whether it names tables in memory, which the engine must be told of."""

    engine: Any
    sql: str
    in_memory: bool


#: Queries that are still in use: compiling one takes longer than running it on a small table.
_prepared: WeakKeyDictionary[Any, Prepared] = WeakKeyDictionary()


def prepare(query: Any) -> Prepared:
    """Compile a query, once; fails where the engine lacks the words, and looks at no data."""
    operation, engine = query.op(), query.get_backend()
    found = _prepared.get(operation)
    # Ibis calls two databases in memory equal, and so their queries too: one must never answer for the other.
    if found is None or found.engine is not engine:
        found = Prepared(engine, _plain(engine.compile(query), engine.name), bool(operation.find(ops.InMemoryTable)))
        _prepared[operation] = found
    return found


def _plain(sql: str, engine: str) -> str:
    """SQL that an engine reads as it stands: Spark would put settings and the environment in the place of ${…}.

    A text would then be compared with something else, even with another of the listed texts. Spark's text literals may
    spell the sign as an escape, which it reads after that; a name cannot, and is then unknown.
    """
    return sql.replace("${", "\\u0024{") if engine == "pyspark" else sql


def arrow(query: Any) -> pa.Table:
    """The whole answer of the engine to an Ibis query."""
    ready = prepare(query)
    engine = ready.engine
    if engine.name not in ("duckdb", "pyspark"):
        return query.to_pyarrow()
    if ready.in_memory:
        engine._run_pre_execute_hooks(query)
    if engine.name == "duckdb":
        return engine.con.sql(ready.sql).to_arrow_table()
    return engine._session.sql(ready.sql).toArrow()  # Ibis would go through pandas


def rows(query: Any) -> list[dict[str, Any]]:
    """The same as one dictionary for each row."""
    found: list[dict[str, Any]] = arrow(query).to_pylist()
    return found
