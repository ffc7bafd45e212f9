"""From any table that a user has to an Ibis table: local ones in an embedded DuckDB, others in their own engine."""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from glob import glob, has_magic
from hashlib import sha256
from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa
import pyarrow.compute as pc

from discreet import _check
from discreet.analytics.table import databases
from discreet.errors import InvalidArgument

#: The table's name in the embedded engine; only a preview's SQL shows it.
_NAME = "people"
#: How a CSV file is read: lines that cannot be parsed are left out, and a lone carriage return also ends a line.
_LENIENT = {"all_varchar": True, "null_padding": True, "ignore_errors": True, "strict_mode": False}

#: Loads a local table into an embedded engine, under a name.
Load = Callable[[Any, str], Any]


@dataclass(frozen=True, eq=False)
class Loaded:
    """How a table of an embedded engine was loaded, and its identity, after which it is named in other engines.

    `by_content` says that tables of this identity hold the same rows.
    """

    load: Load
    identity: str
    by_content: bool = False


# The largest number of microseconds that 64 bits hold.
_LARGEST_MICROSECOND = 2**63 - 1

# The tables of each embedded engine by name, by the id of its connection: Ibis treats any two engines in memory as
# equal, so the connection itself cannot be the key.
_loaded: dict[int, dict[str, Loaded]] = {}


@dataclass(frozen=True)
class Source:
    """An engine's table, and what tells it from other tables in every process: a path, an address, or a new token."""

    table: Any
    identity: str


def source_of(table: object, name: str | None = None) -> Source:
    """The Ibis table of pandas, polars, Arrow, columns by name, a path, a database's address, or an Ibis table.

    Column names and types are public facts. A CSV file is read so that no cell can make a query fail: a cell that does
    not fit its column's type counts as missing. A path with `*` stands for all files that it matches. An address is
    `duckdb:///file.duckdb?table=name` or `postgresql://…?table=name`. A `name` is the table's identity, if given.
    """
    given = None if name is None else f"name {name}"
    if isinstance(table, ibis.Table):
        return Source(_in_microseconds(_zoned(_steady(table))), given or _token())
    if isinstance(table, str) and "://" in table:
        stored, identity = databases.table_at(table)
        return Source(_in_microseconds(_zoned(stored)), given or identity)
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        if not _is_path(path):
            raise _check.fail("table", "be a path that files can have", repr(str(path)), "leave out NUL and half pairs")
        if path.suffix.lower() in databases.FILES and path.exists():
            stored, identity = databases.table_in(path)
            return Source(_in_microseconds(stored), given or identity)
        identity = given or str(path.resolve())
        return Source(_in_microseconds(_file(path, identity)), identity)
    identity = given or _token()
    return Source(_registered(arrow_table(table), identity), identity)


