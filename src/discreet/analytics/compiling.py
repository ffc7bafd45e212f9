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
from discreet.analytics.expressions import Column, Comparison, Constant, Expression, Logic, exact, number
from discreet.analytics.keys import Keys
from discreet.neighbors import Person, Unit
from discreet.queries.aggregated import Statistic, groups_of
from discreet.queries.covariance import products
from discreet.queries.grid import Grid
from discreet.queries.variance import centered_squares
from discreet.queries.weighted import WEIGHT

#: Adding and subtracting it, times a step of 2^e, rounds a float below 2^51 steps to whole ones, ties to even levels.
_ROUND = 1.5 * 2**52


@dataclass(frozen=True)
class Asked:
    """One statistic for a share of the budget, of one column (None where rows or persons are counted) or of several.

    `other` is the second column of a covariance; `columns` and `cells` are those that a marginal or a choice among
    categories counts the combinations of; `k` is how many categories are chosen.
    """

    statistic: Statistic
    column: str | None
    share: float = 1.0
    other: str | None = None
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[Any, ...], ...] = ()
    k: int | None = None

    def __str__(self) -> str:
        named = [name for name in (self.column, self.other, *self.columns) if name is not None]
        return f"{self.statistic.kind}({', '.join(named)})"

    @property
    def labels(self) -> tuple[Any, ...]:
        """One label for each cell: the value, or the tuple of values."""
        return tuple(cell[0] if len(self.columns) == 1 else cell for cell in self.cells)


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


def totals(table: Any, asked: Sequence[Asked], keys: Keys | None, unit: Unit) -> Any:
    """One row for each group that occurs, with the columns c0_0, c0_1, … of each statistic."""
    groups = list(_groups(table, keys))
    summed = _terms(table, asked)
    rows = narrow(table, keys, unit, summed)
    if isinstance(unit, Person):
        outputs, pieces = _weighed(rows, list(summed), asked, groups, keys, unit)
    else:
        outputs, pieces = {"rows": rows.count(), **{name: rows[name].sum() for name in summed}}, rows
    wanted = [(f"c{i}_{j}", name) for i, one in enumerate(asked) for j, name in enumerate(_coordinates(i, one))]
    return _by(pieces, groups, **{column: outputs[name] for column, name in wanted})


def cells(table: Any, asked: Asked, keys: Keys | None, unit: Unit) -> Any:
    """One row for each group and level that occur: how many rows lie there. For quantiles."""
    assert asked.column is not None
    assert asked.statistic.grid is not None
    groups = _groups(table, keys)
    value = _value(table, asked.column)
    rows = narrow(table.filter(_there(value)), keys, unit, {"level": level(value, asked.statistic.grid, 0)})
    if not isinstance(unit, Person):
        return _by(rows, [*groups, "level"], rows=rows.count())
    pieces = _owned(rows, rows.count(), None)
    return _by(pieces, [*groups, "level"], rows=weight(pieces["own_rows"], unit.max_rows).sum())


def weight(many: Any, limit: int) -> Any:
    """What each of a person's `many` rows (or groups) weighs, so that together they weigh no more than `limit` would.

    The quotient is below `WEIGHT`, where a float's error is far smaller than the distance 1/many to the next integer:
    the floor is exact.
    """
    shared = (ibis.literal(WEIGHT * limit, type="int64") / many).floor().cast("int64")
    return ibis.cases((many > limit, shared), else_=ibis.literal(WEIGHT, type="int64"))


def _weighed(
    rows: Any, names: Sequence[str], asked: Sequence[Asked], groups: list[str], keys: Keys | None, unit: Person
) -> tuple[dict[str, Any], Any]:
    """The weighted sums, and the table of rows (or of pieces of a person's rows) that they are sums over."""
    if groups and not any(one.statistic.kind == "persons" for one in asked):
        pieces = _owned(rows, rows.count(), None)
        own = weight(pieces["own_rows"], unit.max_rows)
        return {"rows": own.sum(), **{name: (own * pieces[name]).sum() for name in names}}, pieces
    sums = {name: rows[name].sum().cast("int64") for name in names}
    pieces = _by(rows, ["person", *groups], rows=rows.count(), **sums)
    if groups:
        pieces = _owned(pieces, pieces["rows"].sum().cast("int64"), pieces.count())
        most = groups_of(unit, 1 if keys is None else len(keys.values))
        persons = weight(pieces["own_groups"], most).sum()
        own = weight(pieces["own_rows"], unit.max_rows)
    else:
        persons = pieces.count() * WEIGHT
        own = weight(pieces["rows"], unit.max_rows)
    return {"persons": persons, **{name: (own * pieces[name]).sum() for name in ("rows", *names)}}, pieces


def _owned(pieces: Any, own_rows: Any, own_groups: Any) -> Any:
    """Each piece beside what its person has in all: `own_rows` and, where asked for, `own_groups`."""
    wanted = {"own_rows": own_rows} | ({} if own_groups is None else {"own_groups": own_groups})
    return pieces.join(pieces.group_by("person").aggregate(**wanted), "person")


