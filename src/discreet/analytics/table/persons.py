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
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, resolve_bounds
from discreet.analytics.aggregates.count import Count, CountDistinct
from discreet.analytics.aggregates.distinct import CountValues
from discreet.analytics.aggregates.mean import Mean
from discreet.analytics.aggregates.quantile import HIGHEST, LOWEST, Quantile
from discreet.analytics.aggregates.sum import Sum
from discreet.analytics.engine.collation import require_exact
from discreet.analytics.engine.levels import level
from discreet.analytics.table.expressions import Column, within_the_stack
from discreet.analytics.table.semantics import exact, number
from discreet.analytics.table.spec import TableSpec
from discreet.neighbors import Person
from discreet.queries.grid import Grid

#: Levels of a row's value on each side of the middle of its bounds: fine, and sums of 2^32 rows stay within 64 bits.
_LEVELS = 1 << 28


def rows_per_person(
    table: Any, person: str, by: Sequence[str], values: Mapping[str, Aggregate], declared: Mapping[str, Bounds]
) -> Any:
    """One row for each person and each value of the columns `by`, with the aggregates of the rows of each.

    Sums and means are computed from integers, so they do not depend on the order of rows: in floats, the presence of
    somebody else could change how a person's rows are added, and so the last digits of everybody's sums.
    """
    groups = [person, *by]
    there = table.filter(table[person].notnull())
    rows = there.select(*groups, **_parts(there, values, declared))
    summed: dict[str, Any] = {}
    for name, asked in values.items():
        summed |= _summed(rows, name, asked)
    pieces = rows.group_by(groups).aggregate(**summed)
    return pieces.select(*groups, **{name: _finished(pieces, name, asked, declared) for name, asked in values.items()})


def ranges(values: Mapping[str, Aggregate], declared: Mapping[str, Bounds], max_rows: int) -> dict[str, Bounds]:
    """Public bounds of each person's value: those of a row for a mean or an extreme, of `max_rows` rows for a sum.

    They are no claim about the data: a value outside of them is moved to them before it is added.
    """
    found: dict[str, Bounds] = {}
    for name, asked in values.items():
        if isinstance(asked, Count | CountValues):
            found[name] = (0.0, float(max_rows))
        elif isinstance(asked, Sum | Mean | Quantile) and (asked.bounds or asked.column in declared):
            low, high = resolve_bounds(asked.column, asked.bounds, declared)
            most = max_rows if isinstance(asked, Sum) else 1
            found[name] = (min(low, low * most), max(high, high * most))
    return found


def of_persons(table: Any, person: str, condition: Any, *, negate: bool) -> Any:
    """The rows of persons who have a row for which the condition holds; with `negate`, those of the other persons."""
    chosen = table.filter(condition.to_filter(table)).select(person).distinct()
    there = table.filter(table[person].notnull())
    return (there.anti_join if negate else there.semi_join)(chosen, person)


def _grid(asked: Sum | Mean, declared: Mapping[str, Bounds]) -> Grid:
    return Grid.over(resolve_bounds(asked.column, asked.bounds, declared), center=True, levels=_LEVELS)


def _parts(table: Any, values: Mapping[str, Aggregate], declared: Mapping[str, Bounds]) -> dict[str, Any]:
    """What each aggregate needs of a row."""
    parts: dict[str, Any] = {}
    for name, asked in values.items():
        if isinstance(asked, Sum | Mean):
            value = number(Column(asked.column).to_ibis(table), f"an aggregate of {asked.column!r}")
            parts[f"{name}_part"] = level(value, _grid(asked, declared), None)
        elif isinstance(asked, Count | CountValues | Quantile) and asked.columns:
            parts[f"{name}_part"] = Column(asked.columns[0]).to_ibis(table)
    return parts


def _summed(rows: Any, name: str, asked: Aggregate) -> dict[str, Any]:
    part = rows[f"{name}_part"] if f"{name}_part" in rows.columns else None
    if isinstance(asked, Count):
        return {f"{name}_all": rows.count() if part is None else part.count()}
    if isinstance(asked, CountValues):
        assert part is not None
        return {f"{name}_all": part.nunique()}
    if isinstance(asked, Sum | Mean):
        assert part is not None
        return {f"{name}_all": part.sum().cast("int64"), f"{name}_count": part.count()}
    if isinstance(asked, Quantile) and asked.rank in (LOWEST, HIGHEST):
        assert part is not None
        return {f"{name}_all": part.min() if asked.rank == LOWEST else part.max()}
    what = "persons themselves" if isinstance(asked, CountDistinct) else str(asked)
    remedy = "use count(), sum(…), mean(…), min(…) or max(…) of a person's rows"
    raise _check.fail("per_person", "aggregate a person's rows exactly", what, remedy)


def _finished(pieces: Any, name: str, asked: Aggregate, declared: Mapping[str, Bounds]) -> Any:
    """A person's value: levels become numbers again, in floats, from two integers."""
    total = pieces[f"{name}_all"]
    if not isinstance(asked, Sum | Mean):
        return total.cast("int64") if isinstance(asked, Count | CountValues) else total
    grid, count = _grid(asked, declared), pieces[f"{name}_count"].cast("float64")
    step, middle = exact(float(Fraction(grid.step))), exact(float(grid.center))
    if isinstance(asked, Sum):
        return ibis.cases((count > 0, total.cast("float64") * step + count * middle), else_=ibis.null("float64"))
    divisor = ibis.cases((count > 0, count), else_=ibis.null("float64"))
    return total.cast("float64") * step / divisor + middle


def per_person(spec: TableSpec, columns: Sequence[str], values: Mapping[str, Aggregate]) -> TableSpec:
    """A table with one row for each person, and for each value of some columns; as `Private.per_person`."""
    if not isinstance(spec.unit, Person) or spec.unit.column is None:
        remedy = "open the account with unit=dp.person(column, max_rows=…)"
        raise _check.fail("per_person", "go with an account that protects persons", str(spec.unit), remedy)
    person = str(spec.unit.column)
    by = tuple(name for name in dict.fromkeys(columns) if name != person)
    for name in values:
        if name.lower() in {column.lower() for column in (person, *by)}:
            raise _check.fail("per_person", "name values apart from the columns", name, "choose another name")
    for name in (*by, *(column for asked in values.values() for column in asked.columns)):
        spec.require(name)
    require_exact(spec.table, (person, *by))
    with within_the_stack():
        table = rows_per_person(spec.table, person, by, values, spec.bounds)
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
