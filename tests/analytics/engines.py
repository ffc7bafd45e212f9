"""The engines that the tests run on: each loads an Arrow table and returns an Ibis table with the same rows."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.ledger.server import Server, programs

Load = Callable[..., Any]  # of an Arrow table, and of a name that replaces an earlier table of that name
_names = (f"people{number}" for number in itertools.count())
_POSTGRES = {
    "string": "text",
    "double": "double precision",
    "float": "real",
    "int64": "bigint",
    "bool": "boolean",
    "date32[day]": "date",
    "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamptz",
}


@contextmanager
def duckdb() -> Iterator[Load]:
    """The embedded engine."""
    connection = ibis.duckdb.connect()

    def load(table: pa.Table, name: str | None = None) -> Any:
        return connection.create_table(name or next(_names), table, overwrite=True)

    yield load
    connection.disconnect()


@contextmanager
def postgres() -> Iterator[Load]:
    """A PostgreSQL server started for the tests."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: initdb was not found")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (the ledger extra has it)")
    server = Server(durable=False)
    connection = ibis.postgres.connect(host=str(server.folder), user="discreet", database="postgres")

    def load(table: pa.Table, name: str | None = None) -> Any:
        name = name or next(_names)
        columns = ", ".join(f'"{field.name}" {_POSTGRES[str(field.type)]}' for field in table.schema)
        places = ", ".join(["%s"] * table.num_columns)
        with psycopg.connect(server.url(), autocommit=True) as direct, direct.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} ({columns})")
            cursor.executemany(
                f"INSERT INTO {name} VALUES ({places})", [tuple(row.values()) for row in table.to_pylist()]
            )
        return connection.table(name)

    yield load
    connection.disconnect()
    server.remove()


@contextmanager
def spark(folder: Path) -> Iterator[Load]:
    """Spark on two local threads, in its default ANSI mode: an overflow or a bad cast is an error."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark needs Java, which was not found")
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed (the spark extra has it)")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = sql.SparkSession.builder.master("local[2]").appName("discreet")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    assert session.conf.get("spark.sql.ansi.enabled") == "true"
    connection = ibis.pyspark.connect(session)

    def load(table: pa.Table, name: str | None = None) -> Any:
        path = folder / f"{next(_names)}.parquet"
        name = name or path.stem
        pyarrow.parquet.write_table(table, path)
        return connection.read_parquet(path, table_name=name)

    yield load
    session.stop()
