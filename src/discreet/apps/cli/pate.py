"""`discreet pate`: labels for public inputs by a noisy vote of private teachers, and a student."""

from __future__ import annotations

from contextlib import nullcontext

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, read_text, to_json_value
from discreet.errors import MissingExtra


@click.command("pate", cls=Command, example="discreet pate pate.toml")
@click.argument("config", metavar="CONFIG")
@click.option("--progress", is_flag=True, help="Show how many teachers are trained.")
@click.option(
    "--secret",
    "show_secret",
    is_flag=True,
    help="Also print ε given the votes. It depends on the data: only the data's owner may see it.",
)
@with_output
def command(output: Output, config: str, progress: bool, show_secret: bool) -> None:
    """Label public inputs with PATE and train a student. CONFIG is a TOML file.

    Teachers learn from disjoint shards of the private data and vote on public inputs. The account is charged before the
    first vote, with a price that holds for all votes. A killed run continues when it is started again. Labels,
    their statement, the student, a chart and a report go into one folder, and what only the data's owner may see goes
    into another. docs/cli.md shows a complete CONFIG.
    """
    try:
        from discreet.apps.pate import label, read_pate_config
    except ModuleNotFoundError as missing:
        raise MissingExtra("PATE from a file needs all extras: pip install 'discreet[all]'") from missing
    parsed = read_pate_config(config, read_text(config))
    shown = progress and not output.json
    with nullcontext() if shown else output.working("Training teachers"):  # one moving line at a time
        done = label(parsed, progress=shown, source=config)
    scores = [
        {"name": score.name, "value": score.value, "low": score.low, "high": score.high, "cost": score.cost}
        for score in done.evaluations
    ]
    if output.json:
        answer = {
            "asked": done.asked,
            "answered": done.answered,
            "epsilon": done.epsilon,
            "delta": done.delta,
            "price": "data-independent",
            "evaluations": scores,
            "files": [str(path) for path in done.files],
            "secret_files": [str(path) for path in done.secret_files],
        }
        if show_secret:
            answer["secret_data_dependent_epsilon"] = done.secret.epsilon
        output.emit(to_json_value(answer))
        return
    output.say(f"answered {done.answered:,} of {done.asked:,} questions")
    output.say(f"ε = {done.epsilon:.4g} at δ = {done.delta:g}, data-independent: charged, and may be published")
    if show_secret:
        output.say(f"ε = {done.secret.epsilon:.4g} at δ = {done.delta:g}, data-dependent: SECRET, not charged")
    for score in done.evaluations:
        output.say(f"{score.name}: {score.value:.4g} (95%: {score.low:.4g} to {score.high:.4g}). {score.cost}")
    output.say("wrote " + ", ".join(str(path) for path in done.files))
    output.say("secret, for the data's owner: " + ", ".join(str(path) for path in done.secret_files))
