"""Tables in databases, found by an address: a DuckDB file or a PostgreSQL server, and the name of a table there."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import ibis

from discreet import _check

#: How the files of DuckDB databases are called.
FILES = frozenset({".duckdb", ".ddb"})
_EXAMPLE = "duckdb:///clinic.duckdb?table=visits or postgresql://user@host/clinic?table=visits"
# Connections in use, by address: tables of one database must share one to be joined.
_connections: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def table_at(address: str) -> tuple[Any, str]:
    """The table at an address, and a text that identifies it in every process. A password never gets into a message."""
    split = urlsplit(address)
    options = dict(parse_qsl(split.query))
    name = options.pop("table", None)
    if split.scheme == "duckdb":
        return table_in(_path(split.netloc + split.path), name)
    if split.scheme not in ("postgresql", "postgres"):
        raise _check.fail("table", "be at an address of DuckDB or PostgreSQL", f"{split.scheme}://…", _EXAMPLE)
    url = urlunsplit(("postgresql", split.netloc, split.path, urlencode(options), ""))
    shown_address = f"postgresql://{split.hostname or ''}:{split.port or ''}{split.path}"
    return _table(_connected(url, lambda: ibis.connect(url), shown_address), name, shown_address)


def table_in(path: Path, name: str | None = None) -> tuple[Any, str]:
    """A table in a DuckDB file, which is opened for reading alone; the only one if no name is given."""
    if not path.exists():
        raise _check.fail("table", "be in a DuckDB file that exists", str(path), _EXAMPLE)
    address = f"duckdb://{path.resolve()}"
    return _table(_connected(address, lambda: ibis.duckdb.connect(str(path), read_only=True), address), name, address)


def _path(text: str) -> Path:
    """The path in an address: duckdb:///file is relative to the current folder, and absolute if nothing is there."""
    relative = Path(text.lstrip("/"))
    return Path(text) if text.startswith("/") and not relative.exists() else relative


def _connected(key: str, connect: Any, address: str) -> Any:
    connected = _connections.get(key)
    if connected is not None:
        return connected
    try:
        connection = _connections[key] = connect()
    except Exception as error:
        problem = type(error).__name__  # the driver's own message may quote the password
    else:
        return connection
    remedy = "check the address, and that the database is reachable and not locked by a writer"
    raise _check.fail("table", f"be in a database that can be opened, at {address}", problem, remedy)


def _table(connection: Any, name: str | None, address: str) -> tuple[Any, str]:
    names = _names(connection)
    if name is None and len(names) == 1:
        (name,) = names
    if name is None or name not in names:
        got = "none" if name is None else name
        raise _check.fail("table", "be named in the address", got, f"add ?table=, one of {', '.join(names)}")
    return connection.table(name), f"{address}?table={name}"


def _names(connection: Any) -> list[str]:
    """The tables and views of a database's default schema, whose names are public."""
    if connection.name != "duckdb":
        return sorted(connection.list_tables())
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    return sorted(name for (name,) in connection.con.sql(query).fetchall())
