"""A released answer: one row for each group, each number with its error."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from discreet import _check
from discreet.analytics.aggregates.aggregate import ResultColumn
from discreet.analytics.aggregates.measurement import LEVEL, Choice, Sums
from discreet.analytics.plan import limits
from discreet.analytics.plan.spending import ReleasePlan
from discreet.analytics.result import plotting
from discreet.analytics.result.consistency import Consistency, Measured, Settled, settled
from discreet.errors import MissingExtra
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger import Receipt
from discreet.neighbors import Relation
from discreet.release import Release

if TYPE_CHECKING:
    from discreet.analytics.plan.question import Question


@dataclass(frozen=True, repr=False)
class Result:
    """Private numbers, free to use: `rows()`, `to_pandas()`, `to_arrow()`, `to_polars()`, `plot()`.

    Each aggregate `x` comes with `x_error`, its ±: the aggregate of clamped values and limited persons lies within
    x ± x_error with probability at least 95%. It covers the noise, and not what bounds and limits change: `covers` says
    which those are, and `Answer.bias` estimates their effect for a price. `confidence_interval` has other levels, and
    both ends. A quantile comes with `x_low`, `x_high` and `x_rank_error` instead: the quantile of the
    clamped, limited rows lies between the first two, or at most this many rows lie between it and them, with the same
    probability. Among listed candidates there are no ends, and ranks are counted from the candidate nearest to the
    quantile. The k most frequent categories come with `x_count_error`: none of them has more than this many rows fewer
    than the most frequent category that was not chosen.

    Attributes:
        columns: the columns by name, groups first; rows are in the order of the keys, discovered ones sorted.
        group_columns: how many of them are group keys.
        receipt: the proof of the charge.
        releases: the releases behind the columns, as measured, before they were made consistent.
        totals: the total over all groups and its 95% error, for columns that were made to add up to it.
        outputs: the columns of aggregates, each with the column of its errors.
        guarantee: what the release promises on its own.
        covers: what the ± covers and what it does not.
        sources: how each numeric column was made of its releases.
    """

    columns: Mapping[str, tuple[Any, ...]]
    group_columns: int
    receipt: Receipt
    releases: Mapping[str, tuple[Release[Any], ...]]
    totals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    outputs: tuple[ResultColumn, ...] = ()
    guarantee: Guarantee | None = None
    covers: str = ""
    sources: Mapping[str, ColumnSource] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        question: Question,
        plan: ReleasePlan,
        done: Mapping[str, list[Release[Any]]],
        totals: Mapping[str, Release[Any]],
        wanted: Consistency,
        receipt: Receipt,
        guarantee: Guarantee,
        relation: Relation,
    ) -> Result:
        """Put releases together into a table."""
        columns: dict[str, tuple[Any, ...]] = {}
        added_up: dict[str, tuple[float, float]] = {}
        outputs: list[ResultColumn] = []
        sources: dict[str, ColumnSource] = {}
        released = {name: tuple(releases) for name, releases in done.items()}
        if question.keys is not None:
            for i, name in enumerate(question.keys.columns):
                columns[name] = tuple(key[i] for key in question.keys.values)
        for name, releases in done.items():
            priced = plan.parts[name]
            measurement, aggregate = priced.measurement, priced.measurement.aggregate
            own_outputs = aggregate.outputs(name)
            outputs += own_outputs
            if isinstance(measurement, Choice):
                (output,) = own_outputs
                drawn = [release.value for release in releases]
                error = measurement.score_error(priced.drawing, relation)
                columns |= {output.name: tuple(measurement.shown(draw) for draw in drawn)}
                columns |= {output.error: (error,) * question.groups}
                ends = [measurement.ends(draw) for draw in drawn]
                columns |= {end: tuple(pair[i] for pair in ends) for i, end in enumerate(output.ends)}
                released[name] = tuple(release.map(measurement.shown) for release in releases)
                continue
            assert isinstance(measurement, Sums)
            source = ColumnSource(releases[0], totals.get(name), wanted, measurement, len(own_outputs))
            sources |= {output.name: replace(source, index=j) for j, output in enumerate(own_outputs)}
            consistent = source.settled(LEVEL)
            if consistent.total is not None:
                added_up[name] = consistent.total
            columns |= _columns(own_outputs, consistent.values, consistent.errors, question.groups)
        keyed = 0 if question.keys is None else len(question.keys.columns)
        covers = limits.meaning(question)
        return cls(columns, keyed, receipt, released, added_up, tuple(outputs), guarantee, covers, sources)

    def confidence_interval(self, level: float = LEVEL, column: str | None = None) -> Any:
        """(low, high) of a column, one number for each row: they hold the statistic with probability at least `level`.

        As a release's, the interval accounts for the noise alone, each number by itself (see `covers`).

        Args:
            level: the probability with which each interval is right.
            column: which column; by default the only one or, where there are several, a dictionary of all.
        """
        share = float(_check.probability("level", level, "it is the probability that an interval is right"))
        if not 0 < share < 1:
            raise _check.fail("level", "be strictly between 0 and 1", level, "for example 0.95")
        if column is None and len(self.sources) != 1:
            return {name: source.interval(share) for name, source in self.sources.items()}
        name = next(iter(self.sources)) if column is None else column
        if name not in self.sources:
            remedy = f"one of {', '.join(self.sources)}; errors of choices bound ranks or counts, and have a column"
            raise _check.fail("column", "have an interval", column, remedy)
        return self.sources[name].interval(share)

    def where(self, kept: Sequence[bool]) -> Result:
        """Some of the rows, one truth value for each.

        Guarantee: post-processing of released numbers, which is free.
        """
        return self.taking([index for index, stays in enumerate(kept) if stays])

    def taking(self, places: Sequence[int]) -> Result:
        """The rows at some places, in this order, with their intervals.

        Guarantee: post-processing of released numbers, which is free.
        """
        columns = {name: tuple(column[index] for index in places) for name, column in self.columns.items()}
        sources = {name: source.taking(places) for name, source in self.sources.items()}
        return replace(self, columns=columns, sources=sources)

    @property
    def event(self) -> Event:
        """What was run and charged."""
        return self.receipt.event

    @property
    def value(self) -> Any:
        """The number, where one was asked for without groups."""
        rows = self.rows()
        return next(iter(rows[0].values())) if len(rows) == 1 and not self.group_columns else self.columns

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary for each group, in the order of the keys."""
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def to_arrow(self) -> pa.Table:
        """An Arrow table."""
        return pa.table({name: list(column) for name, column in self.columns.items()})

    def to_pandas(self) -> Any:
        """A pandas data frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A polars data frame."""
        return _extra("polars").from_arrow(self.to_arrow())

    def plot(self, column: str | None = None, axes: Any = None, *, kind: str | None = None) -> Any:
        """A picture on matplotlib axes, which are returned: bars with whiskers for the 95% errors, or a heat map.

        Args:
            column: which aggregate; by default the first one.
            axes: where to draw; by default on a new figure.
            kind: "bars" (one for each group; side by side for a second group column), "histogram" (upright and close
                together, for one group column of ascending numbers) or "heatmap" (two group columns); by default
                what suits the groups.
        """
        if axes is None:
            size = plotting.size(self, column, kind)
            axes = _extra("matplotlib.pyplot").subplots(figsize=size, layout="constrained")[1]
        return plotting.draw(self, column, axes, kind)

    def __repr__(self) -> str:
        return str(self)  # what a notebook shows

    def __str__(self) -> str:
        heads = list(self.columns)
        cells = [[_short(value) for value in row.values()] for row in self.rows()]
        widths = [max(len(row[i]) for row in (heads, *cells)) for i in range(len(heads))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (heads, *cells)
        ]
        return "\n".join([*lines, f"({self.covers})"] if self.covers else lines)


