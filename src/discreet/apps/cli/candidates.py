"""`discreet candidates`: how many candidates of a hyperparameter search are worth trying."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.price import read_event
from discreet.apps.cli.printing import Output, number, percent
from discreet.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from discreet.learning.selection import SearchAdvice

_FORMATS = (".svg", ".png", ".pdf")


@click.command(
    "candidates",
    cls=Command,
    example="""discreet candidates event.json --delta 1e-6 --epsilon 8
    discreet candidates event.json --delta 1e-6 --trials 5,20 --plot search.svg""",
)
@click.argument("file")
@click.option("--delta", type=float, required=True, help="δ at which to report ε.")
@click.option("--epsilon", type=float, help="The budget: say which search it is best spent on.")
@click.option("--trials", default="2,5,10,20,50,100", show_default=True, help="Mean numbers of trials.")
@click.option("--plot", metavar="FILE", help="Draw a chart into FILE (.svg, .png or .pdf).")
@with_output
def command(output: Output, file: str, delta: float, epsilon: float | None, trials: str, plot: str | None) -> None:
    """Choose how many candidates to try: the price of a search, and its expected winner. Reads no data.

    FILE holds the event of one run, as for `discreet price json`. Random stopping runs candidates a random number of
    times and releases the best only. In the open, every candidate runs once and every result is published. The winner
    is in standard deviations above the average candidate, if scores are normal.
    """
    try:
        from discreet.learning.selection import worth_trying
    except ModuleNotFoundError as missing:
        raise MissingExtra("selection needs torch: pip install 'discreet[learning]'") from missing
    if plot is not None and Path(plot).suffix not in _FORMATS:
        raise InvalidArgument(f"--plot must end in {', '.join(_FORMATS)}, got {plot!r}: the ending sets the format")
    event = read_event(file)
    try:
        means = [float(text) for text in trials.split(",")]
    except ValueError:
        raise InvalidArgument(f"--trials must be numbers separated by commas, got {trials!r}") from None
    with output.working("Pricing"):
        advice = worth_trying(event, delta, epsilon=epsilon, means=means)
    if plot is not None:
        try:
            advice.plot().figure.savefig(plot, dpi=150)
        except OSError as error:
            raise InvalidArgument(f"--plot must be writable, got {plot!r}: {error.strerror}") from None
    _show(output, advice)


def _show(output: Output, advice: SearchAdvice) -> None:
    searches = sorted(advice.searches, key=lambda search: (search.law, search.mean))
    worth, budget = advice.worth, advice.budget
    if output.json:
        fields = ("law", "mean", "epsilon", "best", "none")
        rows = [{name: getattr(search, name) for name in fields} for search in searches]
        best = None if worth is None else {name: getattr(worth, name) for name in fields}
        output.emit({"run": advice.run_epsilon, "delta": advice.delta, "searches": rows, "worth": best})
        return
    output.say(f"one run: ε = {number(advice.run_epsilon)} at δ = {advice.delta:g}\n")
    heads = ("search", "mean trials", "ε", "expected winner", "no winner")
    cells = [
        (search.law, f"{search.mean:g}", number(search.epsilon, 4), f"{search.best:+.3f}", percent(search.none))
        for search in searches
    ]
    output.table(heads, cells, right=heads[1:])
    if worth is not None:
        text = f"{worth.law}, {worth.mean:g} trials on average, ε = {number(worth.epsilon, 4)}"
        output.say(f"\nBest within ε = {budget:g}: {text}.")
    elif budget is not None:
        output.say(f"\nNo search fits into ε = {budget:g}: run one candidate, chosen without the data.")
