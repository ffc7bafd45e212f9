"""How fast a budget is spent durably, compared with bare commits to the same database: `python -m benchmarks.ledger`.

A bare commit is one INSERT in a transaction of its own: a row as long as a ledger entry, in a table with only a counter
as its key, through the same driver, with the same settings, flushed to the same disk. (A row of one small number is
measured as well.) A spend prices an event, checks the budget, writes an entry and the account's totals, and flushes
them to disk. Both alternate within one run, and the table shows the median of the rounds. With eight processes, all
spend from one account, so spends wait for each other; bare commits are measured both for rows of their own and for one
row that all processes change, which is what one account asks of a database.
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
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path

import discreet as dp
from benchmarks._table import Row, arguments, report
from discreet.events import Event
from discreet.ledger import charging
from discreet.ledger.charging import Request
from discreet.ledger.stores.base import Store, Transaction, no_step
from discreet.ledger.stores.registry import open_store

EVENT = dp.events.Gaussian(1e5)
BUDGET = dp.ApproxDP(3.0, 1e-6)
PROCESSES = 8

Worker = Callable[[], Callable[[], object]]


@contextlib.contextmanager
def opened_store(location: str) -> Iterator[Store]:
    """The store of a ledger that exists."""
    store = open_store(location, create=False, timeout=30.0, on_step=no_step)
    try:
        yield store
    finally:
        store.close()


def fill(location: str, name: str, rows: int) -> None:
    """Make an account with `rows` entries, many in each transaction."""
    with dp.Ledger(location) as ledger:
        path = (ledger.account(name, budget=BUDGET).spend(EVENT, purpose="benchmark").terms,)
    request = Request("spend", EVENT, "benchmark", None)
    time_text = datetime.now(UTC).isoformat(timespec="microseconds")
    with opened_store(location) as store:
        for start in range(1, rows, 500):
            count = min(500, rows - start)

            def work(transaction: Transaction, count: int = count) -> None:
                for _ in range(count):
                    charging.charge(transaction, path, request, time_text, no_step)

            store.write(work)


def spending(location: str, name: str) -> Worker:
    """A process that spends from an account."""

    def start() -> Callable[[], object]:
        account = dp.Ledger(location).account(name)
        return lambda: account.spend(EVENT, purpose="benchmark")

    return start


def entry_length(location: str, name: str) -> int:
    """How many characters the longest entry of an account has."""

    def work(transaction: Transaction) -> int:
        lengths = "LENGTH(account) + LENGTH(body) + LENGTH(hash)"
        [(length,)] = transaction.rows(f"SELECT MAX({lengths}) FROM discreet_entry WHERE account = ?", name)
        return int(length)

    with opened_store(location) as store:
        return store.read(work)


def bare_sqlite(path: Path, length: int, *, shared: bool = False) -> Worker:
    """A process that commits one row to a file with the same settings."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS bare (id INTEGER PRIMARY KEY, x INTEGER, body TEXT)")
        connection.execute("INSERT OR IGNORE INTO bare VALUES (1, 0, ?)", ("x" * length,))
        connection.commit()

    def start() -> Callable[[], object]:
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        connection.execute("PRAGMA synchronous = FULL")
        if shared:
            return lambda: connection.execute("UPDATE bare SET x = x + 1 WHERE id = 1")
        if not length:
            return lambda: connection.execute("INSERT INTO bare (x) VALUES (1)")
        body = "x" * length
        return lambda: connection.execute("INSERT INTO bare (x, body) VALUES (1, ?)", (body,))

    return start


