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
@click.option("--serve", is_flag=True, help="Instead: serve the Adult data to a steward, an analyst and an auditor.")
@click.option("--port", type=int, default=8080, show_default=True, help="With --serve: the port on this machine.")
@with_output
def command(output: Output, folder: str, serve: bool, port: int) -> None:
    """Query, train and evaluate on one budget until it is spent. Uses the Adult data and no network.

    Writes FOLDER/report.html, and replaces the ledger of an earlier demo in FOLDER. With --serve it starts a curator's
    server on this machine instead, and prints a token for each of three users.
    """
    if serve:
        _serve(output, Path(folder), port)
        return
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


def _serve(output: Output, folder: Path, port: int) -> None:
    """A running curator with the Adult data and three users."""
    try:
        from discreet.apps.server.demo import prepare
        from discreet.apps.server.running import serve
    except ModuleNotFoundError as missing:
        raise MissingExtra("the server needs Starlette and uvicorn: pip install 'discreet[server]'") from missing
    started = prepare(folder)
    address = f"http://127.0.0.1:{port}"
    tokens = {user: text for user, _, text in started.tokens}
    if output.json:
        output.emit({"address": address, "tokens": tokens})
    else:
        for user, role, text in started.tokens:
            output.say(f"{user} ({role.value}): {text}")
        question = '{"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": 0.1}'
        output.say(
            f"\nAsk as ann:\n  curl -s {address}/v1/datasets/people/ask -H 'Authorization: Bearer {tokens['ann']}' \\"
        )
        output.say(f"    -H 'Content-Type: application/json' -d '{question}'")
        output.say(f"\nserving on {address} (all calls: {address}/reference); stop with Ctrl-C")
    serve(started.curator, "127.0.0.1", port)
