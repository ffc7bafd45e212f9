"""From any table that a user has to an Ibis table: local ones in an embedded DuckDB, others in their own engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa

from discreet import _check
from discreet.errors import InvalidArgument

#: The table's name in the embedded engine; only a preview's SQL shows it.
_NAME = "people"
#: How a CSV file is read: lines that cannot be parsed are left out, and a lone carriage return also ends a line.
_LENIENT = {"all_varchar": True, "null_padding": True, "ignore_errors": True, "strict_mode": False}


def engine_table(table: object) -> Any:
    """The Ibis table of pandas, polars, Arrow, a mapping of columns, a Parquet or CSV path, or an Ibis table.

    Column names and types are public facts. A CSV file is read so that no cell can make a query fail: a cell that does
    not fit its column's type counts as missing.
    """
    if isinstance(table, ibis.Table):
        return _zoned(_steady(table))
    if isinstance(table, str | os.PathLike):
        return _file(Path(table))
    return _registered(arrow_table(table))


def _steady(table: Any) -> Any:
    """Refuse a table that may give other rows when it is read again: persons are counted first, and then weighted."""
    unsteady = table.op().find((ops.Impure, ops.Sample, ops.ScalarUDF, ops.AggUDF))
    if unsteady:
        remedy = "store its result first, or leave out what draws at random and functions of your own"
        raise _check.fail("table", "give the same rows each time it is read", type(unsteady[0]).__name__, remedy)
    return table


def _zoned(table: Any) -> Any:
    """A table whose instants have a zone: Spark's have one, but Ibis does not report it."""
    engine = table.get_backend()
    times = [name for name, kind in table.schema().items() if kind.is_timestamp() and kind.timezone is None]
    if engine.name != "pyspark" or not times:
        return table
    types = {field.name: field.dataType.typeName() for field in engine._session.sql(engine.compile(table)).schema}
    return table.mutate(**{name: table[name].cast("timestamp('UTC')") for name in times if types[name] == "timestamp"})


def arrow_table(table: object) -> pa.Table:
    """A local table as an Arrow table; anything else is refused without quoting it."""
    kind = type(table).__module__.partition(".")[0]
    try:
        if isinstance(table, pa.Table):
            return table
        if isinstance(table, pa.RecordBatch):
            return pa.Table.from_batches([table])
        if kind == "pandas" and type(table).__name__ == "DataFrame":
            return pa.Table.from_pandas(table, preserve_index=False)
        if kind == "polars" and type(table).__name__ == "DataFrame":
            return table.to_arrow()  # type: ignore[attr-defined]  # polars is not imported to say so
        if isinstance(table, Mapping):
            return pa.table({str(name): pa.array(column, from_pandas=True) for name, column in table.items()})
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        mixed = True  # the converter's own message quotes cells, so it is not even kept as the error's context
    else:
        mixed = False
    if mixed:
        raise InvalidArgument(
            "table must have columns of one length and of one type each, under different names, got one with mixed "
            "types, lengths or names: cast a column of mixed types to text or numbers"
        )
    remedy = "pass pandas, polars, Arrow, columns by name, a Parquet or CSV path, or an Ibis table"
    if kind == "polars":
        remedy = "call .collect() first: it must be a DataFrame"
    elif kind in ("duckdb", "_duckdb"):
        remedy = "pass ibis.duckdb.from_connection(connection).table(name), or .to_arrow_table() of a relation"
    raise _check.fail("table", "be a table", type(table).__name__, remedy)


def _registered(arrow: pa.Table) -> Any:
    names = arrow.column_names
    if not names:
        raise _check.fail("table", "have a column", "none", "an empty table still has columns")
    if len({name.lower() for name in names}) != len(names):
        raise _check.fail("table", "have distinct column names, upper and lower case alike", names, "rename one")
    wide = [field.name for field in arrow.schema if pa.types.is_decimal256(field.type)]
    if wide:
        remedy = "cast them to float or text: the embedded engine has decimals of at most 38 digits"
        raise _check.fail("table", "have decimals of at most 38 digits", wide, remedy)
    connection = ibis.duckdb.connect()
    try:
        connection.con.register(_NAME, arrow)
        return connection.table(_NAME)
    except Exception as error:
        problem = type(error).__name__  # the engine's own message may quote cells
    raise _check.fail("table", "have columns of types that the engine knows", problem, "cast them to plain types")


def _file(path: Path) -> Any:
    if not path.exists():
        raise _check.fail("table", "be a file that exists", str(path), "give the path of a Parquet or CSV file")
    connection, kind = ibis.duckdb.connect(), path.suffix.lower()
    if kind == ".parquet":
        return _parquet(connection, path)
    if kind in (".csv", ".tsv"):
        return _csv(connection, path)
    remedy = "save it as one of these, or read it and pass the table"
    raise _check.fail("table", "be a .parquet, .csv or .tsv file", str(path), remedy)


def _parquet(connection: Any, path: Path) -> Any:
    try:
        return connection.read_parquet(path, table_name=_NAME)
    except Exception as error:
        problem = type(error).__name__  # the engine's own message may quote the file
    raise _check.fail(
        "table", "be a Parquet file that the engine can read", problem, "it is damaged, or another format"
    )


def _csv(connection: Any, path: Path) -> Any:
    """A file of text, each cell cast to its column's type where it fits."""
    if not path.stat().st_size:
        remedy = "name the columns in its first line"
        raise _check.fail("table", "be a CSV file with a header", f"{path}, which is empty", remedy)
    try:
        types = connection.read_csv(path, table_name="sniffed").schema()
        text = connection.read_csv(path, table_name=_NAME, **_LENIENT)
    except Exception as error:
        problem = type(error).__name__  # the engine's own message quotes lines
    else:
        if tuple(text.columns) == tuple(types):
            return text.select(**{name: text[name].try_cast(types[name]) for name in text.columns})
        problem = "rows of other lengths"
    remedy = "save it as UTF-8 with one cell for each column in each row, or read it and pass the table"
    raise _check.fail("table", "be a CSV file with a header that the engine can read", problem, remedy)