@dataclass(frozen=True)
class ColumnSource:
    """The origin of a numeric column: its release, the release of its total, and the consistency that was asked for.

    `index` is the column's among the `width` columns of its aggregate; `rows` are the indices of the measured rows
    that it holds, None for all of them.
    """

    release: Release[Any]
    total: Release[Any] | None
    wanted: Consistency
    measurement: Sums
    width: int
    index: int = 0
    rows: tuple[int, ...] | None = None

    def settled(self, level: float) -> Settled:
        """The consistent numbers, with their errors at a level."""
        step = float(self.measurement.summed.granularity)
        return settled(
            _measured(self.release, step, level),
            None if self.total is None else _measured(self.total, step, level),
            self.wanted,
            counts=self.measurement.aggregate.counts,
            lower=self.measurement.lower,
            level=level,
        )

    def interval(self, level: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Both ends, one number for each row."""
        if self.wanted == Consistency():
            ends = [np.atleast_1d(end) for end in self.release.confidence_interval(level)]
        else:
            numbers = self.settled(level)
            ends = [numbers.values - numbers.errors, numbers.values + numbers.errors]
            if self.wanted.nonnegative and (self.measurement.aggregate.counts or self.measurement.lower >= 0):
                ends[0] = np.maximum(ends[0], 0)
        low, high = (np.reshape(end, (-1, self.width))[:, self.index].tolist() for end in ends)
        indices = range(len(low)) if self.rows is None else self.rows
        return tuple(low[row] for row in indices), tuple(high[row] for row in indices)

    def taking(self, indices: Sequence[int]) -> ColumnSource:
        """The same column, with only the rows at some indices."""
        return replace(self, rows=tuple(row if self.rows is None else self.rows[row] for row in indices))


def _measured(release: Release[Any], step: float, level: float) -> Measured:
    assert release.error is not None
    errors = np.atleast_1d(release.margin(level)).astype(np.float64)
    return Measured(np.atleast_1d(release.value), errors, release.error.noise, step)


def _columns(outputs: Sequence[ResultColumn], values: Any, errors: Any, groups: int) -> dict[str, tuple[Any, ...]]:
    """Each output's column and the column of its errors."""
    columns: dict[str, tuple[Any, ...]] = {}
    by_output, errors_by_output = (np.reshape(numbers, (groups, len(outputs))) for numbers in (values, errors))
    for j, output in enumerate(outputs):
        columns[output.name] = tuple(by_output[:, j].tolist())
        columns[output.error] = tuple(errors_by_output[:, j].tolist())
    return columns


def _extra(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise MissingExtra(f"this needs {package}: pip install {package}") from error


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_short(item) for item in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
