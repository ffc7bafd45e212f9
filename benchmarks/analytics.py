"""Private aggregation beside the plain query on the same engine, and beside OpenDP, in one run.

python -m benchmarks.analytics [--rows 10000000] [--cluster-rows 100000000] [--quick] [--peers] [--json FILE]

With `--peers`, OpenDP is installed into an environment of its own, once, in a cache folder: it needs another Polars.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet

import discreet as dp
from benchmarks._analytics_spark import cluster_rows, local_rows
from benchmarks._analytics_table import ASK, GROUPS, LIMIT, Accounts
from benchmarks._environments import ABSENT, python_of
from benchmarks._table import Row, arguments, in_turn, report
from discreet.analytics import count, mean
from discreet.analytics import sum as total

#: Medians are drawn so often in each group, to compare their errors.
_DRAWS = 5


def people(rows: int, path: Path) -> None:
    """A Parquet file: a person, one of 100 groups and a value for each row; a tenth as many persons as rows."""
    generator = np.random.default_rng(1)
    columns = {
        "person": generator.integers(0, max(rows // 10, 1), rows),
        "segment": generator.integers(0, GROUPS, rows),
        "value": generator.normal(50, 20, rows),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)


def duckdb_rows(path: Path, rows: int, accounts: Accounts, repeats: int) -> list[Row]:
    """Private queries against plain ones in one DuckDB, and persons' limits against a window that ranks their rows."""
    connection = ibis.duckdb.connect()
    connection.con.execute(f"CREATE TABLE people AS SELECT * FROM '{path}'")
    table = connection.table("people")
    private, persons = (dp.Private(table, account=account) for account in (accounts.rows, accounts.persons))
    by_segment, persons_by_segment = (p.group_by("segment", keys=range(GROUPS)) for p in (private, persons))
    moments = {"n": count(), "value": mean("value", bounds=(0, 100))}
    limited = persons_by_segment.aggregate(**moments)
    ranked = (
        "SELECT segment, COUNT(*), AVG(value) FROM (SELECT segment, value, ROW_NUMBER() OVER (PARTITION BY person "
        f"ORDER BY HASH(value)) AS place FROM people) WHERE place <= {LIMIT} GROUP BY segment"
    )
    distinct = "SELECT segment, COUNT(DISTINCT person) FROM people GROUP BY segment"
    median = "SELECT segment, QUANTILE_CONT(value, 0.5) FROM people GROUP BY segment"
    cases: list[tuple[str, Any, str, str, int]] = [
        ("count + mean, 100 groups", by_segment.aggregate(**moments), ASK, "plain", 3 * repeats),
        ("median, 100 groups", by_segment.median("value", bounds=(0, 100)), median, "plain quantile", repeats),
        ("persons, count + mean, 100 groups", limited, ASK, "plain", repeats),
        ("persons, count + mean, 100 groups", limited, ranked, "ranking window", min(repeats, 2)),
        ("number of persons, 100 groups", persons_by_segment.count_distinct(), distinct, "plain", min(repeats, 2)),
    ]
    measured = []
    for name, answer, sql, reference, times in cases:
        ours, theirs = in_turn(partial(answer.release, epsilon=0.01), partial(_fetched, connection, sql), times)
        measured.append(Row(f"{name}, {rows:.0e} rows", "seconds", ours, f"duckdb, {reference}", theirs, "lower"))
    small = ibis.duckdb.connect().create_table("people", pyarrow.parquet.read_table(path).slice(0, 1000))
    grouped = dp.Private(small, account=accounts.rows).group_by("segment", keys=range(GROUPS)).aggregate(**moments)
    ours, theirs = in_turn(
        partial(grouped.release, epsilon=0.01), partial(_fetched, small.get_backend(), ASK), 5 * repeats
    )
    measured.append(Row("count + mean, 100 groups, 1000 rows", "seconds", ours, "duckdb, plain", theirs, "lower"))
    return measured


def _fetched(connection: Any, sql: str) -> object:
    return connection.con.sql(sql).fetchall()


def opendp_rows(path: Path, rows: int, accounts: Accounts, repeats: int, install: bool) -> list[Row]:
    """The same questions answered by OpenDP on Polars, whose data is in memory as well."""
    connection = ibis.duckdb.connect()
    connection.con.execute(f"CREATE TABLE people AS SELECT * FROM '{path}'")
    groups = dp.Private(connection.table("people"), account=accounts.rows).group_by("segment", keys=range(GROUPS))
    asked = {
        "count + sum, 100 groups": groups.aggregate(n=count(), value=total("value", bounds=(0, 100))),
        "median, 100 groups": groups.median("value", bounds=(0, 100)),
    }
    ours = [in_turn(partial(answer.release, epsilon=1.0), lambda: None, repeats)[0] for answer in asked.values()]
    (*theirs, their_medians), note = _opendp(path, install)
    measured = [
        Row(f"{name}, {rows:.0e} rows", "seconds", own, "opendp 0.16 on polars", peer, "lower", note)
        for name, own, peer in zip(asked, ours, theirs, strict=True)
    ]
    median = groups.quantile("value", 0.5, candidates=range(101))
    drawn = [median.release(epsilon=0.1).columns for _ in range(_DRAWS)]
    own_medians = [list(zip(columns["segment"], columns["quantile"], strict=True)) for columns in drawn]
    own, peer = (_rank_error(path, medians) for medians in (own_medians, their_medians))
    assert own is not None
    name = f"median of 101 candidates, ε = 0.1, {rows:.0e} rows"
    return [*measured, Row(name, "mean rank error", own, "opendp 0.16 on polars", peer, "lower", note)]


