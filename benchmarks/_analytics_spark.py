"""Spark's private query beside its plain one: on two local threads, and on a cluster of two workers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import ibis

import discreet as dp
from benchmarks._analytics_table import ASK, GROUPS, Accounts
from benchmarks._table import Row, in_turn
from discreet.analytics import count, mean

_HOST = "127.0.0.1"
#: Seconds after which a master that does not listen has failed.
_START_SECONDS = 60
#: What each worker may use.
_WORKER = {"cores": "1", "memory": "2g"}
_REFERENCE = "spark, plain"


def local_rows(path: Path, rows: int, accounts: Accounts, repeats: int) -> list[Row]:
    """Spark's private query against its plain one, on two local threads."""
    cases = [("count + mean, 100 groups", accounts.rows), ("persons, count + mean, 100 groups", accounts.persons)]
    names = [f"spark, {name}, {rows:.0e} rows" for name, _ in cases]
    if shutil.which("java") is None:
        return [_absent(name) for name in names]
    session = _session("local[2]", {"spark.driver.memory": "4g"})
    table = ibis.pyspark.connect(session).read_parquet(path, table_name="people")
    measured = [_row(name, session, table, account, repeats) for name, (_, account) in zip(names, cases, strict=True)]
    session.stop()
    return measured


def cluster_rows(folder: Path, rows: int, accounts: Accounts, repeats: int) -> list[Row]:
    """The same on a cluster: a master and two workers, each a process of its own, and a table that they made."""
    name = f"spark cluster of 2 workers, count + mean, 100 groups, {rows:.0e} rows"
    if shutil.which("java") is None:
        return [_absent(name)]
    with _cluster(folder) as master:
        each = {"spark.executor.cores": _WORKER["cores"], "spark.executor.memory": _WORKER["memory"]}
        # Jobs wait for both workers.
        waits = {"spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.cores.max": "2"}
        session = _session(master, each | waits)
        path = folder / "made.parquet"
        columns = (f"CAST(rand(1) * {GROUPS} AS BIGINT) AS segment", "50 + 20 * randn(2) AS value")
        session.range(rows).selectExpr(*columns).write.parquet(str(path))
        table = ibis.pyspark.connect(session).read_parquet(path, table_name="people")
        row = _row(name, session, table, accounts.rows, repeats)
        session.stop()
    return [row]


def _row(name: str, session: Any, table: Any, account: Any, repeats: int) -> Row:
    asked = dp.Private(table, account=account).group_by("segment", keys=range(GROUPS))
    answer = asked.aggregate(n=count(), value=mean("value", bounds=(0, 100)))
    ours, theirs = in_turn(partial(answer.release, epsilon=0.01), lambda: session.sql(ASK).collect(), repeats)
    return Row(name, "seconds", ours, _REFERENCE, theirs, "lower")


def _absent(name: str) -> Row:
    return Row(name, "seconds", float("nan"), _REFERENCE, None, "lower", "no Java")


def _session(master: str, settings: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", _HOST)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": _HOST}
    builder = SparkSession.builder.master(master).appName("discreet").config("spark.sql.shuffle.partitions", "2")
    for name, value in (quiet | settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """A standalone master with two workers; gives the master's address, and stops them all."""
    package = util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    home = Path(package.origin).parent
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST, "SPARK_DAEMON_MEMORY": "512m"}
    with socket.socket() as free:
        free.bind((_HOST, 0))
        port = free.getsockname()[1]
    address = f"spark://{_HOST}:{port}"
    start = [str(home / "bin" / "spark-class")]
    deploy = "org.apache.spark.deploy"
    commands = [[*start, f"{deploy}.master.Master", "--host", _HOST, "--port", str(port), "--webui-port", "0"]]
    for number in range(2):
        own = ["--work-dir", str(folder / f"worker{number}"), "--host", _HOST, "--webui-port", "0"]
        limits = [text for name, value in _WORKER.items() for text in (f"--{name}", value)]
        commands.append([*start, f"{deploy}.worker.Worker", *own, *limits, address])
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            quiet = subprocess.DEVNULL
            started.append(subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet))
            if len(started) == 1:
                _await(port)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _await(port: int) -> None:
    """Wait until the master listens."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            with socket.create_connection((_HOST, port), timeout=1):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
