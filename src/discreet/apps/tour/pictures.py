"""The pictures of the tour, as inline SVG in the colors of the report."""

from __future__ import annotations

from matplotlib.axes import Axes

from discreet.apps.report.charts import ACCENT, INK, MUTED, SECOND, SOFT, svg
from discreet.auditing.reidentification import Demonstration


def attack(demonstration: Demonstration) -> str:
    """How often the attack succeeds without noise, with noise and by chance; below, what few facts are enough for."""
    rows = [
        ("without noise", demonstration.plain, SECOND),
        (f"with ε = {demonstration.epsilon:g}", demonstration.protected, ACCENT),
        ("by chance", demonstration.chance, MUTED),
    ]
    steps = [(label, share, SOFT) for label, share in demonstration.curve]

    def draw(axes: Axes) -> None:
        bars = [*rows, *steps]
        heights = [float(i) + (0.6 if i >= len(rows) else 0.0) for i in range(len(bars))]
        axes.barh(heights, [100 * share for _, share, _ in bars], color=[color for *_, color in bars], height=0.7)
        for height, (_, share, _) in zip(heights, bars, strict=True):
            axes.annotate(f"{100 * share:.0f}%", (100 * share + 1.5, height), va="center", color=INK, fontsize=10)
        axes.set_yticks(heights, [label for label, *_ in bars])
        axes.set_xlim(0, 112)
        axes.set_ylim(heights[-1] + 0.6, -0.6)
        axes.set_xticks([0, 25, 50, 75, 100])
        axes.set_xlabel("%")

    return svg(f"tour-{demonstration.name}", draw, 1.6 + 0.3 * len(steps))
