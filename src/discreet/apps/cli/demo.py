"""`discreet demo`: the whole idea on real data, in under three minutes."""

from __future__ import annotations

from pathlib import Path

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.output import Output, percent
from discreet.errors import MissingExtra
from discreet.ledger.statement import ADAPTIVE


@click.command("demo", cls=Command, example="discreet demo")
@click.option("--folder", default="demo", show_default=True, help="Where ledger, model and report go.")
@with_output
def command(output: Output, folder: str) -> None:
    """Open a budget, ask, train, evaluate and be refused: on the Adult data, without a network.

    Writes FOLDER/report.html. The ledger of an earlier demo in FOLDER is replaced.
    """
    try:
        from discreet.apps.demo import Stage, answer, play
    except ModuleNotFoundError as missing:
        raise MissingExtra("the demo needs everything: pip install 'discreet[all]'") from missing

    def tell(stage: Stage) -> None:
        if output.json:
            return
        if stage.name == "budget":
            output.say("The Adult data: people of the 1994 census of the United States.\n")

        output.say(f"{stage.name:<9} {stage.did:<60} {stage.cost:<24} {percent(stage.used):>7} used")

    done = play(Path(folder), tell)
    if output.json:
        output.emit(answer(done))
        return
    statement = done.report.statement
    output.say(f"\nThe ledger's statement for {done.account}: {statement.budget}, {percent(statement.used)} used")
    output.say(f"  that bound {ADAPTIVE}")
    if statement.tight is not None:
        output.say(
            f"  had all of it been fixed in advance: ε = {statement.tight.upper:.4g} at δ = {statement.delta:g}\n"
        )
    rows = [(one.sequence, one.purpose, percent(one.used_after)) for one in done.report.charges]
    output.table(("#", "charged for", "budget used"), rows, right=("#", "budget used"))
    output.say(f"\nwrote {done.page}: open it in a browser")
