"""What bounds and limits changed, estimated from a release of its own: rows that were lost, values that were clamped.

Everything here is post-processing of released histograms, so it is free once those are paid for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.analytics.aggregates.measurement import LEVEL
from discreet.analytics.plan.limits import GRID, GROUPS, OUTSIDE, ROWS
from discreet.analytics.result.consistency import quantile
from discreet.neighbors import Person, Unit

if TYPE_CHECKING:
    from discreet.analytics.result.result import ColumnSource, Result

#: The probability that noise makes an empty cell of a histogram look filled: small, since a far cell weighs much.
_FALSE_ALARM = 1e-3


@dataclass(frozen=True)
class Estimate:
    """A number with a range that holds it with probability 95%."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:,.6g} ({self.low:,.6g} to {self.high:,.6g})"


@dataclass(frozen=True)
class Histogram:
    """Noisy counts of public cells, with the ends of each cell and their noise; the last cell has no upper end.

    `least` is a count that the noise of any cell exceeds with a probability of at most 0.1%: cells below it count as
    empty, and persons in them go unseen.
    """

    counts: NDArray[np.float64]
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    least: float
    source: ColumnSource

    @classmethod
    def of(cls, result: Result, name: str) -> Histogram | None:
        """The released histogram of persons under a name, if there is one."""
        columns = [column for column in result.sources if column.startswith(f"{name}[")]
        if not columns:
            return None
        source = result.sources[columns[0]]
        cuts = source.measurement.aggregate.cuts  # type: ignore[attr-defined]  # of `RowsPerPerson`
        counts = np.array([result.columns[column][0] for column in columns], dtype=np.float64)
        starts, ends = np.array([0.0, *cuts]) + 1, np.array([*cuts, np.inf])
        assert source.release.error is not None
        least = source.release.error.noise.half_width(_FALSE_ALARM / len(counts))
        return cls(counts, starts, ends, least, source)

    def above(self, limit: int) -> Estimate:
        """How many persons have more than `limit`, which must be the end of a cell."""
        cells = self.starts > limit
        wide = _total_error(self.source, int(cells.sum()))
        total = float(self.counts[cells].sum())
        return Estimate(max(total, 0.0), max(total - wide, 0.0), max(total + wide, 0.0))

    def removed(self, limit: int) -> Estimate:
        """How much a limit removes of what persons have, in all: Σ max(0, n − limit) over persons with n.

        Only cells above `least` count. The range allows for the noise of each of them and for where in its cell a
        person may be; a cell without an upper end is taken to end at twice its start.
        """
        ends = np.where(np.isinf(self.ends), 2 * self.starts, self.ends)
        few, many = np.maximum(self.starts - limit, 0.0), np.maximum(ends - limit, 0.0)
        seen = self.counts > self.least
        counts = np.where(seen, self.counts, 0.0)
        value = float(np.sum(counts * (few + many) / 2))
        low = float(np.sum(np.maximum(counts - self.least, 0.0) * few))
        high = float(np.sum(np.where(seen, counts + self.least, 0.0) * many))
        return Estimate(value, low, high)

    def total(self) -> float:
        """About how many rows (or groups) all persons have together."""
        ends = np.where(np.isinf(self.ends), 2 * self.starts, self.ends)
        counts = np.where(self.counts > self.least, self.counts, 0.0)
        return float(np.sum(counts * (self.starts + ends) / 2))


@dataclass(frozen=True)
class Clamped:
    """Of one column: about how many rows lie below and above its bounds, and by how much clamping moves their sum.

    `moved` is what clamping adds to the column's sum: positive where low values are raised. Values further out than 16
    widths of the bounds count as if they were 16 to 64 widths out.
    """

    below: Estimate
    above: Estimate
    rows: float
    moved: Estimate

    @property
    def of_mean(self) -> float:
        """About what clamping adds to the column's mean."""
        return self.moved.value / max(self.rows, 1.0)


