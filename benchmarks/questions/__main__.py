"""Sixty everyday questions in SQL: how many are answered as typed, and with which relative error at ε = 1 per person.

python -m benchmarks.questions [--quick] [--json FILE]

TPC-H needs `tpchgen-cli` (the bench extra). OpenDP's context and smartnoise-sql run beside it where they are installed.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import discreet as dp
from benchmarks._table import Row, arguments, report
from benchmarks.questions import _adult, _tpch, _visits
from benchmarks.questions._asking import Asking, Database, Outcome, connect
from benchmarks.questions._peers import peers
from benchmarks.questions._question import Asked

#: An answer is useful if it is within this of the truth.
_USEFUL = 0.1


def databases(folder: Path, quick: bool) -> Iterator[tuple[Database, list[Asked]]]:
    """Each database with its questions."""
    connection = connect()
    connection.con.register("adult", pa.table({name: pa.array(column) for name, column in dp.datasets.adult().items()}))
    yield Database(connection, {"adult": None}, (), _adult.BOUNDS), _adult.QUESTIONS
    connection = connect()
    for name, table in _visits.tables(5_000 if quick else 50_000).items():
        connection.con.register(name, table)
    private = {"visits": "person", "patients": "person"}
    yield Database(connection, private, ("wards",), _visits.BOUNDS), _visits.QUESTIONS
    _tpch.files(folder, 0.02 if quick else 0.1)
    connection = connect()
    for name in ("customer", "orders", *_tpch.PUBLIC):
        connection.con.execute(f"CREATE TABLE {name} AS SELECT * FROM '{folder}/{name}.parquet'")
    connection.con.execute(
        f"CREATE TABLE lineitem AS SELECT line.*, o_custkey AS l_custkey FROM '{folder}/lineitem.parquet' AS line "
        "JOIN orders ON o_orderkey = l_orderkey"
    )
    yield Database(connection, _tpch.PRIVATE, _tpch.PUBLIC, _tpch.BOUNDS), _tpch.QUESTIONS


def outcomes(folder: Path, quick: bool) -> dict[str, Outcome]:
    """What became of each question."""
    found: dict[str, Outcome] = {}
    for database, questions in databases(folder, quick):
        asking = Asking(folder, database)
        for asked in questions:
            found[asked.name] = asking.outcome(asked)
    return found


def main() -> None:
    """Ask all questions, print a row for each and the totals, and write them as JSON."""
    args = arguments(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = outcomes(Path(folder), args.quick)
        theirs = peers()
    errors = [outcome.error for outcome in found.values() if outcome.error is not None]
    rows = []
    for name, outcome in found.items():
        for peer, answered in theirs.items():
            if outcome.error is None:
                rows.append(Row(name, "refused", 1.0, peer, None, "lower", f"refused: {outcome.refusal}"))
                continue
            error = answered.errors.get(name)
            note = answered.note if error is not None or answered.note else "not answered"
            rows.append(Row(name, "relative error", outcome.error, peer, error, "lower", note))
    useful = sum(error <= _USEFUL for error in errors)
    for peer, answered in theirs.items():
        count = None if answered.note else float(len(answered.errors))
        rows.append(Row("all", "answered as typed", len(errors), peer, count, "higher", answered.note))
    within = f"{len(found)} questions; median error {statistics.median(errors):.3g}" if errors else "no answer"
    rows.append(Row("all", f"answers within {_USEFUL:.0%}", useful, "questions", float(len(found)), "higher", within))
    report(args, "questions", rows, ["duckdb", "tpchgen-cli", "opendp", "smartnoise-sql"])


if __name__ == "__main__":
    main()
