"""A private table: what an analyst may ask of it, and nothing that would show a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate
from discreet.analytics.aggregates.registry import Asking
from discreet.analytics.answer import Answer
from discreet.analytics.engine.collation import require_exact
from discreet.analytics.engine.grouping import require_comparable
from discreet.analytics.plan import limits
from discreet.analytics.plan.discovery import Discover, discover, example
from discreet.analytics.plan.keys import Keys
from discreet.analytics.plan.question import Question
from discreet.analytics.plan.sql import Parsed, parse
from discreet.analytics.result.result import Result
from discreet.analytics.table import joins
from discreet.analytics.table.columns import mutated
from discreet.analytics.table.expressions import Column, Expression, Unsupported, compilable, within_the_stack
from discreet.analytics.table.opening import opened
from discreet.analytics.table.partition import Partition
from discreet.analytics.table.persons import of_persons, per_person
from discreet.analytics.table.public import Public
from discreet.analytics.table.semantics import cuts
from discreet.analytics.table.spec import TableSpec
from discreet.ledger import Account
from discreet.neighbors import Person, Unit


class Private(Asking):
    """A table whose rows are only ever seen through noisy aggregates that are charged to an account.

    Columns are `people.age` or `people["age"]`. `where`, `select`, `mutate` and `bin` give another private table;
    aggregates give an `Answer`, which can be previewed for free and released for a price.

    Args:
        table: pandas, polars, Arrow, columns by name, a Parquet or CSV path or a pattern such as `visits-*.parquet` (in
            an embedded DuckDB), an Ibis table, or an address such as `duckdb:///clinic.duckdb?table=visits`.
        account: what releases are charged to; its unit and relation say who is protected.
        unit: `dp.rows()` or `dp.person(column, max_rows=…, max_groups=…)`; must equal the account's, which is the
            default.
        bounds: public (lower, upper) by column, for aggregates without bounds of their own.
        person: the column with the person's id, where it is called otherwise than in the account's unit.
        through: a private table of the same account that knows the persons, for a table that does not: each row belongs
            to the person of the row that it refers to there, such as a line item to the customer of its order.
        on: with `through`, the columns that refer to each other: a name, or a pair (theirs, mine).
        name: what this table is called in every process; a ledger that holds parts of it knows it by that name.

    Guarantee: every release is differentially private for the account's unit and relation at the price that was charged
    before the query ran. Bounds are enforced inside the query. Column names and types, keys, bounds and the plan are
    public; the time that a query takes is not protected. Errors and shapes depend on public facts alone; that an engine
    broke down is reported without its message.
    """

    _spec: TableSpec

    def __init__(
        self,
        table: object,
        *,
        account: Account,
        unit: Unit | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        person: str | None = None,
        through: Private | None = None,
        on: object = None,
        name: str | None = None,
    ) -> None:
        parent = None
        if through is not None:
            _require("through", through, Private, "be a private table", "give the table that knows the persons")
            parent = through._spec
        self._spec = opened(table, account, unit, {} if bounds is None else bounds, person, parent, on, name)

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
                require_exact(table, sorted(condition.exact_columns()))
                table = table.filter(compilable(condition.to_filter(table)))
        return Private._of(replace(self._spec, table=table))

    def select(self, *names: str) -> Private:
        """Only these columns (and the person's id, which stays)."""
        for name in names:
            self._spec.require(name)
        kept = tuple(dict.fromkeys(names))
        bounds = {name: pair for name, pair in self._spec.bounds.items() if name in kept}
        return Private._of(replace(self._spec, columns=kept, bounds=bounds))

    def mutate(self, **expressions: Expression) -> Private:
        """New columns, each computed from its own row.

        Bounds and keys of a new column are known where they follow from the expression and from declared bounds: those
        of `2 * age`, and the keys of `day.month()`. A column that is replaced loses what was declared for it.

        Guarantee: a new value depends on its own row alone, so every bound stays as it is. The person's id cannot be
        replaced.
        """
        return Private._of(mutated(self._spec, expressions))

    def _replacing(self, expressions: Mapping[str, Expression]) -> Private:
        """`mutate` as SQL names columns: a new one takes the place of a stored one whose name differs in case alone."""
        return Private._of(mutated(self._spec, expressions, replacing=True))

    def join(
        self, other: Private | Public, on: object = None, *, how: str = "inner", rname: str = "{name}_right"
    ) -> Private:
        """Join with a public table, or with another private table of the same account by the person.

        Args:
            other: `dp.public(table)`, or a private table. Between private tables the person is always compared, so
                that each row of the result is made of rows of one person.
            on: what else is compared: a name, a pair (left, right), a list of these, or a mapping from left to right.
                Missing values match nothing.
            how: "inner", "left" (rows without a match stay, with missing values), "semi" (rows with a match) or "anti"
                (rows without one).
            rname: how a right column is called whose name the left table has already.

        Guarantee: nothing is charged. A person's rows are limited after the join, so every bound for persons stays as
        it is. Where rows are protected, a row counts as often as the public table has rows with its key; the largest
        such number multiplies the bounds (docs/proofs/joins.md). The public table is not protected.
        """
        return self._joined(other, on, how, rname)[0]

    def _joined(
        self, other: Private | Public, on: object, how: str, rname: str, *, keep_keys: bool = False
    ) -> tuple[Private, dict[str, str]]:
        """`join`, and what the right table's columns are called in the result."""
        remedy = "pass dp.public(table) for a table that anybody may see, or a private table of the same account"
        _require("other", other, Private | Public, "be a table that says whether it is private", remedy)
        right = other._spec if isinstance(other, Private) else other
        spec, renamed = joins.join(self._spec, right, on, how, joins.Naming(rname, keep_keys))
        return Private._of(spec), renamed

    def bin(self, column: str, edges: Iterable[float], name: str | None = None) -> Private:
        """A new column (by default `<column>_bin`) with the left edge of the interval that holds the value.

        Interval i is edges[i] ≤ x < edges[i+1]; the last one includes its right edge. Grouping by it needs no keys: the
        bins are public.
        """
        checked = cuts(edges)
        new = f"{column}_bin" if name is None else name
        binned = self.mutate(**{new: self[column].bin(checked)})
        return Private._of(replace(binned._spec, bins={**binned._spec.bins, new: checked[:-1]}))

    def partition(
        self, *columns: str, keys: object = None, max_parts: int | None = None, name: str | None = None
    ) -> Partition:
        """Disjoint parts by public keys: questions about different parts cost less than their sum.

        `months = visits.partition("month", keys=…)`, and `months[key]` is the private table of one part. Rows whose key
        is not listed are in no part.

        Args:
            columns: the columns that decide in which part a row is.
            keys: the public keys, as `group_by` takes them. Integers count in ascending order, others as they are
                listed: list them in the order in which data comes in.
            max_parts: where persons are protected, in how many parts one person counts: the first ones in which they
                have a row.
            name: what the ledger calls the partition; by default the columns' names.

        Guarantee: the ledger counts the costliest part where rows are protected, and the `max_parts` costliest where
        persons are, twice as many under replace-one; also when questions are asked one after another, and chosen in
        view of earlier answers (docs/proofs/partitions.md). Partitions of one table add up.
        """
        return Partition(self._spec, self._spec.keys(columns, keys), max_parts, name)

    def group_by(self, *columns: str, keys: object = None) -> Groups:
        """One answer for each group.

        Args:
            columns: the columns to group by.
            keys: the public keys: a list of values (of tuples, for several columns), a public table with these columns
                (pandas, polars, Arrow or Ibis), or a mapping with a list for each column, for all combinations. Binned
                and boolean columns have theirs already. Or `dp.discover()`: a private selection of keys that enough
                people have.

        Guarantee: public keys never come from the data, and a key without rows is answered as well, as a noisy zero.
        Discovered keys are a private release of their own, which is charged with the answer.
        """
        if isinstance(keys, Discover):
            self._spec.check_grouping(columns)
            stand_in = example(self._spec.table, columns)
            require_comparable(self._spec.table, columns, stand_in.by_column)
            return Groups(self._spec, stand_in, keys)
        return Groups(self._spec, self._spec.keys(columns, keys))

    def per_person(self, *columns: str, **values: Aggregate) -> Private:
        """One row for each person (and each value of some columns), with exact aggregates of that person's rows.

        `visits.per_person(total=sum("cost"), times=count())` has the columns `total` and `times`. Without columns a
        person has one row, so one row of the new table is what a person can change: `max_rows` is 1 there.

        Args:
            columns: columns to keep apart, such as the month; a person then has a row for each of their values.
            values: `count()`, `count(column)`, `count_values(column)`, `sum`, `mean`, `min` and `max` by name. Here
                `min` and `max` are exact; a sum or mean needs bounds for one row. The bounds of the new columns are
                those of a row, times `max_rows` for a sum; counts reach to `max_rows`. A row is clamped to bounds of
                the aggregate itself; with declared ones, a row of a sum is clamped to those of the sum.

        Guarantee: a row depends on one person's rows alone; the sums are exact integers, so nobody else's rows change
        them. Releases about the new table protect persons as before (docs/proofs/per-person.md).
        """
        for name, asked in values.items():
            _require(name, asked, Aggregate, "be an aggregate", "use count(), sum(…), mean(…), min(…) or max(…)")
        return Private._of(per_person(self._spec, columns, values))

    def where_person(self, condition: Expression, *, negate: bool = False) -> Private:
        """The rows of persons who have at least one row for which a condition holds; with `negate`, of the others.

        Guarantee: whether a person's rows stay depends on that person's rows alone, so every bound stays as it is.
        """
        spec = self._spec
        _require("condition", condition, Expression, "be an expression", "such as visits.emergency == True")
        if not isinstance(spec.unit, Person) or spec.unit.column is None:
            remedy = "use where(), or open the account with unit=dp.person(column, max_rows=…)"
            raise _check.fail("where_person", "go with an account that protects persons", str(spec.unit), remedy)
        with within_the_stack():
            spec.check(condition)
            require_exact(spec.table, sorted({*condition.exact_columns(), spec.unit.column}))
            table = of_persons(spec.table, spec.unit.column, condition, negate=negate)
        return Private._of(replace(spec, table=table))

    def plan(self, sql: str, *, keys: object = None, tables: Mapping[str, Private | Public] | None = None) -> Answer:
        """The answer that a subset of SQL asks for, to preview or to release.

        `SELECT`, with columns and expressions of `GROUP BY`, and aggregates: `COUNT(*)`, `COUNT(column)`,
        `COUNT(DISTINCT person)`, `COUNT(DISTINCT column)`, `SUM`, `AVG`, `VAR_POP`, `STDDEV_POP`, `COVAR_POP`, `CORR`,
        `MEDIAN`, `QUANTILE_CONT` (also of a list), `MIN` and `MAX` (as the 1% and 99% quantiles), each also with
        `FILTER (WHERE …)`; arithmetic on these. Bounds as `CLAMP(column, lower, upper)` or declared for the table.
        `FROM` one table, under any name, or a sub-query that computes columns or aggregates each person's rows, also
        by `WITH`; inner, `LEFT`, `RIGHT`, `SEMI` and `ANTI` joins with `tables`, by equal columns in `ON`, `USING`,
        `NATURAL` or `WHERE`. `WHERE` with expressions of the list, and sub-queries of public tables. `HAVING`,
        `ORDER BY` and `LIMIT` apply to the released table and are free. Everything else is refused, and the error names
        the clause and its place.

        Args:
            sql: the query. It is translated into a question and never run as text.
            keys: the keys of `GROUP BY`, as `group_by` takes them. Those of `CASE` with public results, of months,
                hours and the like are known.
            tables: other tables that `FROM` and `JOIN` may name: `dp.public(…)`, and private tables of the account.
        """
        parsed, private = self._parsed(sql, tables)
        if not parsed.groups:
            answer = private.aggregate(**parsed.aggregates)
        else:
            given = {parsed.renamed.get(name, name): listed for name, listed in keys.items()} if _named(keys) else keys
            answer = private.group_by(*parsed.groups, keys=given).aggregate(**parsed.aggregates)
        return answer if parsed.afterwards is None else answer.then(parsed.afterwards)

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
        tables: Mapping[str, Private | Public] | None = None,
    ) -> Result:
        """Release what a subset of SQL asks for: `plan(sql, keys=…).release(epsilon=…)`.

        Where `GROUP BY` has no `keys` and `delta` is given, keys are discovered.

        Guarantee: as `Answer.release`.
        """
        if keys is None and delta is not None:
            parsed, private = self._parsed(sql, tables)
            keys = discover() if any(name not in private._spec.bins for name in parsed.groups) else None
        answer = self.plan(sql, keys=keys, tables=tables)
        return answer.release(epsilon=epsilon, delta=delta, rho=rho, noise=noise, purpose=purpose)

    def _parsed(self, sql: str, tables: Mapping[str, Private | Public] | None) -> tuple[Parsed, Private]:
        """What a query asks for, and the rows that it aggregates."""
        remedy = "pass dp.public(table), or a private table of the same account"
        _require("tables", {} if tables is None else tables, Mapping, "map names to tables", remedy)
        for name, table in (tables or {}).items():
            _require(name, table, Private | Public, "be a table that says whether it is private", remedy)
        parsed = parse(sql, self, tables or {})
        private: Private = parsed.start
        for step in parsed.steps:
            private = step.apply(private)
        return parsed, private

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
        """How many rows persons have: `dp.analytics.advice` of the released histogram suggests `max_rows`."""
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
        if self._discover is not None and spec.copies > 1:
            remedy = "list the keys, or join a public table that has each key once"
            raise _check.fail("keys", "be listed where a join repeats rows", "dp.discover()", remedy)
        measured = {name: aggregate.measurement(spec.unit, spec.bounds) for name, aggregate in asked.items()}
        measured = {name: joins.copied(measurement, spec.copies) for name, measurement in measured.items()}
        _require_distinct(grouped_by, asked)
        clamped = {name: pair for aggregated in asked.values() for name, pair in aggregated.clamps(spec.bounds).items()}
        question = Question(spec.table, self._keys, spec.unit, measured, self._discover, clamped=clamped)
        return Answer(question, spec.account, spec.part)

    def rows_per_person(self) -> Answer:
        """How many rows with one of the keys persons have, and in how many groups they are."""
        spec, keys = self._spec, None if self._discover is not None else self._keys
        return Answer(limits.per_person(spec.table, keys, spec.unit), spec.account, spec.part)

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
    names = [*groups, *(name for output in outputs for name in output.columns)]
    if len(set(names)) != len(names):
        remedy = "rename an aggregate, a group's column or a category"
        raise _check.fail("name", "differ from every other column of the result", tuple(asked), remedy)


def _named(keys: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether keys are given by column."""
    return isinstance(keys, Mapping)


def _require(name: str, value: object, kind: Any, rule: str, remedy: str) -> None:
    if not isinstance(value, kind):
        raise _check.fail(name, rule, type(value).__name__, remedy)
