"""`discreet price`: what an event costs by every method, before anything is run."""

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
from discreet.apps.cli.command import Command, assignment, options, relation_option, with_output
from discreet.apps.cli.output import Output, number, read_text
from discreet.errors import InvalidArgument, NotALedger
from discreet.events import Event
from discreet.guarantees import ApproxDP
from discreet.neighbors import Relation
from discreet.neighbors import relation as as_relation

price_options = options(
    click.option("--delta", type=float, required=True, help="δ at which ε is read."),
    click.option(
        "--calibrate", metavar="epsilon=ε", help="Find what was left out (the noise, or the steps) for this ε."
    ),
    relation_option,
)


@click.group("price")
def group() -> None:
    """What an event costs by every method of composition. Touches no data and no ledger."""


@group.command(
    "dpsgd",
    cls=Command,
    example="""discreet price dpsgd --examples 60000 --batch-size 512 --epochs 15 --noise 1.1 --delta 1e-5
    discreet price dpsgd --examples 60000 --batch-size 512 --epochs 15 --delta 1e-5 --calibrate epsilon=3""",
)
@click.option("--examples", type=int, required=True, help="How many examples there are.")
@click.option("--batch-size", type=int, required=True, help="How many of them a step uses on average.")
@click.option("--epochs", type=float, help="How often each example is used on average.")
@click.option("--steps", type=int, help="Instead of --epochs: how many steps.")
@click.option("--noise", type=float, help="The noise multiplier: σ over the clipping norm.")
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
    """Training with DP-SGD on Poisson batches: each example joins a batch on its own with probability B/N.

    Batches that are shuffled instead are another event and have another price: give it to `discreet price json`.
    """
    _check.integer("--examples", examples, "it is the public number of examples")
    _check.integer("--batch-size", batch_size, "a batch is a part of the examples", at_most=examples)
    if epochs is not None and steps is not None:
        raise InvalidArgument("--steps must not be given beside --epochs: they say the same")
    rate = batch_size / examples
    if epochs is not None:
        _check.positive("--epochs", epochs, "it is how often each example is used on average")
        steps = max(1, round(epochs * examples / batch_size))  # as a plan of discreet.learning counts

    def run(noise: float, steps: int) -> Event:
        return ev.Repeated(ev.PoissonSampled(rate, ev.Gaussian(noise)), steps)

    asked = _Asked(run, noise, steps, delta, calibrate, as_relation(relation), ("--noise", "--epochs or --steps"))
    found = _solve(output, asked)
    words = (
        f"DP-SGD: {found.steps:,} step{'s' * (found.steps != 1)} on Poisson batches of {batch_size:,} of "
        f"{examples:,} examples "
        f"(rate {rate:.6g}), noise multiplier {found.noise:.6g}"
    )
    _show(output, found, words)


def _single(make: Callable[[float], Event], label: str) -> Callable[..., None]:
    """The command of a mechanism that is run some number of times."""

    def price(
        output: Output, noise: float | None, times: int | None, delta: float, calibrate: str | None, relation: str
    ) -> None:
        def run(noise: float, steps: int) -> Event:
            return make(noise) if steps == 1 else ev.Repeated(make(noise), steps)

        many = times if times is not None or (noise is not None and calibrate is not None) else 1
        found = _solve(
            output, _Asked(run, noise, many, delta, calibrate, as_relation(relation), ("--noise", "--times"))
        )
        _show(output, found, f"{label} noise of {found.noise:.6g} times the sensitivity, {found.steps:,} times")

    return price


def _simple(name: str, text: str, example: str, make: Callable[[float], Event], label: str) -> None:
    called = options(
        click.option("--noise", type=float, help=text),
        click.option("--times", type=int, help="How many times it is run.  [default: 1]"),
        price_options,
    )(with_output(_single(make, label)))
    command = click.command(name, cls=Command, example=example, help=f"{label} noise, once or many times.")(called)
    group.add_command(command)


_simple(
    "gaussian",
    "σ over the L2 sensitivity.",
    "discreet price gaussian --noise 4 --times 10 --delta 1e-6",
    ev.Gaussian,
    "Gaussian",
)
_simple(
    "laplace",
    "Its scale b over the L1 sensitivity.",
    "discreet price laplace --times 100 --delta 1e-5 --calibrate epsilon=1",
    ev.Laplace,
    "Laplace",
)


