"""How many questions a server answers, beside the same questions in one process: `python -m benchmarks.server`.

Thirty-two clients ask one server, which is one process, over HTTP and with a token: who asks is checked, the charge is
made durable, the query runs, noise is added, and the answer is stored before it is sent. In process the same questions
are asked one after another with `Private.sql`, charged to a share of the same kind of ledger. Clients and server share
the machine's cores. Answers leave at steps of 50 ms, as by default, so a single client waits for the next step; with
many clients that hides behind the work.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import discreet as dp
from benchmarks._table import Row, arguments, report

CLIENTS = 32
EPSILON = 1e-3
CONFIG = """
[accounts.census]
epsilon = 1e6
[accounts.census.shares]
ann = { epsilon = 1e6 }
[datasets.people]
source = "people.parquet"
[datasets.people.bounds]
hours = [0, 100]
[users.ann]
role = "analyst"
[limits]
requests_per_minute = 10000000
"""
QUESTIONS: tuple[tuple[str, dict[str, list[str]] | None], ...] = (
    ("SELECT COUNT(*) AS n FROM people WHERE age >= 40", None),
    ("SELECT AVG(hours) AS hours FROM people", None),
    ("SELECT sex, COUNT(*) AS n, AVG(hours) AS hours FROM people GROUP BY sex", {"sex": ["Female", "Male"]}),
)
_PROGRAM = "from discreet.apps.cli import main; main()"


@contextmanager
def running(folder: Path) -> Iterator[tuple[str, str, int]]:
    """A server in a process of its own: its address, a token, and the process's number."""
    (folder / "curator.toml").write_text(CONFIG)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", _PROGRAM, "serve", str(folder / "curator.toml"), "--port", str(port), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.count("{") or text.count("{") > text.count("}"):
            text += process.stdout.readline()
            assert process.poll() is None, "the server did not start"
        facts = json.loads(text)
        for _ in range(600):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        try:
            yield facts["address"], facts["tokens"]["ann"]["token"], process.pid
        finally:
            process.terminate()


def in_process(folder: str, seconds: float) -> float:
    """Questions per second in one process."""
    with dp.Ledger(Path(folder) / "plain.ledger") as ledger:
        account = ledger.account("census", budget=dp.PureDP(1e6)).allot("ann", dp.PureDP(1e6))
        people = dp.Private(Path(folder) / "people.parquet", account=account, bounds={"hours": (0, 100)})
        for sql, keys in QUESTIONS:
            people.sql(sql, epsilon=EPSILON, keys=keys)
        began, asked = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            sql, keys = QUESTIONS[asked % len(QUESTIONS)]
            people.sql(sql, epsilon=EPSILON, keys=keys)
            asked += 1
        return asked / (time.perf_counter() - began)


def in_own_process(folder: str, seconds: float) -> float:
    """The same in a process that has done nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(in_process, (folder, seconds))


def under_load(
    address: str, token: str, clients: int, *, seconds: float = 0.0, most: int = 0
) -> tuple[float, list[float]]:
    """Questions per second of all clients together, and how long each question took."""
    url = urlsplit(address)
    assert url.hostname is not None
    bodies = [json.dumps({"sql": sql, "keys": keys, "epsilon": EPSILON}) for sql, keys in QUESTIONS]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    times: list[float] = []
    numbers = count()
    began = time.perf_counter()

    def ask() -> None:
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        while True:
            number = next(numbers)
            if (most and number >= most) or (seconds and time.perf_counter() - began > seconds):
                break
            sent = time.perf_counter()
            connection.request("POST", "/v1/datasets/people/ask", bodies[number % len(bodies)], headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer
            times.append(time.perf_counter() - sent)
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(times) / (time.perf_counter() - began), times


def memory(process: int) -> float:
    """The resident memory of a process, in MB; not a number where it cannot be read."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Measure, print, and write what was asked for."""
    options = arguments(__doc__ or "").parse_args()
    rounds, seconds, requests = (1, 4.0, 300) if options.quick else (3, 15.0, 10_000)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dp.datasets.write_adult(folder / "people.parquet")
        with running(folder) as (address, token, process):
            under_load(address, token, CLIENTS, most=2 * CLIENTS)  # every thread opens the data once
            rates, plain, times = [], [], []
            for _ in range(rounds):
                plain.append(in_own_process(name, seconds))
                rate, taken = under_load(address, token, CLIENTS, seconds=seconds)
                rates.append(rate)
                times += taken
            alone = statistics.median(under_load(address, token, 1, most=20)[1])
            before = memory(process)
            under_load(address, token, CLIENTS, most=requests)
            after = memory(process)
    rate, reference = statistics.median(rates), statistics.median(plain)
    case = f"{CLIENTS} clients"
    late = sorted(times)[int(0.99 * len(times))]
    rows.append(Row(case, "questions per second", rate, "in process", reference, "higher"))
    rows.append(Row(case, "seconds, 99% of questions", late, "in process", None, "lower", "one at a time there"))
    rows.append(
        Row("1 client", "seconds, median", alone, "in process", 1 / reference, "lower", "answers leave at 50 ms")
    )
    rows.append(Row(f"{requests:,} requests", "MB resident afterwards", after, "before", before, "lower"))
    report(options, "server", rows, ["starlette", "uvicorn", "duckdb"])


if __name__ == "__main__":
    main()
