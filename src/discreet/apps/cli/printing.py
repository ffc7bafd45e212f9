"""What a command prints: tables in a terminal, plain text in a pipe, JSON on request."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from discreet.errors import DiscreetError, InvalidArgument


class NotPrinted(DiscreetError):
    """A charged answer could not be printed. The message says where it was saved."""


class Output:
    """The output flags of a command, and the ways to print."""

    def __init__(self) -> None:
        self.json = False
        self.debug = False

    def emit(self, data: object) -> None:
        """Print one JSON value."""
        click.echo(_json_text(data))

    def say(self, text: str = "") -> None:
        """Print one or more lines for people."""
        click.echo("\n".join(printable(line) for line in text.split("\n")))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
        """Print a table. The columns named in `right` hold numbers and are aligned to the right."""
        cells = [[cell_text(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            table = Table(box=box.SIMPLE_HEAD, header_style="bold")
            for head in heads:
                table.add_column(printable(head), justify="right" if head in right else "left", overflow="fold")
            for row in cells:
                table.add_row(*(Text(cell) for cell in row))
            Console().print(table)
            return
        titles = [printable(head) for head in heads]
        widths = [max(len(row[i]) for row in (titles, *cells)) for i in range(len(heads))]
        for row in (titles, *cells):
            aligned = [
                cell.rjust(width) if head in right else cell.ljust(width)
                for head, cell, width in zip(heads, row, widths, strict=True)
            ]
            click.echo("  ".join(aligned).rstrip())

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show a spinner in a terminal while something slow runs, and nothing in a pipe."""
        if self.json or not sys.stderr.isatty():
            yield
            return
        spinner = Console(stderr=True).status(Text(what))
        spinner.start()
        try:
            yield
        finally:
            # A terminal that has gone must not cost a charged answer.
            with suppress(OSError, ValueError):
                spinner.stop()

    def write(self, path: str | Path, text: str) -> None:
        """Write a file that the user named."""
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise InvalidArgument(
                f"FILE must be writable, got {str(path)!r}: {error.strerror or 'it cannot be written'}"
            ) from None

    def print_charged(self, answer: Mapping[str, Any], name: str, show: Callable[[], None]) -> None:
        """Run `show`, which prints an answer that was charged already. Never lose the answer.

        If printing fails (a closed pipe, a full disk, a bug), the answer is saved as JSON in the current folder, or
        written to the standard error if that fails too.
        """
        try:
            show()
        except BaseException as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise NotPrinted(
                f"The answer was charged but could not be printed ({reason}): {_save(answer, name)}"
            ) from error


def _save(answer: Mapping[str, Any], name: str) -> str:
    """Save an answer in a new file that only its owner may read, and say where."""
    text = json.dumps(to_json_value(answer), indent=1, allow_nan=False)
    stem = "discreet-answer-" + re.sub(r"[^\w.-]+", "-", name)
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        path = Path(f"{stem}{suffix}.json")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError:
            break
        return f"it is saved in {path}"
    return f"it could not be saved either, so here it is: {' '.join(text.split())}"


def printable(text: str) -> str:
    """`text` without control characters, so that text from a ledger cannot control the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def print_any_character() -> None:
    """Escape what the terminal's encoding lacks (`ε` in Latin-1) instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def read_text(path: str) -> str:
    """The text of a file that the user named; `-` is the standard input."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidArgument(f"FILE must be a readable text file, got {path!r}: {reason}") from None


def number(value: float | None, digits: int = 5) -> str:
    """A number with a few digits, or a dash for None."""
    return "–" if value is None else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share of 1 as a percentage."""
    return f"{100 * share:.2f}%"


def cell_text(cell: object) -> str:
    """A table cell as text, whatever its type: numbers, dates, decimals, lists, None."""
    value = to_json_value(cell)
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return printable(cell)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(cell, float):  # JSON has no infinities, a table does
        return number(cell)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(cell_text(item) for item in value)
    return printable(str(value))


def to_json_value(value: Any) -> Any:
    """`value` as JSON can hold it: None for infinities, plain numbers for numpy's, text for dates and decimals."""
    if isinstance(value, dict):
        return {str(key): to_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else None
    if value is None or isinstance(value, str | int | bool):
        return value
    # numpy's own dates have a tolist() that may be an integer of nanoseconds; their text is a date.
    if hasattr(value, "tolist") and type(value).__name__ != "datetime64":
        return to_json_value(value.tolist())
    return str(value)


def _json_text(data: object) -> str:
    value = to_json_value(data)
    text = json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return json.dumps(value, indent=1, allow_nan=False)
    return text
