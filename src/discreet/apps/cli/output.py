"""How a command speaks: tables in a terminal, plain text in a pipe, JSON where it was asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from discreet.errors import InvalidArgument

Cell = str | int | float | None


class Output:
    """What a command was told about its output, and the ways to make it."""

    def __init__(self) -> None:
        self.json = False
        self.debug = False

    def emit(self, data: object) -> None:
        """Machines' answer: one JSON value."""
        click.echo(json.dumps(plain(data), ensure_ascii=False, indent=1, allow_nan=False))

    def say(self, text: str = "") -> None:
        """One line, or some, for people."""
        click.echo("\n".join(printable(line) for line in text.split("\n")))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: Sequence[str] = ()) -> None:
        """A table; the columns named in `right` are numbers and end at the same place."""
        cells = [[_shown(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            made = Table(box=box.SIMPLE_HEAD, header_style="bold")
            for head in heads:
                made.add_column(head, justify="right" if head in right else "left", overflow="fold")
            for row in cells:
                made.add_row(*(Text(cell) for cell in row))
            Console().print(made)
            return
        widths = [max(len(row[i]) for row in (heads, *cells)) for i in range(len(heads))]
        for row in ([*heads], *cells):
            aligned = [
                cell.rjust(width) if head in right else cell.ljust(width)
                for head, cell, width in zip(heads, row, widths, strict=True)
            ]
            click.echo("  ".join(aligned).rstrip())

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A sign of life in a terminal while something takes its time; nothing in a pipe."""
        if self.json or not sys.stderr.isatty():
            yield
            return
        with Console(stderr=True).status(Text(what)):
            yield

    def write(self, path: str | Path, text: str) -> None:
        """Write a file that was asked for; a place that cannot be written is a wrong argument."""
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"FILE must be a place to write to, got {str(path)!r}: {error.strerror or 'it cannot be written'}"
            ) from None


def printable(text: str) -> str:
    """`text` without control characters, so that what others wrote into a ledger cannot steer a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def read_text(path: str) -> str:
    """The text of a file that was named; `-` is the standard input."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidArgument(f"FILE must be a text file to read, got {path!r}: {reason}") from None


def number(value: float | None, digits: int = 5) -> str:
    """A number for people: a few digits, a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{100 * share:.2f}%"


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    return printable(number(cell) if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: no infinities, no numpy, text for what has no other form."""
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if value is None or isinstance(value, str | int | bool):
        return value
    return plain(value.item()) if hasattr(value, "item") else str(value)
