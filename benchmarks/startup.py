"""How soon a private training runs at full speed: `python -m benchmarks.startup`.

Each training is a process of its own. The first one of a kind finds no compiled code on disk; the second one, "again",
finds what the first one left there. The clock starts when the model and a batch are on the device. Ours runs
uncompiled at first and compiles in the background; plain PyTorch compiles in its first step. Full speed is reached when
a step, and the median over the two seconds that it begins, takes at most a tenth longer than at the end of the run.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks._table import Row, arguments, report
from benchmarks.training import cases, device_name

#: A model counts as at full speed if steps take at most this much longer than at the end.
_SLOWER = 1.1
#: The median over this many seconds, and at least this many steps, tells how long steps take at a time. Single steps
#: are disturbed by other programs.
_WINDOW_SECONDS, _FEWEST = 2.0, 9
_ROOT = Path(__file__).parent.parent


def full_speed(ends: list[float]) -> float:
    """The seconds until steps take at most a tenth longer than at the end of the run, from the times of all steps."""
    taken = [end - start for start, end in itertools.pairwise(ends)]
    limit = _SLOWER * statistics.median(taken[-max(_FEWEST, len(taken) // 5) :])
    for first, start in enumerate(ends[:-_FEWEST]):
        last = max(first + _FEWEST, bisect.bisect(ends, start + _WINDOW_SECONDS))
        if max(taken[first], statistics.median(taken[first:last])) <= limit:
            return start
    return ends[-1]


def run(name: str, device: str, kind: str, seconds: float, quick: bool, cache: Path) -> tuple[float, float]:
    """The seconds until the first step is done, and until full speed."""
    words = [name, device, kind, str(seconds), "quick" if quick else "full"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._startup_run", *words],
        cwd=_ROOT,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    ends = json.loads(done.stdout.splitlines()[-1])
    return ends[0], full_speed(ends)


def compare(name: str, words: str, device: str, seconds: float, quick: bool, alone: bool) -> list[Row]:
    """The rows of one case: twice ours and, unless ours runs alone, twice plain PyTorch compiled."""
    times: dict[tuple[str, int], tuple[float, float]] = {}
    for kind in ("ours",) if alone else ("ours", "compiled"):
        # The compiler's own processes may still write there when a training has ended.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for turn in (0, 1):
                times[kind, turn] = run(name, device, kind, seconds, quick, Path(folder))
    rows = []
    for turn, when in enumerate(("", ", again")):
        for index, metric in enumerate(("seconds to the end of the first step", "seconds to full speed")):
            theirs = None if alone else times["compiled", turn][index]
            note = "not run" if alone else ""
            ours = times["ours", turn][index]
            rows.append(Row(words, metric + when, ours, "plain PyTorch, compiled", theirs, "lower", note))
    return rows


def main() -> None:
    """Run the cases and print the table."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cases", default="", help="names separated by commas, as for benchmarks.training")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long each training runs")
    parser.add_argument("--alone", action="store_true", help="skip plain PyTorch")
    args = parser.parse_args()
    available = {case.name: case.words for case in cases(args.device == "cuda", args.quick)}
    chosen = [name for name in args.cases.split(",") if name] or (["mlp"] if args.quick else list(available))
    if unknown := set(chosen) - available.keys():
        parser.error(f"--cases must be among {', '.join(available)}, got {', '.join(sorted(unknown))}")
    seconds = 3.0 if args.quick else args.seconds
    rows: list[Row] = []
    for name in chosen:
        rows += compare(name, available[name], args.device, seconds, args.quick, args.alone)
    report(args, "startup", rows, ("torch",), device_name(args.device))


if __name__ == "__main__":
    main()
