"""A private table: what an analyst may ask of it, and nothing that would show a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from discreet import _check
from discreet.analytics.aggregates import Aggregate
from discreet.analytics.answer import Answer, Question
from discreet.analytics.expressions import Column, Expression, Refused, cuts
from discreet.analytics.keys import Keys, public_keys
from discreet.analytics.result import Result
from discreet.analytics.source import engine_table
from discreet.analytics.sql import parse
from discreet.ledger import Account
from discreet.neighbors import Person, Unit


class Private:
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
        state = State(engine, account, found, tuple(engine.columns), {})
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
            raise Refused(name, f"a private table has where, select, mutate, bin, group_by, aggregates and {known}")
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
        """One answer for each public key.

        Args:
            columns: the columns to group by.
            keys: the public keys: a list of values (of tuples, for several columns), or a list for each column in a
                mapping, for all combinations. Binned columns know theirs.

        Guarantee: keys never come from the data. A key that no row has is answered as well, as a noisy zero.
        """
        return Groups(self._state, self._keys(columns, keys))

    def _keys(self, columns: tuple[str, ...], keys: object) -> Keys:
        if not columns:
            raise _check.fail("group_by", "name a column", columns, "or ask the table itself")
        for name in columns:
            self._state.require(name)
        if len(set(columns)) != len(columns):
            raise _check.fail("group_by", "name each column once", columns, "leave the repetition out")
        if keys is None or isinstance(keys, Mapping):
            given: dict[str, Any] = {
                **{c: self._state.bins[c] for c in columns if c in self._state.bins},
                **(keys or {}),
            }
            lacking = [name for name in columns if name not in given]
            if lacking:
                remedy = "list the public values of each column, or bin() it; keys are never taken from data"
                raise _check.fail("keys", f"be given for {lacking}", keys, remedy)
            keys = given
        found = public_keys(columns, keys)
        found.condition().to_ibis(self._state.table)  # refuses keys of another kind than their column
        return found

    def plan(self, sql: str, *, keys: object = None) -> Answer:
        """The answer that a subset of SQL asks for, to preview or to release.

        `SELECT`, with columns of `GROUP BY` and `COUNT(*)`, `COUNT(column)`, `COUNT(DISTINCT person)`, `SUM`, `AVG`,
        `VAR_POP`, `STDDEV_POP`, `MEDIAN` and `QUANTILE_CONT`; bounds as `CLAMP(column, lower, upper)` or declared for
        the table. `FROM` one table, whatever its name. `WHERE` with comparisons, `BETWEEN`, `IN`, `IS NULL`, `AND`,
        `OR`, `NOT` and arithmetic. Anything else is refused by clause.

        Args:
            sql: the query. It is read into a plan of ours and never run as text.
            keys: the public keys of `GROUP BY`, as `group_by` takes them.
        """
        unit = self._state.unit
        parsed = parse(sql, self._state.columns, unit.column if isinstance(unit, Person) else None)
        private = self if parsed.where is None else self.where(parsed.where)
        if not parsed.groups:
            return private.aggregate(**parsed.aggregates)
        return private.group_by(*parsed.groups, keys=keys).aggregate(**parsed.aggregates)

    def sql(self, sql: str, *, epsilon: float, keys: object = None, purpose: str | None = None) -> Result:
        """Release what a subset of SQL asks for: `plan(sql, keys=…).release(epsilon=…)`.

        Guarantee: as `Answer.release`.
        """
        return self.plan(sql, keys=keys).release(epsilon=epsilon, purpose=purpose)

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Answer:
        """How many rows fall into each of some public categories, or into each interval between public edges."""
        return Groups(self._state, None).histogram(column, categories=categories, edges=edges)

    def aggregate(self, **aggregates: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        return Groups(self._state, None).aggregate(**aggregates)

    def count(self, column: str | None = None) -> Answer:
        """The number of rows, or of rows where `column` has a value."""
        return Groups(self._state, None).count(column)

    def count_distinct(self) -> Answer:
        """The number of persons."""
        return Groups(self._state, None).count_distinct()

    def sum(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The sum of `column`, each row clamped to `bounds`."""
        return Groups(self._state, None).sum(column, bounds=bounds)

    def mean(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The mean of `column`, each row clamped to `bounds`."""
        return Groups(self._state, None).mean(column, bounds=bounds)

    def variance(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The variance of `column` (divided by n), each row clamped to `bounds`."""
        return Groups(self._state, None).variance(column, bounds=bounds)

    def std(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The standard deviation of `column`, each row clamped to `bounds`."""
        return Groups(self._state, None).std(column, bounds=bounds)

    def quantile(self, column: str, quantile: float, *, bounds: tuple[float, float] | None = None) -> Answer:
        """A quantile of `column`, chosen among about a thousand levels of `bounds`."""
        return Groups(self._state, None).quantile(column, quantile, bounds=bounds)

    def median(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The median of `column`, chosen among about a thousand levels of `bounds`."""
        return Groups(self._state, None).median(column, bounds=bounds)

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

    def require(self, name: object) -> None:
        """Refuse what is not a column, with the names that are."""
        if name not in self.columns:
            raise _check.fail("column", "be one of the table's", name, ", ".join(self.columns))

    def check(self, one: Expression) -> None:
        """Refuse an expression of a column that is not, or no longer, there."""
        for name in one.names():
            self.require(name)


class Groups:
    """A private table with public groups; each aggregate gives one number for each of them."""

    def __init__(self, state: State, keys: Keys | None) -> None:
        self._state = state
        self._keys = keys

    def aggregate(self, **aggregates: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        if not aggregates:
            raise _check.fail("aggregate", "name at least one", (), "such as n=count()")
        taken = () if self._keys is None else self._keys.columns
        for name, one in aggregates.items():
            remedy = "use count(), sum(…), mean(…), … of discreet.analytics"
            _require(name, one, Aggregate, "be an aggregate", remedy)
            if name in taken or name.endswith("_error"):
                raise _check.fail("name", "differ from the groups' columns and not end in _error", name, "rename it")
        state = self._state
        for one in aggregates.values():
            if one.column is not None:
                state.require(one.column)
        asked = {name: one.asked(state.unit, state.bounds) for name, one in aggregates.items()}
        return Answer(Question(state.table, self._keys, state.unit, asked), state.account)

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Answer:
        """How many rows of each group fall into each public category, or each interval between public edges."""
        if (categories is None) == (edges is None):
            raise _check.fail("categories", "be given, or edges, but not both", categories, "the bins are public facts")
        private = Private._of(self._state)
        if edges is not None:
            private, column = private.bin(column, edges), f"{column}_bin"
        own = private._keys((column,), None if categories is None else {column: categories})
        if self._keys is None:
            return Groups(private._state, own).count()
        columns = (*self._keys.columns, column)
        both = [(*outer, *inner) for outer in self._keys.values for inner in own.values]
        return Groups(private._state, private._keys(columns, both)).count()

    def count(self, column: str | None = None) -> Answer:
        """The number of rows of each group, or of rows where `column` has a value."""
        return self.aggregate(count=Aggregate("count", column))

    def count_distinct(self) -> Answer:
        """The number of persons in each group."""
        return self.aggregate(persons=Aggregate("persons"))

    def sum(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The sum of `column` in each group, each row clamped to `bounds`."""
        return self.aggregate(sum=Aggregate("sum", column, bounds))

    def mean(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The mean of `column` in each group, each row clamped to `bounds`."""
        return self.aggregate(mean=Aggregate("mean", column, bounds))

    def variance(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The variance of `column` in each group (divided by n), each row clamped to `bounds`."""
        return self.aggregate(variance=Aggregate("variance", column, bounds))

    def std(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The standard deviation of `column` in each group, each row clamped to `bounds`."""
        return self.aggregate(std=Aggregate("std", column, bounds))

    def quantile(self, column: str, quantile: float, *, bounds: tuple[float, float] | None = None) -> Answer:
        """A quantile of `column` in each group, chosen among about a thousand levels of `bounds`."""
        return self.aggregate(quantile=Aggregate("quantile", column, bounds, rank=quantile))

    def median(self, column: str, *, bounds: tuple[float, float] | None = None) -> Answer:
        """The median of `column` in each group, chosen among about a thousand levels of `bounds`."""
        return self.aggregate(median=Aggregate("quantile", column, bounds, rank=0.5))


def _require(name: str, value: object, kind: type, rule: str, remedy: str) -> None:
    if not isinstance(value, kind):
        raise _check.fail(name, rule, type(value).__name__, remedy)