def _rank_error(path: Path, drawn: list[list[tuple[int, float]]] | None) -> float | None:
    """How many rows lie between a released median and the true one, on average over groups and draws."""
    if drawn is None:
        return None
    table = pyarrow.parquet.read_table(path, columns=["segment", "value"])
    segment, value = (table[name].to_numpy() for name in ("segment", "value"))
    ordered = [np.sort(value[segment == group]) for group in range(GROUPS)]
    errors = []
    for medians in drawn:
        for group, median in medians:
            low, high = (np.searchsorted(ordered[group], median, side=side) for side in ("left", "right"))
            half = len(ordered[group]) / 2
            errors.append(max(0.0, float(low - half), float(half - high)))
    return statistics.mean(errors)


def _opendp(path: Path, install: bool) -> tuple[list[Any], str]:
    try:
        python = python_of("opendp", install)
        if python is None:
            return [None, None, None], ABSENT
        script = Path(__file__).with_name("_analytics_opendp.py")
        ran = subprocess.run(
            [python, "-W", "ignore", script, path, str(GROUPS), "1", str(_DRAWS)],
            check=True,
            capture_output=True,
            timeout=900,
        )
        return json.loads(ran.stdout), ""
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [None, None, None], f"could not run: {type(error).__name__}"


_PEAK = """
import sys
path, = sys.argv[1:]
{}
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
_PLAIN_PROCESS = f"""
import duckdb
connection = duckdb.connect()
connection.execute(f"CREATE TABLE people AS SELECT * FROM '{{path}}'")
connection.sql({ASK!r}).fetchall()
"""
_PRIVATE_PROCESS = f"""
import ibis, tempfile, discreet as dp
from discreet.analytics import count, mean
connection = ibis.duckdb.connect()
connection.con.execute(f"CREATE TABLE people AS SELECT * FROM '{{path}}'")
with tempfile.TemporaryDirectory() as folder:
    account = dp.Ledger(folder + "/l.ledger").account("a", dp.PureDP(10.0))
    asked = dp.Private(connection.table("people"), account=account).group_by("segment", keys=range({GROUPS}))
    asked.aggregate(n=count(), value=mean("value", bounds=(0, 100))).release(epsilon=0.1)
"""


def memory_rows(path: Path, rows: int) -> list[Row]:
    """The peak memory of a process that loads the table and asks: ours, and one with DuckDB alone."""
    private, plain = (_peak(path, code) for code in (_PRIVATE_PROCESS, _PLAIN_PROCESS))
    return [Row(f"count + mean, 100 groups, {rows:.0e} rows", "peak MiB", private, "duckdb, plain", plain, "lower")]


def _peak(path: Path, code: str) -> float:
    ran = subprocess.run([sys.executable, "-c", _PEAK.format(code), str(path)], check=True, capture_output=True)
    return int(ran.stdout.split()[-1]) / 1024


def main(argv: list[str] | None = None) -> int:
    """Run it."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=10_000_000, help="how many rows the table has")
    parser.add_argument("--cluster-rows", type=int, default=100_000_000, help="how many rows the Spark cluster makes")
    parser.add_argument("--peers", action="store_true", help="install OpenDP into an environment of its own")
    args = parser.parse_args(argv)
    rows = 300_000 if args.quick else args.rows
    few = 50_000 if args.quick else rows
    many = 1_000_000 if args.quick else args.cluster_rows
    repeats = 1 if args.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        whole, sample = Path(folder) / "people.parquet", Path(folder) / "few.parquet"
        people(rows, whole)
        people(few, sample)
        accounts = Accounts(Path(folder))
        measured = duckdb_rows(whole, rows, accounts, repeats)
        measured += opendp_rows(sample, few, accounts, repeats, args.peers)
        measured += local_rows(sample, few, accounts, repeats)
        measured += cluster_rows(Path(folder), many, accounts, repeats)
        measured += memory_rows(whole, rows)
    report(args, "analytics", measured, ["duckdb", "ibis-framework", "pyarrow", "pyspark", "opendp"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
