"""Rows of persons: one row for each person out of many, and the persons who have a certain row.

What a person's new row holds, or whether a person's rows stay, depends on that person's own rows alone, so a limit on
each person's rows still bounds what one person changes (docs/proofs/per-person.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import ibis

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfColumn, OfPerson, resolve_bounds
from discreet.analytics.engine.collation import require_exact
from discreet.analytics.engine.levels import level
from discreet.analytics.table.expressions import Column, compilable, within_the_stack
from discreet.analytics.table.semantics import double, number
from discreet.analytics.table.spec import TableSpec
from discreet.errors import InvalidArgument
from discreet.neighbors import Person
from discreet.queries.grid import Grid

#: Levels of a row's value on each side of the middle of its bounds: fine, and sums of 2^32 rows stay within 64 bits.
_LEVELS = 1 << 28

_COUNTS = (OfPerson.ROWS, OfPerson.VALUES)
#: Sums of integer levels.
_ADDED = (OfPerson.SUM, OfPerson.MEAN)


def rows_per_person(
    table: Any, unit: Person, by: Sequence[str], values: Mapping[str, Aggregate], declared: Mapping[str, Bounds]
) -> Any:
    """One row for each person and each value of the columns `by`, with the aggregates of the rows of each.

    Sums and means are computed from integers, so they do not depend on the order of rows: in floats, the presence of
    somebody else could change how a person's rows are added, and so the last digits of everybody's sums.
    """
    person = str(unit.column)
    groups = [person, *by]
    for asked in values.values():
        if asked.of_person is None:
            raise _inexact(asked)
    grids = {name: _grid(asked, declared, unit.max_rows) for name, asked in values.items() if asked.of_person in _ADDED}
    there = table.filter(table[person].notnull())
    rows = there.select(*groups, **_parts(there, values, grids))
    summed: dict[str, Any] = {}
    for name, asked in values.items():
        summed |= _summed(rows, name, asked)
    pieces = rows.group_by(groups).aggregate(**summed)
    return pieces.select(*groups, **{name: _finished(pieces, name, asked, grids) for name, asked in values.items()})


def ranges(values: Mapping[str, Aggregate], declared: Mapping[str, Bounds], max_rows: int) -> dict[str, Bounds]:
    """Public bounds of each person's value: those of a row for a mean or an extreme, of `max_rows` rows for a sum.

    They are no claim about the data: a value outside of them is moved to them before it is added.
    """
    bounds_of: dict[str, Bounds] = {}
    for name, asked in values.items():
        if asked.of_person in _COUNTS:
            bounds_of[name] = (0.0, float(max_rows))
        elif (own := _bounds(asked, declared)) is not None:
            bounds_of[name] = _of_sum(own, max_rows) if asked.of_person is OfPerson.SUM else own
    return bounds_of


def _of_sum(bounds: Bounds, max_rows: int) -> Bounds:
    """The bounds of the sum of one to `max_rows` rows."""
    low, high = bounds
    return min(low, low * max_rows), max(high, high * max_rows)


def of_persons(table: Any, person: str, condition: Any, *, negate: bool) -> Any:
    """The rows of persons who have a row for which the condition holds; with `negate`, those of the other persons."""
    chosen = table.filter(compilable(condition.to_filter(table))).select(person).distinct()
    there = table.filter(table[person].notnull())
    return (there.anti_join if negate else there.semi_join)(chosen, person)


def _bounds(asked: Aggregate, declared: Mapping[str, Bounds]) -> Bounds | None:
    """The bounds of an aggregate of one column, if it has some."""
    if not isinstance(asked, OfColumn) or not (asked.bounds or asked.column in declared):
        return None
    return resolve_bounds(asked.column, asked.bounds, declared)


def _grid(asked: Aggregate, declared: Mapping[str, Bounds], max_rows: int) -> Grid:
    """The integers that a person's rows are added as; its ends are those that a row is clamped to.

    Bounds of the aggregate itself are part of the question: `sum("cost", bounds=(0, 100))` adds clamped rows. Bounds
    that were declared for the column are there to limit what a person changes, and the person's sum is limited by its
    own bounds. A row is then only clamped to those.
    """
    assert isinstance(asked, OfColumn)
    bounds = resolve_bounds(asked.column, asked.bounds, declared)
    if asked.of_person is OfPerson.SUM and asked.bounds is None:
        bounds = _of_sum(bounds, max_rows)
    return Grid.over(bounds, center=True, levels=_LEVELS)


def _parts(table: Any, values: Mapping[str, Aggregate], grids: Mapping[str, Grid]) -> dict[str, Any]:
    """What each aggregate needs of a row."""
    parts: dict[str, Any] = {}
    for name, asked in values.items():
        if not asked.columns:
            continue
        column = asked.columns[0]
        own = Column(column).to_ibis(table)
        if asked.of_person in _ADDED:
            own = level(number(own, f"an aggregate of {column!r}"), grids[name], None)
        parts[f"{name}_part"] = own
    return parts


def _summed(rows: Any, name: str, asked: Aggregate) -> dict[str, Any]:
    values = rows[f"{name}_part"] if f"{name}_part" in rows.columns else rows
    match asked.of_person:
        case OfPerson.ROWS:
            return {f"{name}_all": values.count()}
        case OfPerson.VALUES:
            return {f"{name}_all": values.nunique()}
        case OfPerson.SUM | OfPerson.MEAN:
            return {f"{name}_all": values.sum().cast("int64"), f"{name}_count": values.count()}
        case OfPerson.LEAST:
            return {f"{name}_all": values.min()}
        case OfPerson.GREATEST:
            return {f"{name}_all": values.max()}
    raise _inexact(asked)


def _inexact(asked: Aggregate) -> InvalidArgument:
    remedy = "use count(), sum(…), mean(…), min(…) or max(…) of a person's rows"
    return _check.fail("per_person", "aggregate a person's rows exactly", str(asked), remedy)


def _finished(pieces: Any, name: str, asked: Aggregate, grids: Mapping[str, Grid]) -> Any:
    """A person's value: levels become numbers again, in floats, from two integers."""
    total = pieces[f"{name}_all"]
    if asked.of_person not in _ADDED:
        return total.cast("int64") if asked.of_person in _COUNTS else total
    grid, count = grids[name], pieces[f"{name}_count"].cast("float64")
    step, middle = double(float(Fraction(grid.step))), double(float(grid.center))
    if asked.of_person is OfPerson.SUM:
        return ibis.cases((count > 0, total.cast("float64") * step + count * middle), else_=ibis.null("float64"))
    divisor = ibis.cases((count > 0, count), else_=ibis.null("float64"))
    return total.cast("float64") * step / divisor + middle


