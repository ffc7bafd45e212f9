"""Every statistic of private tables, on every engine, treats neighboring tables as it declares (see auditing.replay).

Tables have random schemas and hostile values. Neighbors differ in a row or in all rows of a person. What reaches a
mechanism must differ by at most the declared sensitivity, and SQL, scales, events, shapes, types, errors, warnings and
results must be equal. Defects of earlier versions return as mutants, and each must be caught.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

import discreet as dp
from discreet.analytics import answer as answering
from discreet.analytics import (
    correlation,
    count,
    count_distinct,
    count_values,
    covariance,
    marginal,
    mean,
    median,
    quantile,
    std,
    top_k,
    variance,
)
from discreet.analytics import sum as total
from discreet.analytics.aggregates.outside import OutsideBounds
from discreet.analytics.aggregates.quantile import GridGap
from discreet.analytics.aggregates.registry import AGGREGATES
from discreet.analytics.aggregates.rows_per_person import GroupsPerPerson, RowsPerPerson
from discreet.analytics.aggregates.value_range import RangeEnd
from discreet.analytics.engine import compiling, grouping, running
from discreet.auditing import Pair, replay
from discreet.errors import InvalidArgument
from discreet.mechanisms import observation
from tests.analytics import test_sensitivity
from tests.analytics.engines import duckdb

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)

DAY, TIME = dt.date, dt.datetime
# What the cells of a column may hold, beside nothing: ordinary values first, then hostile ones (REFERENCE: bad input).
NUMBERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "floats": (pa.float64(), [1.0, 2.5, 7.0, -3.0, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308, -1e308]),
    "singles": (pa.float32(), [1.0, 2.5, 7.0, math.nan, math.inf, 3e38]),
    "integers": (pa.int64(), [1, 2, 7, -3, 0, 2**63 - 1, -(2**63), 2**53 + 1]),
}
KEYS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "texts": (pa.string(), ["a", "b", "A", "a ", "", "é", "e\u0301", "a'; --", "${x}"], ["a", "b", "é"]),
    "codes": (pa.int64(), [0, 1, 2, 2**53 + 1, 2**53, -(2**63)], [0, 1, 2**53]),
    "reals": (pa.float64(), [0.0, -0.0, 1.0, 0.1, math.nan, math.inf], [0, 1, 0.1]),
    "flags": (pa.bool_(), [True, False], [True, False]),
    "days": (pa.date32(), [DAY(2024, 1, 1), DAY(2024, 2, 29), DAY(1969, 12, 31), DAY(1, 1, 1)], [DAY(2024, 1, 1)]),
    "times": (
        pa.timestamp("us"),
        [TIME(2024, 1, 1, 5), TIME(1969, 12, 31, 23, 59), TIME(2024, 3, 10, 2, 30)],
        [TIME(2024, 1, 1, 5), TIME(2024, 3, 10, 2, 30)],
    ),
}
FAR = 10**13  # seconds: the year 318,857, which microseconds do not hold


@pytest.mark.parametrize(
    ("unit", "zone"),
    [("ns", None), ("s", None), ("ms", None), ("s", "UTC"), ("ms", "UTC"), ("ns", "UTC"), ("us", None)],
)
def test_times_in_every_unit_are_answered_and_far_ones_are_missing(unit, zone, account_of):
    """In other units than microseconds, an engine fails once a value or a literal does not fit: on one row alone."""

    def run(rows):
        kind = pa.timestamp(unit, zone)
        seconds = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        times = [min(at * seconds, 2**63 - 1) for _, at in rows]
        data = pa.table({"g": [g for g, _ in rows], "at": pa.array(pa.array(times, pa.int64()), pa.int64()).cast(kind)})
        people = dp.Private(data, account=account_of(fresh=True))
        rare = people.where(people.g == "rare")
        if zone is not None:
            return [people.count().release(epsilon=1.0), rare.count().release(epsilon=1.0)]
        year = rare.mutate(y=rare.at.year()).group_by("y", keys=[2023, 2024]).count().release(epsilon=1.0)
        early = rare.where(rare.at < TIME(9999, 12, 31)).count().release(epsilon=1.0)
        return [year, early, people.group_by("at", keys=[TIME(2023, 11, 14)]).count().release(epsilon=1.0)]

    common = [("often", 1_700_000_000)]
    for at in (1_700_000_000, FAR):
        seen = replay(run, [Pair(common, [*common, ("rare", at)], grows=True)])
        assert (seen.passed, seen.failed) == (True, 0), str(seen)


PERSONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "names": (pa.string(), ["p", "q", "P", "p ", ""]),
    "numbers": (pa.int64(), [1, 2, 2**53, 2**53 + 1, -1]),
}
NEWCOMER = {"names": "new", "numbers": 99}
BOUNDS = [(0, 10), (-3, 8), (2.5, 9.75), (-1e-3, 1e9)]
UNITS = [
    None,
    {"max_rows": 1},
    {"max_rows": 2, "max_groups": 1},
    {"max_rows": 3, "max_groups": 2},
    {"max_rows": 4},
]


def statistics(bounds: Any, listed: list[Any], persons: bool) -> dict[str, Any]:
    """One of each statistic; the registry below keeps the list complete."""
    two = {"x": bounds, "y": (-4, 9)}
    chosen = {
        "rows": count(),
        "present": count("x"),
        "total": total("x", bounds=bounds),
        "mean": mean("x", bounds=bounds),
        "variance": variance("y", bounds=bounds),
        "std": std("x", bounds=bounds),
        "median": median("x", bounds=bounds),
        "rank": quantile("y", 0.9, bounds=(-20, 5)),
        "refined": quantile("x", 0.25, bounds=bounds, levels=64, refine=True),
        "listed": quantile("y", 0.5, candidates=[-3, 0, 1, 2.5, 7]),
        "covariance": covariance("x", "y", bounds=two),
        "correlation": correlation("y", "x", bounds=two),
        "cells": marginal("h", categories={"h": ["u", "v", "é"]}),
        "most": top_k("h", k=2, categories=["u", "v", "z"]),
        "values": count_values("h"),
    }
    return {**chosen, "persons": count_distinct()} if persons else chosen


# What `limits()` and `find_bounds` ask: the cases below ask them too.
ASKED_BY_METHODS = {OutsideBounds, GridGap, RangeEnd, RowsPerPerson, GroupsPerPerson}


def test_the_contract_knows_every_statistic():
    known = {type(one) for one in statistics((0, 1), [], True).values()}
    assert known | ASKED_BY_METHODS == set(AGGREGATES)


@dataclass(frozen=True)
class Case:
    """A random schema with a question about it."""

    names: dict[str, str]
    schema: pa.Schema
    unit: dict[str, int] | None
    relation: dp.Relation
    asked: tuple[str, ...]
    bounds: Any
    grouped: bool
    discovered: bool
    seed: int

    def rows(self, chance: random.Random, many: int, *person: Any) -> list[dict[str, Any]]:
        pools = {
            "id": PERSONS[self.names["id"]][1],
            "x": NUMBERS[self.names["x"]][1],
            "y": NUMBERS[self.names["y"]][1],
            "g": KEYS[self.names["g"]][1],
            "h": ["u", "v", "z", "é", "e\u0301", ""],
        }
        drawn: list[dict[str, Any]] = [
            {name: None if chance.random() < 0.1 else chance.choice(pool) for name, pool in pools.items()}
            for _ in range(many)
        ]
        return [{**row, "id": person[0]} for row in drawn] if person else drawn

    def pair(self) -> Pair:
        """Two tables that differ in one unit; the order of the rows differs as well."""
        chance = random.Random(self.seed)
        others = self.rows(chance, chance.randrange(9))
        newcomer = None if self.nobody else NEWCOMER[self.names["id"]]
        mine, theirs = (
            self.rows(chance, 1 if self.unit is None else chance.choice([1, 2, 5, 9]), newcomer) for _ in range(2)
        )
        first, second = [*others, *mine], [*theirs, *others] if self.relation is dp.REPLACE_ONE else others
        return Pair(*(pa.Table.from_pylist(rows, schema=self.schema) for rows in (second, first)), self.grows)

    @property
    def grows(self) -> bool:
        return self.relation is dp.ADD_REMOVE

    @property
    def nobody(self) -> bool:
        """Whether the tables differ in rows without a person, which must count for nothing."""
        return self.unit is not None and self.seed % 5 == 0

    @property
    def by_date(self) -> bool:
        """Whether times are grouped by their date. Spark refuses times without a zone as keys, and advises this."""
        return self.names["g"] == "times" and self.seed % 2 == 1

    def pipeline(self, load: Any, account_of: Any) -> Any:
        unit = dp.rows() if self.unit is None else dp.person("id", **self.unit)
        listed = [key.date() if self.by_date else key for key in KEYS[self.names["g"]][2]]
        every = statistics(self.bounds, listed, self.unit is not None)

        def run(table: pa.Table) -> Any:
            budget = dp.ApproxDP(100.0, 1e-3) if self.discovered else None
            account = account_of(unit, self.relation, budget=budget, fresh=True, aside=5e-4 if self.discovered else 0.0)
            people = dp.Private(load(table, "replayed"), account=account)
            asked: Any = people
            if self.grouped:
                by = people.mutate(g=people.g.date()) if self.by_date else people
                asked = by.group_by("g", keys=dp.discover() if self.discovered else listed)
            answer = asked.aggregate(**{name: every[name] for name in self.asked})
            delta = 1e-6 if self.discovered else None
            results = [answer.release(epsilon=1.0, delta=delta)]
            if self.seed % 2:
                results.append(people.find_bounds("x").release(epsilon=1.0, delta=delta))
            if self.unit is not None or not {"rows", "persons"} >= set(self.asked):
                with suppress(InvalidArgument):  # nothing is clamped: a fact about the question
                    results.append(answer.limits().release(epsilon=1.0, delta=delta))
            return results

        return run


def case(seed: int) -> Case:
    chance = random.Random(seed)
    names = {"id": chance.choice([*PERSONS]), "g": chance.choice([*KEYS])}
    names |= {column: chance.choice([*NUMBERS]) for column in "xy"}
    kinds = {"id": PERSONS[names["id"]][0], "g": KEYS[names["g"]][0], "h": pa.string()}
    kinds |= {column: NUMBERS[names[column]][0] for column in "xy"}
    unit = chance.choice(UNITS)
    every = [*statistics((0, 1), [], unit is not None)]
    grouped = chance.random() < 0.7
    discovered = grouped and chance.random() < 0.15
    return Case(
        names,
        pa.schema(list(kinds.items())),
        unit,
        chance.choice([dp.ADD_REMOVE, dp.REPLACE_ONE, dp.ZERO_OUT]),
        tuple(chance.sample(every, chance.choice([1, 2, 4]))),
        chance.choice(BOUNDS),
        grouped,
        discovered,
        seed,
    )


def check(load: Any, account_of: Any, seeds: Sequence[int]) -> None:
    refused = 0
    for seed in seeds:
        one = case(seed)
        seen = replay(one.pipeline(load, account_of), [one.pair()])
        assert seen.passed, f"seed {seed}, {one}: {seen}"
        assert not (one.nobody and seen.tightest), f"violations: nobody's rows count, seed {seed}, {one}: {seen}"
        refused += seen.failed
        assert seen.arrivals or seen.failed, f"seed {seed}: nothing reached a mechanism"
    assert refused <= 0.1 * len(seeds) + 1, "most questions are answered; otherwise the replay shows nothing"


def test_neighbors_differ_by_what_is_declared(engine, account_of):
    check(engine, account_of, range(2))


@pytest.mark.slow
def test_neighbors_differ_by_what_is_declared_at_length(engine, account_of):
    check(engine, account_of, range(100, 125))


# --- mutants ------------------------------------------------------------------------------------------------------


def unlisted_keys_come_back(patch):
    """The answer holds a row for a key that nobody listed: an error that depends on one row."""

    def kept(rows, keys):
        place = grouping._place(rows["g0"], keys.by_column[0])
        return rows.mutate(**{grouping.CODE: place.fill_null(-1)}).drop("g0")

    patch.setattr(compiling, "with_codes", kept)


def rows_of_each_group_limited_alone(patch):
    """Each person is limited in every group, and not over all of them."""
    honest = compiling._owners

    def each(table, keys, unit):
        return honest(table, keys, unit).mutate(weight=ibis.literal(compiling.WEIGHT, type="int32"))

    patch.setattr(compiling, "_owners", each)


def error_that_quotes_a_row(patch):
    """A value that cannot be computed with makes the query fail."""
    honest = running.Planned.arrow

    def checked(self):
        answer = honest(self)
        values = [value for name in answer.column_names for value in answer[name].to_pylist()]
        if any(value == 0 and not isinstance(value, bool) for value in values):
            raise ValueError(f"an empty group among {answer.num_rows}")
        return answer

    patch.setattr(running.Planned, "arrow", checked)


def statement_from_data(patch):
    """The SQL depends on how many rows there are."""
    honest = running.arrow

    def counted(query):
        (rows,) = query.get_backend().con.execute("SELECT COUNT(*) FROM replayed").fetchone()
        observation.statement(f"SELECT 1 LIMIT {rows}")
        return honest(query)

    patch.setattr(running, "arrow", counted)


MUTANTS = [
    unlisted_keys_come_back,
    rows_of_each_group_limited_alone,
    error_that_quotes_a_row,
    statement_from_data,
    test_sensitivity.no_clamp,
    test_sensitivity.no_group_limit,
    test_sensitivity.no_row_limit,
    test_sensitivity.nobody_counts,
    test_sensitivity.keys_from_the_data,
]


#: Cases of a kind that random ones rarely are: persons in more groups than they may count in.
RARE = (452, 493)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda f: f.__name__)
def test_a_mutant_is_caught_by_random_neighbors(mutant, monkeypatch, account_of):
    mutant(monkeypatch)
    with duckdb() as load, pytest.raises(AssertionError, match="violation"):
        check(load, account_of, (*RARE, *range(200, 320)))


def by_person(table, account_of, statistic, **limits):
    """A pipeline that counts persons or rows in the keys 1 and 2 of a table with the columns id and x."""

    def run(rows):
        account = account_of(dp.person("id", **limits), fresh=True)
        return (
            dp.Private(table(rows), account=account)
            .group_by("x", keys=[1, 2])
            .aggregate(n=statistic)
            .release(epsilon=1.0)
        )

    return run


NEAR = [Decimal("1") + Decimal(i) * Decimal("1e-20") for i in range(8)]  # all are 1.0 as floats


def near_decimals(rows):
    columns = {"id": [person for person, _ in rows], "x": pa.array([x for _, x in rows], pa.decimal128(30, 20))}
    return ibis.duckdb.connect().create_table("replayed", pa.table(columns))


def test_groups_that_are_equal_as_floats_alone_are_caught(monkeypatch, account_of):
    """A person with eight values that are one key as floats, and eight groups in the engine, counts twice."""
    pair = ([("a", NEAR[0])], [("a", NEAR[0]), *(("new", x) for x in NEAR)])
    run = by_person(near_decimals, account_of, count_distinct(), max_rows=8, max_groups=8)
    assert replay(run, [pair]).passed

    def by_value(rows, keys):
        place = (rows["g0"].cast("float64") == 2.0).ifelse(1, 0)
        finer = rows["g0"].cast("string").right(1).cast("int64")  # one group for each value
        return rows.mutate(**{grouping.CODE: (place + 2 * finer).cast("int64")}).drop("g0")

    def added(answer, keys, names):
        sums = np.zeros((len(keys.values), len(names)), dtype=np.int64)
        for row in answer.to_pylist():
            sums[row[grouping.CODE] % 2] += np.array([int(row[name]) for name in names])
        return sums.tolist()

    monkeypatch.setattr(compiling, "with_codes", by_value)
    monkeypatch.setattr(grouping, "totals", added)
    assert "linf moves by 2 of what is declared" in str(replay(run, [pair]))


def loosely_collated(rows):
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE replayed (id VARCHAR COLLATE NOCASE, x BIGINT)")
    connection.con.executemany("INSERT INTO replayed VALUES (?, ?)", rows)
    return connection.table("replayed")


def test_persons_whom_a_collation_joins_are_caught(monkeypatch, account_of):
    """'new' and 'NEW' share one limit: when one of them leaves, the other counts more."""
    pair = ([("NEW", 1)], [("NEW", 1), *[("new", 2)] * 9])
    run = by_person(loosely_collated, account_of, count(), max_rows=1)
    refused = replay(run, [pair])
    assert (refused.passed, refused.failed) == (True, 1)
    assert "tell different texts apart" in refused.errors[0]
    monkeypatch.setattr(answering, "require_exact", lambda table, columns: None)
    assert "l1 moves by 1.79688 of what is declared" in str(replay(run, [pair]))


def test_a_row_that_a_public_join_repeats_counts_as_often_everywhere(account_of):
    """One row matches three public rows: its answer and what it costs to estimate the bias both move three times."""
    wards = pa.table({"g": ["a", "a", "a", "b"], "beds": [9, 20, 30, 5]})

    def run(rows):
        people = dp.Private(ibis.duckdb.connect().create_table("replayed", rows), account=account_of(fresh=True))
        joined = people.join(dp.public(wards), on="g")
        asked = joined.aggregate(
            n=count(),
            beds=total("beds", bounds=(0, 10)),
            x=mean("x", bounds=(0, 1)),
            half=median("beds", bounds=(0, 40)),
        )
        result = asked.release(epsilon=1.0)
        return result, asked.limits().release(epsilon=1.0), joined.find_bounds("beds").release(epsilon=1.0)

    rows = pa.table({"g": ["b", "b"], "x": [0.5, 7.0]})
    more = pa.concat_tables([rows, pa.table({"g": ["a"], "x": [9.0]})])
    seen = replay(run, [Pair(rows, more, grows=True)])
    assert seen.passed, str(seen)
    assert (seen.failed, seen.tightest) == (0, 1.0)


SHOP = (
    "SELECT COUNT(*) FROM people p, bought b WHERE p.id = b.id",
    "SELECT COUNT(*) FROM bought b RIGHT JOIN people p ON p.id = b.id WHERE b.id IS NULL",
    "SELECT ward, SUM(CLAMP(cost, 0, 5)) AS cost FROM people NATURAL LEFT JOIN bought GROUP BY ward",
    "SELECT COUNT(*) FROM wards w, bought b WHERE w.ward = b.ward AND b.cost > (SELECT MIN(beds) FROM wards)",
)


@pytest.mark.parametrize("query", [SHOP[0], *(pytest.param(one, marks=pytest.mark.slow) for one in SHOP[1:])])
def test_joins_in_sql_treat_neighbors_as_they_declare(query, account_of):
    """The newcomer has rows in both tables, in one of them, or many; so has the person who takes their place."""
    wards = dp.public({"ward": ["a", "a", "b"], "beds": [1, 2, 3]})
    kinds = {
        "people": pa.schema([("id", pa.int64()), ("age", pa.int64())]),
        "bought": pa.schema([("id", pa.int64()), ("ward", pa.string()), ("cost", pa.float64())]),
    }

    def run(rows):
        account = account_of(dp.person("id", max_rows=2), rows["relation"], fresh=True)
        tables = {
            name: dp.Private(pa.Table.from_pylist(rows[name], schema=kind), account=account, name=name)
            for name, kind in kinds.items()
        }
        keys = ["a", "b"] if "GROUP BY" in query else None
        return tables["people"].sql(query, epsilon=1.0, tables={**tables, "wards": wards}, keys=keys)

    def database(relation, *newcomers):
        people = [{"id": 1, "age": 30}, {"id": 2, "age": 40}, *({"id": p, "age": 1} for p, n, _ in newcomers if n)]
        bought = [{"id": 1, "ward": "a", "cost": 2.0}]
        bought += [{"id": p, "ward": "ab"[i % 2], "cost": 9.0} for p, _, many in newcomers for i in range(many)]
        return {"relation": relation, "people": people, "bought": bought}

    for present in ((7, True, 0), (7, True, 5), (7, False, 3)):
        added = Pair(database(dp.ADD_REMOVE), database(dp.ADD_REMOVE, present), grows=True)
        swapped = Pair(database(dp.REPLACE_ONE, (8, True, 1)), database(dp.REPLACE_ONE, present))
        seen = replay(run, [added, swapped])
        assert (seen.passed, seen.failed) == (True, 0), str(seen)
