"""`discreet train`: a private model from a configuration file."""

from __future__ import annotations

from contextlib import nullcontext

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, read_text, to_json_value
from discreet.errors import MissingExtra


@click.command("train", cls=Command, example="discreet train config.toml")
@click.argument("config", metavar="CONFIG")
@click.option(
    "--progress", is_flag=True, help="Show a progress bar. It shows exact losses, which only the data's owner may see."
)
@with_output
def command(output: Output, config: str, progress: bool) -> None:
    """Train a small model with DP-SGD. CONFIG is a TOML file with the data, model, plan and ledger.

    The data are a table (Parquet or CSV) with public bounds and categories, or a pair of idx image files. The models
    are logistic, mlp and cnn. The account is charged before the first step. The model, its privacy statement and a
    report go into one folder. docs/cli.md shows a complete CONFIG.
    """
    try:
        from discreet.apps.training import carry_out, read_config
    except ModuleNotFoundError as missing:
        raise MissingExtra("training from a file needs all extras: pip install 'discreet[all]'") from missing
    parsed = read_config(config, read_text(config))
    show_progress = progress and not output.json
    with nullcontext() if show_progress else output.working("Training"):  # one moving line at a time
        done = carry_out(parsed, progress=show_progress, source=config)
    scores = [
        {"name": score.name, "value": score.value, "low": score.low, "high": score.high, "cost": score.cost}
        for score in done.training.evaluations
    ]
    if output.json:
        files = [str(path) for path in done.files]
        output.emit(
            to_json_value({"guarantee": done.guarantee, "steps": done.steps, "evaluations": scores, "files": files})
        )
        return
    output.say(f"trained {done.steps:,} steps: {done.guarantee}")
    for score in done.training.evaluations:
        output.say(f"{score.name}: {score.value:.4g} (95%: {score.low:.4g} to {score.high:.4g}). {score.cost}")
    output.say("wrote " + ", ".join(str(path) for path in done.files))
