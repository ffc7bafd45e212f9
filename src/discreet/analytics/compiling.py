"""The query that runs in the engine: clamp, scale and round each row to integers, bound each person, and sum.

The integers are those of `queries.Grid.levels`, bit for bit. Nothing here can fail because of what a row holds: there
is no integer division by data, no cast that a value may not fit, and no sum that can overflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ibis

from discreet import _check
from discreet.analytics.expressions import Column, exact, number
from discreet.analytics.keys import Keys
from discreet.neighbors import Person, Unit
from discreet.queries.aggregated import Statistic
from discreet.queries.grid import Grid
from discreet.queries.variance import centered_squares

#: Adding and subtracting it, times a step of 2^e, rounds a float below 2^51 steps to whole ones, ties to even levels.
_ROUND = 1.5 * 2**52


@dataclass(frozen=True)
class Asked:
    """One statistic of one column, for a share of ε; the column is None where rows or persons are counted."""

    statistic: Statistic
    column: str | None
    share: float = 1.0


@dataclass(frozen=True)
class Term:
    """An integer that is summed: for one row it lies in [lower, upper]; `counter` names the count of rows in it."""

    name: str
    row: Any
    lower: int
    upper: int
    counter: str


def level(value: Any, grid: Grid, missing: int) -> Any:
    """A row's level on the grid, as `Grid.levels` has it; NULL and NaN become `missing`.

    From the two ends of the grid outwards the level is the end itself; between them rounding is monotone and stays
    between. Engines sort NaN above or beside all numbers, so the inner interval and the lower side are asked first.
    """
    center, scale = exact(float(grid.center)), exact(2.0**-grid.exponent)
    magic = exact(_ROUND * float(grid.step))
    rounded = ((value - center + magic - magic) * scale).cast("int64")  # rounds first: some engines fail on underflow
    low, high = _end(grid, grid.lower), _end(grid, grid.upper)
    lower, upper = (ibis.literal(end, type="int64") for end in (grid.lower, grid.upper))
    return ibis.cases(
        ((value > exact(low)) & (value < exact(high)), rounded),
        (value <= exact(low), lower),
        (~value.isnan() & (value >= exact(high)), upper),
        else_=ibis.literal(missing, type="int64"),
    )


def _end(grid: Grid, end: int) -> float:
    """The float nearest to one end of the grid, moved outwards until its own level is that end."""
    value = float(grid.center + end * grid.step)
    outwards = math.inf if end == grid.upper else -math.inf
    for _ in range(4):
        if round(Fraction(value - float(grid.center)) / grid.step) == end:
            return value
        value = math.nextafter(value, outwards)
    raise _check.fail("bounds", "be wider, for numbers this large", value, "subtract a public offset first")


def totals(table: Any, asked: Sequence[Asked], keys: Keys | None, unit: Unit, hash_key: int) -> Any:
    """One row for each group that occurs, with the columns c0_0, c0_1, … of each statistic."""
    groups = _groups(table, keys)
    terms, counters = _terms(table, asked)
    rows = _narrow(table, keys, unit, {t.name: t.row for t in terms} | counters)
    if isinstance(unit, Person):
        sums = {name: rows[name].sum() for name in (*(t.name for t in terms), *counters)}
        pieces = _by(rows, ["person", *groups], rows=rows.count(), **sums)
        pieces = _allotted(pieces, groups, [], keys, unit, hash_key)
        counts = {"rows": pieces["used"], **{c: ibis.least(pieces[c], pieces["used"]) for c in counters}}
        outputs = {name: count.sum() for name, count in counts.items()}
        outputs |= {t.name: _shrunk(pieces, t, counts[t.counter]).sum() for t in terms}
        outputs["persons"] = _one_if(pieces["used"] > 0).sum()
    else:
        pieces = rows
        outputs = {"rows": rows.count(), **{name: rows[name].sum() for name in (*(t.name for t in terms), *counters)}}
    wanted = [(f"c{i}_{j}", name) for i, one in enumerate(asked) for j, name in enumerate(_coordinates(i, one))]
    return _by(pieces, groups, **{column: outputs[name] for column, name in wanted})


def cells(table: Any, asked: Asked, keys: Keys | None, unit: Unit, hash_key: int) -> Any:
    """One row for each group and level that occur: how many rows lie there. For quantiles."""
    assert asked.column is not None
    assert asked.statistic.grid is not None
    groups = _groups(table, keys)
    value = _value(table, asked.column)
    rows = _narrow(table.filter(_there(value)), keys, unit, {"level": level(value, asked.statistic.grid, 0)})
    if not isinstance(unit, Person):
        return _by(rows, [*groups, "level"], rows=rows.count())
    pieces = _by(rows, ["person", *groups, "level"], rows=rows.count())
    pieces = _allotted(pieces, groups, ["level"], keys, unit, hash_key)
    return _by(pieces, [*groups, "level"], rows=pieces["used"].sum())


def _value(table: Any, column: str) -> Any:
    return number(table[column], "an aggregate")


def _one_if(condition: Any) -> Any:
    return ibis.cases((condition, ibis.literal(1, type="int64")), else_=ibis.literal(0, type="int64"))


def _there(value: Any) -> Any:
    return value.notnull() & ~value.isnan()


def _by(table: Any, groups: Iterable[str], **columns: Any) -> Any:
    names = list(groups)
    return table.group_by(names).aggregate(**columns) if names else table.aggregate(**columns)


def _groups(table: Any, keys: Keys | None) -> dict[str, Any]:
    """The columns g0, g1, … that hold a row's group."""
    return {} if keys is None else {f"g{i}": Column(name).to_ibis(table) for i, name in enumerate(keys.columns)}


