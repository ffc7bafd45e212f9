"""`discreet allocate`: what a budget, or what remains of one, can pay for."""

from __future__ import annotations

from pathlib import Path

import click

from discreet import accounting
from discreet.accounting import Allocation
from discreet.accounting.wishes import CountWish, NoiseName, SelectionWish, TrainingWish, Wish
from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.printing import Output, percent
from discreet.apps.cli.shared_options import assignment, budget_of, budget_options, open_account
from discreet.errors import InvalidArgument
from discreet.guarantees import Guarantee
from discreet.ledger import Account

_FORMATS = (".svg", ".png", ".pdf")


@click.command(
    "allocate",
    cls=Command,
    example="""discreet allocate --epsilon 1 --delta 1e-6 --count households=20 --selection region=50,100
    discreet allocate --ledger census.ledger --count people=10 --training model=30000,512,10,1.1 --plot plan.svg""",
)
@options(budget_options)
@click.option("--ledger", metavar="LEDGER", help="Instead of --epsilon: plan for what remains in this ledger.")
@click.option("--account", help="With --ledger: the account. Optional if the ledger has only one dataset.")
@click.option("--count", "counts", multiple=True, metavar="NAME=ERROR", help="A count, off by at most ERROR (95%).")
@click.option(
    "--training",
    "trainings",
    multiple=True,
    metavar="NAME=EXAMPLES,BATCH,EPOCHS,NOISE",
    help="A training by DP-SGD with at most this noise multiplier.",
)
@click.option(
    "--selection",
    "selections",
    multiple=True,
    metavar="NAME=CANDIDATES,ERROR",
    help="The best of some candidates, off by at most ERROR in score (95%).",
)
@click.option("--weight", "weights", multiple=True, metavar="NAME=W", help="How much a wish matters.  [default: 1]")
@click.option(
    "--noise",
    type=click.Choice(["laplace", "gaussian"]),
    default="laplace",
    show_default=True,
    help="The noise of counts.",
)
@click.option("--plot", metavar="FILE", help="Draw a chart into FILE (.svg, .png or .pdf).")
@with_output
def command(
    output: Output,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    mu: float | None,
    ledger: str | None,
    account: str | None,
    counts: tuple[str, ...],
    trainings: tuple[str, ...],
    selections: tuple[str, ...],
    weights: tuple[str, ...],
    noise: NoiseName,
    plot: str | None,
) -> None:
    """Split a budget over counts, trainings and selections, and say what is achievable.

    If they do not all fit, all are relaxed: errors grow by a common factor, by less for a larger --weight.
    Charges nothing.
    """
    if plot is not None and Path(plot).suffix not in _FORMATS:
        raise InvalidArgument(f"--plot must end in {', '.join(_FORMATS)}, got {plot!r}: the ending sets the format")
    weigh = {name: _number(value, "--weight") for name, value in (assignment(text, "--weight") for text in weights)}
    wishes: list[Wish] = [_count(text, weigh, noise) for text in counts]
    wishes += [_training(text, weigh) for text in trainings]
    wishes += [_selection(text, weigh) for text in selections]
    if not wishes:
        raise InvalidArgument("Give at least one of --count, --training and --selection; got none")
    unused = set(weigh) - {wish.name for wish in wishes}
    if unused:
        raise InvalidArgument(f"--weight must name a wish, got {sorted(unused)[0]!r}: it has no --count of that name")
    room: Guarantee | Account
    if ledger is not None:
        if any(value is not None for value in (epsilon, delta, rho, mu)):
            raise InvalidArgument("Give one of --ledger and a budget; got both")
        room = open_account(ledger, account)
    elif account is not None:
        raise InvalidArgument(f"--account must be used with --ledger, got {account!r}: name the ledger")
    else:
        room = budget_of(epsilon, delta, rho, mu)
    with output.working("Splitting the budget"):
        plan = accounting.allocate(room, wishes)
    if plot is not None:
        _draw(plan, plot)
    if output.json:
        output.emit(_answer(plan))
        return
    output.say(f"{plan.budget}; what remains is {plan.room}\n")
    heads = ("wish", "what", "wanted", "reached", "met", "epsilon", "share")
    rows = [
        (
            allocated.wish.name,
            allocated.wish.quantity,
            allocated.wish.error,
            allocated.reached,
            "yes" if allocated.met else "no",
            allocated.epsilon,
            percent(allocated.share),
        )
        for allocated in plan.parts
    ]
    output.table(heads, rows, right=("wanted", "reached", "epsilon", "share"))
    output.say(f"\n{plan.words}")
    if plot is not None:
        output.say(f"\nwrote {plot}")


def _answer(plan: Allocation) -> dict[str, object]:
    return {
        "budget": str(plan.budget),
        "room": plan.room,
        "delta": plan.delta,
        "met": plan.met,
        "factor": plan.factor,
        "best": plan.best,
        "words": plan.words,
        "wishes": plan.rows(),
    }


def _count(text: str, weigh: dict[str, float], noise: NoiseName) -> Wish:
    name, value = assignment(text, "--count")
    return CountWish(name, _number(value, "--count"), weigh.get(name, 1.0), noise=noise)


def _training(text: str, weigh: dict[str, float]) -> Wish:
    name, value = assignment(text, "--training")
    examples, batch, epochs, noise = _numbers(value, 4, "--training")
    steps = max(1, round(epochs * examples / batch)) if batch > 0 else 0
    return TrainingWish(name, noise, weigh.get(name, 1.0), _whole(examples), _whole(batch), steps)


def _selection(text: str, weigh: dict[str, float]) -> Wish:
    name, value = assignment(text, "--selection")
    candidates, error = _numbers(value, 2, "--selection")
    return SelectionWish(name, error, weigh.get(name, 1.0), candidates=_whole(candidates))


def _numbers(text: str, count: int, flag: str) -> list[float]:
    pieces = text.split(",")
    if len(pieces) != count:
        raise InvalidArgument(f"{flag} must have {count} numbers after NAME=, got {text!r}: separate them by commas")
    return [_number(piece, flag) for piece in pieces]


def _number(text: str, flag: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise InvalidArgument(f"{flag} must have numbers > 0 after NAME=, got {text!r}: see --help for an example")
    return value


def _whole(value: float) -> int:
    if value != int(value):
        raise InvalidArgument(f"Sizes must be whole numbers, got {value:g}: there is no part of an example")
    return int(value)


def _draw(plan: Allocation, path: str) -> None:
    try:
        plan.plot().figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidArgument(f"--plot must be writable, got {path!r}: {error.strerror}") from None