def per_person(spec: TableSpec, columns: Sequence[str], values: Mapping[str, Aggregate]) -> TableSpec:
    """A table with one row for each person, and for each value of some columns; as `Private.per_person`."""
    if not isinstance(spec.unit, Person) or spec.unit.column is None:
        remedy = "open the account with unit=dp.person(column, max_rows=…)"
        raise _check.fail("per_person", "go with an account that protects persons", str(spec.unit), remedy)
    person = str(spec.unit.column)
    for name in columns:
        spec.require_stored(name)
    by = tuple(name for name in dict.fromkeys(columns) if name != person)
    for name in values:
        if name.lower() in {column.lower() for column in (person, *by)}:
            raise _check.fail("per_person", "name values apart from the columns", name, "choose another name")
    for name in (*by, *(column for asked in values.values() for column in asked.columns)):
        spec.require(name)
    require_exact(spec.table, (person, *by))
    with within_the_stack():
        table = rows_per_person(spec.table, spec.unit, by, values, spec.bounds)
    bounds = {name: pair for name, pair in spec.bounds.items() if name in by}
    bins = {name: edges for name, edges in spec.bins.items() if name in by}
    unit = spec.unit if by else replace(spec.unit, max_rows=1)
    return replace(
        spec,
        table=table,
        unit=unit,
        columns=(person, *by, *values),
        bounds={**bounds, **ranges(values, spec.bounds, spec.unit.max_rows)},
        bins=bins,
        computed=spec.computed | values.keys(),
    )
