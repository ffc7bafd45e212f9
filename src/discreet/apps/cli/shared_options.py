"""Options and arguments that several commands take: budgets, units, ledgers and accounts."""

from __future__ import annotations

from pathlib import Path

import click

from discreet.apps import budgets
from discreet.apps.cli.command import options
from discreet.errors import InvalidArgument
from discreet.guarantees import Guarantee
from discreet.ledger import Account, Ledger
from discreet.neighbors import Client, Person, Relation, Rows, Unit

# --- budgets ------------------------------------------------------------------------------------------------------

budget_options = options(
    click.option("--epsilon", type=float, help="ε of the budget."),
    click.option("--delta", type=float, help="δ of an (ε, δ) budget. Without it the budget is pure ε-DP."),
    click.option("--rho", type=float, help="Instead of --epsilon: ρ of a zCDP budget."),
    click.option("--mu", type=float, help="Instead of --epsilon: μ of a Gaussian DP budget."),
)


def budget_of(epsilon: float | None, delta: float | None, rho: float | None, mu: float | None) -> Guarantee:
    """The budget that the flags describe."""
    return budgets.budget_of(epsilon, delta, rho, mu, prefix="--")


# --- who is protected ---------------------------------------------------------------------------------------------

RELATIONS = click.Choice([relation.value for relation in Relation])

unit_options = options(
    click.option(
        "--unit",
        metavar="COLUMN",
        help="Protect persons, identified by COLUMN.  [default: rows, or the account's unit]",
    ),
    click.option("--max-rows", type=int, help="With --unit: the most rows of one person that a query uses."),
    click.option("--max-groups", type=int, help="With --unit: the most groups in which one person counts."),
)

relation_option = click.option(
    "--relation", type=RELATIONS, default="add/remove", show_default=True, help="Which datasets are neighbors."
)


def unit_of(
    column: str | None, max_rows: int | None, max_groups: int | None, account_unit: Unit | Client | None = None
) -> Unit | None:
    """The unit that the flags describe, or None. The limits of the account's unit need not be repeated."""
    if column is None:
        if max_rows is not None or max_groups is not None:
            raise InvalidArgument("--max-rows and --max-groups must be used with --unit: name the column of the id")
        return None
    if column == "rows" and max_rows is None:
        return Rows()
    no_limits = max_rows is None and max_groups is None
    if no_limits and isinstance(account_unit, Person) and account_unit.column == column:
        return account_unit
    if max_rows is None:
        raise InvalidArgument(f"--unit {column} must be used with --max-rows: it bounds what one person contributes")
    return Person(column, max_rows, max_groups)


# --- ledgers ------------------------------------------------------------------------------------------------------


def open_ledger(location: str) -> Ledger:
    """Open an existing ledger; it closes when the command ends."""
    if "://" not in location and not Path(location).exists():
        remedy = "create one with discreet ledger init"
        raise InvalidArgument(f"LEDGER must exist, got {location!r}: {remedy}")
    return click.get_current_context().with_resource(Ledger(location, create=False))


account_options = options(
    click.argument("named", metavar="[ACCOUNT]", required=False),
    click.option("--account", help="Same as ACCOUNT. Optional if the ledger has only one dataset."),
)


def account_of(named: str | None, option: str | None) -> str | None:
    """The account's name, given as an argument or by --account."""
    if named is not None and option is not None and named != option:
        raise InvalidArgument(f"ACCOUNT must be given once, got {named!r} and --account {option!r}: omit one of them")
    return option if named is None else named


def open_account(location: str, name: str | None) -> Account:
    """Open an account of an existing ledger: the named one, or the only dataset."""
    ledger = open_ledger(location)
    names = [account.name for account in ledger.accounts()]
    if not names:
        raise InvalidArgument(f"LEDGER must have an account, got {location!r}: open one with discreet ledger init")
    if name is None:
        datasets = [each for each in names if "/" not in each]
        if len(datasets) != 1:
            raise InvalidArgument(
                f"--account must be given because the ledger has {len(datasets)} datasets: one of {', '.join(names)}"
            )
        name = datasets[0]
    if name not in names:
        raise InvalidArgument(f"--account must be an account of the ledger, got {name!r}: it has {', '.join(names)}")
    return ledger.account(name)


def assignment(text: str, flag: str) -> tuple[str, str]:
    """Split NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip() and value.strip()):
        raise InvalidArgument(f"{flag} must be NAME=VALUE, got {text!r}: such as {flag} {_EXAMPLES[flag]}")
    return name.strip(), value.strip()


_EXAMPLES = {
    "--bounds": "age=0,120",
    "--calibrate": "epsilon=3",
    "--count": "people=20",
    "--keys": "sex=Female,Male",
    "--person": "orders=customer_id",
    "--public": "wards=wards.csv",
    "--selection": "region=50,100",
    "--table": "orders=orders.parquet",
    "--training": "model=30000,512,10,1.1",
    "--weight": "people=2",
}