@group.command("json", cls=Command, example="discreet price json event.json --delta 1e-6")
@click.argument("file")
@click.option("--delta", type=float, required=True, help="δ at which ε is read.")
@options(relation_option)
@with_output
def from_json(output: Output, file: str, delta: float, relation: str) -> None:
    """Any event, from FILE (or - for the standard input) in the ledger's own JSON.

    `discreet ledger statement --json` shows each charge's event in that form, under "code". Numbers may be written as
    plain JSON numbers too.
    """
    try:
        event = codec.decode_tree(codec.from_numbers(json.loads(read_text(file)), "FILE"))
    except (json.JSONDecodeError, RecursionError):
        raise InvalidArgument(f"FILE must hold JSON, got {file!r}: such as {_EXAMPLE}") from None
    except NotALedger as error:
        found = str(error).removeprefix("a stored code ").partition(": the ledger was edited")[0]
        raise InvalidArgument(f"FILE {found.removeprefix('FILE ')}: write events such as {_EXAMPLE}") from None
    with output.working("Pricing"):
        table = _priced(event, delta, as_relation(relation))
    _show(output, _Found(event, None, None, table, None), repr(event))


_EXAMPLE = '{"tag": "gaussian", "noise_multiplier": 2.0}'


@dataclass(frozen=True)
class _Asked:
    run: Callable[[float, int], Event]
    noise: float | None
    steps: int | None
    delta: float
    calibrate: str | None
    relation: Relation
    flags: tuple[str, str]


@dataclass(frozen=True)
class _Found:
    event: Event
    noise: float | None
    steps: int | None
    table: Comparison
    calibrated: str | None


def _solve(output: Output, asked: _Asked) -> _Found:
    """Fill in what was left out, and price the whole."""
    noise, steps, calibrated = asked.noise, asked.steps, None
    missing = [flag for flag, value in zip(asked.flags, (noise, steps), strict=True) if value is None]
    if asked.calibrate is not None:
        if len(missing) != 1:
            left = "neither" if not missing else "both"
            raise InvalidArgument(
                f"--calibrate must find one of {asked.flags[0]} and {asked.flags[1]}, got {left} left out: "
                "leave out the one to find"
            )
        budget = ApproxDP(_target(asked.calibrate), float(_check.delta(asked.delta)))
        calibrated = "noise" if noise is None else "steps"
        with output.working(f"Finding the {calibrated}"):
            if noise is None:
                many = _check.integer("steps", steps, "it is how often it is run", at_most=10**9)
                noise = calibrate(lambda x: asked.run(x, many), budget, relation=asked.relation)
            else:
                fixed = noise
                steps = most_steps(lambda k: asked.run(fixed, k), budget, relation=asked.relation)
                if steps == 0:
                    raise InvalidArgument(f"--noise must be larger, got {noise:g}: not even one step fits {budget}")
    elif missing:
        raise InvalidArgument(f"{' and '.join(missing)} must be given, or found with --calibrate epsilon=3")
    assert noise is not None
    many = _check.integer("steps", steps, "it is how often it is run", at_most=10**9)
    event = asked.run(noise, many)
    with output.working("Pricing"):
        table = _priced(event, asked.delta, asked.relation)
    return _Found(event, noise, many, table, calibrated)


def _priced(event: Event, delta: float, relation: Relation) -> Comparison:
    try:
        return compare(event, delta, relation)
    except ArithmeticError:
        raise InvalidArgument("event must be of a sensible size: its price leaves the range of floats") from None


def _target(text: str) -> float:
    name, value = assignment(text, "--calibrate")
    try:
        epsilon = float(value)
    except ValueError:
        epsilon = math.nan
    if name != "epsilon" or not epsilon > 0:
        raise InvalidArgument(f"--calibrate must be epsilon=ε with a number ε > 0, got {text!r}: such as epsilon=3")
    return epsilon


def _show(output: Output, found: _Found, words: str) -> None:
    table = found.table
    if output.json:
        answer: dict[str, Any] = {
            "event": codec.encode_tree(found.event),
            "delta": table.delta,
            "relation": table.relation.value,
            "epsilon": table.epsilon("tight"),
            "methods": table.rows(),
        }
        if found.noise is not None:
            answer |= {"noise_multiplier": found.noise, "steps": found.steps, "calibrated": found.calibrated}
        output.emit(answer)
        return
    output.say(f"{words}\nδ = {table.delta:g}, {table.relation.value}\n")
    rows = [(row.method, number(row.epsilon), row.standing, row.note) for row in table.lines]
    output.table(("method", "epsilon", "standing", "note"), rows, right=("epsilon",))
    if found.calibrated == "noise":
        output.say(f"\nfound: noise multiplier {found.noise:.6g}")
    elif found.calibrated == "steps":
        output.say(f"\nfound: {found.steps:,} steps")
    charge = table.epsilon("tight")
    if charge is not None:
        output.say(f"\ncharge ε = {charge:.6g} for it, as one event that was fixed in advance")
