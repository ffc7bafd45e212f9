"""A private table: what an analyst may ask of it, and nothing that would show a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate
from discreet.analytics.aggregates.registry import Asking
from discreet.analytics.answer import Answer
from discreet.analytics.engine.collation import require_identity
from discreet.analytics.engine.grouping import require_comparable
from discreet.analytics.plan import limits
from discreet.analytics.plan.discovery import Discover, discover, example
from discreet.analytics.plan.keys import Keys
from discreet.analytics.plan.question import Question
from discreet.analytics.plan.sql import parse
from discreet.analytics.result.result import Result
from discreet.analytics.table.expressions import Column, Expression, Unsupported, within_the_stack
from discreet.analytics.table.semantics import cuts
from discreet.analytics.table.source import engine_table
from discreet.analytics.table.spec import TableSpec, origins
from discreet.ledger import Account
from discreet.neighbors import Person, Unit


class Private(Asking):
    """A table whose rows are only ever seen through noisy aggregates that are charged to an account.

    Columns are `people.age` or `people["age"]`. `where`, `select`, `mutate` and `bin` give another private table;
    aggregates give an `Answer`, which can be previewed for free and released for a price.

    Args:
        table: pandas, polars, Arrow, columns by name, a Parquet or CSV path (in an embedded DuckDB), or an Ibis table.
        account: what releases are charged to; its unit and relation say who is protected.
        unit: `dp.rows()` or `dp.person(column, max_rows=…, max_groups=…)`; must equal the account's, which is the
            default.
        bounds: public (lower, upper) by column, for aggregates without bounds of their own.

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
        protected = account.neighbors.unit
        if unit is not None and unit != protected:
            remedy = "an account protects one unit: open it with unit=, or pass the same one here"
            raise _check.fail("unit", f"be the account's ({protected})", str(unit), remedy)
        engine = engine_table(table)
        spec = TableSpec(engine, account, protected, tuple(engine.columns), {}, origins=origins(engine))
        if isinstance(protected, Person):
            if protected.column is None:
                remedy = "use dp.person(column, max_rows=…)"
                raise _check.fail("unit", "name the person's column", str(protected), remedy)
            spec.require(protected.column)
            require_identity(protected.column, engine[protected.column].type())
        for name, pair in (bounds or {}).items():
            spec.require(name)
            _check.bounds(pair, f"bounds[{name!r}]")
        self._spec = replace(spec, bounds=dict(bounds or {}))

    @classmethod
    def _of(cls, spec: TableSpec) -> Private:
        private = cls.__new__(cls)
        private._spec = spec
        return private

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, which are public."""
        return self._spec.columns

    def schema(self) -> dict[str, Any]:
        """The Ibis type of each column; types are public, as names are."""
        types = self._spec.table.schema()
        return {name: types[name] for name in self._spec.columns}

    def __getitem__(self, name: str) -> Expression:
        self._spec.require(name)
        return Column(name)

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._spec.columns:
            names = ", ".join(self._spec.columns)
            remedy = f"it has the columns {names}, and where, select, mutate, bin, group_by and aggregates"
            raise Unsupported(name, remedy, "a private table must have what is asked of it")
        return Column(name)

    def where(self, *conditions: Expression) -> Private:
        """The rows for which all conditions hold; a row whose answer is missing is left out.

        Guarantee: whether a row is kept depends on that row alone, so every bound stays as it is.
        """
        table = self._spec.table
        for condition in conditions:
            remedy = "compare a column with something, such as people.age >= 18"
            _require("condition", condition, Expression, "be an expression", remedy)
            with within_the_stack():
                self._spec.check(condition)
                table = table.filter(condition.to_filter(table))
        return Private._of(replace(self._spec, table=table))

    def select(self, *names: str) -> Private:
        """Only these columns (and the person's id, which stays)."""
        for name in names:
            self._spec.require(name)
        kept = tuple(dict.fromkeys(names))
        bounds = {name: pair for name, pair in self._spec.bounds.items() if name in kept}
        return Private._of(replace(self._spec, columns=kept, bounds=bounds))

    def mutate(self, **expressions: Expression) -> Private:
        """New columns, each computed from its own row. A column that is replaced loses its declared bounds.

        Guarantee: a new value depends on its own row alone, so every bound stays as it is. The person's id cannot be
        replaced.
        """
        spec = self._spec
        new: dict[str, Any] = {}
        for name, expression in expressions.items():
            if isinstance(spec.unit, Person) and name == spec.unit.column:
                raise _check.fail("mutate", "leave the person's id alone", name, "choose another name")
            _require(name, expression, Expression, "be an expression", "such as people.hours * 52")
            if any(other != name and other.lower() == name.lower() for other in (*spec.table.columns, *new)):
                remedy = "engines do not tell upper and lower case apart: choose another name"
                raise _check.fail("mutate", "name columns that differ by more than case", name, remedy)
            with within_the_stack():
                spec.check(expression)
                new[name] = expression.to_ibis(spec.table)
        columns = tuple(dict.fromkeys((*spec.columns, *new)))
        bounds = {name: pair for name, pair in spec.bounds.items() if name not in new}
        bins = {name: edges for name, edges in spec.bins.items() if name not in new}
        return Private._of(replace(spec, table=spec.table.mutate(**new), columns=columns, bounds=bounds, bins=bins))

    def bin(self, column: str, edges: Iterable[float], name: str | None = None) -> Private:
        """A new column (by default `<column>_bin`) with the left edge of the interval that holds the value.

        Interval i is edges[i] ≤ x < edges[i+1]; the last one includes its right edge. Grouping by it needs no keys: the
        bins are public.
        """
        checked = cuts(edges)
        new = f"{column}_bin" if name is None else name
        binned = self.mutate(**{new: self[column].bin(checked)})
        return Private._of(replace(binned._spec, bins={**binned._spec.bins, new: checked[:-1]}))

    def group_by(self, *columns: str, keys: object = None) -> Groups:
        """One answer for each group.

        Args:
            columns: the columns to group by.
            keys: the public keys: a list of values (of tuples, for several columns), a public table with these columns
                (pandas, polars, Arrow or Ibis), or a mapping with a list for each column, for all combinations. Binned
                columns have theirs already. Or `dp.discover()`: a private selection of keys that enough people have.

        Guarantee: public keys never come from the data, and a key without rows is answered as well, as a noisy zero.
        Discovered keys are a private release of their own, which is charged with the answer.
        """
        if isinstance(keys, Discover):
            self._spec.check_grouping(columns)
            stand_in = example(self._spec.table, columns)
            require_comparable(self._spec.table, columns, stand_in.by_column)
            return Groups(self._spec, stand_in, keys)
        return Groups(self._spec, self._spec.keys(columns, keys))

    def plan(self, sql: str, *, keys: object = None) -> Answer:
        """The answer that a subset of SQL asks for, to preview or to release.

        `SELECT`, with columns of `GROUP BY` and `COUNT(*)`, `COUNT(column)`, `COUNT(DISTINCT person)`, `SUM`, `AVG`,
        `VAR_POP`, `STDDEV_POP`, `COVAR_POP`, `CORR`, `MEDIAN`, `QUANTILE_CONT`, `MIN` and `MAX` (as the 1% and 99%
        quantiles); bounds as `CLAMP(column, lower, upper)` or declared for the table. `FROM` one table, under any
        name. `WHERE` with comparisons, `BETWEEN`, `IN`, `IS NULL`, `AND`, `OR`, `NOT` and arithmetic. Everything else
        is refused, and the error names the clause.

        Args:
            sql: the query. It is translated into a question and never run as text.
            keys: the keys of `GROUP BY`, as `group_by` takes them.
        """
        unit = self._spec.unit
        parsed = parse(sql, self._spec.columns, unit.column if isinstance(unit, Person) else None)
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
            names = parse(sql, self._spec.columns, getattr(self._spec.unit, "column", None)).groups
            keys = discover() if any(name not in self._spec.bins for name in names) else None
        return self.plan(sql, keys=keys).release(epsilon=epsilon, delta=delta, rho=rho, noise=noise, purpose=purpose)

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Answer:
        """How many rows fall into each of some public categories, or into each interval between public edges."""
        return Groups(self._spec, None).histogram(column, categories=categories, edges=edges)

    def marginal(self, *columns: str, categories: Mapping[str, Iterable[Any]] | None = None) -> Answer:
        """How many rows have each combination of public categories of some columns, for the price of one count.

        Binned columns know their categories.
        """
        return Groups(self._spec, None).marginal(*columns, categories=categories)

    def aggregate(self, **asked: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        return Groups(self._spec, None).aggregate(**asked)

    def rows_per_person(self) -> Answer:
        """How many persons have so many rows: `dp.analytics.advice` of the released histogram suggests `max_rows`."""
        return Groups(self._spec, None).rows_per_person()

    def __repr__(self) -> str:
        return f"<Private table, rows hidden: {', '.join(self.columns)}; protects {self._spec.account.neighbors}>"

    def __len__(self) -> int:
        raise Unsupported("len", "the number of rows is private: ask count()")

    def __iter__(self) -> Any:
        raise Unsupported("iter", "rows are private: ask for an aggregate")


class Groups(Asking):
    """A private table with groups, public or discovered; each aggregate gives one number for each of them."""

    def __init__(self, spec: TableSpec, keys: Keys | None, discovered: Discover | None = None) -> None:
        self._spec = spec
        self._keys = keys
        self._discover = discovered

    def aggregate(self, **asked: Aggregate) -> Answer:
        """Several aggregates of the same rows, in one pass and for one charge: `n=count(), pay=mean("pay")`."""
        if not asked:
            raise _check.fail("aggregate", "name at least one", (), "such as n=count()")
        grouped_by = () if self._keys is None else self._keys.columns
        for name, aggregate in asked.items():
            remedy = "use count(), sum(…), mean(…), … of discreet.analytics"
            _require(name, aggregate, Aggregate, "be an aggregate", remedy)
            if name in grouped_by or name.endswith("_error"):
                raise _check.fail("name", "differ from the groups' columns and not end in _error", name, "rename it")
        spec = self._spec
        for aggregate in asked.values():
            for column in aggregate.columns:
                spec.require(column)
        measured = {name: aggregate.measurement(spec.unit, spec.bounds) for name, aggregate in asked.items()}
        _require_distinct(grouped_by, asked)
        clamped = {name: pair for one in asked.values() for name, pair in one.clamps(spec.bounds).items()}
        question = Question(spec.table, self._keys, spec.unit, measured, self._discover, clamped=clamped)
        return Answer(question, spec.account)

    def rows_per_person(self) -> Answer:
        """How many persons have so many rows with one of the keys, and are in so many groups."""
        known = None if self._discover is not None else self._keys
        return Answer(limits.per_person(self._spec.table, known, self._spec.unit), self._spec.account)

    def histogram(
        self, column: str, *, categories: Iterable[Any] | None = None, edges: Iterable[float] | None = None
    ) -> Answer:
        """How many rows of each group fall into each public category, or each interval between public edges."""
        _check.exactly_one(categories=categories, edges=edges)
        if edges is None:
            return self.marginal(column, categories={column: categories or ()})
        binned = Private._of(self._spec).bin(column, edges)
        return Groups(binned._spec, self._keys, self._discover).marginal(f"{column}_bin")

    def marginal(self, *columns: str, categories: Mapping[str, Iterable[Any]] | None = None) -> Answer:
        """How many rows of each group have each combination of public categories, for the price of one count."""
        if self._discover is not None:
            remedy = "ask for aggregate(cells=marginal(…)), which has a column for each cell, or list the keys"
            raise _check.fail("marginal", "go with public groups", "discovered ones", remedy)
        cells = self._spec.keys(columns, categories)
        if self._keys is None:
            return Groups(self._spec, cells).count()
        combined = [(*group, *cell) for group in self._keys.values for cell in cells.values]
        return Groups(self._spec, self._spec.keys((*self._keys.columns, *columns), combined)).count()


def _require_distinct(groups: tuple[str, ...], asked: Mapping[str, Aggregate]) -> None:
    """Refuse a result with two columns of one name: the second would hide the first."""
    outputs = [output for alias, aggregate in asked.items() for output in aggregate.outputs(alias)]
    names = [*groups, *(name for output in outputs for name in (output.name, output.error))]
    if len(set(names)) != len(names):
        remedy = "rename an aggregate, a group's column or a category"
        raise _check.fail("name", "differ from every other column of the result", tuple(asked), remedy)


def _require(name: str, value: object, kind: type, rule: str, remedy: str) -> None:
    if not isinstance(value, kind):
        raise _check.fail(name, rule, type(value).__name__, remedy)
