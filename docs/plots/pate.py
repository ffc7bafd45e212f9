"""Draw labels, accuracy and the price of searches from benchmarks/results/pate.json.

python docs/plots/pate.py      # run from the repository root
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("Agg")
ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs/img/pate.png"
OURS, THEIRS = "#00796b", "#ef6c00"


def found(rows: list[dict[str, Any]], metric: str, pattern: str) -> list[tuple[float, float, float]]:
    """The number in the case, ours and theirs, of the rows with this metric."""
    kept = [(re.search(pattern, row["case"]), row) for row in rows if row["metric"] == metric]
    return [(float(number.group(1)), row["ours"], row["theirs"]) for number, row in kept if number]


def main() -> None:
    """Three panels."""
    rows = json.loads((ROOT / "benchmarks/results/pate.json").read_text())["rows"]
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained")
    panels = (
        ("labels answered", r"ε = ([\d.]+), δ", "Gaussian noise", "Laplace noise", "ε at δ = 1e-5"),
        ("student's test accuracy, %", r"ε = ([\d.]+), δ", "Gaussian noise", "Laplace noise", "ε at δ = 1e-5"),
        ("ε", r"best of (\d+)", "random stopping", "every run published", "trials on average"),
    )
    for axis, (metric, pattern, ours, theirs, label) in zip(axes, panels, strict=True):
        x, mine, other = zip(*found(rows, metric, pattern), strict=True)
        axis.plot(x, mine, "o-", color=OURS, label=ours)
        axis.plot(x, other, "o-", color=THEIRS, label=theirs)
        axis.set(xlabel=label, title=metric if metric != "ε" else "ε of a search, δ = 1e-6", xscale="log")
        axis.set_xticks(x, [f"{one:g}" for one in x], minor=False)
        axis.minorticks_off()
        axis.legend(frameon=False, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yscale("log")
    axes[2].set_yscale("log")
    axes[2].set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    axes[2].minorticks_off()
    figure.savefig(TARGET, dpi=120)


if __name__ == "__main__":
    main()
