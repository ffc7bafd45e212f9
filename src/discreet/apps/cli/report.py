"""`discreet report`: an account as one HTML page, and as JSON."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from discreet.apps.cli.command import Command, account_of, account_options, open_account, options, with_output
from discreet.apps.cli.output import Output, read_text
from discreet.errors import InvalidArgument, MissingExtra


@click.command(
    "report",
    cls=Command,
    example="discreet report census.ledger --account census --out report.html --result hours.json",
)
@click.argument("ledger", metavar="LEDGER")
@options(account_options)
@click.option("--out", metavar="FILE", default="report.html", show_default=True, help="Where the page goes.")
@click.option("--title", help="The page's title.  [default: the account's name]")
@click.option("--result", multiple=True, metavar="FILE", help="What `discreet query --json` printed; repeatable.")
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
    """Write ACCOUNT as one self-contained HTML page: promise, budget, results, and what an attacker can do.

    The page loads nothing from elsewhere. With --json the same is printed for machines, and the page is written too.
    """
    try:
        from discreet.apps.report import collect, render
    except ModuleNotFoundError as missing:
        raise MissingExtra("reports need Jinja and matplotlib: pip install 'discreet[report]'") from missing
    answers = [answer_of(path) for path in result]
    opened = open_account(ledger, account_of(named, account))
    # A server's address may hold a password.
    shown = "LEDGER" if "://" in ledger else shlex.quote(ledger)
    commands = [f"discreet ledger verify {shown}", f"discreet report {shown} --account {shlex.quote(opened.name)}"]
    with output.working("Drawing"):
        report = collect(opened, title=title, answers=answers, commands=commands)
        output.write(out, render(report))
    if output.json:
        output.emit(json.loads(report.to_json()))
    else:
        output.say(f"wrote {out}")


def answer_of(path: str) -> Any:
    """An answer for the report from what `discreet query --json` printed."""
    from discreet.apps.report import Answer

    try:
        found = json.loads(read_text(path))
        rows = tuple(dict(row) for row in found["rows"])
        made = Answer(
            title=str(found["sql"]),
            rows=rows,
            group_columns=int(found["group_columns"]),
            cost=f"Cost: {found['cost']}",
        )
        # Where keys are discovered there may be no row at all.
        if rows and (any(row.keys() != rows[0].keys() for row in rows) or not 0 <= made.group_columns <= len(rows[0])):
            raise ValueError("rows of different columns")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise InvalidArgument(f"--result must be the output of discreet query --json, got {path!r}") from None
    return made
