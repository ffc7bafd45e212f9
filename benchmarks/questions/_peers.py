"""The same questions asked of OpenDP's context and of smartnoise-sql, each in an environment of its own.

A question that a library cannot read as typed is asked in the closest form that it has: of one flat table (see
`_flat`), with the same bounds, the same limit on a person's rows and the same public keys.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks._environments import ABSENT, python_of
from benchmarks.questions._asking import EPSILON, REPEATS, Database, Outcome, exact, is_cut, relative_error, text
from benchmarks.questions._flat import Flat, Unsuited, flat
from benchmarks.questions._question import Asked

_SCRIPTS = {"smartnoise-sql": "_ask_smartnoise.py", "opendp": "_ask_opendp.py"}
#: So long one library may take for all questions.
_SECONDS = 1500
#: So many rows are copied at a time.
_BATCH = 50_000
#: Longer refusals are cut.
_LONGEST = 160


@dataclass(frozen=True)
class Peer:
    """What another library answers, by question; `note` says why there is nothing."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    note: str = ""


class Prepared:
    """The questions of all databases as files that both libraries read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: dict[str, tuple[Asked, Database, Flat]] = {}
        self._unsuited: dict[str, str] = {}
        self._described: list[dict[str, Any]] = []
        self._metadata: dict[str, dict[str, Any]] = {}

    def add(self, database: Database, questions: Sequence[Asked]) -> None:
        """Write the tables of one database, and the flat table of each of its questions."""
        path = self._folder / f"{'-'.join(database.private)}.sqlite"
        with sqlite3.connect(path) as target:
            tables = (*database.private, *database.public)
            for name in tables:
                _copy(database, f"SELECT * FROM {name}", target, name)
        self._metadata[str(path)] = {name: _description(database, name) for name in tables}
        for asked in questions:
            try:
                own = flat(asked, database.private, database.bounds)
            except Unsuited as reason:
                self._unsuited[asked.name] = str(reason)
                continue
            table = f"q{len(self._asked)}"
            file = self._folder / f"{table}.parquet"
            database.connection.con.execute(f"COPY ({own.rows}) TO '{file}' (FORMAT parquet)")
            with sqlite3.connect(path) as target:
                _copy(database, own.rows, target, table)
            self._asked[asked.name] = asked, database, own
            spoken = {"name": asked.name, "sql": asked.sql, "database": str(path), "table": table, "file": str(file)}
            self._described.append({**asdict(own), **spoken})

    def ask(self, name: str, install: bool) -> Peer:
        """All questions to one library."""
        try:
            python = python_of(name, install)
            if python is None:
                return Peer(note=ABSENT)
            content = {"epsilon": EPSILON, "repeats": REPEATS, "metadata": self._metadata, "questions": self._described}
            path = self._folder / "questions.json"
            path.write_text(json.dumps(content))
            command = [python, Path(__file__).with_name(_SCRIPTS[name]), path]
            ran = subprocess.run(command, check=False, capture_output=True, timeout=_SECONDS, text=True)
            said = ran.stdout
        except subprocess.TimeoutExpired as late:  # what it has answered until now counts
            said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        except (OSError, subprocess.SubprocessError) as error:
            return Peer(note=f"could not run: {type(error).__name__}")
        told = [json.loads(line) for line in said.splitlines() if line.startswith("{") and line.endswith("}")]
        if not told:
            return Peer(note="could not run: it answered nothing")
        silent = dict.fromkeys(self._asked, f"no answer to all questions within {_SECONDS} seconds")
        refusals = {name: Outcome(None, reason, typed=False) for name, reason in (silent | self._unsuited).items()}
        return Peer(refusals | {answer["name"]: self._outcome(answer) for answer in told})

    def _outcome(self, told: dict[str, Any]) -> Outcome:
        if "refusal" in told:
            return Outcome(None, _short(told["refusal"]), typed=False)
        asked, database, own = self._asked[told["name"]]
        typed = told["form"] == "as typed"
        tables = told["tables"] if typed else [_outputs(rows, own) for rows in told["tables"]]
        size = len(own.keys)
        released = [{tuple(map(text, row[:size])): row[size:] for row in rows} for rows in tables]
        note = "as typed" if typed else "rewritten"
        if "typed" in told:
            note += f"; as typed: {_short(told['typed'])}"
        error = relative_error(released, exact(asked, database), whole=not typed or not is_cut(asked.sql))
        return Outcome(error, note=note, typed=typed)


def _outputs(rows: list[list[Any]], own: Flat) -> list[list[Any]]:
    """The numbers of the question out of the aggregates that were released, by group."""
    groups = [f"g{i}" for i in range(len(own.keys))]
    names = [*groups, *(f"a{i}" for i in range(len(own.aggregates)))]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    kinds = [pa.string()] * len(groups) + [pa.float64()] * len(own.aggregates)
    released = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    connection = duckdb.connect()
    connection.register("released", pa.table(dict(zip(names, released, strict=True))))
    computed = connection.execute(f"SELECT {', '.join([*groups, *own.outputs])} FROM released").fetchall()
    return [list(row) for row in computed]


def _copy(database: Database, sql: str, target: sqlite3.Connection, name: str) -> None:
    """The rows of a query as a table of SQLite, with dates as text."""
    cursor = database.connection.con.execute(sql)
    names = ", ".join(f'"{column[0]}"' for column in cursor.description)
    target.execute(f"CREATE TABLE {name} ({names})")
    marks = ", ".join("?" for _ in cursor.description)
    while rows := cursor.fetchmany(_BATCH):
        target.executemany(f"INSERT INTO {name} VALUES ({marks})", [[_plain(value) for value in row] for row in rows])


def _plain(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def _description(database: Database, name: str) -> dict[str, Any]:
    """The metadata of a table, in the terms of smartnoise-sql."""
    person = database.private.get(name)
    described: dict[str, Any] = {"row_privacy": name in database.private and person is None, "clamp_counts": True}
    for column, kind in database.connection.table(name).schema().items():
        low_high = dict(zip(("lower", "upper"), database.bounds.get(column, ()), strict=False))
        described[column] = {"type": _kind(kind), **low_high, **({"private_id": True} if column == person else {})}
    return described


def _kind(kind: Any) -> str:
    if kind.is_boolean():
        return "boolean"
    if kind.is_integer():
        return "int"
    if kind.is_numeric():
        return "float"
    return "datetime" if kind.is_temporal() else "string"


def _short(words: str) -> str:
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
