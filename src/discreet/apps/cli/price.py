"""`discreet price`: what an event costs by each method, before anything runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from discreet import _check, codec
from discreet import events as ev
from discreet.accounting import Comparison, calibrate, compare, most_steps
from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.printing import Output, number, read_text
from discreet.apps.cli.shared_options import assignment, relation_option
from discreet.errors import InvalidArgument, NotALedger
from discreet.events import Event
from discreet.guarantees import ApproxDP
from discreet.neighbors import Relation
from discreet.neighbors import relation as as_relation

price_options = options(
    click.option("--delta", type=float, required=True, help="δ at which to report ε."),
    click.option(
        "--calibrate", metavar="epsilon=ε", help="Find the noise or the steps, whichever is omitted, for this ε."
    ),
    relation_option,
)


@click.group("price")
def group() -> None:
    """Price an event by each method of composition. Reads no data and no ledger."""


@group.command(
    "dpsgd",
    cls=Command,
    example="""discreet price dpsgd --examples 60000 --batch-size 512 --epochs 15 --noise 1.1 --delta 1e-5
    discreet price dpsgd --examples 60000 --batch-size 512 --epochs 15 --delta 1e-5 --calibrate epsilon=3""",
)
@click.option("--examples", type=int, required=True, help="Number of examples.")
@click.option("--batch-size", type=int, required=True, help="Average number of examples in a batch.")
@click.option("--epochs", type=float, help="Average number of times that each example is used.")
@click.option("--steps", type=int, help="Instead of --epochs: the number of steps.")
@click.option("--noise", type=float, help="Noise multiplier: σ divided by the clipping norm.")
@options(price_options)
@with_output
def dpsgd(
    output: Output,
    examples: int,
    batch_size: int,
    epochs: float | None,
    steps: int | None,
    noise: float | None,
    delta: float,
    calibrate: str | None,
    relation: str,
) -> None:
    """DP-SGD on Poisson batches: each example joins each batch independently with probability B/N.

    Shuffled batches are another event with another price: use `discreet price json`.
    """
    _check.integer("--examples", examples, "it is the public number of examples")
    _check.integer("--batch-size", batch_size, "a batch is a subset of the examples", at_most=examples)
    if epochs is not None and steps is not None:
        raise InvalidArgument("Give one of --steps and --epochs; got both")
    rate = batch_size / examples
    if epochs is not None:
        _check.positive("--epochs", epochs, "it is how often each example is used on average")
        steps = max(1, round(epochs * examples / batch_size))  # as discreet.learning.Plan counts

    def run(noise: float, steps: int) -> Event:
        return ev.Repeated(ev.PoissonSampled(rate, ev.Gaussian(noise)), steps)

    request = _Request(run, noise, steps, delta, calibrate, as_relation(relation), ("--noise", "--epochs or --steps"))
    priced = _solve(output, request)
    words = (
        f"DP-SGD: {priced.steps:,} step{'s' * (priced.steps != 1)} on Poisson batches of {batch_size:,} of "
        f"{examples:,} examples "
        f"(rate {rate:.6g}), noise multiplier {priced.noise:.6g}"
    )
    _show(output, priced, words)


def _single(make: Callable[[float], Event], label: str) -> Callable[..., None]:
    """The command for a mechanism that runs some number of times."""

    def price(
        output: Output, noise: float | None, times: int | None, delta: float, calibrate: str | None, relation: str
    ) -> None:
        def run(noise: float, steps: int) -> Event:
            return make(noise) if steps == 1 else ev.Repeated(make(noise), steps)

        count = times if times is not None or (noise is not None and calibrate is not None) else 1
        priced = _solve(
            output, _Request(run, noise, count, delta, calibrate, as_relation(relation), ("--noise", "--times"))
        )
        _show(output, priced, f"{label} noise of {priced.noise:.6g} times the sensitivity, {priced.steps:,} times")

    return price


def _simple(name: str, text: str, example: str, make: Callable[[float], Event], label: str) -> None:
    called = options(
        click.option("--noise", type=float, help=text),
        click.option("--times", type=int, help="How many times it runs.  [default: 1]"),
        price_options,
    )(with_output(_single(make, label)))
    command = click.command(name, cls=Command, example=example, help=f"{label} noise, once or many times.")(called)
    group.add_command(command)


_simple(
    "gaussian",
    "Noise multiplier: σ divided by the L2 sensitivity.",
    "discreet price gaussian --noise 4 --times 10 --delta 1e-6",
    ev.Gaussian,
    "Gaussian",
)
_simple(
    "laplace",
    "Noise multiplier: the scale b divided by the L1 sensitivity.",
    "discreet price laplace --times 100 --delta 1e-5 --calibrate epsilon=1",
    ev.Laplace,
    "Laplace",
)


@group.command("json", cls=Command, example="discreet price json event.json --delta 1e-6")
@click.argument("file")
@click.option("--delta", type=float, required=True, help="δ at which to report ε.")
@options(relation_option)
@with_output
def from_json(output: Output, file: str, delta: float, relation: str) -> None:
    """Any event, from FILE (or - for the standard input) in the ledger's JSON format.

    `discreet ledger statement --json` shows the event of each charge in that format, under "code". Plain JSON numbers
    work too.
    """
    event = read_event(file)
    with output.working("Pricing"):
        table = _by_each_method(event, delta, as_relation(relation))
    _show(output, _Priced(event, None, None, table, None), repr(event))


def read_event(file: str) -> Event:
    """The event in a JSON file that the user named."""
    try:
        return codec.decode_tree(codec.from_numbers(json.loads(read_text(file)), "FILE"))
    except (json.JSONDecodeError, RecursionError):
        raise InvalidArgument(f"FILE must hold JSON, got {file!r}: such as {_EXAMPLE}") from None
    except NotALedger as error:
        problem = str(error).removeprefix("a stored code ").partition(": the ledger was edited")[0]
        raise InvalidArgument(f"FILE {problem.removeprefix('FILE ')}: write events such as {_EXAMPLE}") from None


_EXAMPLE = '{"tag": "gaussian", "noise_multiplier": 2.0}'


@dataclass(frozen=True)
class _Request:
    """What the flags ask for. `run` makes the event of some noise and steps; None is to be found."""

    run: Callable[[float, int], Event]
    noise: float | None
    steps: int | None
    delta: float
    calibrate: str | None
    relation: Relation
    flags: tuple[str, str]


@dataclass(frozen=True)
class _Priced:
    """The event, its price by each method, and which of noise and steps was calibrated."""

    event: Event
    noise: float | None
    steps: int | None
    table: Comparison
    calibrated: str | None


def _solve(output: Output, request: _Request) -> _Priced:
    """Find what was omitted, and price the event."""
    noise, steps, calibrated = request.noise, request.steps, None
    missing = [flag for flag, value in zip(request.flags, (noise, steps), strict=True) if value is None]
    if request.calibrate is not None:
        if len(missing) != 1:
            given = "both" if not missing else "neither"
            raise InvalidArgument(
                f"--calibrate finds one of {request.flags[0]} and {request.flags[1]}, got {given}: omit the one to find"
            )
        budget = ApproxDP(_target(request.calibrate), float(_check.delta(request.delta)))
        calibrated = "noise" if noise is None else "steps"
        with output.working(f"Finding the {calibrated}"):
            if noise is None:
                count = _check.integer("steps", steps, "it is how often the mechanism runs", at_most=10**9)
                noise = calibrate(lambda x: request.run(x, count), budget, relation=request.relation)
            else:
                fixed = noise
                steps = most_steps(lambda k: request.run(fixed, k), budget, relation=request.relation)
                if steps == 0:
                    raise InvalidArgument(
                        f"--noise must be larger, got {noise:g}: not even one step fits into {budget}"
                    )
    elif missing:
        raise InvalidArgument(f"{' and '.join(missing)} must be given, or found with --calibrate epsilon=3")
    assert noise is not None
    count = _check.integer("steps", steps, "it is how often the mechanism runs", at_most=10**9)
    event = request.run(noise, count)
    with output.working("Pricing"):
        table = _by_each_method(event, request.delta, request.relation)
    return _Priced(event, noise, count, table, calibrated)


def _by_each_method(event: Event, delta: float, relation: Relation) -> Comparison:
    try:
        return compare(event, delta, relation)
    except ArithmeticError:
        raise InvalidArgument(
            "event must have a price within the range of floats: use more noise or fewer steps"
        ) from None


def _target(text: str) -> float:
    name, value = assignment(text, "--calibrate")
    try:
        epsilon = float(value)
    except ValueError:
        epsilon = math.nan
    if name != "epsilon" or not epsilon > 0:
        raise InvalidArgument(f"--calibrate must be epsilon=ε with a number ε > 0, got {text!r}: such as epsilon=3")
    return epsilon


def _show(output: Output, priced: _Priced, words: str) -> None:
    table = priced.table
    if output.json:
        answer: dict[str, Any] = {
            "event": codec.encode_tree(priced.event),
            "delta": table.delta,
            "relation": table.relation.value,
            "epsilon": table.epsilon("tight"),
            "methods": table.rows(),
        }
        if priced.noise is not None:
            answer |= {"noise_multiplier": priced.noise, "steps": priced.steps, "calibrated": priced.calibrated}
        output.emit(answer)
        return
    output.say(f"{words}\nδ = {table.delta:g}, {table.relation.value}\n")
    rows = [(row.method, number(row.epsilon), row.standing, row.note) for row in table.lines]
    output.table(("method", "epsilon", "standing", "note"), rows, right=("epsilon",))
    if priced.calibrated == "noise":
        output.say(f"\ncalibrated noise multiplier: {priced.noise:.6g}")
    elif priced.calibrated == "steps":
        output.say(f"\ncalibrated number of steps: {priced.steps:,}")
    charge = table.epsilon("tight")
    if charge is not None:
        output.say(f"\nε = {charge:.6g} if it is charged as one event, fixed in advance")
