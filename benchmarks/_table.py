"""The output of every benchmark: a table of our numbers against theirs, from one run, with the ratio."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import discreet


@dataclass(frozen=True)
class Row:
    """One comparison. `theirs` is None if the reference could not run, and `note` says why."""

    case: str
    metric: str
    ours: float
    reference: str
    theirs: float | None
    better: Literal["higher", "lower"]
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over theirs."""
        return None if not self.theirs else self.ours / self.theirs


def arguments(description: str) -> argparse.ArgumentParser:
    """The arguments that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="the same rows at smaller sizes, in 45 seconds")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows to FILE")
    return parser


#: Seconds since some instant: of the clock on the wall, or of the processor's work for this process.
Clock = Callable[[], float]


def median_seconds(function: Callable[[], object], repeats: int, clock: Clock = time.perf_counter) -> float:
    """The median time of `repeats` calls, after a warm-up call."""
    function()
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return statistics.median(times)


def in_turn(
    ours: Callable[[], object], theirs: Callable[[], object], repeats: int, clock: Clock = time.perf_counter
) -> tuple[float, float]:
    """The median times of both after one warm-up call each, measured in turn: a busy machine slows both."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (ours, theirs):
        call()
    for _ in range(repeats):
        for call, seconds in zip((ours, theirs), times, strict=True):
            start = clock()
            call()
            seconds.append(clock() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows as an aligned table."""
    heads = ("case", "metric", "ours", "reference", "theirs", "ratio", "better", "note")
    cells = [
        (r.case, r.metric, _short(r.ours), r.reference, _short(r.theirs), _short(r.ratio), r.better, r.note)
        for r in rows
    ]
    widths = [max(len(row[i]) for row in (heads, *cells)) for i in range(len(heads))]
    for row in (heads, tuple("-" * width for width in widths), *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def write_json(path: Path, area: str, rows: Sequence[Row], packages: Sequence[str], device: str = "") -> None:
    """Write the rows as JSON, with the machine (and the device beside it) and the versions."""
    machine = (device, _processor(), platform.system(), f"Python {platform.python_version()}")
    content = {
        "area": area,
        "machine": ", ".join(part for part in machine if part),
        "date": time.strftime("%Y-%m-%d"),
        "versions": {"discreet": discreet.__version__, **{name: _version(name) for name in packages}},
        "rows": [{key: value for key, value in {**asdict(r), "ratio": r.ratio}.items() if value != ""} for r in rows],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def report(args: argparse.Namespace, area: str, rows: Sequence[Row], packages: Sequence[str], device: str = "") -> None:
    """Print the table, and write it to the file of `--json` if given."""
    print_table(rows)
    if args.json:
        write_json(args.json, area, rows, packages, device)


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
