"""Sixty everyday questions in SQL: how many are answered as typed, and with which relative error at ε = 1 per person.

python -m benchmarks.questions [--quick] [--peers] [--json FILE]

TPC-H needs `tpchgen-cli` (the bench extra). With `--peers`, OpenDP and smartnoise-sql are installed, each into an
environment of its own in a cache folder: they need other versions of Polars and pandas. Later runs find them there.
Questions that they cannot read as typed are rewritten for them: they get one flat table, with joins, expressions and
sub-queries computed as a data owner would in a view, and with the same bounds, limits and keys.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

import discreet as dp
from benchmarks._environments import PEERS, label, python_of
from benchmarks._table import Row, arguments, report
from benchmarks.questions import _adult, _tpch, _visits
from benchmarks.questions._asking import Asking, Database, Outcome, connect
from benchmarks.questions._peers import Peer, Prepared
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


def main() -> None:
    """Ask all questions, print a row for each and the totals, and write them as JSON."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--peers", action="store_true", help="install the other libraries, each into an environment")
    args = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared = Prepared(folder)
        ready = any(python_of(peer, install=False) is not None for peer in PEERS)
        for database, questions in databases(folder, args.quick):
            asking = Asking(folder, database)
            outcomes |= {asked.name: asking.outcome(asked) for asked in questions}
            if ready or args.peers:
                prepared.add(database, questions)
        theirs = {peer: prepared.ask(peer, args.peers) for peer in reversed(PEERS)}
    rows = [row for name in outcomes for row in _compared(name, outcomes[name], theirs)]
    rows += _totals(outcomes, theirs)
    report(args, "questions", rows, ["duckdb", "tpchgen-cli"])


def _compared(name: str, ours: Outcome, theirs: Mapping[str, Peer]) -> Iterator[Row]:
    for peer, answered in theirs.items():
        peer_outcome = answered.outcomes.get(name, Outcome(None, answered.note))
        note = peer_outcome.note or f"refused: {peer_outcome.refusal}"
        if answered.note:
            note = answered.note
        if ours.error is None:
            note = f"ours refused: {ours.refusal}; theirs {note}"
        yield Row(
            name,
            "relative error",
            1.0 if ours.error is None else ours.error,
            label(peer),
            peer_outcome.error,
            "lower",
            note,
        )


def _totals(ours: Mapping[str, Outcome], theirs: Mapping[str, Peer]) -> Iterator[Row]:
    """How many are answered as typed, how many at all, and how many of these are useful."""

    def count(outcomes: Mapping[str, Outcome], test: Callable[[Outcome, float], bool]) -> float:
        return float(sum(outcome.error is not None and test(outcome, outcome.error) for outcome in outcomes.values()))

    tests: dict[str, Callable[[Outcome, float], bool]] = {
        "answered as typed": lambda outcome, _: outcome.typed,
        "answered as typed or rewritten": lambda outcome, _: True,
        f"answers within {_USEFUL:.0%}": lambda _, error: error <= _USEFUL,
    }
    errors = [outcome.error for outcome in ours.values() if outcome.error is not None]
    own = f"{len(ours)} questions; our median error {statistics.median(errors):.3g}"
    for metric, test in tests.items():
        for peer, answered in theirs.items():
            number = None if answered.note else count(answered.outcomes, test)
            yield Row("all", metric, count(ours, test), label(peer), number, "higher", answered.note or own)


if __name__ == "__main__":
    main()