@dataclass(frozen=True, repr=False)
class Bias:
    """What an answer's bounds and limits changed, about: `print` it. The release behind it was charged.

    Attributes:
        result: the charged release: histograms of persons, and counts of rows inside and outside of bounds.
        persons: how many persons have more rows than `max_rows`; None where rows are protected.
        rows_removed: how many rows those lose in all, which a count lacks; None where rows are protected.
        groups_removed: by how much persons in more than `max_groups` groups are counted less; None without groups.
        columns: what clamping does to each column.
        share: about the share of all rows that persons above the limit lose.
        ranks: for each quantile among listed candidates, how many rows lie between it and the nearest one, in the group
            where these are most. With the rank error of the answer it bounds how many rows lie between the answer and
            the quantile.
    """

    result: Result
    persons: Estimate | None
    rows_removed: Estimate | None
    groups_removed: Estimate | None
    columns: Mapping[str, Clamped]
    share: float | None = None
    ranks: Mapping[str, Estimate] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, unit: Unit, clamped: Sequence[str]) -> Bias:
        """From the release of `Answer.limits`."""
        rows, groups = Histogram.of(result, ROWS), Histogram.of(result, GROUPS)
        columns = {name: _clamped(result, f"{OUTSIDE} {name}") for name in clamped}
        ranks = {name.removeprefix(f"{GRID} "): _gap(result, name) for name in result.sources if name.startswith(GRID)}
        if not isinstance(unit, Person) or rows is None:
            return cls(result, None, None, None, columns, None, ranks)
        removed = rows.removed(unit.max_rows)
        most = unit.max_groups or unit.max_rows
        share = removed.value / max(rows.total(), 1.0)
        lost = None if groups is None else groups.removed(most)
        return cls(result, rows.above(unit.max_rows), removed, lost, columns, share, ranks)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = []
        if self.persons is not None and self.rows_removed is not None:
            lines.append(f"persons above the limit of rows: {self.persons}")
            lines.append(f"rows that they lose in all: {self.rows_removed}, about {self.share or 0:.1%} of all")
        if self.groups_removed is not None:
            lines.append(f"persons lost to max_groups: {self.groups_removed}")
        for name, own in self.columns.items():
            lines.append(f"{name}: rows below its bounds: {own.below}")
            lines.append(f"{name}: rows above its bounds: {own.above}")
            lines.append(f"{name}: clamping adds to the sum: {own.moved}, and to the mean about {own.of_mean:,.4g}")
        for name, gap in self.ranks.items():
            lines.append(f"{name}: ranks from its nearest candidate to the quantile: {gap}")
        return "\n".join([*lines, f"(ranges are at {LEVEL:.0%}; charged as {self.result.guarantee})"])


def _gap(result: Result, name: str) -> Estimate:
    (low,), (high,) = result.sources[name].interval(LEVEL)
    return Estimate(*(max(float(number), 0.0) for number in (result.columns[name][0], low, high)))


def _clamped(result: Result, name: str) -> Clamped:
    columns = [column for column in result.sources if column.startswith(f"{name}[")]
    source = result.sources[columns[0]]
    counts = np.array([result.columns[column][0] for column in columns], dtype=np.float64)
    edges = np.array(source.measurement.aggregate.edges)  # type: ignore[attr-defined]  # of `Outside`
    middle = len(counts) // 2
    width = edges[middle] - edges[middle - 1]
    # Distances from the nearer bound: those of the cells above, from the inside out.
    ends = np.append(edges[middle:] - edges[middle], 64 * width)
    few, many = ends[:-1], ends[1:]
    assert source.release.error is not None
    step = float(source.measurement.summed.granularity)
    least = source.release.error.noise.half_width(_FALSE_ALARM / len(counts)) * step
    above, below = counts[middle + 1 :], counts[:middle][::-1]

    def mass(cells: NDArray[np.float64]) -> tuple[float, float, float]:
        seen = np.where(cells > least, cells, 0.0)
        high = np.where(cells > least, cells + least, 0.0) * many
        low = np.maximum(seen - least, 0.0) * few
        return float(np.sum(seen * (few + many) / 2)), float(low.sum()), float(high.sum())

    def rows(cells: NDArray[np.float64]) -> Estimate:
        wide, total = _total_error(source, cells.size), float(cells.sum())
        return Estimate(max(total, 0.0), max(total - wide, 0.0), max(total + wide, 0.0))

    raised, lowered = mass(below), mass(above)
    moved = Estimate(raised[0] - lowered[0], raised[1] - lowered[2], raised[2] - lowered[1])
    return Clamped(rows(below), rows(above), float(np.maximum(counts, 0.0).sum()), moved)


