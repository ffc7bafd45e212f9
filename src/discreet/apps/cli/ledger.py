"""`discreet ledger`: open a budget, divide it, and see who spent what."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import click

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.printing import Output, percent, printable, read_text
from discreet.apps.cli.shared_options import (
    account_of,
    account_options,
    budget_of,
    budget_options,
    open_account,
    open_ledger,
    relation_option,
    unit_of,
    unit_options,
)
from discreet.errors import InvalidArgument, LedgerError
from discreet.ledger import Account, Ledger
from discreet.ledger.access import access_disagreement
from discreet.ledger.evidence import AnchorFile, PublicKeys, SigningKey, export
from discreet.ledger.receipt import anchor
from discreet.ledger.statement import ADAPTIVE, FIXED, Statement, Summary
from discreet.ledger.stores.guarded import guard
from discreet.neighbors import relation as as_relation

LEDGER = click.argument("ledger", metavar="LEDGER")


@click.group("ledger")
def group() -> None:
    """Open a budget, divide it among people, and see who spent what.

    LEDGER is the path of a SQLite file or a postgresql:// URL.
    """


@group.command(
    "init", cls=Command, example="discreet ledger init census.ledger --account census --epsilon 3 --delta 1e-6"
)
@LEDGER
@click.option("--account", required=True, help="The account's name: one account per dataset.")
@options(budget_options, unit_options, relation_option)
@click.option("--aside", type=float, default=0.0, help="Part of δ reserved for releases that need their own δ.")
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
    """Open an account with a fixed budget, in a new or an existing ledger."""
    budget = budget_of(epsilon, delta, rho, mu)
    protected = unit_of(unit, max_rows, max_groups)
    with Ledger(ledger) as opened:
        _show_account(output, opened.account(account, budget, protected, as_relation(relation), aside=aside))


@group.command("accounts", cls=Command, example="discreet ledger accounts census.ledger")
@LEDGER
@with_output
def accounts(output: Output, ledger: str) -> None:
    """List all accounts and sub-accounts, and how much of each is used."""
    standings = [(account, account.summary()) for account in open_ledger(ledger).accounts()]
    if output.json:
        output.emit([_account(account, standing) for account, standing in standings])
        return
    rows = [
        (
            account.name,
            str(_alone(account.budget)),
            str(account.neighbors),
            percent(standing.used),
            standing.charges,
        )
        for account, standing in standings
    ]
    output.table(("account", "budget", "protects", "used", "charges"), rows, right=("used", "charges"))


@group.command(
    "allot", cls=Command, example="discreet ledger allot census.ledger ann --account census --epsilon 1 --delta 1e-6"
)
@LEDGER
@click.argument("names", metavar="[ACCOUNT] NAME", nargs=-1)
@click.option("--account", help="Same as ACCOUNT. Optional if the ledger has only one dataset.")
@options(budget_options)
@click.option("--aside", type=float, default=0.0, help="Part of δ reserved for releases that need their own δ.")
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
    aside: float,
) -> None:
    """Open a sub-account NAME of ACCOUNT with its own budget.

    Whatever it spends is also charged to ACCOUNT, in the same transaction. The budgets of sub-accounts may add up to
    more than ACCOUNT's, whose limit always holds.
    """
    if not 1 <= len(names) <= 2:
        raise InvalidArgument(f"NAME must be one name, got {len(names)}: it names the sub-account")
    budget = budget_of(epsilon, delta, rho, mu)
    above = account_of(names[0] if len(names) == 2 else None, account)
    _show_account(output, open_account(ledger, above).allot(names[-1], budget, aside=aside))


@group.command("statement", cls=Command, example="discreet ledger statement census.ledger --account census")
@LEDGER
@options(account_options)
@click.option("--delta", type=float, help="δ of the tight bound.  [default: the budget's]")
@with_output
def statement(output: Output, ledger: str, named: str | None, account: str | None, delta: float | None) -> None:
    """Show who spent what from ACCOUNT, and for which purpose.

    ACCOUNT is optional if the ledger has only one dataset. `discreet report` makes a page of it.
    """
    if delta is not None:
        _check.delta(delta)
    standing = open_account(ledger, account_of(named, account)).statement(delta)
    if output.json:
        output.emit(json.loads(standing.to_json()))
        return
    output.say(f"Account {standing.account}: {standing.budget}")
    output.say(f"  used       {percent(standing.used)}")
    if form_of(standing.budget).readable:  # Rényi orders mean nothing to a reader; --json has them
        output.say(f"  spent      {standing.spent}")
    output.say(f"  remaining  {standing.room}")
    output.say(f"  bound      {standing.budget}\n             {ADAPTIVE}")
    output.say(f"  tight      {_tight(standing)}\n             {FIXED}\n")
    heads = ("#", "time", "by", "what", "share", "purpose", "event")
    rows = [
        (line.sequence, line.time[:19], line.who, line.kind, percent(line.share), line.description, str(line.event))
        for line in standing.lines
    ]
    output.table(heads, rows, right=("#", "share"))


@group.command("verify", cls=Command, example="discreet ledger verify census.ledger")
@LEDGER
@click.option(
    "--receipt",
    multiple=True,
    metavar="FILE",
    help="A receipt that the ledger must contain: its JSON, or the output of `discreet query --json`.",
)
@click.option("--anchors", metavar="FILE", help="Signed heads that the ledger must contain; needs --keys.")
@click.option("--keys", metavar="FILE", help="The steward's list of public keys.")
@with_output
def verify(output: Output, ledger: str, receipt: tuple[str, ...], anchors: str | None, keys: str | None) -> int:
    """Recompute everything from the entries. The exit code is 1 if anything disagrees."""
    if (anchors is None) != (keys is None):
        raise InvalidArgument("--anchors must be given together with --keys: heads are worth what their signature is")
    with output.working("Recomputing every entry"):
        opened = open_ledger(ledger)
        result = opened.verify([_receipt(path) for path in receipt])
        if result and anchors is not None and keys is not None:
            result = AnchorFile(anchors).verify(opened, PublicKeys.of_file(keys))
        if result and (wrong := access_disagreement(opened)):
            result = replace(result, problem=f"users and policies: {wrong}")
    if output.json:
        output.emit(
            {
                "agrees": bool(result),
                "accounts": result.accounts,
                "entries": result.entries,
                "account": result.account,
                "sequence": result.sequence,
                "problem": result.problem,
            }
        )
    elif result:
        output.say(str(result))
    else:
        click.echo(printable(f"error: {result}: keep the file and compare it with a backup"), err=True)
    return 0 if result else 1


@group.command("anchor", cls=Command, example="discreet ledger anchor census.ledger --key steward.key --to heads.jsonl")
@LEDGER
@click.option("--key", required=True, metavar="FILE", help="The steward's signing key.")
@click.option("--to", required=True, metavar="FILE", help="Where signed heads are kept, outside the ledger.")
@with_output
def anchor_head(output: Output, ledger: str, key: str, to: str) -> None:
    """Sign the state of every account, and append it to a file that writers of the ledger cannot change."""
    head = AnchorFile(to).append(open_ledger(ledger), SigningKey.load(key))
    if output.json:
        output.emit(json.loads(head.text))
    else:
        output.say(f"{len(head.anchors)} accounts are anchored in {to} as of {head.time[:19]}.")


@group.command(
    "guard", cls=Command, example="discreet ledger guard postgresql://owner@db.example/privacy --role discreet_server"
)
@LEDGER
@click.option("--role", required=True, help="The existing role that the server connects as.")
@click.option("--no-open", is_flag=True, help="Let only the owner open accounts and parts.")
@with_output
def guard_database(output: Output, ledger: str, role: str, no_open: bool) -> None:
    """Let ROLE write to a ledger in PostgreSQL only through functions that check every charge.

    Run it as the owner of the ledger's tables. It can be repeated.
    """
    guard(ledger, role, may_open=not no_open)
    if output.json:
        output.emit({"role": role, "may_open": not no_open})
    else:
        output.say(f"Role {role} writes to the ledger through checked functions only.")


@group.command("export", cls=Command, example="discreet ledger export census.ledger")
@LEDGER
@with_output
def export_lines(output: Output, ledger: str) -> None:
    """Print every entry, change of users and policies, and refused attempt, as JSON lines for an auditor.

    With --json they are one list, which needs memory for all of them.
    """
    lines = export(open_ledger(ledger))
    if output.json:
        output.emit([json.loads(line) for line in lines])
        return
    for line in lines:
        click.echo(line)


def _receipt(path: str) -> str:
    """A receipt from its own file, or from the output of `discreet query --json`."""
    text = read_text(path)
    try:
        kept = json.loads(text)
        text = json.dumps(kept["receipt"]) if isinstance(kept, dict) and "receipt" in kept else text
        anchor(text)
    except (ValueError, LedgerError):
        remedy = 'give the output of discreet query --json, or its "receipt"'
        raise InvalidArgument(f"--receipt must be a receipt of a ledger, got {path!r}: {remedy}") from None
    return text


def _tight(standing: Statement) -> str:
    if standing.tight is None:
        return standing.tight_note
    return f"ε between {standing.tight.lower:.6g} and {standing.tight.upper:.6g} at δ = {standing.delta:g}"


def _alone(budget: Any) -> Any:
    """A budget without whom it protects, which the table shows in another column."""
    return type(budget)(**{name: getattr(budget, name) for name in budget.__match_args__})


def _account(account: Account, standing: Summary) -> dict[str, Any]:
    return {
        "account": account.name,
        "budget": str(account.budget),
        "protects": str(account.neighbors),
        "used": standing.used,
        "remaining": str(standing.remaining),
        "room": standing.room,
        "charges": standing.charges,
    }


def _show_account(output: Output, account: Account) -> None:
    standing = account.summary()
    if output.json:
        output.emit(_account(account, standing))
    else:
        output.say(f"Account {account.name} is open: {account.budget}; used: {percent(standing.used)}.")
