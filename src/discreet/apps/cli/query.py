"""`discreet query`: a private answer from a file, charged to a ledger."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from discreet import codec
from discreet.accounting.adaptive.advice import room_words
from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.key_lists import dated, key_list
from discreet.apps.cli.partitions import AskedParts, release_parts
from discreet.apps.cli.printing import Output
from discreet.apps.cli.remedies import in_flags
from discreet.apps.cli.results import answer_json, cost_text, is_number
from discreet.apps.cli.shared_options import assignment, open_account, unit_of, unit_options
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
@click.option("--account", help="The account to charge. Optional if the ledger has only one dataset.")
@click.option("--epsilon", type=float, help="ε to spend on the answer.")
@click.option("--delta", type=float, help="δ to spend, for Gaussian noise and discovered keys.")
@click.option("--rho", type=float, help="Instead of --epsilon: ρ (zCDP) to spend on the answer.")
@click.option(
    "--noise",
    type=click.Choice(["auto", "laplace", "gaussian"]),
    default="auto",
    show_default=True,
    help="Which noise; auto takes the one with the smaller error.",
)
@click.option("--error", type=float, help="With --preview, instead of --epsilon: the 95% error to aim for.")
@click.option("--bounds", multiple=True, metavar="COLUMN=LOWER,UPPER", help="Public bounds of a column. Repeatable.")
@click.option(
    "--keys",
    multiple=True,
    metavar="COLUMN=A,B,…",
    help="Public group keys of a column, COLUMN=@FILE with one key per line, COLUMN=2023-01..2024-12 (or days, or "
    "integers), or COLUMN='months(2023-01, 2024-12)' (or days, weeks, quarters, years). Repeatable.",
)
@click.option(
    "--table",
    "others",
    multiple=True,
    metavar="NAME=DATA",
    help="Another private table of the account, for JOIN; its persons are joined. Repeatable.",
)
@click.option(
    "--public",
    "public_tables",
    multiple=True,
    metavar="NAME=DATA",
    help="A table that anybody may see, for JOIN. Repeatable.",
)
@click.option(
    "--person",
    "persons",
    multiple=True,
    metavar="NAME=COLUMN",
    help="The column with the person's id in a --table, where it has another name. Repeatable.",
)
@click.option(
    "--partition",
    metavar="COLUMN=A,B,…",
    help="Ask about disjoint parts one by one, by the public keys of a column or of an SQL expression: "
    "\"DATE_TRUNC('month', day) AS month=2023-01..2023-12\". The account counts only the costliest parts.",
)
@click.option("--part", "parts", multiple=True, metavar="KEY", help="With --partition: ask only this part. Repeatable.")
@click.option(
    "--max-parts", type=int, help="With --partition, where persons are protected: the most parts a person counts in."
)
@click.option("--discover", is_flag=True, help="Instead of --keys: find the group keys privately. Needs --delta.")
@options(unit_options)
@click.option(
    "--rows", type=int, default=1000, show_default=True, help="With --preview: a guess of the rows in a group."
)
@click.option("--purpose", help="Purpose to record in the ledger.  [default: the question]")
@click.option("--key", help="A name for this release. A second release of that name is refused, not charged.")
@click.option("--preview", is_flag=True, help="Show the cost and the expected error. Spends nothing, reads no row.")
@click.option(
    "--bias",
    is_flag=True,
    help="Instead of the answer: estimate what its bounds and limits change, for --epsilon. Charged like an answer.",
)
@click.option("--show-sql", is_flag=True, help="With --preview: also show the SQL that the engine would run.")
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
    others: tuple[str, ...],
    public_tables: tuple[str, ...],
    persons: tuple[str, ...],
    partition: str | None,
    parts: tuple[str, ...],
    max_parts: int | None,
    discover: bool,
    unit: str | None,
    max_rows: int | None,
    max_groups: int | None,
    rows: int,
    purpose: str | None,
    key: str | None,
    preview: bool,
    bias: bool,
    show_sql: bool,
) -> None:
    """Answer SQL about DATA with noise. The account is charged before the query runs.

    DATA is a Parquet or CSV file, a quoted pattern of such files ('visits-*.parquet'), a DuckDB file
    (duckdb:///clinic.duckdb?table=visits), or a PostgreSQL table (postgresql://user@host/clinic?table=visits).

    SQL is a SELECT of COUNT, SUM, AVG, MEDIAN, … FROM DATA, under any name, with WHERE, GROUP BY and sub-queries, and
    with JOIN of tables from --table and --public. Each number comes with its ±: the half width of its 95% interval,
    which covers the noise but not what bounds and limits change (see --bias). Keys that look like numbers are numbers;
    put text that looks like a number, or that holds a comma, in quotes. Write dates as 2024-12-31 in --keys and as
    DATE '2024-12-31' in SQL.

    Guarantee: ε-DP for the account's unit and relation. Column names and types, keys and bounds are public.
    """
    try:
        from discreet.analytics import Private, public
        from discreet.analytics import discover as discovered
        from discreet.analytics.table.doors import parsed
    except ModuleNotFoundError as missing:
        raise MissingExtra("queries need Ibis and DuckDB: pip install 'discreet[analytics]'") from missing
    if epsilon is None and rho is None and not (preview and error is not None):
        raise InvalidArgument("--epsilon must be given: it is what the answer may cost")
    if error is not None and not (preview and epsilon is None and rho is None):
        raise InvalidArgument("--error must be used with --preview and without --epsilon: it finds the ε for an error")
    if discover and keys:
        raise InvalidArgument("--discover must not be used with --keys: keys are either given or discovered")
    charged = open_account(ledger, account)
    declared = dict(_bounds(text) for text in bounds)
    ids = dict(assignment(text, "--person") for text in persons)
    private_data = dict(assignment(text, "--table") for text in others)
    if unknown := ids.keys() - private_data.keys():
        raise InvalidArgument(f"--person must name a --table, got {', '.join(sorted(unknown))}: name the table first")

    def opened(source: str, **options: Any) -> Any:
        """A private table with the bounds of those columns that it has."""
        table = Private(source, account=charged, **options)
        own = {name: pair for name, pair in declared.items() if name in table.columns}
        return Private(source, account=charged, bounds=own, **options) if own else table

    protected = unit_of(unit, max_rows, max_groups, charged.neighbors.unit)
    if private_data:
        private = opened(data, unit=protected)
    else:
        private = Private(data, account=charged, unit=protected, bounds=declared)
    tables = {name: opened(source, person=ids.get(name)) for name, source in private_data.items()}
    columns = {column for table in (private, *tables.values()) for column in table.columns}
    if unknown := declared.keys() - columns:
        raise InvalidArgument(
            f"--bounds must name columns of private tables, got {', '.join(sorted(unknown))}: for a public one write "
            "CLAMP(column, lower, upper) in SQL"
        )
    tables |= {name: public(source) for name, source in (assignment(text, "--public") for text in public_tables)}
    # A shell has no dates, so keys of date columns are written as text. Column types are public.
    types = dict(private.schema())
    for table in tables.values():
        types |= table.schema() if isinstance(table, Private) else {}
    with suppress(InvalidArgument):  # what is wrong with the question is said below
        types |= parsed(private, sql, tables)[1].schema()  # of computed columns as well
    given = {name: dated("--keys", name, listed, types.get(name)) for name, listed in map(key_list, keys)} or None
    asked_keys = discovered() if discover else given
    if partition is None and (parts or max_parts is not None):
        raise InvalidArgument("--part and --max-parts must be used with --partition: name the column of the parts")
    spend = {"epsilon": epsilon, "delta": delta, "rho": rho, "noise": noise}
    if partition is not None:
        with in_flags():
            chosen = AskedParts.of(private, partition, parts, max_parts)
            asked_parts = chosen.ask(sql, asked_keys, tables)
        if not (preview or bias):
            release_parts(output, chosen, asked_parts, sql, {**spend, "purpose": purpose}, key)
            return
        if bias and len(asked_parts) > 1:
            raise InvalidArgument("--bias must be used with one --part: it is estimated for one part at a time")
        answer = asked_parts[0]
        if not output.json:
            output.say(chosen.note)
    else:
        with in_flags():
            answer = private.plan(sql, keys=asked_keys, tables=tables)
    if preview:
        asked = answer.limits() if bias else answer
        expected = asked.preview(**spend, error_target=error, rows=rows)
        if output.json:
            output.emit(_preview(expected))
            return
        # The engine's SQL is long and says little to most readers.
        output.say(str(expected).partition("\nruns\n")[0])
        if show_sql:
            output.say("runs\n" + "\n".join(f"  {line}" for line in expected.sql.splitlines()))
        return
    if bias:
        _print_bias(output, answer, sql, **spend, purpose=purpose, key=key)
        return
    with output.working("Answering"):
        result = answer.release(**spend, purpose=purpose, key=key)
    charged_answer = answer_json(result, cost_text(epsilon, delta, rho), sql)

    def show() -> None:
        if output.json:
            output.emit(charged_answer)
        else:
            _show(output, result, charged_answer["cost"])

    receipt = result.receipt
    output.print_charged(charged_answer, f"{receipt.account}-{receipt.sequence}", show)


def _print_bias(output: Output, answer: Any, sql: str, **spend: Any) -> None:
    """Estimate what bounds and limits change, charge it, and print it."""
    with output.working("Estimating"):
        measured = answer.bias(**spend)
    receipt, cost = measured.result.receipt, cost_text(spend["epsilon"], spend["delta"], spend["rho"])
    charged = {**answer_json(measured.result, cost, sql), "bias": str(measured).split("\n")}

    def show() -> None:
        if output.json:
            output.emit(charged)
        else:
            output.say(f"{measured}\n\ncharged {cost} to {receipt.account} as entry {receipt.sequence}")

    output.print_charged(charged, f"{receipt.account}-{receipt.sequence}", show)


def _show(output: Output, result: Any, cost: str) -> None:
    rows = result.rows()
    numbers = [name for name, column in result.columns.items() if all(is_number(value) for value in column)]
    output.table(tuple(result.columns), [tuple(row.values()) for row in rows], right=numbers)
    if not rows:
        output.say("no key was common enough to be released")
    receipt = result.receipt
    output.say(f"\n{result.covers}")
    output.say(f"charged {cost} to {receipt.account} as entry {receipt.sequence}; errors are at 95%")


def _preview(expected: Any) -> dict[str, Any]:
    return {
        "cost": expected.cost,
        "epsilon": expected.epsilon,
        "event": codec.encode_tree(expected.event),
        "protects": str(expected.neighbors),
        "groups": expected.groups,
        "columns": [
            {
                "name": column.name,
                "epsilon": column.epsilon,
                "error": column.error,
                "unit": column.unit.strip(),
                "noise": column.noise,
            }
            for column in expected.columns
        ],
        "covers": expected.covers,
        "sql": expected.sql,
        "remaining": str(expected.remaining),
        "room": room_words(expected.remaining, expected.budget),
        "room_afterwards": None if expected.afterwards is None else room_words(expected.afterwards, expected.budget),
        "affordable": expected.affordable,
    }


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    name, value = assignment(text, "--bounds")
    try:
        low, high = (float(end) for end in value.split(","))
    except ValueError:
        raise InvalidArgument(f"--bounds must be COLUMN=LOWER,UPPER, got {text!r}: such as age=0,120") from None
    return name, (low, high)
