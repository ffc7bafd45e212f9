"""Draw docs/img/composition.png: the ε that each method charges against the number of steps.

Run from the repository root: `python docs/plots/composition.py`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from discreet import events as ev
from discreet.accounting import Comparison, compare

DELTA = 1e-5
STYLES = {
    "basic": ("basic", "#bbbbbb", "-"),
    "advanced": ("advanced", "#8c6bb1", "-"),
    "optimal pure": ("optimal for pure steps", "#41ab5d", "-"),
    "zCDP, tight": ("zCDP", "#fe9929", "-"),
    "RDP, textbook": ("RDP, textbook conversion", "#fb6a4a", "-"),
    "RDP, tight": ("RDP, tight conversion", "#cb181d", "-"),
    "GDP limit": ("GDP limit (approximation)", "#2171b5", ":"),
    "tight": ("exact", "black", "-"),
}


def draw(axes: Axes, step: ev.Event, counts: list[int], title: str, methods: list[str], top: float) -> None:
    """One panel: `methods` on `step` repeated `counts` times."""
    tables: list[Comparison] = [compare(ev.Repeated(step, count), DELTA) for count in counts]
    for method in methods:
        label, color, line = STYLES[method]
        values = [table.epsilon(method) for table in tables]
        shown = [np.nan if value is None else value for value in values]
        axes.plot(counts, shown, line, color=color, label=label, linewidth=2.2 if method == "tight" else 1.6)
    axes.set_xscale("log")
    axes.set_ylim(0, top)
    axes.set_xlim(counts[0], counts[-1])
    axes.set_xlabel("number of steps")
    axes.set_ylabel(f"ε at δ = {DELTA:g}")
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3, which="major")
    axes.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=3, frameon=False)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5))
    counts = np.unique(np.geomspace(1, 1000, 28).round().astype(int)).tolist()
    draw(
        left,
        ev.Laplace(10.0),
        counts,
        "Laplace noise, ε = 0.1 a step",
        ["basic", "advanced", "zCDP, tight", "RDP, textbook", "RDP, tight", "optimal pure", "tight"],
        20,
    )
    counts = np.unique(np.geomspace(10, 30_000, 28).round().astype(int)).tolist()
    draw(
        right,
        ev.PoissonSampled(0.01, ev.Gaussian(1.0)),
        counts,
        "training: Poisson batches q = 0.01, Gaussian noise σ = 1",
        ["basic", "advanced", "zCDP, tight", "RDP, textbook", "RDP, tight", "GDP limit", "tight"],
        14,
    )
    figure.tight_layout()
    target = Path(__file__).resolve().parents[1] / "img" / "composition.png"
    target.parent.mkdir(exist_ok=True)
    figure.savefig(target, dpi=130)


if __name__ == "__main__":
    main()
