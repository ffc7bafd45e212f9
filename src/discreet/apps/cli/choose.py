"""`discreet choose`: which ε is private enough and accurate enough, before any data is touched."""

from __future__ import annotations

import click
import numpy as np

from discreet import queries
from discreet.apps.cli.charts import draw_chart
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output
from discreet.bounded import Bounded
from discreet.errors import InvalidArgument
from discreet.mechanisms import epsilon_range
from discreet.neighbors import REPLACE_ONE

#: A mean is bounded for a table of this many rows, which takes memory.
_MOST_ROWS = 10**7


@click.command(
    "choose",
    cls=Command,
    example="""discreet choose --max-epsilon 1 --error 10 --probability 0.05
    discreet choose --mean 0,100 --rows 5000 --max-epsilon 0.1 --error 0.5 --probability 0.05 --plot range.svg""",
)
@click.option("--max-epsilon", type=float, required=True, help="The most ε that may be spent.")
@click.option("--error", type=float, required=True, help="The error that the answer may have, in its own units.")
@click.option("--probability", type=float, required=True, help="How often the error may be larger, such as 0.05.")
@click.option("--sum", "of_sum", metavar="LOWER,UPPER", help="A sum of values within these bounds, not a count.")
@click.option("--mean", "of_mean", metavar="LOWER,UPPER", help="A mean over a public number of rows; needs --rows.")
@click.option("--rows", type=int, help="With --mean: the public number of rows.")
@click.option(
    "--noise",
    type=click.Choice(["laplace", "gaussian", "l2-laplace"]),
    default="laplace",
    show_default=True,
    help="The noise.",
)
@click.option("--delta", type=float, help="With gaussian and l2-laplace noise: δ.")
@click.option("--plot", metavar="FILE", help="Draw a chart into FILE (.svg, .png or .pdf).")
@with_output
def command(
    output: Output,
    max_epsilon: float,
    error: float,
    probability: float,
    of_sum: str | None,
    of_mean: str | None,
    rows: int | None,
    noise: str,
    delta: float | None,
    plot: str | None,
) -> None:
    """Find every ε that is private enough for one demand and accurate enough for another.

    By default the question is a count. If no ε fits, the answer says what would have to give. Reads no data and
    charges nothing.
    """
    query = _query(of_sum, of_mean, rows)
    advised = epsilon_range(
        query,
        max_epsilon=max_epsilon,
        error=error,
        probability=probability,
        noise=noise,  # type: ignore[arg-type]  # click.Choice allows these three only
        delta=delta,
    )
    if plot is not None:
        draw_chart(advised.plot, plot)
    if output.json:
        output.emit(
            {
                "fits": advised.fits,
                "low": advised.low,
                "high": advised.high,
                "reached_error": advised.reached_error,
                "reached_probability": advised.reached_probability,
                "words": advised.words,
            }
        )
        return
    output.say(advised.words)
    if plot is not None:
        output.say(f"\nwrote {plot}")


def _query(of_sum: str | None, of_mean: str | None, rows: int | None) -> Bounded:
    if of_sum is not None and of_mean is not None:
        raise InvalidArgument("Give at most one of --sum and --mean; got both")
    if (rows is None) != (of_mean is None):
        raise InvalidArgument("Give --mean and --rows together: a mean's error depends on the number of rows")
    if of_sum is not None:
        return queries.sum([], bounds=_pair(of_sum, "--sum"))
    if of_mean is not None and rows is not None:
        if not 1 <= rows <= _MOST_ROWS:
            raise InvalidArgument(f"--rows must be in [1, 1e7], got {rows}: it is the public number of rows")
        # Only the number of rows matters; their values are never looked at.
        return queries.mean(np.zeros(rows), bounds=_pair(of_mean, "--mean"), relation=REPLACE_ONE)
    return queries.count([])


def _pair(text: str, flag: str) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise InvalidArgument(f"{flag} must be LOWER,UPPER, got {text!r}: for example 0,100") from None
    return low, high