def _total_error(source: ColumnSource, cells: int) -> float:
    """The 95% error of the sum of this many cells."""
    if cells == 0:
        return 0.0
    assert source.release.error is not None
    return quantile([(1.0, cells, source.release.error.noise, float(source.measurement.summed.granularity))], LEVEL)


@dataclass(frozen=True, repr=False)
class Advice:
    """Which limits suit released histograms: the limit whose noise and loss together are smallest. `print` it.

    Attributes:
        max_rows: the suggested limit of rows.
        max_groups: the suggested limit of groups; None where no groups were asked about.
        rows: for each limit (rows) that was weighed: the share of persons within it, the rows that it removes, and the
            95% error of a count.
        groups: the same for groups.
    """

    max_rows: int
    max_groups: int | None
    rows: tuple[tuple[int, float, float, float], ...]
    groups: tuple[tuple[int, float, float, float], ...]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = []
        for what, best, weighed in (("rows", self.max_rows, self.rows), ("groups", self.max_groups, self.groups)):
            if best is None:
                continue
            lines.append(f"max_{what} = {best}")
            near = next(i for i, row in enumerate(weighed) if row[0] == best)
            for limit, within, lost, error in weighed[max(0, near - 3) : near + 4]:
                lines.append(
                    f"  {limit:>8,}: {within:6.1%} of persons within, {lost:12,.0f} lost, noise ± {error:,.0f}"
                )
        return "\n".join(lines)


def advice(result: Result, *, epsilon: float) -> Advice:
    """Limits for later counts at `epsilon`, from the released histograms of `rows_per_person()`. Free.

    A count's noise grows with the limit, and what the limit removes shrinks with it. The suggestion makes the sum of
    the 95% error of a count, which is 3·limit/ε, and of the rows that are removed smallest. An account's unit is fixed
    when it is opened: the suggestion is for the next account.

    Args:
        result: the release of `people.rows_per_person()`, or of that of a table with groups.
        epsilon: the ε that later counts will spend.

    Guarantee: post-processing (Dwork & Roth 2014, Proposition 2.1) of what was released already.
    """
    planned = float(_check.epsilon(epsilon))
    rows, groups = Histogram.of(result, ROWS), Histogram.of(result, GROUPS)
    if rows is None:
        raise _check.fail("result", "be a release of rows_per_person()", list(result.columns), "ask for it first")
    best, weighed = _weighed(rows, planned)
    best_groups, weighed_groups = (None, ()) if groups is None else _weighed(groups, planned)
    return Advice(best, best_groups, weighed, weighed_groups)


def _weighed(histogram: Histogram, epsilon: float) -> tuple[int, tuple[tuple[int, float, float, float], ...]]:
    counts = np.where(histogram.counts > histogram.least, histogram.counts, 0.0)
    persons = max(float(counts.sum()), 1.0)
    rows: list[tuple[int, float, float, float]] = []
    for limit in histogram.ends[:-1].astype(int).tolist():
        within = float(counts[histogram.ends <= limit].sum()) / persons
        error = -np.log(1 - LEVEL) * limit / epsilon
        rows.append((limit, within, histogram.removed(limit).value, float(error)))
    best: Any = min(rows, key=lambda row: row[2] + row[3])
    return int(best[0]), tuple(rows)
