"""`discreet count`: a running count of lines as they arrive, charged once."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from discreet import queries
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output
from discreet.apps.cli.shared_options import open_account
from discreet.errors import InvalidArgument
from discreet.mechanisms.continual import Counter, Doubling, RunningRelease, Stream, best_for

# Columns of the drawing, and how often a growing file is looked at, in seconds.
_WIDTH, _PATIENCE = 40, 0.2
# The length of the first epoch of a stream of unknown length.
_FIRST_EPOCH = 64


@click.command(
    "count",
    cls=Command,
    example="""discreet count visits.log --ledger census.ledger --account census --epsilon 0.1 --steps 9 --separator END
    discreet count --ledger census.ledger --account census --epsilon 0.1 --delta 1e-7 --steps 1440 --preview""",
)
@click.argument("data", metavar="[DATA]", default="-")
@click.option("--ledger", required=True, help="The ledger that holds the account.")
@click.option("--account", help="The account to charge. Optional if the ledger has only one dataset.")
@click.option("--epsilon", type=float, required=True, help="ε to spend on the whole stream.")
@click.option("--delta", type=float, help="δ to spend; without it the noise is Laplace.")
@click.option("--steps", type=int, help="The largest number of steps.  [default: unknown, at a larger error]")
@click.option("--every", type=float, help="A step is this many seconds.  [default: 60, without --separator]")
@click.option("--separator", metavar="TEXT", help="Instead of --every: a line with this TEXT ends a step.")
@click.option("--match", metavar="TEXT", help="Count only lines that contain TEXT.")
@click.option("--follow", is_flag=True, help="Wait for more lines at the end of DATA.")
@click.option("--new-lines", is_flag=True, help="Continue with a new DATA; none of its lines was counted before.")
@click.option("--key", default="count", show_default=True, help="A name for the stream. The same name continues it.")
@click.option("--state", metavar="FILE", help="Where to keep the secret state.  [default: discreet-KEY.state]")
@click.option("--purpose", default="a running count", show_default=True, help="Purpose to record in the ledger.")
@click.option("--preview", is_flag=True, help="Show suitable counters and their errors. Spends nothing.")
@with_output
def command(
    output: Output,
    data: str,
    ledger: str,
    account: str | None,
    epsilon: float,
    delta: float | None,
    steps: int | None,
    every: float | None,
    separator: str | None,
    match: str | None,
    follow: bool,
    new_lines: bool,
    key: str,
    state: str | None,
    purpose: str,
    preview: bool,
) -> None:
    """Count the lines of DATA as they arrive, and print the running count with noise after every step.

    DATA is a file, or - for the standard input. A step is a time (--every), or ends at a line that something other than
    the data writes, such as a clock (--separator). A line counts when it has ended. The whole stream is charged once,
    before the first step. If the command is stopped, even by kill -9, the same command shows the last step again and
    continues the stream in the file where it stopped. A pipe, or another file, continues it only with --new-lines: no
    line may be counted twice. The state in FILE holds raw counts and unused noise: it is secret, its mode is 0600, and
    an older copy of it is refused.

    Guarantee: ε-DP, or (ε, δ)-DP, for one line, added or removed, over all steps together, if with --new-lines no line
    was counted before. The number of steps and their times are public.
    """
    if every is not None and separator is not None:
        raise InvalidArgument("--every must not be used with --separator: a step ends by time or by a line")
    seconds = 60.0 if every is None else every
    if not seconds > 0:
        raise InvalidArgument(f"--every must be > 0, got {seconds}: it is the length of a step in seconds")
    _check_label(separator, match)
    charged = open_account(ledger, account)
    counter = _counter(steps, epsilon, delta)
    if preview:
        _show_preview(output, steps, epsilon, delta)
        return
    # Without the letters that would lead out of the folder.
    path = Path(state or f"discreet-{re.sub(r'[^A-Za-z0-9_.-]', '-', key)}.state")
    with _opened(data) as file, charged.stream(counter, path, key=key, purpose=purpose) as stream:
        source = _Source(file, ["time" if separator is None else "separator", separator, match])
        lines = _Lines(file, follow, source.start(stream.note, new_lines))
        if separator is not None:
            counts = _by_separator(lines, separator.encode(), match)
        else:
            counts = _by_time(lines, seconds, match)
        show, before = _Shown(output), stream.taken
        if stream.last is not None:
            show(stream.last)  # a process that was stopped has paid for it and may not have shown it
        while (steps is None or stream.taken < steps) and (step := next(counts, None)) is not None:
            arrived, used = step
            show(stream.step(queries.count(np.ones(arrived, dtype=np.int8)), source.note(used)))
        ended = "" if stream.taken > before else "no step has ended since the last one"
        if steps is not None and stream.taken == steps:
            ended = f"all {steps} steps are taken: more of them take another --key, and pay"
        show.end(ended)


def _counter(steps: int | None, epsilon: float, delta: float | None) -> Counter | Doubling:
    if steps is None:
        return Doubling(Stream(_FIRST_EPOCH), epsilon, delta)
    return best_for(steps, epsilon, delta).counter


def _show_preview(output: Output, steps: int | None, epsilon: float, delta: float | None) -> None:
    choice = best_for(steps or _FIRST_EPOCH, epsilon, delta)
    if output.json:
        output.emit({"choice": str(choice).splitlines()[0], "counters": [vars(row) for row in choice.table]})
        return
    output.say(str(choice).splitlines()[0])
    output.say()
    heads = ("counter", "± (95%), mean", "± (95%), largest", "numbers kept")
    rows = [
        (row.name, f"{1.96 * row.mean_error**0.5:.4g}", f"{1.96 * row.max_error**0.5:.4g}", row.state_size)
        for row in choice.table
    ]
    output.table(heads, rows, right=heads[1:])
    if steps is None:
        output.say(f"\nfor the first {_FIRST_EPOCH} steps; later ones have a larger error, and --steps a smaller one")


def _check_label(*texts: str | None) -> None:
    if any(text is not None and "\n" in text for text in texts):
        raise InvalidArgument("--separator and --match must be part of one line")


@contextlib.contextmanager
def _opened(data: str) -> Iterator[BinaryIO]:
    if data == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(data, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise InvalidArgument(f"DATA must be a file that can be read, got {data!r}: {reason}") from None
    with file:
        yield file


class _Source:
    """What is counted, and how much of it was: a line must not be counted again when a stream continues.

    Attributes:
        how: how steps end and which lines count; a stream ends all its steps in one way.
    """

    def __init__(self, file: BinaryIO, how: list[str | None]) -> None:
        self.how = how
        facts = os.fstat(file.fileno())
        self._size = facts.st_size
        #: A file is known by its place on the disk; a pipe cannot be known again.
        self._identity = [facts.st_dev, facts.st_ino] if stat.S_ISREG(facts.st_mode) else None
        self._file = file

    def start(self, note: Any, new_lines: bool) -> int:
        """Go to the first line that was not counted, and return its offset; refuse where nobody can know it."""
        if note is None:
            return 0
        if note["how"] != self.how:
            raise InvalidArgument(
                f"a stream must end all its steps in one way, got {self.how} after {note['how']}: a new one takes "
                "another --key, and pays"
            )
        if new_lines:
            return 0
        if self._identity is None or self._identity != note["file"] or self._size < note["used"]:
            raise InvalidArgument(
                "DATA must be the file that was counted so far: lines of a pipe or of another file may have been "
                "counted before; with --new-lines you say that none was"
            )
        return self._file.seek(note["used"])

    def note(self, used: int) -> dict[str, Any]:
        """What to remember: all lines before the offset `used` are counted."""
        return {"how": self.how, "file": self._identity, "used": used}


class _Lines:
    """The lines of a file without their ends, each with the offset after it; with `follow` it waits for more.

    A line that has not ended is not counted: its rest would be a second line when the stream continues.
    """

    def __init__(self, file: BinaryIO, follow: bool, start: int) -> None:
        self._file, self._follow, self.start = file, follow, start

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        begun, used = b"", self.start
        while True:
            begun += self._file.readline()
            if begun.endswith(b"\n"):
                used += len(begun)
                yield begun.rstrip(b"\r\n"), used
                begun = b""
            elif self._follow:
                time.sleep(_PATIENCE)
            else:
                return


def _by_separator(lines: _Lines, separator: bytes, match: str | None) -> Iterator[tuple[int, int]]:
    """The number of lines before each separator and the offset after it; lines after the last one are in no step."""
    wanted, arrived = (match or "").encode(), 0
    for line, used in lines:
        if line == separator:
            yield arrived, used
            arrived = 0
        else:
            arrived += wanted in line


def _by_time(lines: _Lines, seconds: float, match: str | None) -> Iterator[tuple[int, int]]:
    """The number of lines that arrive in each interval, up to the end of the file, and the offset after the last."""
    wanted, arrived, ended = (match or "").encode(), [0, lines.start], threading.Event()
    guard = threading.Lock()

    def read() -> None:
        try:
            for line, used in lines:
                with guard:
                    arrived[0] += wanted in line
                    arrived[1] = used
        except ValueError:
            pass  # the file was closed, because the last step was taken
        finally:
            ended.set()

    threading.Thread(target=read, daemon=True).start()
    over = False
    while not over:
        over = ended.wait(seconds)
        with guard:
            now, used = arrived
            arrived[0] = 0
        yield now, used


class _Shown:
    """Prints a line for each step: the count, its 95% band, and both drawn on an axis that grows with them."""

    def __init__(self, output: Output) -> None:
        self._output, self._top, self._printed = output, 16.0, 0

    def __call__(self, release: RunningRelease) -> None:
        low, high = release.interval(0.95)
        if self._output.json:
            row = {"step": release.step, "count": round(release.value, 6), "low": round(low, 6), "high": round(high, 6)}
            click.echo(("[" if not self._printed else ",\n ") + json.dumps(row), nl=False)
        else:
            while self._top < high:
                self._top *= 2
            half = f"± {high - release.value:,.0f}"
            self._output.say(
                f"{release.step:>6}  {release.value:>12,.0f} {half:<10} {self._band(low, release.value, high)}"
            )
        self._printed += 1

    def end(self, reason: str) -> None:
        """Close what was begun, and say why nothing follows, if there is something to say."""
        if self._output.json:
            click.echo("]" if self._printed else "[]")
        elif reason:
            self._output.say(reason)

    def _band(self, low: float, value: float, high: float) -> str:
        columns = [round(min(max(edge, 0.0), self._top) / self._top * _WIDTH) for edge in (low, value, high)]
        band = ["·"] * (_WIDTH + 1)
        band[columns[0] : columns[2] + 1] = ["─"] * (columns[2] - columns[0] + 1)
        band[columns[1]] = "●"
        return f"{''.join(band)} {self._top:,.0f}"
