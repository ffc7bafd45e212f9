"""`discreet demo`: private queries and training on one budget, in under a minute."""

from __future__ import annotations

from pathlib import Path

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, percent
from discreet.errors import MissingExtra
from discreet.ledger.statement import ADAPTIVE


@click.command("demo", cls=Command, example="discreet demo")
@click.option(
    "--folder", default="demo", show_default=True, help="Where to write the ledger, the model and the report."
)
@with_output
def command(output: Output, folder: str) -> None:
    """Query, train and evaluate on one budget until it is spent. Uses the Adult data and no network.

    Writes FOLDER/report.html, and replaces the ledger of an earlier demo in FOLDER.
    """
    try:
        from discreet.apps.demo import Stage, answer, play
    except ModuleNotFoundError as missing:
        raise MissingExtra("the demo needs all extras: pip install 'discreet[all]'") from missing

    def tell(stage: Stage) -> None:
        if output.json:
            return
        if stage.name == "budget":
            output.say("The Adult data: people in the 1994 US census. Two analysts share one budget.\n")
        output.say(f"{stage.name:<9} {stage.did:<60} {stage.cost:<24} {percent(stage.used):>7} used")

    done = play(Path(folder), tell)
    if output.json:
        output.emit(answer(done))
        return
    statement = done.report.statement
    output.say(f"\nAccount {done.account}: {statement.budget}, {percent(statement.used)} used")
    output.say(f"  this bound {ADAPTIVE}")
    if statement.tight is not None:
        output.say(
            f"  if everything had been fixed in advance: ε = {statement.tight.upper:.4g} at δ = {statement.delta:g}\n"
        )
    charges = done.report.charges
    rows = [
        (charge.sequence, charge.title, done.report.analyst(charge), percent(charge.used_after)) for charge in charges
    ]
    output.table(("#", "purpose", "by", "budget used"), rows, right=("#", "budget used"))
    output.say(f"\nwrote {done.page}: open it in a browser")
