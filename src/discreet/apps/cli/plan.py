"""`discreet plan`: the noise of a training over batch sizes and epochs, and the best one within a limit of compute."""

from __future__ import annotations

from math import log

import click

from discreet.accounting.trainings import AffordableTraining, Trainings, trainings
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, number
from discreet.errors import InvalidArgument
from discreet.guarantees import ApproxDP

_BATCHES, _EPOCHS = "64,256,1024,4096", "1,5,20,80"
#: Eight heights of a bar, from nearly nothing to full.
_BARS = "▁▂▃▄▅▆▇█"


@click.command(
    "plan",
    cls=Command,
    example="""discreet plan --examples 60000 --epsilon 3 --delta 1e-5
    discreet plan --examples 60000 --epsilon 3 --delta 1e-5 --batch-sizes 512,2048 --epochs 10,40 --gradients 900000""",
)
@click.option("--examples", type=int, required=True, help="Number of examples.")
@click.option("--epsilon", type=float, required=True, help="ε of the whole training.")
@click.option("--delta", type=float, required=True, help="δ of the whole training.")
@click.option("--batch-sizes", default=_BATCHES, show_default=True, help="Average batch sizes to try.")
@click.option("--epochs", default=_EPOCHS, show_default=True, help="Numbers of passes over the data to try.")
@click.option("--gradients", type=int, help="Compute limit in per-example gradients: epochs × examples.")
@with_output
def command(
    output: Output,
    examples: int,
    epsilon: float,
    delta: float,
    batch_sizes: str,
    epochs: str,
    gradients: int | None,
) -> None:
    """Choose the batch size and epochs of a DP-SGD training for a budget. Reads no data and charges nothing.

    Each cell is the noise multiplier that costs exactly (ε, δ). Bars show the noise on the mean gradient over the whole
    run, σ/(B√steps) in units of the clip norm: lower is better. The clip norm itself does not change ε.
    """
    sizes = [_whole(text) for text in batch_sizes.split(",")]
    sizes = [size for size in sizes if size <= examples] or sizes  # the default sizes may exceed a small dataset
    passes = [_positive(text) for text in epochs.split(",")]
    with output.working("Finding the noise of every training"):
        affordable = trainings(
            ApproxDP(epsilon, delta), examples=examples, batch_sizes=sizes, epochs=passes, gradients=gradients
        )
    if output.json:
        output.emit(_answer(affordable))
        return
    output.say(f"{affordable.budget}, {examples} examples: noise multiplier σ, and the noise over the run as a bar\n")
    columns = sorted({cell.epochs for cell in affordable.cells})
    heads = ("batch size", *(f"{passes:g} epochs" for passes in columns))
    least, most = (pick(cell.run_noise for cell in affordable.cells) for pick in (min, max))
    rows = []
    for size in sorted({cell.batch_size for cell in affordable.cells}):
        line = [cell for cell in affordable.cells if cell.batch_size == size]
        rows.append((size, *(_cell(cell, affordable, least, most) for cell in line)))
    output.table(heads, rows, right=heads)
    output.say(f"\n{_words(affordable)}")


def _cell(cell: AffordableTraining, affordable: Trainings, least: float, most: float) -> str:
    share = 0.0 if most == least else log(cell.run_noise / least) / log(most / least)
    outside = affordable.limit is not None and cell.gradients > affordable.limit
    mark = " *" if cell is affordable.best else " -" if outside else "  "
    return f"{number(cell.noise_multiplier, 4)} {_BARS[round(share * (len(_BARS) - 1))]}{mark}"


def _words(affordable: Trainings) -> str:
    limit = "" if affordable.limit is None else f"; - : more than {affordable.limit} gradients"
    if affordable.best is None:
        return f"No training is within the limit{limit}: allow more --gradients or try fewer --epochs."
    best = affordable.best
    return (
        f"* : the least noise over the run{limit}.\n"
        f"Batches of {best.batch_size} for {best.epochs:g} epochs: {best.steps} steps, {best.gradients} gradients, "
        f"σ = {number(best.noise_multiplier)}.\n"
        f"Noise on the mean gradient, over the clip norm: {number(best.step_noise, 3)} in a step, "
        f"{number(best.run_noise, 3)} over the run."
    )


def _answer(affordable: Trainings) -> dict[str, object]:
    return {
        "budget": str(affordable.budget),
        "examples": affordable.examples,
        "limit": affordable.limit,
        "best": None if affordable.best is None else _fields(affordable.best),
        "trainings": [_fields(cell) for cell in affordable.cells],
    }


def _fields(cell: AffordableTraining) -> dict[str, object]:
    return {
        "batch_size": cell.batch_size,
        "epochs": cell.epochs,
        "steps": cell.steps,
        "gradients": cell.gradients,
        "noise_multiplier": cell.noise_multiplier,
        "step_noise": cell.step_noise,
        "run_noise": cell.run_noise,
    }


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"--batch-sizes must be whole numbers separated by commas, got {text!r}") from None


def _positive(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"--epochs must be numbers separated by commas, got {text!r}") from None
