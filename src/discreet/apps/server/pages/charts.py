"""Charts as inline SVG, drawn without any library: bars with error bars, and how much of a budget is used.

Colors come from the style sheet by class, so that dark mode needs nothing here. All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

#: The largest number of bars; more are in the table only.
_MOST_BARS = 40
#: Sizes in the SVG's own units.
_WIDTH, _LABELS, _ROW, _BAR, _RIGHT = 640, 170, 26, 14, 70
_LONGEST_LABEL = 24


@dataclass(frozen=True)
class Bar:
    """One value with its interval; None where an answer has no finite one."""

    label: str
    value: float
    low: float | None
    high: float | None


def bars(title: str, values: Sequence[Bar]) -> Markup:
    """A horizontal bar for each value, with its error bar; empty if there is nothing to draw."""
    drawn = [bar for bar in values if math.isfinite(bar.value)][:_MOST_BARS]
    if not drawn:
        return Markup("")
    ends = [0.0]
    for bar in drawn:
        ends += [bar.value, *(end for end in (bar.low, bar.high) if end is not None and math.isfinite(end))]
    least, most = min(ends), max(ends)
    span = (most - least) or 1.0
    plot = _WIDTH - _LABELS - _RIGHT

    def x(value: float) -> float:
        return round(_LABELS + plot * (min(max(value, least), most) - least) / span, 1)

    height = _ROW * len(drawn) + 8
    elements = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">',
        f'<line class="axis" x1="{x(0)}" x2="{x(0)}" y1="0" y2="{height}"/>',
    ]
    for row, bar in enumerate(drawn):
        middle = _ROW * row + _ROW / 2 + 4
        left, right = sorted((x(0), x(bar.value)))
        label = bar.label if len(bar.label) <= _LONGEST_LABEL else bar.label[: _LONGEST_LABEL - 1] + "…"
        elements += [
            f'<text class="label" x="{_LABELS - 8}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="value" x="{left}" y="{middle - _BAR / 2}" width="{max(right - left, 1)}" height="{_BAR}"/>',
        ]
        if bar.low is not None and bar.high is not None:
            low, high = x(bar.low), x(bar.high)
            elements += [
                f'<line class="error" x1="{low}" x2="{high}" y1="{middle}" y2="{middle}"/>',
                f'<line class="error" x1="{low}" x2="{low}" y1="{middle - 5}" y2="{middle + 5}"/>',
                f'<line class="error" x1="{high}" x2="{high}" y1="{middle - 5}" y2="{middle + 5}"/>',
            ]
        end = max(right, x(bar.high) if bar.high is not None else right)
        elements.append(f'<text class="figure" x="{end + 6}" y="{middle + 4}">{escape(short(bar.value))}</text>')
    return Markup("".join([*elements, "</svg>"]))


def meter(used: float) -> Markup:
    """A bar that is filled as far as a budget is used."""
    share = min(max(used, 0.0), 1.0)
    kind = "full" if share >= 0.999 else "high" if share >= 0.8 else "low"
    return Markup(
        f'<svg class="meter {kind}" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" '
        f'aria-label="{100 * share:.1f}% used"><rect class="rest" width="100" height="4"/>'
        f'<rect class="value" width="{100 * share:.2f}" height="4"/></svg>'
    )


def short(value: object) -> str:
    """A number with few digits and separators; other values as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
