"""Draw docs/img/composition.png, the ε that each method charges against the number of steps, and docs/img/widths.png.

The second shows how wide the interval of the tight method is over rates and numbers of steps, and which of its methods
priced each.

Run from the repository root: `python docs/plots/composition.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from discreet import events as ev
from discreet.accounting import Comparison, compare, tight
from discreet.accounting.losses.composed import Losses
from discreet.accounting.methods import answer
from discreet.accounting.methods.jumps.guess import Coarse, Guess
from discreet.accounting.methods.target import Target

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


RATES = np.geomspace(1e-6, 1.0, 13)
COUNTS = np.unique(np.geomspace(1, 1e7, 15).round().astype(int))
METHODS = ("formula", "contour", "cut and contour", "cut and grid")
SIGMA = 1.0
Bounds = Callable[[Coarse, Guess, Target], tuple[float, float]]


def priced_by(rate: float, count: int) -> tuple[float, int]:
    """The relative width at δ = 10⁻⁵, and the index of the method that priced removing a unit."""
    used: list[int] = [0]
    by_fourier = answer._by_fourier

    def fourier(losses: Losses, target: Target, adding: bool) -> tuple[float, float] | None:
        found = by_fourier(losses, target, adding)
        if not adding and found is not None:
            used[0] = 1
        return found

    def noted(method: int, bounds: Bounds) -> Bounds:
        def noting(coarse: Coarse, guess: Guess, target: Target) -> tuple[float, float]:
            if not coarse.adding:
                used[0] = method
            return bounds(coarse, guess, target)

        return noting

    with (
        mock.patch.object(answer, "_by_fourier", fourier),
        mock.patch.object(answer.contour, "bounds", noted(2, answer.contour.bounds)),
        mock.patch.object(answer.jumps, "bounds", noted(3, answer.jumps.bounds)),
    ):
        found = tight.epsilon(ev.Repeated(ev.PoissonSampled(min(rate, 0.999), ev.Gaussian(SIGMA)), count), DELTA)
    return found.width / found.upper if found.upper > 0 else 0.0, used[0]


def widths() -> None:
    """Draw the widths and the methods over (q, T)."""
    cells = [[priced_by(float(rate), int(count)) for rate in RATES] for count in COUNTS]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True)
    size = np.log10(np.maximum([[width for width, _ in row] for row in cells], 1e-12))
    drawn = left.pcolormesh(RATES, COUNTS, size, cmap="viridis_r", vmin=-12, vmax=-3, shading="nearest")
    figure.colorbar(drawn, ax=left, label="log₁₀ of width / upper end")
    left.set_title(f"how wide: ε at δ = {DELTA:g}, Gaussian noise σ = {SIGMA:g}", fontsize=11)
    colors = ListedColormap(["#dddddd", "#2171b5", "#41ab5d", "#fe9929"])
    which = [[method for _, method in row] for row in cells]
    right.pcolormesh(RATES, COUNTS, which, cmap=colors, vmin=-0.5, vmax=3.5, shading="nearest")
    right.set_title("priced by", fontsize=11)
    marks = [Patch(color=colors(k), label=name) for k, name in enumerate(METHODS)]
    right.legend(handles=marks, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncol=4, frameon=False)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("sampling rate q")
    left.set_ylabel("number of steps T")
    figure.tight_layout()
    figure.savefig(Path(__file__).resolve().parents[1] / "img" / "widths.png", dpi=130)


def main() -> None:
    widths()
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
