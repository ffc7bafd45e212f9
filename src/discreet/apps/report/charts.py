"""The report's charts as inline SVG. Their colors are variables of the style sheet, for dark mode and print.

A new chart is a function here that returns `svg(...)`, and one line in the template.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from discreet.apps.report.document import Charge, ReleasedTable, Training
from discreet.apps.report.trade_off import ReportTradeOff

#: Placeholder colors, replaced by variables of the style sheet.
INK, MUTED, ACCENT, SECOND, SOFT = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    ACCENT: "var(--accent)",
    SECOND: "var(--second)",
    SOFT: "var(--soft)",
}
#: Width of a chart in inches. The page scales it; the font size is set for this width.
_WIDTH = 5.0
#: Up to this many charges each gets its own labeled bar.
_MOST_BARS = 20


def budget(charges: Sequence[Charge]) -> str:
    """How the charges used the budget: a labeled bar for each, or a staircase if there are many."""
    return budget_bars(charges) if len(charges) <= _MOST_BARS else budget_steps(charges)


def budget_bars(charges: Sequence[Charge]) -> str:
    """One bar for each charge, from the share used before it to the share used after it."""

    def draw(axes: Axes) -> None:
        before = [0.0, *(100 * charge.used_after for charge in charges[:-1])]
        used = [100 * charge.used_after - start for charge, start in zip(charges, before, strict=True)]
        rows = list(range(len(charges)))
        # Bars thinner than this would vanish.
        lengths = [step if abs(step) > 0.6 else math.copysign(0.6, step) for step in used]
        axes.barh(rows, [100.0] * len(rows), color=SOFT, height=0.62)
        axes.barh(rows, lengths, left=before, color=ACCENT, height=0.62)
        for row, charge in zip(rows, charges, strict=True):
            text = f"{100 * charge.used_after:.1f}%"
            axes.annotate(text, (101, row), va="center", color=MUTED, fontsize=9, annotation_clip=False)
        axes.set_yticks(rows, [_short(charge.title, 30) for charge in charges])
        axes.set_xlim(0, 113)
        axes.set_ylim(len(charges) - 0.4, -0.6)
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.set_xlabel("budget used, %")

    return svg("budget", draw, 0.75 + 0.27 * len(charges))


def budget_steps(charges: Sequence[Charge]) -> str:
    """The share of the budget that is used after each charge, as a staircase."""

    def draw(axes: Axes) -> None:
        after = [0.0, *(100 * charge.used_after for charge in charges)]
        # It rises at each charge and stays level until the next.
        positions, heights = [*range(len(after)), len(after) - 0.5], [*after, after[-1]]
        axes.fill_between(positions, heights, step="post", color=SOFT)
        axes.step(positions, heights, where="post", color=ACCENT, linewidth=2)
        axes.plot([len(charges)], after[-1:], "o", color=ACCENT)
        axes.axhline(100, color=SECOND, linewidth=1.2, linestyle="--")
        axes.annotate("the whole budget", (0, 100), xytext=(4, -12), textcoords="offset points", color=SECOND)
        axes.set_ylim(0, 108)
        axes.set_xlim(0, len(charges) + 0.5)
        axes.set_xlabel("charges, in order")
        axes.set_ylabel("budget used, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return svg("budget", draw, 2.6)


def answer(shown: ReleasedTable, name: str, index: int) -> str:
    """One answer's bars, with whiskers for the 95% errors."""

    def draw(axes: Axes) -> None:
        labels = [_short(shown.label(row)) or name for row in shown.rows]
        rows = list(range(len(labels)))
        values = [float(row[name]) for row in shown.rows]
        errors = [shown.error(row, name) or 0.0 for row in shown.rows]
        axes.barh(rows, values, color=ACCENT, height=0.7)
        axes.errorbar(values, rows, xerr=errors, fmt="none", ecolor=INK, elinewidth=1.4, capsize=3)
        axes.set_yticks(rows, labels)
        axes.invert_yaxis()
        axes.set_xlabel(name)

    return svg(f"answer-{index}-{name}", draw, max(1.3, 0.9 + 0.26 * len(shown.rows)))


def training(shown: Training, index: int) -> str:
    """One panel for each series of a training, and one for its private scores with their errors."""
    panels = len(shown.series) + bool(shown.scores)

    def draw_panels(figure: Figure) -> None:
        all_axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values), color in zip(all_axes, shown.series, (ACCENT, SECOND) * panels, strict=False):
            axes.plot(shown.steps[: len(values)], values, color=color, linewidth=2)
            axes.set_ylabel(name)
            _plain(axes)
        if shown.scores:
            steps = [step for step, _ in shown.scores]
            heights = [score.value for _, score in shown.scores]
            errors = [
                [score.value - score.low for _, score in shown.scores],
                [score.high - score.value for _, score in shown.scores],
            ]
            all_axes[-1].errorbar(steps, heights, yerr=errors, color=ACCENT, ecolor=INK, marker="o", capsize=3)
            all_axes[-1].set_ylabel("score, 95%")
            _plain(all_axes[-1])
        all_axes[-1].set_xlabel(shown.unit)
        all_axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))

    return svg(f"training-{index}", draw_panels, 0.5 + 1.7 * panels, panels=True)


def trade_off(curves: ReportTradeOff) -> str:
    """The misses that any attacker must accept at each rate of false alarms."""

    def draw(axes: Axes) -> None:
        alarms = [100 * alarm for alarm in curves.false_alarms]
        promised = [100 * misses for misses in curves.promised]
        axes.plot([0, 100], [100, 0], color=MUTED, linewidth=1, linestyle=":", label="guessing")
        if curves.so_far is not None:
            so_far = [100 * misses for misses in curves.so_far]
            axes.plot(alarms, so_far, color=SECOND, linewidth=2, label="charged so far")
        axes.fill_between(alarms, promised, color=SOFT)
        axes.plot(alarms, promised, color=ACCENT, linewidth=2, label="promised by the budget")
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        axes.set_xlabel("false alarms, %")
        axes.set_ylabel("misses, at least, %")
        legend = axes.legend(frameon=False, labelcolor=INK, loc="upper right")
        legend.set_zorder(5)

    return svg("trade-off", draw, 3.2)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)
    axes.tick_params(color=MUTED, labelcolor=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def svg(name: str, draw: Callable[[Any], None], height: float, *, panels: bool = False) -> str:
    """The chart that `draw` draws into axes (or into a figure, for `panels`), `height` inches high, as inline SVG."""
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 11, "font.family": "sans-serif"}
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.patch.set_alpha(0.0)
        if panels:
            draw(figure)
        else:
            axes = figure.subplots()
            axes.patch.set_alpha(0.0)
            draw(axes)
            _plain(axes)
        for axes in figure.axes:
            axes.patch.set_alpha(0.0)
        drawn = io.StringIO()
        with warnings.catch_warnings():
            # The browser draws the text, in its own fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(drawn.getvalue())


def _inline(text: str) -> str:
    """Only the SVG element, without a fixed size, hidden from screen readers: a table or a caption says the same."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[0-9.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: ([0-9.]+)px [^;\"]+", r"font-size: \1px", svg)
    svg = svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, variable)
    # Nothing refers to the ids of groups, which would repeat in each chart of the page.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = svg.replace("*{stroke-linejoin", "svg *{stroke-linejoin")
    return svg.strip()


def _short(text: str, longest: int = 26) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
