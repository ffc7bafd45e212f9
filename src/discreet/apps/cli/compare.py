"""`discreet compare`: which noise to add, compared at the same guarantee and at the same amount of noise."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from discreet.accounting.folklore import Saying
from discreet.accounting.folklore import sayings as check_sayings
from discreet.accounting.noises import Noises, Option, Task, noises
from discreet.apps import textbook
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output, to_json_value
from discreet.errors import InvalidArgument, MissingExtra
from discreet.guarantees import ApproxDP

_FORMATS = (".svg", ".png", ".pdf")


@click.command(
    "compare",
    cls=Command,
    example="""discreet compare --epsilon 1 --delta 1e-6 --l1 1
    discreet compare --sayings
    discreet compare --epsilon 1 --delta 1e-6 --l2 1 --dimension 100000 --steps 1000 --plot noise.svg""",
)
@click.option("--epsilon", type=float, help="ε of all releases together.")
@click.option("--delta", type=float, help="δ of all releases together.")
@click.option(
    "--l1", type=float, help="L1 sensitivity: how far one unit can move a release.  [default: √dimension · l2]"
)
@click.option("--l2", type=float, help="L2 sensitivity: how far one unit can move a release.  [default: l1]")
@click.option("--dimension", type=int, default=1, show_default=True, help="Numbers in a release.")
@click.option("--steps", type=int, default=1, show_default=True, help="Number of releases.")
@click.option("--grid", type=float, help="Grid step of discrete noise.  [default: 1, or l2/1024 and finer]")
@click.option("--plot", metavar="FILE", help="Draw a chart into FILE (.svg, .png or .pdf).")
@click.option("--sayings", is_flag=True, help="Check common claims of textbooks, and those about this choice.")
@with_output
def command(
    output: Output,
    epsilon: float | None,
    delta: float | None,
    l1: float | None,
    l2: float | None,
    dimension: int,
    steps: int,
    grid: float | None,
    plot: str | None,
    sayings: bool,
) -> None:
    """Compare Laplace, L2-Laplace and Gaussian noise and their discrete forms, priced by one accountant.

    First at the same (ε, δ), then at the same amount of noise, then which to use when. --sayings alone checks the
    claims of textbooks, without a comparison.
    """
    if sayings and epsilon is None and delta is None and l1 is None and l2 is None:
        _show_textbook(output)
        return
    if epsilon is None or delta is None:
        missing = "epsilon" if epsilon is None else "delta"
        raise click.UsageError(f"Missing option '--{missing}'.", click.get_current_context())
    if plot is not None and Path(plot).suffix not in _FORMATS:
        raise InvalidArgument(f"--plot must end in {', '.join(_FORMATS)}, got {plot!r}: the ending sets the format")
    task = Task.of(ApproxDP(epsilon, delta), l1=l1, l2=l2, dimension=dimension, steps=steps, grid=grid)
    with output.working("Pricing every kind of noise"):
        compared = noises(task)
        checked = check_sayings(compared) if sayings or output.json else ()
    if plot is not None:
        draw(compared, plot)
    if output.json:
        output.emit(_answer(compared, checked) | ({"textbook": _textbook()} if sayings else {}))
        return
    _show(output, compared)
    if checked:
        output.say("\nCommon claims about this choice, and what the accountant finds\n")
        rows = [(saying.says, saying.verdict, saying.because) for saying in checked]
        output.table(("claim", "verdict", "because"), rows)
        output.say("\nClaims of textbooks\n")
        _show_textbook(output)
    if plot is not None:
        output.say(f"\nwrote {plot}")


def _show_textbook(output: Output) -> None:
    """The claims of docs/textbook.md, without their code."""
    with output.working("Checking every claim"):
        claims = _textbook()
    if output.json:
        output.emit({"textbook": claims})
        return
    rows = [(claim["name"], claim["verdict"], claim["because"]) for claim in claims]
    output.table(("claim", "verdict", "because"), rows)
    output.say("\ndocs/textbook.md has each claim in full, with the code that checks it.")


def _textbook() -> list[dict[str, str]]:
    return [
        {"name": claim.name, "says": claim.says, "verdict": claim.verdict, "because": claim.plain_reason}
        for claim in textbook.claims()
    ]


def _answer(compared: Noises, checked: tuple[Saying, ...]) -> dict[str, Any]:
    task = compared.task
    return {
        "task": to_json_value(
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
        "same_guarantee": [_option(option, task) for option in compared.same_guarantee],
        "same_noise": [_option(option, task) for option in compared.same_noise],
        "best": compared.best.name,
        "advice": list(compared.advice),
        "sayings": [asdict(saying) for saying in checked],
    }


def _option(option: Option, task: Task) -> dict[str, Any]:
    price = None if option.epsilon is None else {"lower": option.epsilon.lower, "upper": option.epsilon.upper}
    return {
        "name": option.name,
        "found": option.found,
        "scale": option.scale,
        "standard_deviation": option.standard_deviation,
        "variance": option.variance,
        "expected_error": option.expected_error,
        "tail_95": option.tail(),
        "worst_coordinate_95": option.worst(task.dimension),
        "epsilon": to_json_value(price),
        "note": option.note,
    }


def _show(output: Output, compared: Noises) -> None:
    task = compared.task
    releases = "One release" if task.steps == 1 else f"{task.steps:,} releases"
    numbers = "one number" if task.dimension == 1 else f"{task.dimension:,} numbers"
    output.say(f"{releases} of {numbers}, L1 sensitivity {task.l1:.6g}, L2 sensitivity {task.l2:.6g}\n")
    output.say(f"At the same guarantee: {task.budget} in total\n")
    heads = ("noise", "found by", "scale", "std", "variance", "mean error", "95% error", "worst, 95%", "note")
    numeric = ("scale", "std", "variance", "mean error", "95% error", "worst, 95%", "epsilon")
    output.table(heads, [_cells(option, task) for option in compared.same_guarantee], right=numeric)
    deviation = compared.same_noise[0].standard_deviation
    output.say(f"\nAt the same noise: a standard deviation of {deviation:.5g} on each number\n")
    rows = [
        (option.name, option.scale, None if option.epsilon is None else option.epsilon.upper, option.note)
        for option in compared.same_noise
    ]
    output.table(("noise", "scale", "epsilon", "note"), rows, right=numeric)
    output.say("\nWhich to use\n")
    for line in compared.advice:
        output.say(f"- {line}")


def _cells(option: Option, task: Task) -> tuple[str | float | None, ...]:
    return (
        option.name,
        option.found,
        option.scale,
        option.standard_deviation,
        option.variance,
        option.expected_error,
        option.tail(),
        option.worst(task.dimension),
        option.note,
    )


def draw(compared: Noises, path: str) -> None:
    """Draw two panels: the noise at the same guarantee, and ε at the same noise."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    feasible = [option for option in compared.same_guarantee if option.standard_deviation is not None]
    deviations = [option.standard_deviation or 0.0 for option in feasible]
    deviation_bars = left.barh([option.name for option in feasible], deviations, color="#2a9d8f")
    budget = compared.task.budget
    left.set_title(f"Standard deviation at ({budget.epsilon:g}, {budget.delta:g})-DP", fontsize=10)
    priced = [option for option in compared.same_noise if option.epsilon is not None]
    uppers = [option.epsilon.upper if option.epsilon is not None else 0.0 for option in priced]
    price_bars = right.barh([option.name for option in priced], uppers, color="#e76f51")
    right.set_title("ε at the same standard deviation", fontsize=10)
    for axes, bars in ((left, deviation_bars), (right, price_bars)):
        axes.set_xscale("log")
        axes.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidArgument(f"--plot must be writable, got {path!r}: {error.strerror}") from None
