"""A private table: what an analyst may ask of it, and nothing that would show a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ibis
from ibis.expr import operations as ops

from discreet import _check
from discreet.analytics.aggregates import Aggregate
from discreet.analytics.answer import Answer
from discreet.analytics.asking import Asking
from discreet.analytics.compiling import Asked
from discreet.analytics.discovery import Discover, discover, example
from discreet.analytics.expressions import Column, Expression, Refused
from discreet.analytics.keys import Keys, public_keys
from discreet.analytics.question import Question
from discreet.analytics.result import Result
from discreet.analytics.semantics import cuts
from discreet.analytics.source import engine_table
from discreet.analytics.sql import parse
from discreet.ledger import Account
from discreet.neighbors import Person, Unit


class Private(Asking):
    """A table whose rows are only ever seen through noisy aggregates that are charged to an account.

    Columns are `people.age` or `people["age"]`. `where`, `select`, `mutate` and `bin` give another private table;
    aggregates give an `Answer`, which can be previewed for free and released for a price.

    Args:
        table: pandas, polars, Arrow, columns by name, a Parquet or CSV path (in an embedded DuckDB), or an Ibis table.
        account: what releases are charged to; its unit and relation say who is protected.
        unit: `dp.rows()` or `dp.person(column, max_rows=…, max_groups=…)`; by default, and otherwise equal to, the
            account's.
        bounds: public (lower, upper) by column, for aggregates that are given none.

    Guarantee: every release is differentially private for the account's unit and relation at the price that was charged
    before the query ran. Bounds are enforced inside the query. Column names and types, keys, bounds and the plan are
    public; the time that a query takes is not protected. Errors and shapes depend on public facts alone; that an engine
    broke down is reported without its message.
    """

    def __init__(
        self,
        table: object,
        *,
        account: Account,
        unit: Unit | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        remedy = "open one with dp.Ledger(path).account(name, budget=…, unit=…)"
        _require("account", account, Account, "be an account of a ledger", remedy)
        found = account.neighbors.unit
        if unit is not None and unit != found:
            remedy = "an account protects one unit: open it with unit=, or pass the same one here"
            raise _check.fail("unit", f"be the account's ({found})", str(unit), remedy)
        engine = engine_table(table)
        state = State(engine, account, found, tuple(engine.columns), {}, origins=_origins(engine))
        if isinstance(found, Person):
            if found.column is None:
                raise _check.fail("unit", "name the person's column", str(found), "use dp.person(column, max_rows=…)")
            state.require(found.column)
        for name, pair in (bounds or {}).items():
            state.require(name)
            _check.bounds(pair, f"bounds[{name!r}]")
        self._state = replace(state, bounds=dict(bounds or {}))

    @classmethod
    def _of(cls, state: State) -> Private:
        made = cls.__new__(cls)
        made._state = state
        return made

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, which are public."""
        return self._state.columns

    def __getitem__(self, name: str) -> Expression:
        self._state.require(name)
        return Column(name)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._state.columns:
            known = ", ".join(self._state.columns)
            remedy = f"it has the columns {known}, and where, select, mutate, bin, group_by and aggregates"
            raise Refused(name, remedy, "a private table must have what is asked of it")
        return Column(name)

    def where(self, *conditions: Expression) -> Private:
        """The rows for which all conditions hold; a row with a missing answer is left out.

        Guarantee: a row is kept or dropped by itself, so every bound stays as it is.
        """
        table = self._state.table
        for one in conditions:
            remedy = "compare a column with something, such as people.age >= 18"
            _require("condition", one, Expression, "be an expression", remedy)
            self._state.check(one)
            table = table.filter(one.to_filter(table))
        return Private._of(replace(self._state, table=table))

    def select(self, *names: str) -> Private:
        """Only these columns (and the person's id, which stays)."""
        for name in names:
            self._state.require(name)
        kept = tuple(dict.fromkeys(names))
        bounds = {name: pair for name, pair in self._state.bounds.items() if name in kept}
        return Private._of(replace(self._state, columns=kept, bounds=bounds))

    def mutate(self, **expressions: Expression) -> Private:
        """New columns, each computed from its own row; bounds that were declared for a name it replaces are forgotten.

        Guarantee: a row changes by itself, so every bound stays as it is. The person's id cannot be replaced.
        """
        state = self._state
        made: dict[str, Any] = {}
        for name, one in expressions.items():
            if isinstance(state.unit, Person) and name == state.unit.column:
                raise _check.fail("mutate", "leave the person's id alone", name, "choose another name")
            _require(name, one, Expression, "be an expression", "such as people.hours * 52")
            if any(other != name and other.lower() == name.lower() for other in (*state.table.columns, *made)):
                remedy = "engines do not tell upper and lower case apart: choose another name"
                raise _check.fail("mutate", "name columns that differ by more than case", name, remedy)
            state.check(one)
            made[name] = one.to_ibis(state.table)
        columns = tuple(dict.fromkeys((*state.columns, *made)))
        bounds = {name: pair for name, pair in state.bounds.items() if name not in made}
        bins = {name: edges for name, edges in state.bins.items() if name not in made}
        return Private._of(replace(state, table=state.table.mutate(**made), columns=columns, bounds=bounds, bins=bins))

    def bin(self, column: str, edges: Iterable[float], name: str | None = None) -> Private:
        """A new column (by default `<column>_bin`) with the left edge of the interval that holds the value.

        Interval i is edges[i] ≤ x < edges[i+1], the last one with its right edge. Group by it without giving keys: the
        bins are public.
        """
        found = cuts(edges)
        made = f"{column}_bin" if name is None else name
        binned = self.mutate(**{made: self[column].bin(found)})
        return Private._of(replace(binned._state, bins={**binned._state.bins, made: found[:-1]}))

    def group_by(self, *columns: str, keys: object = None) -> Groups:
        """One answer for each group.

        Args:
            columns: the columns to group by.
            keys: the public keys: a list of values (of tuples, for several columns), a public table with these columns
                (pandas, polars, Arrow or Ibis), or a list for each column in a mapping, for all combinations. Binned
                columns know theirs. Or `dp.discover()`: a private choice of the keys that enough people have.

        Guarantee: public keys never come from the data, and one that no row has is answered as well, as a noisy zero.
        Discovered keys are a private release of their own, which is charged with the answer.
        """
        if isinstance(keys, Discover):
            self._columns(columns)
            return Groups(self._state, example(self._state.table, columns), keys)
        return Groups(self._state, self._keys(columns, keys))

    def _columns(self, columns: tuple[str, ...]) -> None:
        if not columns:
            raise _check.fail("group_by", "name a column", columns, "or ask the table itself")
        for name in columns:
            self._state.require(name)
        if len(set(columns)) != len(columns):
            raise _check.fail("group_by", "name each column once", columns, "leave the repetition out")

    def _keys(self, columns: tuple[str, ...], keys: object) -> Keys:
        self._columns(columns)
        if isinstance(keys, ibis.Table) and self._state.origins & _origins(keys):
            remedy = "give a table that is public, or keys=dp.discover()"
            raise _check.fail("keys", "not come from the private table", "a table made of it", remedy)
        if keys is None or isinstance(keys, Mapping):
            given: dict[str, Any] = {
                **{c: self._state.bins[c] for c in columns if c in self._state.bins},
                **(keys or {}),
            }
            lacking = [name for name in columns if name not in given]
            if lacking:
                remedy = "list each column's public values, bin() it, or find keys with keys=dp.discover() and a delta"
                raise _check.fail("keys", f"be given for {lacking}", keys, remedy)
            keys = given
        found = public_keys(columns, keys)
        found.condition().to_ibis(self._state.table)  # refuses keys of another kind than their column
        return found

    def plan(self, sql: str, *, keys: object = None) -> Answer:
        """The answer that a subset of SQL asks for, to preview or to release.

        `SELECT`, with columns of `GROUP BY` and `COUNT(*)`, `COUNT(column)`, `COUNT(DISTINCT person)`, `SUM`, `AVG`,
        `VAR_POP`, `STDDEV_POP`, `COVAR_POP`, `CORR`, `MEDIAN`, `QUANTILE_CONT`, `MIN` and `MAX` (as the 1% and 99%
        quantiles); bounds as `CLAMP(column, lower, upper)` or declared for the table. `FROM` one table, whatever its
        name. `WHERE` with comparisons, `BETWEEN`, `IN`, `IS NULL`, `AND`, `OR`, `NOT` and arithmetic. Anything else is
        refused by clause.

        Args:
            sql: the query. It is read into a plan of ours and never run as text.
            keys: the keys of `GROUP BY`, as `group_by` takes them.
        """
        unit = self._state.unit
        parsed = parse(sql, self._state.columns, unit.column if isinstance(unit, Person) else None)
        private = self if parsed.where is None else self.where(parsed.where)
        if not parsed.groups:
            return private.aggregate(**parsed.aggregates)
        return private.group_by(*parsed.groups, keys=keys).aggregate(**parsed.aggregates)

    def sql(
        self,
        sql: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        noise: str = "auto",
        keys: object = None,
        purpose: str | None = None,
    ) -> Result:
        """Release what a subset of SQL asks for: `plan(sql, keys=…).release(epsilon=…)`.

        Where `GROUP BY` has no `keys` and `delta` is given, keys are discovered.

        Guarantee: as `Answer.release`.
        """
        if keys is None and delta is not None:
            names = parse(sql, self._state.columns, getattr(self._state.unit, "column", None)).groups
            keys = discover() if any(name not in self._state.bins for name in names) else None
        return self.plan(sql, keys=keys).release(epsilon=epsilon, delta=delta, rho=rho, noise=noise, purpose=purpose)

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Answer:
        """How many rows fall into each of some public categories, or into each interval between public edges."""
        return Groups(self._state, None).histogram(column, categories=categories, edges=edges)

    def marginal(self, *columns: str, categories: Mapping[str, Iterable[Any]] | None = None) -> Answer:
        """How many rows have each combination of public categories of some columns, for the price of one count.

        Binned columns know their categories.
        """
        return Groups(self._state, None).marginal(*columns, categories=categories)

    def aggregate(self, **asked: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        return Groups(self._state, None).aggregate(**asked)

    def __repr__(self) -> str:
        return f"<Private table, rows hidden: {', '.join(self.columns)}; protects {self._state.account.neighbors}>"

    def __len__(self) -> int:
        raise Refused("len", "the number of rows is private: ask count()")

    def __iter__(self) -> Any:
        raise Refused("iter", "rows are private: ask for an aggregate")


@dataclass(frozen=True)
class State:
    """What a private table holds. Internal."""

    table: Any
    account: Account
    unit: Unit
    columns: tuple[str, ...]
    bounds: Mapping[str, tuple[float, float]]
    bins: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    origins: frozenset[Any] = frozenset()

    def require(self, name: object) -> None:
        """Refuse what is not a column, with the names that are."""
        if name not in self.columns:
            raise _check.fail("column", "be one of the table's", name, ", ".join(self.columns))

    def check(self, one: Expression) -> None:
        """Refuse an expression of a column that is not, or no longer, there."""
        for name in one.names():
            self.require(name)


class Groups(Asking):
    """A private table with groups, public or discovered; each aggregate gives one number for each of them."""

    def __init__(self, state: State, keys: Keys | None, discovered: Discover | None = None) -> None:
        self._state = state
        self._keys = keys
        self._discover = discovered

    def aggregate(self, **asked: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        if not asked:
            raise _check.fail("aggregate", "name at least one", (), "such as n=count()")
        taken = () if self._keys is None else self._keys.columns
        for name, one in asked.items():
            remedy = "use count(), sum(…), mean(…), … of discreet.analytics"
            _require(name, one, Aggregate, "be an aggregate", remedy)
            if name in taken or name.endswith("_error"):
                raise _check.fail("name", "differ from the groups' columns and not end in _error", name, "rename it")
        state = self._state
        for one in asked.values():
            for column in one.columns:
                state.require(column)
        planned = {name: one.asked(state.unit, state.bounds) for name, one in asked.items()}
        _require_distinct(taken, planned)
        return Answer(Question(state.table, self._keys, state.unit, planned, self._discover), state.account)

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Answer:
        """How many rows of each group fall into each public category, or each interval between public edges."""
        if (categories is None) == (edges is None):
            raise _check.fail("categories", "be given, or edges, but not both", categories, "the bins are public facts")
        if edges is None:
            return self.marginal(column, categories={column: categories or ()})
        binned = Private._of(self._state).bin(column, edges)
        return Groups(binned._state, self._keys, self._discover).marginal(f"{column}_bin")

    def marginal(self, *columns: str, categories: Mapping[str, Iterable[Any]] | None = None) -> Answer:
        """How many rows of each group have each combination of public categories, for the price of one count."""
        private = Private._of(self._state)
        if self._discover is not None:
            remedy = "ask for aggregate(cells=marginal(…)), which has a column for each cell, or list the keys"
            raise _check.fail("marginal", "go with public groups", "discovered ones", remedy)
        own = private._keys(columns, categories)
        if self._keys is None:
            return Groups(self._state, own).count()
        both = [(*outer, *inner) for outer in self._keys.values for inner in own.values]
        return Groups(self._state, private._keys((*self._keys.columns, *columns), both)).count()


def _origins(table: Any) -> frozenset[Any]:
    """The stored tables that an engine's table is made of."""
    return frozenset(table.op().find(ops.PhysicalTable))


def _require_distinct(groups: tuple[str, ...], planned: Mapping[str, Asked]) -> None:
    """Refuse a result two of whose columns would have one name: the second would hide the first."""
    cells = sum(len(one.cells) for one in planned.values() if one.statistic.kind == "marginal")
    plain = sum(one.statistic.kind != "marginal" for one in planned.values())
    made = {name: error for key, one in planned.items() for name, error in one.outputs(key).items()}
    if len({*groups, *made, *made.values()}) != len(groups) + 2 * (cells + plain):
        remedy = "rename an aggregate, a group's column or a category"
        raise _check.fail("name", "differ from every other column of the result", tuple(planned), remedy)


def _require(name: str, value: object, kind: type, rule: str, remedy: str) -> None:
    if not isinstance(value, kind):
        raise _check.fail(name, rule, type(value).__name__, remedy)
