"""`discreet query`: one private answer from a file, charged to a ledger."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import click

from discreet import codec
from discreet.accounting.adaptive.advice import room_words
from discreet.apps.cli.command import Command, assignment, open_account, options, unit_of, unit_options, with_output
from discreet.apps.cli.output import Output, plain, read_text
from discreet.errors import InvalidArgument, MissingExtra


@click.command(
    "query",
    cls=Command,
    example="""discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" \
--keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --account census --preview
    discreet query people.parquet "SELECT sex, AVG(hours) AS hours FROM people GROUP BY sex" \
--keys sex=Female,Male --bounds hours=0,100 --epsilon 0.2 --ledger census.ledger --account census""",
)
@click.argument("data", metavar="DATA")
@click.argument("sql", metavar="SQL")
@click.option("--ledger", required=True, help="The ledger that holds the account.")
@click.option("--account", help="The account to charge; may be left out where the ledger has one dataset.")
@click.option("--epsilon", type=float, help="What the answer may cost.")
@click.option("--delta", type=float, help="With --epsilon: δ, for Gaussian noise and for discovered keys.")
@click.option("--rho", type=float, help="Instead of --epsilon: what it may cost in zCDP.")
@click.option(
    "--noise",
    type=click.Choice(["auto", "laplace", "gaussian"]),
    default="auto",
    show_default=True,
    help="Which noise; auto takes the smaller one.",
)
@click.option("--error", type=float, help="With --preview, instead of --epsilon: the 95% error that is wanted.")
@click.option("--bounds", multiple=True, metavar="COLUMN=LOWER,UPPER", help="Public bounds of a column; repeatable.")
@click.option(
    "--keys",
    multiple=True,
    metavar="COLUMN=A,B,…",
    help="Public group keys of a column, or COLUMN=@FILE with one in a line; repeatable.",
)
@click.option("--discover", is_flag=True, help="Find group keys privately instead of --keys; needs --delta.")
@options(unit_options)
@click.option("--rows", type=int, default=1000, show_default=True, help="With --preview: rows in a group, as a guess.")
@click.option("--purpose", help="What it is for, in the ledger.  [default: what was asked]")
@click.option("--key", help="A name for this release: a repetition is refused instead of charged twice.")
@click.option("--preview", is_flag=True, help="Show cost, expected error and SQL. Spends nothing, touches no row.")
@with_output
def command(
    output: Output,
    data: str,
    sql: str,
    ledger: str,
    account: str | None,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    noise: str,
    error: float | None,
    bounds: tuple[str, ...],
    keys: tuple[str, ...],
    discover: bool,
    unit: str | None,
    max_rows: int | None,
    max_groups: int | None,
    rows: int,
    purpose: str | None,
    key: str | None,
    preview: bool,
) -> None:
    """Answer SQL about DATA (a Parquet or CSV file) with noise, charged to an account before the query runs.

    SELECT with COUNT, SUM, AVG, MEDIAN, … FROM one table, WHERE and GROUP BY with public keys. Each number comes with
    its 95% error. Keys that look like numbers are numbers; put '…' around one that is text. Dates are 2024-12-31, and
    DATE '2024-12-31' in SQL.

    Guarantee: ε-DP for the account's unit and relation. Column names and types, keys and bounds are public.
    """
    try:
        from discreet.analytics import Private
        from discreet.analytics import discover as discovered
    except ModuleNotFoundError as missing:
        raise MissingExtra("queries need Ibis and DuckDB: pip install 'discreet[analytics]'") from missing
    if epsilon is None and rho is None and not (preview and error is not None):
        raise InvalidArgument("--epsilon must be given, got none: it is what the answer may cost")
    if error is not None and not (preview and epsilon is None and rho is None):
        raise InvalidArgument("--error must go with --preview and without --epsilon: it finds the ε for an error")
    if discover and keys:
        raise InvalidArgument("--discover must stand without --keys: the keys are given, or found")
    charged = open_account(ledger, account)
    private = Private(
        data,
        account=charged,
        unit=unit_of(unit, max_rows, max_groups, charged.neighbors.unit),
        bounds=dict(_bounds(text) for text in bounds),
    )
    # Column types are public, and a shell has no dates: their keys are written as text.
    types = private.schema()
    given = {name: _dated(name, listed, types.get(name)) for name, listed in map(_keys, keys)} or None
    answer = private.plan(sql, keys=discovered() if discover else given)
    if preview:
        found = answer.preview(epsilon=epsilon, delta=delta, rho=rho, noise=noise, error_target=error, rows=rows)
        if output.json:
            output.emit(_preview(found))
        else:
            output.say(str(found))
        return
    with output.working("Answering"):
        result = answer.release(epsilon=epsilon, delta=delta, rho=rho, noise=noise, purpose=purpose, key=key)
    cost = _cost(epsilon, delta, rho)
    if output.json:
        output.emit(_result(result, cost, sql))
        return
    numbers = [name for name, column in result.columns.items() if all(isinstance(v, int | float) for v in column)]
    output.table(tuple(result.columns), [tuple(row.values()) for row in result.rows()], right=numbers)
    if not result.rows():
        output.say("no key was common enough to come out")
    receipt = result.receipt
    output.say(f"\ncharged {cost} to {receipt.account} as entry {receipt.sequence}; errors are at 95%")


def _cost(epsilon: float | None, delta: float | None, rho: float | None) -> str:
    named = (("ε", epsilon), ("δ", delta), ("ρ", rho))
    return ", ".join(f"{name} = {value:g}" for name, value in named if value is not None)


def _result(result: Any, cost: str, sql: str) -> dict[str, Any]:
    return {
        "sql": sql,
        "cost": cost,
        "rows": plain(result.rows()),
        "group_columns": result.group_columns,
        "event": codec.encode_tree(result.event),
        "receipt": json.loads(result.receipt.to_json()),
    }


def _preview(found: Any) -> dict[str, Any]:
    return {
        "cost": found.cost,
        "epsilon": found.epsilon,
        "event": codec.encode_tree(found.event),
        "protects": str(found.neighbors),
        "groups": found.groups,
        "columns": [
            {"name": one.name, "epsilon": one.epsilon, "error": one.error, "unit": one.unit.strip(), "noise": one.noise}
            for one in found.columns
        ],
        "sql": found.sql,
        "remaining": str(found.remaining),
        "room": room_words(found.remaining, found.budget),
        "room_afterwards": None if found.afterwards is None else room_words(found.afterwards, found.budget),
        "affordable": found.affordable,
    }


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    name, value = assignment(text, "--bounds")
    try:
        low, high = (float(part) for part in value.split(","))
    except ValueError:
        raise InvalidArgument(f"--bounds must be COLUMN=LOWER,UPPER, got {text!r}: such as age=0,120") from None
    return name, (low, high)


def _keys(text: str) -> tuple[str, list[Any]]:
    name, value = assignment(text, "--keys")
    if value.startswith("@"):
        listed = [line.strip() for line in read_text(value[1:]).splitlines() if line.strip()]
    else:
        listed = [part.strip() for part in value.split(",")]
    return name, [_literal(part) for part in listed]


def _dated(name: str, listed: list[Any], kind: Any) -> list[Any]:
    """The keys of a column of dates or times as such; those of other columns as they are."""
    if kind is None or not (kind.is_date() or kind.is_timestamp()):
        return listed
    read = date.fromisoformat if kind.is_date() else datetime.fromisoformat
    try:
        return [read(str(key)) for key in listed]
    except ValueError:
        raise InvalidArgument(
            f"--keys of {name} must be dates, got {listed!r}: write 2024-12-31, or 2024-12-31T23:59:59"
        ) from None


def _literal(text: str) -> Any:
    """A key as it was meant: 'quoted' is text, a number is a number, true and false are themselves."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