def _is_path(path: Path) -> bool:
    """Whether the operating system can be asked about a path."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def engine_table(table: object) -> Any:
    """The Ibis table of `source_of`."""
    return source_of(table).table


def _token() -> str:
    """An identity for a table that has none: it differs from that of every other table."""
    return f"a table in memory, {uuid.uuid4().hex}"


# --- tables of several embedded engines in one


def _embedded(load: Load, identity: str) -> Any:
    """A local table in an embedded engine of its own."""
    connection = ibis.duckdb.connect()
    _loaded[id(connection)] = {_NAME: Loaded(load, identity)}
    weakref.finalize(connection, _loaded.pop, id(connection), None).atexit = False
    return load(connection, _NAME)


def load_beside(table: Any, loaded: Loaded) -> Any | None:
    """A local table that is public, in the engine of another table; None if that engine is not an embedded one."""
    connection = table.get_backend()
    return _load(connection, loaded) if id(connection) in _loaded else None


def loading(arrow: pa.Table, identity: str, *, by_content: bool = False) -> Loaded:
    """How a local table is loaded into an embedded engine."""
    return Loaded(lambda connection, name: _register(connection, name, arrow), identity, by_content)


def brought_together(left: Any, right: Any) -> Any:
    """The right table in the engine of the left one: local tables are loaded there as well, others must be there."""
    target = left.get_backend()
    moved: dict[Any, Any] = {}
    for stored in right.op().find(ops.DatabaseTable):
        if stored.source is target:
            continue
        own = _loaded.get(id(stored.source), {})
        if id(target) not in _loaded or stored.name not in own:
            remedy = "open both with one connection, or pass both as local tables or files"
            raise _check.fail("join", "be of tables in one engine", "two engines", remedy)
        moved[stored] = _load(target, own[stored.name]).op()
    return right.op().replace(moved).to_expr() if moved else right


def _load(connection: Any, loaded: Loaded) -> Any:
    """Load one more table into an embedded engine, once, under a name that is the same in every process."""
    own = _loaded[id(connection)]
    stem = f"{_NAME}_{sha256(loaded.identity.encode()).hexdigest()[:12]}"
    for name in (stem, *(f"{stem}_{number}" for number in range(2, len(own) + 2))):
        earlier = own.get(name)
        if earlier is None:
            break
        if earlier is loaded or (earlier.by_content and loaded.by_content and earlier.identity == loaded.identity):
            return connection.table(name)
    own[name] = loaded
    return loaded.load(connection, name)


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


def _in_microseconds(table: Any) -> Any:
    """A table whose times are in microseconds; one that these cannot hold is missing.

    DuckDB computes with other units, but fails on a row as soon as a value or a literal does not fit its unit.
    """
    if table.get_backend().name != "duckdb":
        return table
    times = {name: kind for name, kind in table.schema().items() if kind.is_timestamp() and kind.scale not in (None, 6)}
    casts = {name: table[name].try_cast(kind.copy(scale=6)) for name, kind in times.items()}
    return table.mutate(**casts) if casts else table


def _arrow_in_microseconds(arrow: pa.Table) -> pa.Table:
    """The same for Arrow: an instant that microseconds cannot hold would make the engine fail while it reads."""
    for index, field in enumerate(arrow.schema):
        if not pa.types.is_timestamp(field.type) or field.type.unit == "us":
            continue
        column = arrow.column(index)
        most = _LARGEST_MICROSECOND // {"s": 10**6, "ms": 10**3, "ns": 1}[field.type.unit]
        whole = column.cast(pa.int64())
        held = pc.and_(pc.less_equal(whole, most), pc.greater_equal(whole, -most))
        kept = pc.if_else(held, column, pa.scalar(None, field.type))
        micro = pa.timestamp("us", field.type.tz)
        arrow = arrow.set_column(index, pa.field(field.name, micro), kept.cast(micro, safe=False))
    return arrow


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


def require_narrow(arrow: pa.Table) -> None:
    """Refuse decimals that the embedded engine does not have."""
    wide = [field.name for field in arrow.schema if pa.types.is_decimal256(field.type)]
    if wide:
        remedy = "cast them to float or text: the embedded engine has decimals of at most 38 digits"
        raise _check.fail("table", "have decimals of at most 38 digits", wide, remedy)


def _registered(arrow: pa.Table, identity: str) -> Any:
    names = arrow.column_names
    if not names:
        raise _check.fail("table", "have a column", "none", "an empty table still has columns")
    if len({name.lower() for name in names}) != len(names):
        raise _check.fail("table", "have distinct column names, upper and lower case alike", names, "rename one")
    require_narrow(arrow)
    try:
        return _embedded(loading(arrow, identity).load, identity)
    except Exception as error:
        problem = type(error).__name__  # the engine's own message may quote cells
    raise _check.fail("table", "have columns of types that the engine knows", problem, "cast them to plain types")


def _register(connection: Any, name: str, arrow: pa.Table) -> Any:
    connection.con.register(name, _arrow_in_microseconds(arrow))
    return connection.table(name)


def _file(path: Path, identity: str) -> Any:
    files = _matched(path)
    kinds = {file.suffix.lower() for file in files}
    if kinds == {".parquet"}:
        return _parquet(files, identity)
    if kinds in ({".csv"}, {".tsv"}):
        return _csv(files, identity)
    remedy = "save it as one of these, or read it and pass the table"
    raise _check.fail("table", "be a .parquet, .csv or .tsv file, or several of one kind", str(path), remedy)


def _matched(path: Path) -> list[Path]:
    """The file itself, or the files that a pattern matches, in order."""
    if path.exists():
        return [path]
    files = sorted(Path(name) for name in glob(str(path), recursive=True)) if has_magic(str(path)) else []
    if not files:
        remedy = "give the path of a Parquet or CSV file, or a pattern such as visits-*.parquet"
        raise _check.fail("table", "be a file that exists", str(path), remedy)
    return files


def _parquet(files: list[Path], identity: str) -> Any:
    try:
        return _embedded(lambda connection, name: connection.read_parquet(files, table_name=name), identity)
    except Exception as error:
        problem = type(error).__name__  # the engine's own message may quote the file
    raise _check.fail(
        "table", "be a Parquet file that the engine can read", problem, "it is damaged, or another format"
    )


def _csv(files: list[Path], identity: str) -> Any:
    """A file of text, each cell cast to its column's type where it fits."""
    empty = [str(file) for file in files if not file.stat().st_size]
    if empty:
        remedy = "name the columns in its first line"
        raise _check.fail("table", "be a CSV file with a header", f"{empty[0]}, which is empty", remedy)
    try:
        types = ibis.duckdb.connect().read_csv(files, table_name="sniffed").schema()
        text = _embedded(lambda connection, name: connection.read_csv(files, table_name=name, **_LENIENT), identity)
    except Exception as error:
        problem = type(error).__name__  # the engine's own message quotes lines
    else:
        if tuple(text.columns) == tuple(types):
            return text.select(**{name: text[name].try_cast(types[name]) for name in text.columns})
        problem = "rows of other lengths"
    remedy = "save it as UTF-8 with one cell for each column in each row, or read it and pass the table"
    raise _check.fail("table", "be a CSV file with a header that the engine can read", problem, remedy)
