"""`discreet ledger`: open a budget, part it, and see who spent what."""

from __future__ import annotations

import json
from typing import Any

import click

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.apps.cli.command import (
    Command,
    account_of,
    account_options,
    budget_of,
    budget_options,
    open_account,
    open_ledger,
    options,
    relation_option,
    unit_of,
    unit_options,
    with_output,
)
from discreet.apps.cli.output import Output, percent, printable, read_text
from discreet.errors import InvalidArgument, LedgerError
from discreet.ledger import Account, Ledger
from discreet.ledger.receipt import anchor
from discreet.ledger.statement import ADAPTIVE, FIXED, Statement
from discreet.neighbors import relation as as_relation

LEDGER = click.argument("ledger", metavar="LEDGER")


@click.group("ledger")
def group() -> None:
    """Open a budget, part it among people, and see who spent what.

    LEDGER is the path of a SQLite file, or a postgresql:// URL.
    """


@group.command(
    "init", cls=Command, example="discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6"
)
@LEDGER
@click.option("--account", required=True, help="What the budget is for: one account for each dataset.")
@options(budget_options, unit_options, relation_option)
@click.option("--aside", type=float, default=0.0, help="Part of δ kept for events that bring their own.")
@with_output
def init(
    output: Output,
    ledger: str,
    account: str,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    mu: float | None,
    unit: str | None,
    max_rows: int | None,
    max_groups: int | None,
    relation: str,
    aside: float,
) -> None:
    """Open an account with a budget that never changes, in a new ledger or in one that exists."""
    budget = budget_of(epsilon, delta, rho, mu)
    protected = unit_of(unit, max_rows, max_groups)
    with Ledger(ledger) as opened:
        made = opened.account(account, budget, protected, as_relation(relation), aside=aside)
        _show_account(output, made, "open")


@group.command("accounts", cls=Command, example="discreet ledger accounts census.ledger")
@LEDGER
@with_output
def accounts(output: Output, ledger: str) -> None:
    """List all accounts and sub-accounts with what is used of them."""
    found = [(account, account.statement()) for account in open_ledger(ledger).accounts()]
    if output.json:
        output.emit([_account(account, statement) for account, statement in found])
        return
    rows = [
        (
            account.name,
            str(_alone(account.budget)),
            str(account.neighbors),
            percent(statement.used),
            len(statement.lines),
        )
        for account, statement in found
    ]
    output.table(("account", "budget", "protects", "used", "charges"), rows, right=("used", "charges"))


@group.command(
    "allot", cls=Command, example="discreet ledger allot census.ledger ann --account census --epsilon 1 --delta 1e-6"
)
@LEDGER
@click.argument("names", metavar="[ACCOUNT] NAME", nargs=-1)
@click.option("--account", help="The same as ACCOUNT; may be left out where the ledger has one dataset.")
@options(budget_options)
@with_output
def allot(
    output: Output,
    ledger: str,
    names: tuple[str, ...],
    account: str | None,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    mu: float | None,
) -> None:
    """Open a sub-account NAME of ACCOUNT with a budget of its own.

    What it spends is charged to ACCOUNT as well, in the same transaction. Parts may add up to more than the whole; the
    whole binds.
    """
    if not 1 <= len(names) <= 2:
        raise InvalidArgument(f"NAME must be given once, got {len(names)} names: say what the sub-account is called")
    budget = budget_of(epsilon, delta, rho, mu)
    above = account_of(names[0] if len(names) == 2 else None, account)
    made = open_account(ledger, above).allot(names[-1], budget)
    _show_account(output, made, "open")


@group.command("statement", cls=Command, example="discreet ledger statement census.ledger --account census")
@LEDGER
@options(account_options)
@click.option("--delta", type=float, help="δ of the tight figure.  [default: the budget's]")
@with_output
def statement(output: Output, ledger: str, named: str | None, account: str | None, delta: float | None) -> None:
    """Show what was spent from ACCOUNT by whom for what, and what that means.

    ACCOUNT may be left out where the ledger has one dataset only. `discreet report` makes a page of it.
    """
    if delta is not None:
        _check.delta(delta)
    found = open_account(ledger, account_of(named, account)).statement(delta)
    if output.json:
        output.emit(json.loads(found.to_json()))
        return
    output.say(f"Account {found.account}: {found.budget}")
    output.say(f"  used       {percent(found.used)}")
    if form_of(found.budget).readable:  # amounts at Rényi orders tell a reader nothing; --json has them
        output.say(f"  spent      {found.spent}")
    output.say(f"  remaining  {found.room}")
    output.say(f"  bound      {found.budget}\n             {ADAPTIVE}")
    output.say(f"  tight      {_tight(found)}\n             {FIXED}\n")
    heads = ("#", "time", "by", "what", "share", "purpose", "event")
    rows = [
        (line.sequence, line.time[:19], line.by, line.kind, percent(line.share), line.purpose, repr(line.event))
        for line in found.lines
    ]
    output.table(heads, rows, right=("#", "share"))


@group.command("verify", cls=Command, example="discreet ledger verify census.ledger")
@LEDGER
@click.option(
    "--receipt",
    multiple=True,
    metavar="FILE",
    help="A receipt kept elsewhere, that must be there: its JSON, or what `discreet query --json` printed.",
)
@with_output
def verify(output: Output, ledger: str, receipt: tuple[str, ...]) -> int:
    """Recompute everything from the entries; exit code 1 where something disagrees."""
    with output.working("Recomputing every entry"):
        found = open_ledger(ledger).verify([_receipt(path) for path in receipt])
    if output.json:
        output.emit(
            {
                "agrees": bool(found),
                "accounts": found.accounts,
                "entries": found.entries,
                "account": found.account,
                "sequence": found.sequence,
                "problem": found.problem,
            }
        )
    elif found:
        output.say(str(found))
    else:
        click.echo(printable(f"error: {found}: keep the file and compare it with a backup"), err=True)
    return 0 if found else 1


def _receipt(path: str) -> str:
    """A receipt that was kept by itself, or in what `discreet query --json` printed."""
    text = read_text(path)
    try:
        kept = json.loads(text)
        text = json.dumps(kept["receipt"]) if isinstance(kept, dict) and "receipt" in kept else text
        anchor(text)
    except (ValueError, LedgerError):
        remedy = 'keep what discreet query --json prints, or its "receipt"'
        raise InvalidArgument(f"--receipt must be a receipt of a ledger, got {path!r}: {remedy}") from None
    return text


def _tight(found: Statement) -> str:
    if found.tight is None:
        return found.tight_note
    return f"ε between {found.tight.lower:.6g} and {found.tight.upper:.6g} at δ = {found.delta:g}"


def _alone(budget: Any) -> Any:
    """A budget without whom it protects, for a table that says so in another column."""
    return type(budget)(**{name: getattr(budget, name) for name in budget.__match_args__})


def _account(account: Account, found: Statement) -> dict[str, Any]:
    return {
        "account": account.name,
        "budget": str(account.budget),
        "protects": str(account.neighbors),
        "used": found.used,
        "remaining": str(found.remaining),
        "room": found.room,
        "charges": len(found.lines),
    }


def _show_account(output: Output, account: Account, verb: str) -> None:
    found = account.statement()
    if output.json:
        output.emit(_account(account, found))
    else:
        output.say(f"Account {account.name} is {verb}: {account.budget}; used: {percent(found.used)}.")
