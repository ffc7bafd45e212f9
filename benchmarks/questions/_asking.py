"""Asks each question privately and exactly, and compares the answers."""

from __future__ import annotations

import datetime as dt
import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import ibis
import sqlglot
from sqlglot import expressions as ast

import discreet as dp
from benchmarks.questions._question import Asked
from discreet.errors import InvalidArgument

#: What each question may cost a person.
EPSILON = 1.0
#: Releases of each question: the reported error is the median over them and over the numbers of the answer.
REPEATS = 3


@dataclass(frozen=True)
class Database:
    """Tables in one DuckDB.

    Attributes:
        connection: the engine.
        private: for each private table the column that names the person; None where each row is a person.
        public: the other tables.
        bounds: public bounds by column.
    """

    connection: Any
    private: Mapping[str, str | None]
    public: Sequence[str]
    bounds: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Outcome:
    """What became of a question: the relative error of its answer, or the words of the refusal.

    `note` says how a question was asked if not as typed.
    """

    error: float | None
    refusal: str = ""
    note: str = ""
    typed: bool = True


#: The numbers of each group, by its key as texts.
Numbers = Mapping[tuple[str, ...], Sequence[Any]]


class Asking:
    """Asks questions of one database; each gets an account of its own with a budget of ε = 1 per person."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._ledger = dp.Ledger(folder / "questions.ledger")
        self._database = database
        self._opened = 0

    def outcome(self, asked: Asked) -> Outcome:
        """The median relative error of a question's numbers, or why it is refused."""
        truth = exact(asked, self._database)
        try:
            released = [_numbers(self._released(asked)) for _ in range(REPEATS)]
        except InvalidArgument as refusal:
            return Outcome(None, str(refusal))
        return Outcome(relative_error(released, truth, whole=not is_cut(asked.sql)))

    def _released(self, asked: Asked) -> Any:
        account = self._account(main_table(asked.sql, self._database.private), asked.max_rows)
        private = {name: self._private(name, account) for name in self._database.private if name in asked.sql}
        public = {name: dp.public(self._table(name)) for name in self._database.public if name in asked.sql}
        return dp.sql(asked.sql, {**private, **public}, epsilon=EPSILON, keys=dict(asked.keys) or None)

    def _table(self, name: str) -> Any:
        return self._database.connection.table(name)

    def _account(self, main: str, max_rows: int) -> Any:
        """A new account that protects the persons of a question's first table."""
        person = self._database.private[main]
        self._opened += 1
        unit = dp.rows() if person is None else dp.person(person, max_rows=max_rows)
        return self._ledger.account(f"{main}{self._opened}", dp.PureDP(EPSILON), unit)

    def _private(self, name: str, account: Any) -> Any:
        table = self._table(name)
        bounds = {column: pair for column, pair in self._database.bounds.items() if column in table.columns}
        return dp.Private(table, account=account, bounds=bounds, person=self._database.private[name])


def exact(asked: Asked, database: Database) -> Numbers:
    """The exact answer about all public groups, also those that LIMIT or HAVING would cut off."""
    query = sqlglot.parse_one(asked.truth or asked.sql, read="duckdb")
    for clause in ("limit", "having", "order"):
        query.set(clause, None)
    grouped = query.args.get("group")
    keys = 0 if grouped is None else len(grouped.expressions)
    cursor = database.connection.con.execute(query.sql("duckdb"))
    names = [column[0] for column in cursor.description[:keys]]
    listed = {names.index(name): {text(value) for value in values} for name, values in asked.keys.items()}
    by_group = {tuple(text(value) for value in row[:keys]): _flattened(row[keys:]) for row in cursor.fetchall()}
    return {key: own for key, own in by_group.items() if all(key[i] in values for i, values in listed.items())}


def main_table(sql: str, private: Container[str]) -> str:
    """A private table that a query reads."""
    query = sqlglot.parse_one(sql, read="duckdb")
    return next(table.name for table in query.find_all(ast.Table, bfs=False) if table.name in private)


def is_cut(sql: str) -> bool:
    """Whether a query asks for some of its groups only."""
    query = sqlglot.parse_one(sql, read="duckdb")
    return any(query.args.get(clause) is not None for clause in ("limit", "having"))


def relative_error(released: Sequence[Numbers], truth: Numbers, whole: bool) -> float:
    """The median over releases of the median over all numbers of |found − true| / |true|.

    With `whole`, a group that an answer leaves out counts as an error of 1, as does a number that is missing.
    """
    errors = []
    for answer in released:
        own = [
            1.0 if number is None else abs(float(number) - float(true)) / abs(float(true))
            for key, numbers in truth.items()
            if whole or key in answer
            for number, true in zip(answer.get(key, [None] * len(numbers)), numbers, strict=True)
            if true
        ]
        errors.append(statistics.median(own) if own else 1.0)  # an answer about no group that exists is worth nothing
    return statistics.median(errors)


def text(value: Any) -> str:
    """A group's value as text, the same for all drivers: dates without a time, whole numbers as integers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date):
        return value.isoformat()[:10]
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _numbers(result: Any) -> Numbers:
    """The numbers of a released table."""
    names = list(result.columns)
    keys = names[: result.group_columns]
    errors = {name for output in result.outputs for name in (output.error, *output.ends)}
    measured = [name for name in names[result.group_columns :] if name not in errors]
    return {tuple(text(row[key]) for key in keys): [row[name] for name in measured] for row in result.rows()}


def _flattened(row: Sequence[Any]) -> list[Any]:
    """The numbers of a row in order; a list, such as one of quantiles, gives several."""
    return [number for value in row for number in (value if isinstance(value, list) else [value])]


def connect() -> Any:
    """A DuckDB of its own, without its progress bar."""
    connection = ibis.duckdb.connect()
    assert isinstance(connection.con, duckdb.DuckDBPyConnection)
    return connection
