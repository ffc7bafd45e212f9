"""Opens a private table: its rows in an engine, its account, and whose each row is. Nothing is read but the schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from discreet import _check
from discreet.analytics.engine.collation import require_identity
from discreet.analytics.table import joins
from discreet.analytics.table.source import source_of
from discreet.analytics.table.spec import TableSpec, origins
from discreet.ledger import Account
from discreet.neighbors import Client, Person, Rows, Unit


def opened(
    table: object,
    account: Account,
    unit: Unit | None,
    bounds: Mapping[str, tuple[float, float]],
    person: str | None,
    through: TableSpec | None,
    on: object,
    name: str | None,
) -> TableSpec:
    """The facts about a private table, as `Private` takes them."""
    remedy = "open one with dp.Ledger(path).account(name, budget=…, unit=…)"
    if not isinstance(account, Account):
        raise _check.fail("account", "be an account of a ledger", type(account).__name__, remedy)
    protected = account.neighbors.unit
    if isinstance(protected, Client):
        remedy = "a table has rows and persons: open another account with unit=dp.rows() or dp.person(…)"
        raise _check.fail("account", "protect rows or persons", f"an account that protects {protected}", remedy)
    if unit is not None and (not isinstance(unit, Rows | Person) or unit != protected):
        remedy = "an account protects one unit: open it with unit=, or pass the same one here"
        # In full: units can differ in the column or in max_groups alone, which their names leave out.
        raise _check.fail("unit", f"be the account's, {protected!r}", unit, remedy)
    if not isinstance(bounds, Mapping):
        raise _check.fail("bounds", "map columns to pairs", type(bounds).__name__, 'such as {"age": (0, 120)}')
    source = source_of(table, name)
    engine = source.table
    spec = TableSpec(engine, account, protected, tuple(engine.columns), {}, origins=origins(engine))
    spec = replace(spec, identity=source.identity)
    if through is not None:
        if person is not None:
            raise _check.fail("person", "not be given with through", person, "give one of them")
        spec = joins.owned(replace(spec, unit=Rows()), through, on)
    elif isinstance(protected, Person):
        column = protected.column if person is None else person
        if column is None:
            remedy = "use dp.person(column, max_rows=…)"
            raise _check.fail("unit", "name the person's column", str(protected), remedy)
        spec = replace(spec, unit=replace(protected, column=column))
        spec.require(column)
        require_identity(column, engine[column].type())
    elif person is not None:
        remedy = "open the account with unit=dp.person(column, max_rows=…)"
        raise _check.fail("person", "go with an account that protects persons", person, remedy)
    for bounded, pair in bounds.items():
        spec.require(bounded)
        _check.bounds(pair, f"bounds[{bounded!r}]")
    # What a type says is public: the bounds and the keys of a boolean column.
    truths = [column for column in engine.columns if engine[column].type().is_boolean()]
    return replace(
        spec,
        bounds={**dict.fromkeys(truths, (0.0, 1.0)), **bounds},
        bins=dict.fromkeys(truths, (False, True)),
    )
