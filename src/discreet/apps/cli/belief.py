"""`discreet belief`: what an attacker may believe after a release with a given guarantee."""

from __future__ import annotations

import click

from discreet.apps.cli.charts import draw_chart
from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.printing import Output
from discreet.apps.cli.shared_options import budget_of, budget_options


@click.command(
    "belief",
    cls=Command,
    example="""discreet belief --epsilon 1 --prior 0.1
    discreet belief --epsilon 2 --delta 1e-6 --prior 0.5 --failure 0.001 --plot belief.svg""",
)
@options(budget_options)
@click.option("--prior", type=float, required=True, help="What the attacker believes before the release, in [0, 1].")
@click.option(
    "--failure",
    type=float,
    default=0.01,
    show_default=True,
    help="How often the belief may go further; a pure ε always bounds it.",
)
@click.option("--plot", metavar="FILE", help="Draw a chart into FILE (.svg, .png or .pdf).")
@with_output
def command(
    output: Output,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    mu: float | None,
    prior: float,
    failure: float,
    plot: str | None,
) -> None:
    """Say what an attacker may believe about one person after a release, for any belief before it.

    Charges nothing.
    """
    belief = budget_of(epsilon, delta, rho, mu).posterior(prior, failure=failure)
    if plot is not None:
        draw_chart(belief.plot, plot)
    if output.json:
        output.emit(
            {
                "guarantee": str(belief.guarantee),
                "prior": belief.prior,
                "low": belief.low,
                "high": belief.high,
                "failure": belief.failure,
                "right": belief.right,
                "words": belief.words,
            }
        )
        return
    output.say(str(belief))
    if plot is not None:
        output.say(f"\nwrote {plot}")
