"""The chart of an exercise: bars of text in a terminal, a picture in the documentation, from the same numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from discreet.apps.learn.exercise import Chart
from discreet.errors import MissingExtra

# Columns of the longest bar in a terminal, and rows of a curve.
_WIDTH, _ROWS = 40, 8
_COLORS = ("#00796b", "#d84315", "#f9a825", "#5e35b1")


def as_text(chart: Chart) -> str:
    """The chart as bars of text: one for each label, or for a few points of each curve."""
    across, series = chart.data
    step = max(1, math.ceil(len(across) / _ROWS))
    drawn = range(len(across)) if chart.kind == "bars" else range(0, len(across), step)
    lowest, highest = _limits(chart, series)
    lines = [f"{chart.title} ({chart.y})"]
    width = max(len(_label(across[index])) for index in drawn)
    for name, values in series.items():
        if len(series) > 1:
            lines.append(f"{name}:")
        for index in drawn:
            length = round(_WIDTH * _share(values[index], lowest, highest, "y" in chart.log))
            lines.append(
                f"  {_label(across[index]):>{width}}  {'█' * length}{' ' if length else ''}{values[index]:.3g}"
            )
    return "\n".join(lines)


def draw(chart: Chart, path: Path) -> None:
    """Draw the chart into a picture file."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise MissingExtra("pictures need matplotlib: pip install 'discreet[report]'") from missing
    across, series = chart.data
    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    if chart.kind == "lines":
        for (name, values), color in zip(series.items(), _COLORS, strict=False):
            axes.plot(across, values, color=color, label=name, linewidth=2)
        if "x" in chart.log:
            axes.set_xscale("log")
    else:
        share = 0.8 / len(series)
        for series_index, ((name, values), color) in enumerate(zip(series.items(), _COLORS, strict=False)):
            positions = [index + (series_index - (len(series) - 1) / 2) * share for index in range(len(across))]
            bars = axes.bar(positions, values, width=share * 0.95, color=color, label=name)
            axes.bar_label(bars, fmt="%.3g", fontsize=8, padding=2)
        axes.set_xticks(range(len(across)), [str(label) for label in across])
    if "y" in chart.log:
        axes.set_yscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_title(chart.title, fontsize=11)
    axes.grid(alpha=0.3, axis="y" if chart.kind == "bars" else "both")
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    for axis, value, label in chart.marks:
        line = axes.axvline if axis == "x" else axes.axhline
        line(value, color="#555555", linestyle="--" if axis == "x" else ":", linewidth=1.2, label=label)
    if len(series) > 1 or chart.marks:
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def _limits(chart: Chart, series: dict[str, list[float]]) -> tuple[float, float]:
    every = [abs(value) for values in series.values() for value in values]
    positive = [value for value in every if value > 0]
    # On a logarithmic scale the shortest bar still shows: one decade below the smallest value.
    return (min(positive) / 10 if "y" in chart.log else 0.0), max(every)


def _share(value: float, lowest: float, highest: float, logarithmic: bool) -> float:
    size = abs(value)
    if not logarithmic:
        return size / highest
    return math.log(size / lowest) / math.log(highest / lowest) if size > 0 else 0.0


def _label(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
