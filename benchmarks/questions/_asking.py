"""Asks each question privately and exactly, and compares the answers."""

from __future__ import annotations

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
    """What became of a question: the relative error of its answer, or the words of the refusal."""

    error: float | None
    refusal: str = ""


class Asking:
    """Asks questions of one database; each gets an account of its own with a budget of ε = 1 per person."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._ledger = dp.Ledger(folder / "questions.ledger")
        self._database = database
        self._opened = 0

    def outcome(self, asked: Asked) -> Outcome:
        """The median relative error of a question's numbers, or why it is refused."""
        truth = self._truth(asked)
        try:
            released = [self._released(asked) for _ in range(REPEATS)]
        except InvalidArgument as refusal:
            return Outcome(None, str(refusal))
        return Outcome(statistics.median(relative_error(result, truth) for result in released))

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

    def _truth(self, asked: Asked) -> list[dict[str, Any]]:
        query = sqlglot.parse_one(asked.truth or asked.sql, read="duckdb")
        for clause in ("limit", "having", "order"):  # the errors of all numbers count, also of those that are cut off
            query.set(clause, None)
        cursor = self._database.connection.con.execute(query.sql("duckdb"))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def main_table(sql: str, private: Container[str]) -> str:
    """A private table that a query reads."""
    query = sqlglot.parse_one(sql, read="duckdb")
    return next(table.name for table in query.find_all(ast.Table, bfs=False) if table.name in private)


def relative_error(result: Any, truth: list[dict[str, Any]]) -> float:
    """The median over all numbers of |found − true| / |true|; a group that is absent from the truth has none."""
    names = list(result.columns)
    keys, errors = names[: result.group_columns], {output.error for output in result.outputs}
    measured = [name for name in names[result.group_columns :] if name not in errors]
    exact = {tuple(_plain(row[name]) for name in keys): _numbers(row, keys) for row in truth}
    found = []
    for row in result.rows():
        true = exact.get(tuple(_plain(row[name]) for name in keys))
        for name, other in [] if true is None else zip(measured, true, strict=True):
            if other and row[name] is not None:
                found.append(abs(float(row[name]) - float(other)) / abs(float(other)))
    return statistics.median(found) if found else 1.0  # an answer about no group that exists is worth nothing


def _numbers(row: dict[str, Any], keys: Sequence[str]) -> list[Any]:
    """The numbers of a row in order; a list, such as one of quantiles, gives several."""
    several = [value if isinstance(value, list) else [value] for name, value in row.items() if name not in keys]
    return [value for values in several for value in values]


def _plain(value: Any) -> Any:
    """A key in a form that compares across drivers: dates as text, whole numbers as integers."""
    if hasattr(value, "isoformat"):
        return value.isoformat()[:10]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def connect() -> Any:
    """A DuckDB of its own, without its progress bar."""
    connection = ibis.duckdb.connect()
    assert isinstance(connection.con, duckdb.DuckDBPyConnection)
    return connection
