"""A row's level on a public grid, computed by the engine: the integers of `queries.Grid.levels`, bit for bit.

There are two forms. The portable one tests on which side of the grid a value lies. DuckDB's form is about twice as
fast: it takes no branch unless a value is missing or huge. Neither can fail because of what a row holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ibis

from discreet import _check
from discreet.analytics.table.semantics import double
from discreet.queries.grid import Grid

#: Adding and subtracting this many steps of 2^e rounds a float below 2^51 steps to whole steps, ties to even levels.
_ROUND = 1.5 * 2**52


@dataclass(frozen=True)
class Levels:
    """How a column becomes integers that stand for levels, NULL where a row has no value, in two steps.

    `parts` are computed first, each once; `row` computes the integer from them. It is the level itself or, with an
    `offset`, twice the level minus `offset`.
    """

    parts: dict[str, Any]
    row: Callable[[Mapping[str, Any]], Any]
    offset: int | None = None

    def each(self, row: Any) -> Any:
        """The level that a value of `row` stands for."""
        return row if self.offset is None else _halved(row + ibis.literal(self.offset, type="int64"))

    def total(self, summed: Any, counted: Any) -> Any:
        """The sum of levels out of the sum of `row` and the number (or weight) of the rows that have a value."""
        return summed if self.offset is None else _halved(summed + counted * self.offset)


def levels(value: Any, grid: Grid) -> Levels:
    """The levels of a column of 64-bit floats; NULL and NaN become NULL."""
    if value.get_backend().name == "duckdb":
        return _branchless(value, grid)
    return Levels({"level": level(value, grid, None)}, lambda parts: parts["level"])


def level(value: Any, grid: Grid, missing: int | None) -> Any:
    """A row's level; NULL and NaN become `missing`.

    Beyond each end of the grid the level is that end; between the ends rounding is monotone, so it stays between them.
    Engines sort NaN above all numbers or not at all, so the inner interval and the lower side are tested first.
    """
    center, scale = double(float(grid.center)), double(2.0**-grid.exponent)
    magic = double(_ROUND * float(grid.step))
    rounded = ((value - center + magic - magic) * scale).cast("int64")  # rounds first: some engines fail on underflow
    low, high = _end(grid, grid.lower), _end(grid, grid.upper)
    lower, upper = (ibis.literal(end, type="int64") for end in (grid.lower, grid.upper))
    return ibis.cases(
        ((value > double(low)) & (value < double(high)), rounded),
        (value <= double(low), lower),
        (~value.isnan() & (value >= double(high)), upper),
        else_=ibis.null("int64") if missing is None else ibis.literal(missing, type="int64"),
    )


def _end(grid: Grid, end: int) -> float:
    """The float nearest to one end of the grid, moved outward until its own level is that end."""
    value = float(grid.center + end * grid.step)
    outward = math.inf if end == grid.upper else -math.inf
    for _ in range(4):  # if four floats do not suffice, the steps are too fine for floats of this size
        if round(Fraction(value - float(grid.center)) / grid.step) == end:
            return value
        value = math.nextafter(value, outward)
    raise _check.fail("bounds", "be wider, for numbers this large", value, "subtract a public offset first")


def _branchless(value: Any, grid: Grid) -> Levels:
    """|x − lower| − |x − upper|, which is 2·clamp(x) − lower − upper; x is the rounded level before it is clamped.

    A cast rounds ties to even and gives NULL if the result does not fit 32 bits: the value is then missing, or so large
    that its level is an end of the grid.
    """
    middle = double(float(grid.center))
    near = ((value - middle) * double(2.0**-grid.exponent)).try_cast("int32").cast("int64")
    lower, upper, width = (ibis.literal(end, type="int64") for end in (grid.lower, grid.upper, grid.upper - grid.lower))

    def row(parts: Mapping[str, Any]) -> Any:
        x, far = parts["near"], parts["value"]
        ends = ibis.cases((far < middle, -width), (~far.isnan(), width), else_=ibis.null("int64"))
        return ibis.cases((x.notnull(), (x - lower).abs() - (x - upper).abs()), else_=ends)

    return Levels({"near": near, "value": value}, row, grid.lower + grid.upper)


def _halved(even: Any) -> Any:
    return even >> 1
