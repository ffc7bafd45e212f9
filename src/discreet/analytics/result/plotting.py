"""Charts of released numbers: bars with whiskers, histograms and heat maps. They use the result alone."""

from __future__ import annotations

import numbers
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet import _check

if TYPE_CHECKING:
    from discreet.analytics.result.result import Result

_COLORS = ("#2a9d8f", "#e9c46a", "#e76f51", "#577590", "#9c89b8", "#b5838d")
_INK = "#1d3557"
_KINDS = ("bars", "histogram", "heatmap")


def size(result: Result, column: str | None, kind: str | None) -> tuple[float, float]:
    """A figure's width and height in inches."""
    _, keys, chosen = _chosen(result, column, kind)
    first = len(dict.fromkeys(keys[0])) if keys else 1
    if chosen == "heatmap":
        second = len(dict.fromkeys(keys[1]))
        return 2.8 + 1.15 * second, 1.4 + 0.32 * first
    if chosen == "histogram":
        return 7.0, 3.6
    bars = len(keys[0]) if keys else 1
    return 7.0, 1.1 + (0.3 * bars if len(keys) < 2 else 0.18 * bars + 0.1 * first)


def draw(result: Result, column: str | None, axes: Any, kind: str | None) -> Any:
    """Draw one aggregate on matplotlib axes."""
    name, keys, chosen = _chosen(result, column, kind)
    if keys and not keys[0]:  # no key was discovered
        return axes
    values = np.asarray(result.columns[name], dtype=np.float64)
    output = next(output for output in result.outputs if output.name == name)
    errors = None if output.error_in else np.asarray(result.columns[output.error], dtype=np.float64)
    if errors is None:
        label = f"{name}, off by up to {result.columns[output.error][0]:,.0f} {output.error_in}s (95%)"
    else:
        label = f"{name}, with 95% error"
    if chosen == "heatmap":
        return _heatmap(axes, keys, values, errors, result, name)
    axes.spines[["top", "right"]].set_visible(False)
    if chosen == "histogram":
        return _histogram(axes, keys[0], values, errors, next(iter(result.columns)), label)
    titles = list(result.columns)[: result.group_columns]
    if len(keys) == 2:
        _clustered(axes, keys, values, errors, titles[1])
    else:
        shown = [", ".join(str(value) for value in key) for key in zip(*keys, strict=True)] or [name]
        positions = np.arange(len(shown))
        _bars(axes, positions, values, errors, 0.72, _COLORS[0], None)
        axes.set_yticks(positions, shown)
    axes.invert_yaxis()
    axes.margins(y=0.02)
    axes.set_xlabel(label)
    axes.grid(axis="x", color="#d9dde1", linewidth=0.7)
    axes.set_axisbelow(True)
    if titles:
        axes.set_ylabel(titles[0] if len(keys) < 3 else ", ".join(titles))
    return axes


def _chosen(result: Result, column: str | None, kind: str | None) -> tuple[str, list[tuple[Any, ...]], str]:
    """The aggregate's name, the groups' columns and the kind of chart, checked."""
    asked = [output.name for output in result.outputs]
    numeric = [name for name in asked if all(isinstance(v, numbers.Real) for v in result.columns[name])]
    if not numeric:
        raise _check.fail("column", "be a number to be drawn", asked, "choices have no height")
    name = _check.one_of(
        "column", numeric[0] if column is None else column, numeric, "it is an aggregate of the answer"
    )
    keys = list(result.columns.values())[: result.group_columns]
    if kind is None:
        return name, keys, "histogram" if len(keys) == 1 and _ascending(keys[0]) else "bars"
    chosen = _check.one_of("kind", kind, _KINDS, "it is how to draw")
    if chosen == "heatmap" and len(keys) != 2:
        raise _check.fail("kind", "be heatmap for two group columns", len(keys), "draw bars")
    if chosen == "histogram" and not (len(keys) == 1 and _ascending(keys[0])):
        raise _check.fail("kind", "be histogram for one group column of ascending numbers", len(keys), "draw bars")
    return name, keys, chosen


def _ascending(keys: tuple[Any, ...]) -> bool:
    plain = all(isinstance(key, numbers.Real) and not isinstance(key, bool) for key in keys)
    return plain and len(keys) > 2 and all(a < b for a, b in pairwise(keys))


def _bars(axes: Any, positions: Any, values: Any, errors: Any, height: float, color: str, label: str | None) -> None:
    axes.barh(
        positions,
        values,
        height,
        xerr=errors,
        color=color,
        ecolor=_INK,
        label=label,
        error_kw={"elinewidth": 1.1, "capsize": 2.5},
    )


def _clustered(axes: Any, keys: list[tuple[Any, ...]], values: Any, errors: Any, title: str) -> None:
    """Bars side by side: the first group column on the axis, the second one in colors."""
    outer, inner = (list(dict.fromkeys(column)) for column in keys)
    height = 0.82 / len(inner)
    for j, name in enumerate(inner):
        own = [i for i, key in enumerate(keys[1]) if key == name]
        positions = [outer.index(keys[0][i]) + (j - (len(inner) - 1) / 2) * height for i in own]
        color = _COLORS[j % len(_COLORS)]
        _bars(axes, positions, values[own], None if errors is None else errors[own], 0.9 * height, color, str(name))
    axes.set_yticks(range(len(outer)), [str(key) for key in outer])
    axes.legend(title=title, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), alignment="left")


def _histogram(axes: Any, keys: tuple[Any, ...], values: Any, errors: Any, title: str, label: str) -> Any:
    """Vertical bars from each left edge to the next; the last one is as wide as the one before."""
    edges = np.asarray(keys, dtype=np.float64)
    widths = np.diff(edges, append=2 * edges[-1] - edges[-2])
    axes.bar(
        edges,
        values,
        widths,
        align="edge",
        yerr=None,
        color=_COLORS[0],
        edgecolor="white",
        linewidth=1.0,
    )
    if errors is not None:
        axes.errorbar(edges + widths / 2, values, yerr=errors, fmt="none", ecolor=_INK, elinewidth=1.1, capsize=2.5)
    axes.set(xlabel=title, ylabel=label)
    axes.grid(axis="y", color="#d9dde1", linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def _heatmap(axes: Any, keys: list[tuple[Any, ...]], values: Any, errors: Any, result: Result, name: str) -> Any:
    """One cell for each pair of keys, with its number and error written in it."""
    rows, columns = (list(dict.fromkeys(column)) for column in keys)
    table = np.full((len(rows), len(columns)), np.nan)
    words: dict[tuple[int, int], str] = {}
    for i, (row, column) in enumerate(zip(*keys, strict=True)):
        cell = rows.index(row), columns.index(column)
        table[cell] = values[i]
        words[cell] = f"{values[i]:,.4g}" + ("" if errors is None else f" ± {errors[i]:,.2g}")
    image = axes.imshow(table, aspect="auto", cmap="GnBu")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (row, column), text in words.items():
        dark = table[row, column] > middle
        axes.text(column, row, text, ha="center", va="center", fontsize=8.5, color="white" if dark else _INK)
    axes.set_xticks(range(len(columns)), [str(key) for key in columns])
    axes.set_yticks(range(len(rows)), [str(key) for key in rows])
    titles = list(result.columns)[: result.group_columns]
    axes.set(xlabel=titles[1], ylabel=titles[0])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(image, ax=axes, label=name + ("" if errors is None else ", ± 95% error"), fraction=0.06)
    bar.outline.set_visible(False)
    return axes
