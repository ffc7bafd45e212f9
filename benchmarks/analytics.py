"""Private aggregation in DuckDB beside the plain query on the same DuckDB, in one run.

python -m benchmarks.analytics [--rows 10000000] [--quick] [--json FILE]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pyarrow as pa

import discreet as dp
from benchmarks._table import Row, arguments, median_seconds, report
from discreet.analytics import count, mean

GROUPS, LIMIT, MOST_GROUPS = 100, 10, 5


def people(rows: int) -> Any:
    """A DuckDB table: a person, one of 100 groups and a value for each row; a tenth as many persons as rows."""
    generator = np.random.default_rng(1)
    connection = ibis.duckdb.connect()
    columns = {
        "person": generator.integers(0, max(rows // 10, 1), rows),
        "segment": generator.integers(0, GROUPS, rows),
        "value": generator.normal(50, 20, rows),
    }
    return connection, connection.create_table("people", pa.table(columns))


def measure(rows: int, repeats: int) -> list[Row]:
    """Every comparison, at one size."""
    connection, table = people(rows)
    folder = tempfile.TemporaryDirectory()
    ledger = dp.Ledger(Path(folder.name) / "bench.ledger")
    keys = range(GROUPS)
    own = ledger.account("rows", dp.PureDP(1e6))
    each = ledger.account("persons", dp.PureDP(1e6), dp.person("person", max_rows=LIMIT, max_groups=MOST_GROUPS))
    whole = ledger.account("whole", dp.PureDP(1e6), dp.person("person", max_rows=LIMIT))
    private, persons, few = (dp.Private(table, account=one) for one in (own, each, whole))

    def plain(sql: str) -> Callable[[], object]:
        return lambda: connection.con.sql(sql).fetchall()

    by = "FROM people GROUP BY segment"
    grouped, ungrouped = f"SELECT segment, COUNT(*), AVG(value) {by}", "SELECT COUNT(*), AVG(value) FROM people"
    ranked = (
        f"SELECT segment, COUNT(*), AVG(value) FROM (SELECT segment, value, ROW_NUMBER() OVER (PARTITION BY person "
        f"ORDER BY HASH(value)) AS place FROM people) WHERE place <= {LIMIT} GROUP BY segment"
    )
    moments = {"n": count(), "value": mean("value", bounds=(0, 100))}
    by_segment, persons_by_segment = (p.group_by("segment", keys=keys) for p in (private, persons))
    limited = persons_by_segment.aggregate(**moments)
    cases: list[tuple[str, Any, str, str]] = [
        (
            "count + mean, 100 groups",
            by_segment.aggregate(**moments),
            grouped,
            "plain",
        ),
        (
            "median, 100 groups",
            by_segment.median("value", bounds=(0, 100)),
            f"SELECT segment, QUANTILE_CONT(value, 0.5) {by}",
            "plain quantile",
        ),
        (
            "persons, count + mean, no groups",
            few.aggregate(**moments),
            ungrouped,
            "plain",
        ),
        (
            "persons, count + mean, 100 groups",
            limited,
            grouped,
            "plain",
        ),
        ("persons, count + mean, 100 groups", limited, ranked, "ranking window"),
    ]
    found = []
    times: dict[int, float] = {}
    for name, answer, sql, reference in cases:
        if id(answer) not in times:
            times[id(answer)] = median_seconds(partial(answer.release, epsilon=0.01), repeats)
        theirs = median_seconds(plain(sql), repeats)
        ours = times[id(answer)]
        found.append(Row(f"{name}, {rows:.0e} rows", "seconds", ours, f"duckdb, {reference}", theirs, "lower"))
    folder.cleanup()
    return found


def main(argv: list[str] | None = None) -> int:
    """Run it."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=10_000_000, help="how many rows the table has")
    args = parser.parse_args(argv)
    rows = 500_000 if args.quick else args.rows
    report(args, "analytics", measure(rows, 3), ["duckdb", "ibis-framework", "pyarrow"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
