"""`discreet report`: an account as one HTML page, and as JSON."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.printing import Output, read_text
from discreet.apps.cli.shared_options import account_of, account_options, open_account
from discreet.errors import InvalidArgument, MissingExtra


@click.command(
    "report",
    cls=Command,
    example="discreet report census.ledger --account census --out report.html --result hours.json",
)
@click.argument("ledger", metavar="LEDGER")
@options(account_options)
@click.option("--out", metavar="FILE", default="report.html", show_default=True, help="Where to write the page.")
@click.option("--title", help="Title of the page.  [default: the account's name]")
@click.option("--result", multiple=True, metavar="FILE", help="Output of `discreet query --json` to show. Repeatable.")
@with_output
def command(
    output: Output,
    ledger: str,
    named: str | None,
    account: str | None,
    out: str,
    title: str | None,
    result: tuple[str, ...],
) -> None:
    """Write ACCOUNT as one HTML page: results, budget, promise, and what an attacker can do.

    The page loads nothing from the network. With --json its content is also printed.
    """
    try:
        from discreet.apps.report import collect, render
    except ModuleNotFoundError as missing:
        raise MissingExtra("reports need Jinja and matplotlib: pip install 'discreet[report]'") from missing
    answers = [answer_of(path) for path in result]
    opened = open_account(ledger, account_of(named, account))
    # A server's URL may contain a password.
    location = "LEDGER" if "://" in ledger else shlex.quote(ledger)
    commands = [
        f"discreet ledger verify {location}",
        f"discreet report {location} --account {shlex.quote(opened.name)}",
    ]
    with output.working("Drawing"):
        report = collect(opened, title=title, answers=answers, commands=commands)
        output.write(out, render(report))
    if output.json:
        output.emit(json.loads(report.to_json()))
    else:
        output.say(f"wrote {out}")


def answer_of(path: str) -> Any:
    """An answer for the report from the output of `discreet query --json`."""
    from discreet.apps.report import ReleasedTable
    from discreet.apps.report.titles import result_title

    try:
        content = json.loads(read_text(path))
        rows = tuple(dict(row) for row in content["rows"])
        group_columns = int(content["group_columns"])
        # Discovered keys may leave no row at all.
        if rows and (any(row.keys() != rows[0].keys() for row in rows) or not 0 <= group_columns <= len(rows[0])):
            raise ValueError("rows of different columns")
        return ReleasedTable(
            # Files of version 0.1 have no purpose.
            title=result_title(str(content.get("purpose") or ""), tuple(rows[0]) if rows else (), group_columns),
            rows=rows,
            group_columns=group_columns,
            cost=f"Cost: {content['cost']}",
            sql=str(content["sql"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise InvalidArgument(f"--result must be the output of discreet query --json, got {path!r}") from None
