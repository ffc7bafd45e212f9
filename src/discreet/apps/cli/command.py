"""What all commands share: an example in the help, `--json`, `--debug`, and the flags that several of them take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from discreet.apps.cli.output import Output
from discreet.errors import InvalidArgument
from discreet.guarantees import GDP, ZCDP, ApproxDP, Guarantee, PureDP
from discreet.ledger import Account, Ledger
from discreet.neighbors import Person, Relation, Rows, Unit

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help ends with examples that the tests run as typed."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(line.strip() for line in example.strip().split("\n"))
        self.params += [_flag("--json", "Answer with JSON."), _flag("--debug", "Show a traceback where it fails.")]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            for line in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _flag(name: str, text: str) -> click.Option:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(context.ensure_object(Output), name.removeprefix("--"), True)

    return click.Option([name], is_flag=True, expose_value=False, is_eager=True, callback=remember, help=text)


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command its `Output` as first argument."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(click.get_current_context().ensure_object(Output), *args, **kwargs)

    return called


def options(*decorators: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


# --- budgets ------------------------------------------------------------------------------------------------------

budget_options = options(
    click.option("--epsilon", type=float, help="ε of the budget."),
    click.option("--delta", type=float, help="δ of an (ε, δ) budget; without it the budget is pure."),
    click.option("--rho", type=float, help="Instead of ε: a zCDP budget."),
    click.option("--mu", type=float, help="Instead of ε: a Gaussian DP budget."),
)


def budget_of(epsilon: float | None, delta: float | None, rho: float | None, mu: float | None) -> Guarantee:
    """The budget that the flags name."""
    given = [name for name, value in (("--epsilon", epsilon), ("--rho", rho), ("--mu", mu)) if value is not None]
    if len(given) != 1:
        raise InvalidArgument(
            f"budget must be given once, got {' and '.join(given) or 'nothing'}: "
            "use --epsilon (with --delta for an (ε, δ) budget), --rho or --mu"
        )
    if delta is not None and epsilon is None:
        raise InvalidArgument(f"--delta must go with --epsilon, got {given[0]}: leave --delta out")
    if rho is not None:
        return ZCDP(rho)
    if mu is not None:
        return GDP(mu)
    assert epsilon is not None
    return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)


# --- who is protected ---------------------------------------------------------------------------------------------

RELATIONS = click.Choice([known.value for known in Relation])

unit_options = options(
    click.option(
        "--unit",
        metavar="COLUMN",
        help="Protect persons, found by the id in COLUMN.  [default: rows, or the account's unit]",
    ),
    click.option("--max-rows", type=int, help="With --unit: how many rows of one person a query uses at most."),
    click.option("--max-groups", type=int, help="With --unit: in how many groups one person counts at most."),
)

relation_option = click.option(
    "--relation", type=RELATIONS, default="add/remove", show_default=True, help="Which datasets are neighbors."
)


def unit_of(column: str | None, max_rows: int | None, max_groups: int | None, known: Unit | None = None) -> Unit | None:
    """The unit that the flags name; None where they name none. The limits of a `known` unit need not be said again."""
    if column is None:
        if max_rows is not None or max_groups is not None:
            raise InvalidArgument(
                "--max-rows and --max-groups must go with --unit, got no --unit: name the id's column"
            )
        return None
    if column == "rows" and max_rows is None:
        return Rows()
    if isinstance(known, Person) and known.column == column and max_rows is None and max_groups is None:
        return known
    if max_rows is None:
        raise InvalidArgument(f"--max-rows must go with --unit, got --unit {column}: it bounds what one person adds")
    return Person(column, max_rows, max_groups)


# --- ledgers ------------------------------------------------------------------------------------------------------


def open_ledger(location: str) -> Ledger:
    """A ledger that exists, closed when the command ends."""
    if "://" not in location and not Path(location).exists():
        remedy = "start one with discreet ledger init"
        raise InvalidArgument(f"LEDGER must be a ledger that exists, got {location!r}: {remedy}")
    return click.get_current_context().with_resource(Ledger(location, create=False))


account_options = options(
    click.argument("named", metavar="[ACCOUNT]", required=False),
    click.option("--account", help="The same as ACCOUNT; may be left out where the ledger has one dataset."),
)


def account_of(named: str | None, option: str | None) -> str | None:
    """The account's name, given as an argument or by --account."""
    if named is not None and option is not None and named != option:
        raise InvalidArgument(
            f"ACCOUNT must be named once, got {named!r} and --account {option!r}: leave one of them out"
        )
    return option if named is None else named


def open_account(location: str, name: str | None) -> Account:
    """An account of a ledger that exists; its only dataset where no name is given."""
    ledger = open_ledger(location)
    known = [account.name for account in ledger.accounts()]
    if not known:
        raise InvalidArgument(f"LEDGER must have an account, got {location!r}: open one with discreet ledger init")
    if name is None:
        whole = [each for each in known if "/" not in each]
        if len(whole) != 1:
            raise InvalidArgument(
                f"--account must be given where a ledger has {len(whole)}, one of: {', '.join(known)}"
            )
        name = whole[0]
    if name not in known:
        raise InvalidArgument(f"--account must be one of the ledger's, got {name!r}: it has {', '.join(known)}")
    return ledger.account(name)


def assignment(text: str, flag: str) -> tuple[str, str]:
    """NAME=VALUE in two."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InvalidArgument(f"{flag} must be NAME=VALUE, got {text!r}: such as {flag} {EXAMPLES[flag]}")
    return name.strip(), value.strip()


EXAMPLES = {"--bounds": "age=0,120", "--keys": "sex=Female,Male", "--calibrate": "epsilon=3"}
