"""`discreet audit`: try to refute what a function claims, and keep the verdict in a ledger."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.loading import loaded
from discreet.apps.cli.printing import Output
from discreet.apps.cli.shared_options import budget_of, budget_options, open_account, relation_option
from discreet.auditing import audit, neighboring_numbers
from discreet.auditing.verdict import Audit
from discreet.errors import InvalidArgument
from discreet.neighbors import relation as as_relation

_EXAMPLE = "pipeline.py:release"
_PICTURES = (".png", ".svg", ".pdf")


@click.command(
    "audit",
    cls=Command,
    example="discreet audit pipeline.py:release --bounds 0,100 --epsilon 1 --white-box\n"
    "discreet audit pipeline.py:release --bounds 0,100 --epsilon 1 --white-box --ledger census.ledger",
)
@click.argument("target", metavar="FILE:FUNCTION")
@click.option("--pairs", metavar="NAME", help="A function in FILE that returns pairs of neighboring datasets.")
@click.option(
    "--bounds", metavar="LOW,HIGH", help="Instead of --pairs: try arrays of numbers within and outside these."
)
@options(budget_options, relation_option)
@click.option("--white-box", is_flag=True, help="Run FUNCTION once on each dataset and repeat the noise only.")
@click.option("--samples", type=int, default=20_000, show_default=True, help="Most runs on each dataset.")
@click.option("--alpha", type=float, default=1e-6, show_default=True, help="Probability of a false alarm.")
@click.option("--distance", type=int, default=1, show_default=True, help="Number of units in which --pairs differ.")
@click.option("--plot", metavar="FILE", help="Draw the verdict into a .png, .svg or .pdf file.")
@click.option("--ledger", help="Record the verdict in this ledger, at no cost.")
@click.option("--account", help="With --ledger: the account. Optional if the ledger has only one dataset.")
@with_output
def command(
    output: Output,
    target: str,
    pairs: str | None,
    bounds: str | None,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    mu: float | None,
    relation: str,
    white_box: bool,
    samples: int,
    alpha: float,
    distance: int,
    plot: str | None,
    ledger: str | None,
    account: str | None,
) -> int:
    """Run a function on neighboring datasets and try to refute that it keeps --epsilon (or --rho, --mu).

    FUNCTION in FILE takes a dataset and returns its release. FILE runs as Python code: audit only files that you trust,
    on generated data. The exit code is 1 if a violation is found. No violation found is not a proof.
    """
    claim = budget_of(epsilon, delta, rho, mu)
    if plot is not None and Path(plot).suffix not in _PICTURES:
        raise InvalidArgument(f"--plot must end in {', '.join(_PICTURES)}, got {plot!r}: the ending says the format")
    function = loaded(target, _EXAMPLE, "takes a dataset and returns its release")
    if (pairs is None) == (bounds is None):
        raise InvalidArgument("Give exactly one of --pairs and --bounds; they say where to look.")
    if bounds is not None:
        neighbors = neighboring_numbers(_bounds(bounds), relation=relation)
    else:
        neighbors = loaded(f"{target.rpartition(':')[0]}:{pairs}", _EXAMPLE, "returns pairs of datasets")()
    kept = None if ledger is None else open_account(ledger, account)
    with output.working("Running the function on neighboring datasets"):
        report = audit(
            function,
            claim,
            neighbors,
            access="white_box" if white_box else "black_box",
            alpha=alpha,
            max_samples=samples,
            distance=distance,
            relation=as_relation(relation),
        )
    if plot is not None:
        report.plot().figure.savefig(plot)
    if kept is not None:
        anchor = kept.attest(report.attestation(target))
    if output.json:
        output.emit(_plain(report))
    else:
        output.say(str(report))
        if kept is not None:
            output.say(f"recorded in row {anchor.sequence} of account {anchor.account}")
    return 1 if report.violated else 0


def _plain(report: Audit) -> dict[str, object]:
    """The report as JSON values."""
    names = ("claim", "violated", "epsilon_lower", "delta", "alpha", "samples", "pairs", "estimator", "assumes")
    plain: dict[str, object] = {name: getattr(report, name) for name in names}
    return {"verdict": report.verdict, **plain, "power": asdict(report.power), "witness": asdict(report.witness)}


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--bounds must be two numbers, got {text!r}: such as --bounds 0,100") from None
    return low, high
