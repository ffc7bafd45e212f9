"""A released answer: one row for each public group, each number with its error."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from discreet import _check
from discreet.analytics.preview import rank_error
from discreet.errors import MissingExtra
from discreet.events import Event
from discreet.ledger import Receipt
from discreet.neighbors import Relation
from discreet.release import Release

if TYPE_CHECKING:
    from discreet.analytics.answer import Part, Question

_LEVEL = 0.95


@dataclass(frozen=True)
class Result:
    """Private numbers, free to use: `rows()`, `to_pandas()`, `to_arrow()`, `to_polars()`.

    Each aggregate `x` comes with `x_error`: the true aggregate of the clamped data lies within x ± x_error with
    probability at least 95%. A quantile comes with `x_rank_error` instead: so many rows, at most and with the same
    probability, lie between it and the true one.

    Attributes:
        columns: the columns by name, groups first; rows are in the order of the keys.
        group_columns: how many of them are group keys.
        receipt: the proof of the charge.
        releases: the releases behind the columns, with their events, guarantees and intervals at any level.
    """

    columns: Mapping[str, tuple[Any, ...]]
    group_columns: int
    receipt: Receipt
    releases: Mapping[str, tuple[Release[Any], ...]]

    @classmethod
    def of(
        cls,
        question: Question,
        done: Mapping[str, list[Release[Any]]],
        parts: Mapping[str, Part],
        receipt: Receipt,
        relation: Relation,
    ) -> Result:
        """Put releases together into a table."""
        columns: dict[str, tuple[Any, ...]] = {}
        if question.keys is not None:
            for i, name in enumerate(question.keys.columns):
                columns[name] = tuple(key[i] for key in question.keys.values)
        for name, releases in done.items():
            part = parts[name]
            if part.asked.statistic.kind == "quantile":
                columns[name] = tuple(one.value for one in releases)
                error = rank_error(part.asked, part.epsilon, question.unit, relation)
                columns[f"{name}_rank_error"] = (error,) * question.groups
                continue
            value = np.atleast_1d(releases[0].value)
            low, high = (np.atleast_1d(end) for end in releases[0].confidence_interval(_LEVEL))
            columns[name] = tuple(value.tolist())
            columns[f"{name}_error"] = tuple(np.maximum(high - value, value - low).tolist())
        keyed = 0 if question.keys is None else len(question.keys.columns)
        return cls(columns, keyed, receipt, {name: tuple(one) for name, one in done.items()})

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

    def plot(self, column: str | None = None, axes: Any = None) -> Any:
        """Bars with whiskers for the 95% errors, one for each group, on matplotlib axes, which are returned.

        Args:
            column: which aggregate; by default the first one.
            axes: where to draw; by default on a new figure.
        """
        asked = list(self.releases)
        name = _check.one_of(
            "column", asked[0] if column is None else column, asked, "it is an aggregate of the answer"
        )
        keys = list(self.columns.values())[: self.group_columns]
        labels = [", ".join(str(part) for part in key) for key in zip(*keys, strict=True)] or [name]
        if axes is None:
            height = 1.2 + 0.28 * len(labels)
            axes = _extra("matplotlib.pyplot").subplots(figsize=(7, height), layout="constrained")[1]
        errors = self.columns.get(f"{name}_error")
        axes.barh(labels, self.columns[name], xerr=errors, color="#2a9d8f", ecolor="#1d3557", capsize=3)
        axes.invert_yaxis()
        axes.set_xlabel(name + ("" if errors is None else ", with 95% error"))
        axes.spines[["top", "right"]].set_visible(False)
        return axes

    def __str__(self) -> str:
        heads = list(self.columns)
        cells = [[_short(value) for value in row.values()] for row in self.rows()]
        widths = [max(len(row[i]) for row in (heads, *cells)) for i in range(len(heads))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (heads, *cells)
        )


def _extra(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise MissingExtra(f"this needs {package}: pip install {package}") from error


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