def bare_postgres(url: str, length: int, *, shared: bool = False) -> Worker:
    """A process that commits one row to the same server."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bare (id SERIAL PRIMARY KEY, x INTEGER, body TEXT)")
        connection.execute("INSERT INTO bare VALUES (0, 0, %s) ON CONFLICT DO NOTHING", ("x" * length,))

    def start() -> Callable[[], object]:
        connection = psycopg.connect(url, autocommit=True)
        if shared:
            return lambda: connection.execute("UPDATE bare SET x = x + 1 WHERE id = 0")
        if not length:
            return lambda: connection.execute("INSERT INTO bare (x) VALUES (1)")
        body = "x" * length
        return lambda: connection.execute("INSERT INTO bare (x, body) VALUES (1, %s)", (body,))

    return start


def rate_of(action: Callable[[], object], seconds: float) -> float:
    """How many times a second an action runs, after ten runs to warm up."""
    for _ in range(10):
        action()
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() - begin < seconds:
        action()
        count += 1
    return count / (time.perf_counter() - begin)


def in_turn(workers: list[Worker], seconds: float, rounds: int) -> list[float]:
    """The median rate of each; they take turns, so that a slow moment of the disk affects all of them."""
    actions = [worker() for worker in workers]
    rates = [[rate_of(action, seconds) for action in actions] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*rates, strict=True)]


def together(worker: Worker, seconds: float) -> float:
    """The total rate of all processes, over one span of time that they share."""
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(PROCESSES), context.Queue()

    def run() -> None:
        action = worker()
        for _ in range(150):  # warm-up, until the database's log on disk has grown to its lasting size
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


def compare(kind: str, location: str, bare: Callable[..., Worker], sizes: tuple[int, int], quick: bool) -> list[Row]:
    """All table rows for one database; `bare` makes a process that commits rows of a given length."""
    few, many = sizes
    seconds, rounds = (0.2, 6) if quick else (0.3, 25)  # short turns, so that disturbances affect all alike
    fill(location, "few", few)
    fill(location, "many", many)
    length = entry_length(location, "many")
    own, shared, small = bare(length), bare(length, shared=True), bare(0)
    spend = spending(location, "many")
    rate_own, rate_small, rate_few, rate_many = in_turn([own, small, spending(location, "few"), spend], seconds, rounds)
    totals = [[together(worker, 0.6) for worker in (own, shared, spend)] for _ in range(1 if quick else 7)]
    all_own, all_shared, all_spend = (statistics.median(column) for column in zip(*totals, strict=True))
    per_second = "durable spends per second"
    single, eight = f"{kind}, 1 process, {many:.0e} rows", f"{kind}, 8 processes, {many:.0e} rows"
    commits = f"bare {kind} commits"
    return [
        Row(single, per_second, rate_many, commits, rate_own, "higher"),
        Row(single, per_second, rate_many, f"{commits}, one small number", rate_small, "higher"),
        Row(eight, per_second, all_spend, f"{commits}, rows of their own", all_own, "higher"),
        Row(eight, per_second, all_spend, f"{commits}, one row", all_shared, "higher"),
        Row(
            f"{kind}, one spend at {many:.0e} rows",
            "seconds",
            1 / rate_many,
            f"one spend at {few:.0e} rows",
            1 / rate_few,
            "lower",
        ),
        *open_and_verify(kind, location, many),
    ]


def open_and_verify(kind: str, location: str, rows: int) -> Iterator[Row]:
    """Opening and verifying, compared with reading the same rows and hashing them once."""
    begin = time.perf_counter()
    with dp.Ledger(location) as ledger:
        ledger.account("many").remaining()
        opened = time.perf_counter() - begin
        begin = time.perf_counter()
        verification = ledger.verify()
        verified = time.perf_counter() - begin
    if not verification:
        raise RuntimeError(str(verification))

    with opened_store(location) as store:

        def read(transaction: Transaction) -> None:
            for (body,) in transaction.rows("SELECT body FROM discreet_entry ORDER BY account, sequence"):
                hashlib.sha256(body.encode()).hexdigest()

        begin = time.perf_counter()
        store.read(read)
        hashed = time.perf_counter() - begin
    note = "no peer keeps a ledger"
    yield Row(f"{kind}, open a ledger of {rows:.0e} rows", "seconds", opened, "none", None, "lower", note)
    yield Row(
        f"{kind}, verify {verification.entries} rows", "seconds", verified, "read and hash the rows", hashed, "lower"
    )


def mixed_events() -> list[Event]:
    """Three hundred different queries, selections and trainings, as small as 1e5 of them in one budget must be."""
    queries: list[Event] = [dp.events.DiscreteLaplace(1, Fraction(100_000 + 700 * k)) for k in range(150)]
    queries += [dp.events.Laplace(2e5 + 1e3 * k) for k in range(75)]
    queries += [dp.events.DiscreteGaussian(1, Fraction((100 + k) ** 2 * 10_000)) for k in range(25)]
    queries += [dp.events.Gaussian(2e4 + 10.0 * k) for k in range(25)]
    queries += [dp.events.Exponential(Fraction(1, 200_000 + 1000 * k)) for k in range(24)]
    step = dp.events.PoissonSampled(0.001, dp.events.Gaussian(20.0))
    return [*queries, dp.events.Repeated(step, 10)]


def fill_mixed(location: str, name: str, rows: int) -> None:
    """Make an account with `rows` entries of mixed events, many in each transaction."""
    events = mixed_events()
    with dp.Ledger(location) as ledger:
        path = (ledger.account(name, budget=BUDGET).spend(EVENT, purpose="benchmark").terms,)
    requests = [Request("spend", event, f"question {k}", None) for k, event in enumerate(events)]
    time_text = datetime.now(UTC).isoformat(timespec="microseconds")
    with opened_store(location) as store:
        for start in range(1, rows, 500):
            these = [requests[k % len(requests)] for k in range(start, min(rows, start + 500))]

            def work(transaction: Transaction, these: list[Request] = these) -> None:
                for request in these:
                    charging.charge(transaction, path, request, time_text, no_step)

            store.write(work)


def statements(rows: int) -> list[Row]:
    """The first statement of an account in a process, the next ones, and a list of all accounts."""
    folder = Path(tempfile.mkdtemp(prefix="discreet-ledger-"))
    try:
        location = str(folder / "mixed.ledger")
        fill_mixed(location, "mixed", rows)
        with dp.Ledger(location, create=False) as ledger:
            account = ledger.account("mixed")
            seconds = []
            for spends in (0, 0, 1):
                for _ in range(spends):
                    account.spend(EVENT, purpose="new")
                begin = time.perf_counter()
                lines = len(account.statement().lines)
                seconds.append(time.perf_counter() - begin)
            if lines != rows + 1:
                raise RuntimeError(f"a statement of {rows + 1} charges shows {lines}")
            begin = time.perf_counter()
            for each in ledger.accounts():
                each.summary()
            listed = time.perf_counter() - begin
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    note = "no peer keeps a ledger"
    cases = ("first statement", "statement again", "statement after one more spend")
    return [
        Row(f"SQLite, {case}, {rows:.0e} mixed rows", "seconds", spent, "none", None, "lower", note)
        for case, spent in (*zip(cases, seconds, strict=True), ("list of accounts", listed))
    ]


def postgres_rows(sizes: tuple[int, int], quick: bool) -> list[Row]:
    """The table rows for PostgreSQL, or one that says why there are none."""
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
        return compare("PostgreSQL", url, partial(bare_postgres, url), sizes, quick)
    finally:
        server.remove()


def main() -> None:
    args = arguments(__doc__ or "").parse_args()
    sizes = (100, 5_000) if args.quick else (100, 100_000)
    # On a real disk, where ledgers would be, not in /dev/shm.
    folder = Path(tempfile.mkdtemp(prefix="discreet-ledger-"))
    try:
        bare = partial(bare_sqlite, folder / "bare.sqlite")
        rows = compare("SQLite", str(folder / "x.ledger"), bare, sizes, args.quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows += statements(sizes[1])
    rows += postgres_rows(sizes, args.quick)
    report(args, "ledger", rows, ["psycopg"])


if __name__ == "__main__":
    main()