def _value(table: Any, column: str) -> Any:
    return number(table[column], "an aggregate")


def _one_if(condition: Any) -> Any:
    return ibis.cases((condition, ibis.literal(1, type="int64")), else_=ibis.literal(0, type="int64"))


def _there(value: Any) -> Any:
    return value.notnull() & ~value.isnan()


def _person(value: Any) -> Any:
    """A person's id, so that grouping and joining agree on who is who: −0.0 and 0.0 are one id on every engine."""
    zero = ibis.literal(0, type=value.type()) if value.type().is_floating() else None
    return value if zero is None else ibis.cases((value == zero, zero), else_=value)


def _somebody(person: Any) -> Any:
    """Whether a row has a person: nobody's limit would cover it otherwise."""
    return person.notnull()


def _by(table: Any, groups: Iterable[str], **columns: Any) -> Any:
    names = list(groups)
    return table.group_by(names).aggregate(**columns) if names else table.aggregate(**columns)


def _groups(table: Any, keys: Keys | None) -> dict[str, Any]:
    """The columns g0, g1, … that hold a row's group."""
    return {} if keys is None else {f"g{i}": Column(name).to_ibis(table) for i, name in enumerate(keys.columns)}


def narrow(table: Any, keys: Keys | None, unit: Unit, columns: dict[str, Any]) -> Any:
    """The rows of public groups and of somebody, with only what is summed, under names of our own."""
    columns = _groups(table, keys) | columns
    if keys is not None:
        table = table.filter(keys.condition().to_filter(table))
    if isinstance(unit, Person):
        columns["person"] = _person(Column(str(unit.column)).to_ibis(table))
        table = table.filter(_somebody(columns["person"]))
    return table.select(**(columns or {"row": ibis.literal(1)}))


def _terms(table: Any, asked: Sequence[Asked]) -> dict[str, Any]:
    """The integers of a row that are summed: levels s, squares q, and n: 1 for a row with a value, else 0."""
    found: dict[str, Any] = {}
    for i, one in enumerate(asked):
        kind, grid = one.statistic.kind, one.statistic.grid
        for j, cell in enumerate(one.cells):
            found[f"m{i}_{j}"] = _one_if(_equal(one.columns, cell).to_filter(table))
        if one.column is None:
            continue
        if one.other is not None:
            found |= _joint(table, i, one)
            continue
        if grid is None:
            found[f"n{i}"] = _one_if(Column(one.column).to_ibis(table).notnull())
            continue
        value = _value(table, one.column)
        if kind == "sum":
            assert one.statistic.missing is not None
            found[f"s{i}"] = level(value, grid, one.statistic.missing)
            continue
        there, near = _one_if(_there(value)), level(value, grid, 0)
        found |= {f"n{i}": there, f"s{i}": near}
        if kind in ("variance", "std"):
            found[f"q{i}"] = (centered_squares(near, grid.reach) * there).cast("int64")
    return found


def _joint(table: Any, i: int, one: Asked) -> dict[str, Any]:
    """The integers of two columns, both clamped before they are multiplied; 0 where one of the values is missing."""
    first, second = one.statistic.grid, one.statistic.other
    assert first is not None
    assert second is not None
    x, y = _value(table, str(one.column)), _value(table, str(one.other))
    there = _one_if(_there(x) & _there(y))
    k, l = level(x, first, 0), level(y, second, 0)  # noqa: E741  # the letters of docs/proofs/covariance.md
    found = {f"s{i}": k, f"t{i}": l, f"p{i}": products(k, l, first, second)}
    if one.statistic.kind == "correlation":
        found |= {f"q{i}": centered_squares(k, first.reach), f"r{i}": centered_squares(l, second.reach)}
    return {**{name: (value * there).cast("int64") for name, value in found.items()}, f"n{i}": there}


def _equal(columns: Sequence[str], cell: Sequence[Any]) -> Expression:
    """Whether a row lies in one cell."""
    return Logic(
        "and",
        tuple(Comparison("==", Column(name), Constant(value)) for name, value in zip(columns, cell, strict=True)),
    )


def _coordinates(place: int, one: Asked) -> list[str]:
    """The columns that make up a statistic, in the order that `aggregated.bounded` takes them."""
    kind = one.statistic.kind
    if one.cells:
        return [f"m{place}_{j}" for j in range(len(one.cells))]
    if kind in ("covariance", "correlation"):
        return [f"{letter}{place}" for letter in ("stpn" if kind == "covariance" else "stpqrn")]
    if kind == "persons":
        return ["persons"]
    if kind == "count":
        return ["rows" if one.column is None else f"n{place}"]
    return {"sum": [f"s{place}"], "mean": [f"s{place}", f"n{place}"]}.get(kind, [f"s{place}", f"q{place}", f"n{place}"])
