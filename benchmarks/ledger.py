"""How fast a budget is spent durably, beside bare commits of the same database: `python -m benchmarks.ledger`.

A bare commit writes one small row and forces it to disk. A spend prices an event, checks the budget, writes an entry
and the account's totals, and forces them to disk. Both run on the same disk, in turn, in one run. With eight processes
all spend from one account, so spends wait for each other; bare commits are measured both for rows of their own and for
one row that all of them change, which is what one account asks of a database.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import discreet as dp
from benchmarks._table import Row, arguments, report
from discreet.ledger import charging
from discreet.ledger.charging import Request

EVENT = dp.events.Gaussian(1e5)
BUDGET = dp.ApproxDP(3.0, 1e-6)
PROCESSES = 8

Worker = Callable[[], Callable[[], object]]


def fill(location: str, name: str, rows: int) -> None:
    """An account with `rows` entries, many to a transaction."""
    with dp.Ledger(location) as ledger:
        account = ledger.account(name, budget=BUDGET)
        request = Request("spend", EVENT, "benchmark", None)
        for start in range(0, rows, 500):
            count = min(500, rows - start)

            def work(transaction: Any, count: int = count) -> None:
                for _ in range(count):
                    charging.charge(transaction, account._path, request, ledger._write_time(), ledger._on_step)

            ledger._store.write(work)


def spending(location: str, name: str) -> Worker:
    """A process that spends from an account."""

    def start() -> Callable[[], object]:
        account = dp.Ledger(location).account(name)
        return lambda: account.spend(EVENT, purpose="benchmark")

    return start


def bare_sqlite(path: Path, *, shared: bool) -> Worker:
    """A process that commits one small row to a file with the same settings."""
    with contextlib.closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, x INTEGER)")
        made.execute("INSERT OR IGNORE INTO bare VALUES (1, 0)")
        made.commit()

    def start() -> Callable[[], object]:
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous = FULL")
        change = "UPDATE bare SET x = x + 1 WHERE id = 1" if shared else "INSERT INTO bare (x) VALUES (1)"

        def commit() -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(change)
            connection.execute("COMMIT")

        return commit

    return start


def bare_postgres(url: str, *, shared: bool) -> Worker:
    """A process that commits one small row to the same server."""
    import psycopg

    with psycopg.connect(url) as made:
        made.execute("CREATE TABLE IF NOT EXISTS bare (id SERIAL PRIMARY KEY, x INTEGER)")
        made.execute("INSERT INTO bare VALUES (0, 0) ON CONFLICT DO NOTHING")

    def start() -> Callable[[], object]:
        connection = psycopg.connect(url, autocommit=True)
        change = "UPDATE bare SET x = x + 1 WHERE id = 0" if shared else "INSERT INTO bare (x) VALUES (1)"

        def commit() -> None:
            connection.execute("BEGIN")
            connection.execute(change)
            connection.execute("COMMIT")

        return commit

    return start


def counted(action: Callable[[], object], seconds: float) -> float:
    """How often an action is done in a second."""
    action()
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() - begin < seconds:
        action()
        count += 1
    return count / (time.perf_counter() - begin)


def in_turn(workers: list[Worker], seconds: float, rounds: int) -> list[float]:
    """The median rate of each, measured one after the other so that a slow moment of the disk meets all of them."""
    actions = [worker() for worker in workers]
    rates = [[counted(action, seconds) for action in actions] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*rates, strict=True)]


def together(worker: Worker, seconds: float) -> float:
    """The rate of all processes at once: what they finished within one and the same span of time."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(PROCESSES), context.Queue()

    def run() -> None:
        action = worker()
        action()
        barrier.wait()
        deadline, done = time.perf_counter() + seconds, 0
        while True:
            action()
            if time.perf_counter() > deadline:
                break
            done += 1
        results.put(done)

    processes = [context.Process(target=run) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    total: int = sum(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    return total / seconds


def compare(
    kind: str, location: str, bare: Worker, bare_shared: Worker, sizes: tuple[int, int], quick: bool
) -> list[Row]:
    """All rows of one database."""
    few, many = sizes
    seconds, rounds = (0.4, 3) if quick else (1.5, 5)
    fill(location, "few", few)
    fill(location, "many", many)
    rate_bare, rate_few, rate_many = in_turn(
        [bare, spending(location, "few"), spending(location, "many")], seconds, rounds
    )
    all_own, all_shared = together(bare, seconds), together(bare_shared, seconds)
    all_spend = together(spending(location, "many"), seconds)
    per_second = "durable spends per second"
    at = f"{many:.0e} rows"
    return [
        Row(f"{kind}, 1 process, {at}", per_second, rate_many, f"bare {kind} commits", rate_bare, "higher"),
        Row(
            f"{kind}, 8 processes, {at}",
            per_second,
            all_spend,
            f"bare {kind} commits, rows of their own",
            all_own,
            "higher",
        ),
        Row(f"{kind}, 8 processes, {at}", per_second, all_spend, f"bare {kind} commits, one row", all_shared, "higher"),
        Row(
            f"{kind}, one spend at {at}",
            "seconds",
            1 / rate_many,
            f"one spend at {few:.0e} rows",
            1 / rate_few,
            "lower",
        ),
        *whole(kind, location, many),
    ]


def whole(kind: str, location: str, rows: int) -> Iterator[Row]:
    """Opening and verifying, beside reading the same rows and hashing them once."""
    begin = time.perf_counter()
    with dp.Ledger(location) as ledger:
        ledger.account("many").remaining()
        opened = time.perf_counter() - begin
        begin = time.perf_counter()
        found = ledger.verify()
        verified = time.perf_counter() - begin
        if not found:
            raise RuntimeError(str(found))

        def read(transaction: Any) -> None:
            for (body,) in transaction.rows("SELECT body FROM discreet_entry ORDER BY account, sequence"):
                hashlib.sha256(body.encode()).hexdigest()

        begin = time.perf_counter()
        ledger._store.read(read)
        hashed = time.perf_counter() - begin
    note = "no peer keeps a ledger"
    yield Row(f"{kind}, open a ledger of {rows:.0e} rows", "seconds", opened, "none", None, "lower", note)
    yield Row(f"{kind}, verify {found.entries} rows", "seconds", verified, "read and hash the rows", hashed, "lower")


def postgres_rows(sizes: tuple[int, int], quick: bool) -> list[Row]:
    """The rows of PostgreSQL, or why there are none."""
    case = "PostgreSQL, 1 process"
    try:
        import psycopg  # noqa: F401

        from tests.ledger.server import Server, programs
    except ImportError as error:
        return [Row(case, "durable spends per second", 0.0, "bare commits", None, "higher", f"not measured: {error}")]
    if programs() is None:
        note = "not measured: PostgreSQL is not installed"
        return [Row(case, "durable spends per second", 0.0, "bare commits", None, "higher", note)]
    server = Server()
    try:
        url = server.url()
        bare = bare_postgres(url, shared=False)
        return compare("PostgreSQL", url, bare, bare_postgres(url, shared=True), sizes, quick)
    finally:
        server.remove()


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    sizes = (100, 5_000) if args.quick else (100, 100_000)
    # On the disk that ledgers would be on, not on a disk of memory.
    folder = Path(tempfile.mkdtemp(prefix="discreet-ledger-"))
    try:
        path = folder / "bare.sqlite"
        bare, shared = bare_sqlite(path, shared=False), bare_sqlite(path, shared=True)
        rows = compare("SQLite", str(folder / "x.ledger"), bare, shared, sizes, args.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows += postgres_rows(sizes, args.quick)
    report(args, "ledger", rows, ["psycopg"])


if __name__ == "__main__":
    main()
