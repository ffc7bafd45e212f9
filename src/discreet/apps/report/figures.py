"""The report's figures as inline SVG whose colors are the page's own, so that they follow dark mode and print."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from discreet.apps.report.content import Answer, Charge, TradeOff, Training

# Colors that stand for variables of the style sheet.
_INK, _MUTED, _ACCENT, _SECOND, _SOFT = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
_VARIABLES = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _ACCENT: "var(--accent)",
    _SECOND: "var(--second)",
    _SOFT: "var(--soft)",
}
_WIDTH = 5.0


def budget(charges: Sequence[Charge]) -> str:
    """The share of the budget that is used, after each charge."""

    def draw(axes: Axes) -> None:
        after = [0.0, *(100 * one.used_after for one in charges)]
        # It rises at each charge and stays so until the next.
        places, heights = [*range(len(after)), len(after) - 0.5], [*after, after[-1]]
        axes.fill_between(places, heights, step="post", color=_SOFT)
        axes.step(places, heights, where="post", color=_ACCENT, linewidth=2)
        axes.plot([len(charges)], after[-1:], "o", color=_ACCENT)
        axes.axhline(100, color=_SECOND, linewidth=1.2, linestyle="--")
        axes.annotate("the whole budget", (0, 100), xytext=(4, -12), textcoords="offset points", color=_SECOND)
        axes.set_ylim(0, 108)
        axes.set_xlim(0, len(charges) + 0.5)
        axes.set_xlabel("charges, in order")
        axes.set_ylabel("used, %")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return _svg("budget", draw, 2.6)


def answer(found: Answer, name: str, index: int) -> str:
    """One answer's bars with whiskers for the 95% errors."""

    def draw(axes: Axes) -> None:
        labels = [_short(found.label(row)) or name for row in found.rows]
        places = list(range(len(labels)))
        values = [float(row[name]) for row in found.rows]
        errors = [found.error(row, name) or 0.0 for row in found.rows]
        axes.barh(places, values, color=_ACCENT, height=0.7)
        axes.errorbar(values, places, xerr=errors, fmt="none", ecolor=_INK, elinewidth=1.4, capsize=3)
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.set_xlabel(name)

    return _svg(f"answer-{index}-{name}", draw, max(1.3, 0.9 + 0.26 * len(found.rows)))


def training(found: Training, index: int) -> str:
    """What may be told of a training, one panel for each series, and one for private scores with their errors."""
    panels = len(found.series) + bool(found.scores)

    def draw_all(figure: Figure) -> None:
        all_axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values), color in zip(all_axes, found.series, (_ACCENT, _SECOND) * panels, strict=False):
            axes.plot(found.steps[: len(values)], values, color=color, linewidth=2)
            axes.set_ylabel(name)
            _plain(axes)
        if found.scores:
            places = [step for step, _ in found.scores]
            heights = [score.value for _, score in found.scores]
            errors = [
                [score.value - score.low for _, score in found.scores],
                [score.high - score.value for _, score in found.scores],
            ]
            all_axes[-1].errorbar(places, heights, yerr=errors, color=_ACCENT, ecolor=_INK, marker="o", capsize=3)
            all_axes[-1].set_ylabel("score, 95%")
            _plain(all_axes[-1])
        all_axes[-1].set_xlabel("step")

    return _svg(f"training-{index}", draw_all, 0.5 + 1.7 * panels, whole=True)


def trade_off(found: TradeOff) -> str:
    """What any attacker must miss, against what they accept as false alarms."""

    def draw(axes: Axes) -> None:
        alarms = [100 * one for one in found.false_alarms]
        promised = [100 * one for one in found.promised]
        axes.plot([0, 100], [100, 0], color=_MUTED, linewidth=1, linestyle=":", label="guessing")
        if found.so_far is not None:
            axes.plot(alarms, [100 * one for one in found.so_far], color=_SECOND, linewidth=2, label="charged so far")
        axes.fill_between(alarms, promised, color=_SOFT)
        axes.plot(alarms, promised, color=_ACCENT, linewidth=2, label="the budget's promise")
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 100)
        axes.set_xlabel("false alarms, %")
        axes.set_ylabel("misses, % at least")
        legend = axes.legend(frameon=False, labelcolor=_INK, loc="upper right")
        legend.set_zorder(5)

    return _svg("trade-off", draw, 3.2)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_MUTED)
    axes.tick_params(color=_MUTED, labelcolor=_INK)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)


def _svg(name: str, draw: Callable[[Any], None], height: float, *, whole: bool = False) -> str:
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 11, "font.family": "sans-serif"}
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        figure.patch.set_alpha(0.0)
        if whole:
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
            # The reader's browser draws the text, in fonts of its own.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return _inline(drawn.getvalue())


def _inline(text: str) -> str:
    """The SVG element alone, without a size of its own, hidden from screen readers: a table beside it says the same."""
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[0-9.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: ([0-9.]+)px [^;\"]+", r"font-size: \1px", svg)
    svg = svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, variable)
    # Nothing refers to the groups' names, which would stand once in each figure of the page.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = svg.replace("*{stroke-linejoin", "svg *{stroke-linejoin")
    return svg.strip()


def _short(text: str, longest: int = 26) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
