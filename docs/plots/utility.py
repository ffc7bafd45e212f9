"""Draw docs/img/utility-*.png from the results of `python -m benchmarks.utility`.

Run from the repository root: `python docs/plots/utility.py`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
COLORS = {"Adult": "#00796b", "MNIST": "#d84315"}
Rows = list[dict[str, Any]]


def study(rows: Rows, name: str) -> Rows:
    """The rows of one study."""
    return [row for row in rows if row["case"].startswith(f"{name}: ")]


def last_number(text: str) -> float:
    """The last number in a case, which is what the study varies."""
    return float(re.findall(r"\d+(?:\.\d+)?", text)[-1])


def tidy(axis: Any, title: str, label: str) -> None:
    """Labels and no clutter."""
    axis.set_title(title, fontsize=10)
    axis.set(xlabel=label, ylabel="test accuracy, %")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def data_and_size(rows: Rows, target: Path) -> None:
    """Accuracy over examples, parameters and batch size."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for task, color in COLORS.items():
        points = [row for row in study(rows, "examples") if f" {task}," in row["case"]]
        counts = [last_number(row["case"]) for row in points]
        axes[0].plot(counts, [row["ours"] for row in points], "o-", color=color, label=f"{task}, ε = 1")
        axes[0].plot(counts, [row["theirs"] for row in points], "o:", color=color, label=f"{task}, not private")
    axes[0].set_xscale("log")
    tidy(axes[0], "More examples (linear models)", "examples")
    for epsilon, style in (("1", "o-"), ("8", "o--")):
        points = [row for row in study(rows, "size") if f"ε = {epsilon}," in row["case"]]
        hidden = ["none" if row["note"].startswith("0 ") else row["note"].split()[0] for row in points]
        axes[1].plot(hidden, [row["ours"] for row in points], style, color="#d84315", label=f"MNIST, ε = {epsilon}")
    axes[1].plot(hidden, [row["theirs"] for row in points], "o:", color="#777777", label="not private")
    tidy(axes[1], "Larger models (5000 examples)", "hidden units")
    points = study(rows, "batch")
    axes[2].plot(
        [last_number(row["case"]) for row in points],
        [row["ours"] for row in points],
        "o-",
        color="#00796b",
        label="ε = 1",
    )
    axes[2].axhline(points[0]["theirs"], color="#777777", linestyle=":", label="not private")
    axes[2].set_xscale("log", base=2)
    tidy(axes[2], "Batch size (Adult, 8000 examples)", "batch size")
    figure.savefig(target, dpi=120)


def clip_norms(rows: Rows, target: Path) -> None:
    """Accuracy over the clip norm, with one learning rate and with one that is scaled."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharex=True)
    for axis, (task, color) in zip(axes, COLORS.items(), strict=True):
        for name, style in (("one rate", "o--"), ("rate × norm constant", "o-")):
            points = [row for row in study(rows, "clip") if f" {task}," in row["case"] and name in row["case"]]
            norms = [last_number(row["case"]) for row in points]
            axis.plot(norms, [row["ours"] for row in points], style, color=color, label=name)
        axis.axhline(points[0]["theirs"], color="#777777", linestyle=":", label="not private")
        axis.axvspan(0.1, 1, color="#00796b", alpha=0.08, linewidth=0)
        axis.axvspan(1, 5, color="#d84315", alpha=0.08, linewidth=0)
        axis.set_xscale("log")
        tidy(axis, f"{task}, ε = 3", "clip norm (shaded: 0.1–1 and 1–5)")
    figure.savefig(target, dpi=120)


def kinds_of_noise(rows: Rows, target: Path) -> None:
    """Three kinds of noise at the same ε and at the same standard deviation."""
    points = study(rows, "noise")
    kinds = ["gaussian", "l2-laplace", "laplace"]
    labels = ["Gaussian", "Laplace,\nL2 clipping", "Laplace,\nL1 clipping"]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
    same_epsilon = {row["case"].rpartition(", ")[2]: row for row in points if "same ε" in row["case"]}
    same_level = {row["case"].rpartition(", ")[2]: row for row in points if "same noise" in row["case"]}
    same_level["gaussian"] = {**same_epsilon["gaussian"], "note": "ε = 3"}
    for axis, chosen, title in (
        (axes[0], same_epsilon, "the same ε = 3"),
        (axes[1], same_level, "the same noise level"),
    ):
        bars = axis.bar(labels, [chosen[kind]["ours"] for kind in kinds], color=["#00796b", "#4db6ac", "#b2dfdb"])
        notes = [f"{chosen[kind]['ours']:.1f}" for kind in kinds]
        if chosen is same_level:
            prices = [float(chosen[kind]["note"].removeprefix("ε = ")) for kind in kinds]
            notes = [f"{note}\nε = {price:,.4g}" for note, price in zip(notes, prices, strict=True)]
        axis.bar_label(bars, notes, fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.margins(y=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("test accuracy, %")
    figure.savefig(target, dpi=120)


def middle(rows: Rows, target: Path) -> None:
    """Where a middle ε tests best."""
    points = study(rows, "regularization")
    figure, axis = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
    epsilons = [last_number(row["case"]) for row in points]
    axis.plot(epsilons, [row["theirs"] for row in points], "o--", color="#777777", label="the rows it was trained on")
    axis.plot(epsilons, [row["ours"] for row in points], "o-", color="#00796b", label="the test rows")
    axis.set_xscale("log")
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axis.minorticks_off()
    tidy(axis, "Adult, 300 examples, 105 weights", "ε")
    axis.set_ylabel("accuracy, %")
    figure.savefig(target, dpi=120)


def main() -> None:
    """Draw all figures."""
    rows = json.loads((ROOT / "benchmarks/results/utility.json").read_text())["rows"]
    folder = ROOT / "docs/img"
    data_and_size(rows, folder / "utility-data.png")
    clip_norms(rows, folder / "utility-clip.png")
    kinds_of_noise(rows, folder / "utility-noise.png")
    middle(rows, folder / "utility-middle.png")


if __name__ == "__main__":
    main()
