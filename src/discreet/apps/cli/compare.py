"""`discreet compare`: which noise to add, at the same guarantee first and at the same noise then."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from discreet.accounting.folklore import Saying, sayings
from discreet.accounting.noises import Noises, Option, Task, noises
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.output import Output, plain
from discreet.errors import InvalidArgument, MissingExtra
from discreet.guarantees import ApproxDP

_FORMATS = (".svg", ".png", ".pdf")


@click.command(
    "compare",
    cls=Command,
    example="""discreet compare --epsilon 1 --delta 1e-6 --l1 1
    discreet compare --epsilon 1 --delta 1e-6 --l2 1 --dimension 100000 --steps 1000 --plot noise.svg""",
)
@click.option("--epsilon", type=float, required=True, help="ε of all steps together.")
@click.option("--delta", type=float, required=True, help="δ of all steps together.")
@click.option("--l1", type=float, help="How much one unit changes the L1 norm.  [default: √dimension · l2]")
@click.option("--l2", type=float, help="How much one unit changes the L2 norm.  [default: l1]")
@click.option("--dimension", type=int, default=1, show_default=True, help="How many numbers a release has.")
@click.option("--steps", type=int, default=1, show_default=True, help="How many releases there are.")
@click.option("--grid", type=float, help="Step of the grid for discrete noise.  [default: 1, or l2/1024 and finer]")
@click.option("--plot", metavar="FILE", help="Draw it, as .svg, .png or .pdf.")
@with_output
def command(
    output: Output,
    epsilon: float,
    delta: float,
    l1: float | None,
    l2: float | None,
    dimension: int,
    steps: int,
    grid: float | None,
    plot: str | None,
) -> None:
    """Laplace, L2-Laplace and Gaussian noise, and their discrete forms, priced by one accountant.

    First all of them at the same (ε, δ), then at the same noise, then which to use when. Last, what is often said about
    this choice, with the numbers: where it holds and where it does not.
    """
    if plot is not None and Path(plot).suffix not in _FORMATS:
        raise InvalidArgument(f"--plot must end in {', '.join(_FORMATS)}, got {plot!r}: the ending says the format")
    task = Task.of(ApproxDP(epsilon, delta), l1=l1, l2=l2, dimension=dimension, steps=steps, grid=grid)
    with output.working("Pricing every kind of noise"):
        found = noises(task)
        said = sayings(found)
    if plot is not None:
        draw(found, plot)
    if output.json:
        output.emit(_answer(found, said))
        return
    _show(output, found, said)
    if plot is not None:
        output.say(f"\ndrawn into {plot}")


def _answer(found: Noises, said: tuple[Saying, ...]) -> dict[str, Any]:
    task = found.task
    return {
        "task": plain(
            {
                "epsilon": task.budget.epsilon,
                "delta": task.budget.delta,
                "l1": task.l1,
                "l2": task.l2,
                "dimension": task.dimension,
                "steps": task.steps,
                "grid": task.grid,
            }
        ),
        "same_guarantee": [_option(one, task) for one in found.same_guarantee],
        "same_noise": [_option(one, task) for one in found.same_noise],
        "best": found.best.name,
        "advice": list(found.advice),
        "sayings": [asdict(one) for one in said],
    }


def _option(one: Option, task: Task) -> dict[str, Any]:
    price = None if one.epsilon is None else {"lower": one.epsilon.lower, "upper": one.epsilon.upper}
    return {
        "name": one.name,
        "found": one.found,
        "scale": one.scale,
        "standard_deviation": one.standard_deviation,
        "variance": one.variance,
        "expected_error": one.expected_error,
        "tail_95": one.tail(),
        "worst_coordinate_95": one.worst(task.dimension),
        "epsilon": plain(price),
        "note": one.note,
    }


def _show(output: Output, found: Noises, said: tuple[Saying, ...]) -> None:
    task = found.task
    steps = "one release" if task.steps == 1 else f"{task.steps:,} releases"
    many = "one number" if task.dimension == 1 else f"{task.dimension:,} numbers"
    output.say(f"{steps} of {many}; one unit moves them by at most Δ₁ = {task.l1:.6g} and Δ₂ = {task.l2:.6g}\n")
    output.say(f"At the same guarantee, {task.budget} for all of it together:\n")
    heads = ("noise", "found by", "scale", "std", "variance", "mean error", "95% error", "worst, 95%", "note")
    numeric = ("scale", "std", "variance", "mean error", "95% error", "worst, 95%", "epsilon")
    output.table(heads, [_cells(one, task) for one in found.same_guarantee], right=numeric)
    deviation = found.same_noise[0].standard_deviation
    output.say(f"\nAt the same noise, a standard deviation of {deviation:.5g} on each number:\n")
    rows = [
        (one.name, one.scale, None if one.epsilon is None else one.epsilon.upper, one.note) for one in found.same_noise
    ]
    output.table(("noise", "scale", "epsilon", "note"), rows, right=numeric)
    output.say("\nWhich to use\n")
    for line in found.advice:
        output.say(f"- {line}")
    output.say("\nWhat is often said, and what the accountant finds\n")
    output.table(("saying", "verdict", "because"), [(one.says, one.verdict, one.because) for one in said])


def _cells(one: Option, task: Task) -> tuple[str | float | None, ...]:
    worst = one.worst(task.dimension)
    return (
        one.name,
        one.found,
        one.scale,
        one.standard_deviation,
        one.variance,
        one.expected_error,
        one.tail(),
        worst,
        one.note,
    )


def draw(found: Noises, path: str) -> None:
    """Two panels: the noise at the same guarantee, and ε at the same noise."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    same = [one for one in found.same_guarantee if one.standard_deviation is not None]
    wide = left.barh([one.name for one in same], [one.standard_deviation or 0.0 for one in same], color="#2a9d8f")
    left.set_title(
        f"Standard deviation at ({found.task.budget.epsilon:g}, {found.task.budget.delta:g})-DP", fontsize=10
    )
    priced = [one for one in found.same_noise if one.epsilon is not None]
    uppers = [one.epsilon.upper if one.epsilon is not None else 0.0 for one in priced]
    dear = right.barh([one.name for one in priced], uppers, color="#e76f51")
    right.set_title("ε at the same standard deviation", fontsize=10)
    for axes, bars in ((left, wide), (right, dear)):
        axes.set_xscale("log")
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidArgument(f"--plot must be a place to write to, got {path!r}: {error.strerror}") from None