def _narrow(table: Any, keys: Keys | None, unit: Unit, columns: dict[str, Any]) -> Any:
    """The rows of public groups and of somebody, with only what is summed, under names of our own."""
    columns = _groups(table, keys) | columns
    if keys is not None:
        table = table.filter(keys.condition().to_filter(table))
    if isinstance(unit, Person):
        columns["person"] = Column(str(unit.column)).to_ibis(table)
        table = table.filter(columns["person"].notnull())
    return table.select(**(columns or {"row": ibis.literal(1)}))


def _terms(table: Any, asked: Sequence[Asked]) -> tuple[list[Term], dict[str, Any]]:
    """The integers that are summed, and the counters: 1 for a row with a value, else 0."""
    terms: list[Term] = []
    counters: dict[str, Any] = {}
    for i, one in enumerate(asked):
        kind, grid = one.statistic.kind, one.statistic.grid
        if one.column is None:
            continue
        if grid is None:
            counters[f"n{i}"] = _one_if(Column(one.column).to_ibis(table).notnull())
            continue
        value = _value(table, one.column)
        if kind == "sum":
            assert one.statistic.missing is not None
            terms.append(Term(f"s{i}", level(value, grid, one.statistic.missing), grid.lower, grid.upper, "rows"))
            continue
        there = _one_if(_there(value))
        counters[f"n{i}"] = there
        near = level(value, grid, 0)
        terms.append(Term(f"s{i}", near, grid.lower, grid.upper, f"n{i}"))
        if kind in ("variance", "std"):
            squares = (centered_squares(near, grid.reach) * there).cast("int64")
            terms.append(Term(f"q{i}", squares, -grid.reach, grid.reach, f"n{i}"))
    return terms, counters


def _coordinates(place: int, one: Asked) -> list[str]:
    """The columns that make up a statistic, in the order that `aggregated.bounded` takes them."""
    kind = one.statistic.kind
    if kind == "persons":
        return ["persons"]
    if kind == "count":
        return ["rows" if one.column is None else f"n{place}"]
    return {"sum": [f"s{place}"], "mean": [f"s{place}", f"n{place}"]}.get(kind, [f"s{place}", f"q{place}", f"n{place}"])


def _allotted(
    pieces: Any, groups: Iterable[str], finer: list[str], keys: Keys | None, unit: Person, hash_key: int
) -> Any:
    """Each piece of a person's rows with `used`: how many of its rows count, `max_rows` for a person in all.

    A person's groups come in the order of a keyed hash, and the first `max_groups` of them count.
    """
    groups = list(groups)
    if not groups and not finer:
        return pieces.mutate(used=ibis.least(pieces["rows"], unit.max_rows))
    # One piece for each group may be numbered with ties in any order; several pieces of a group need the group itself.
    by_group = [_mixed(pieces, groups, hash_key), *(groups if finer else ())] if groups else []
    order = by_group + ([_mixed(pieces, [*groups, *finer], hash_key), *finer] if finer else [])
    earlier = ibis.window(group_by="person", order_by=order, preceding=(None, 1))
    before = pieces["rows"].sum().over(earlier).fill_null(0)
    used = ibis.least(ibis.greatest(unit.max_rows - before, 0), pieces["rows"])
    limit = unit.max_groups
    if limit is not None and keys is not None and limit < min(len(keys.values), unit.max_rows):
        number_groups = ibis.dense_rank() if finer else ibis.row_number()
        place = number_groups.over(ibis.window(group_by="person", order_by=by_group))
        ranked = pieces.mutate(used=used, place=place)
        return ranked.filter(ranked["place"] < limit)
    return pieces.mutate(used=used)


def _mixed(table: Any, columns: list[str], hash_key: int) -> Any:
    """A hash of the person and of some columns under a key; who is hashed and what decides it, no other row."""
    mixed = table["person"].hash() ^ hash_key
    for place, column in enumerate(columns):
        own = table[column].hash()
        mixed = mixed ^ (own if place == 0 else (own ^ place).hash())  # equal values of two columns must not cancel
    return mixed.hash()


def _shrunk(pieces: Any, term: Term, used: Any) -> Any:
    """A partial sum cut down in proportion to the rows that count, and clamped to what so many rows can reach."""
    whole, rows = pieces[term.name], pieces[term.counter]
    part = whole.cast("float64") * used.cast("float64") / ibis.greatest(rows, 1).cast("float64")
    cut = ibis.cases((used == rows, whole), else_=part.cast("int64"))
    return ibis.greatest(ibis.least(cut, used * term.upper), used * term.lower)
