"""Draw docs/img/continual.png: the error of each counter over time, and print the table of docs/how-to/continual.md.

Run from the repository root: `python docs/plots/continual.py`.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from discreet.accounting.closed_forms import gaussian_noise_multiplier
from discreet.mechanisms import continual
from discreet.mechanisms.continual import BandedInverse, Buffered, Counter, SquareRoot, Stream, SubtractionTree, Tree

STEPS = 1024
EPSILON, DELTA = 1.0, 1e-6
LENGTHS = (1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)


def counters() -> dict[str, tuple[Counter, str, str]]:
    """Each counter with its color and its line."""
    stream = Stream(STEPS)
    return {
        "binary tree, Laplace": (Tree.for_epsilon(stream, EPSILON, refined=False), "#fb6a4a", ":"),
        "refined tree, k = 7, Laplace": (Tree.for_epsilon(stream, EPSILON, branching=7), "#cb181d", "-"),
        "tree with subtraction, k = 13, Laplace": (
            SubtractionTree.for_epsilon(stream, EPSILON, branching=13),
            "#67000d",
            "-",
        ),
        "binary tree, Gaussian": (Tree.for_epsilon(stream, EPSILON, DELTA, refined=False), "#9ecae1", ":"),
        "refined binary tree, Gaussian": (Tree.for_epsilon(stream, EPSILON, DELTA), "#4292c6", "-"),
        "square root, 64 diagonals": (SquareRoot.for_epsilon(stream, EPSILON, DELTA, bands=64), "#41ab5d", "-"),
        "banded inverse, 64 diagonals": (BandedInverse.for_epsilon(stream, EPSILON, DELTA, bands=64), "#8c6bb1", "-"),
        "buffered, 5 buffers": (Buffered.for_epsilon(stream, EPSILON, DELTA, buffers=5), "black", "-"),
    }


def draw() -> None:
    """The root mean squared error over time."""
    figure, axes = plt.subplots(figsize=(8.6, 5.2))
    steps = np.arange(1, STEPS + 1)
    for label, (counter, color, line) in counters().items():
        errors = np.sqrt(counter.errors())
        faint = counter.noise.__class__.__name__ == "Laplace" or "tree" in label
        axes.plot(steps, errors, color=color, linewidth=0.5 if faint else 2.0, alpha=0.35 if faint else 1.0)
        running = np.sqrt(np.cumsum(counter.errors()) / steps)
        axes.plot(steps, running, line, color=color, linewidth=2.0 if faint else 0.0)
        axes.plot([], [], line, color=color, label=label, linewidth=2.0)
    axes.set_xscale("log")
    axes.set_xlim(1, STEPS)
    axes.set_ylim(0, 60)
    axes.set_xlabel("step")
    axes.set_ylabel("root of the expected squared error")
    axes.set_title(
        f"A running count over {STEPS} steps, ε = {EPSILON:g}, δ = {DELTA:g} (Gaussian) or 0 (Laplace)", fontsize=11
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8.5, loc="upper left", frameon=False)
    figure.tight_layout()
    figure.savefig(Path(__file__).parent.parent / "img" / "continual.png", dpi=130)


def crossing(steps: int) -> tuple[str, float, float]:
    """The best Laplace tree, its mean squared error, and the δ at which the best Gaussian factorization equals it."""
    stream = Stream(steps)
    best = continual.best_for(stream, EPSILON)

    def gaussian(log_delta: float) -> float:
        delta = 10.0**log_delta
        kinds = [Buffered.for_epsilon(stream, EPSILON, delta, buffers=count, forgetting=0.75) for count in (4, 6, 8)]
        inverses = [BandedInverse.for_epsilon(stream, EPSILON, delta, bands=min(count, steps)) for count in (64, 256)]
        return min(counter.mean_error() for counter in (*kinds, *inverses))

    laplace = best.counter.mean_error()
    low, high = -60.0, -1.0
    # The factorization's error is that of a fixed encoder times σ²(δ), so it is enough to scale one of them.
    known = gaussian(-6.0)
    while high - low > 1e-3:
        middle = (low + high) / 2
        scaled = known * (_sigma(middle) / _sigma(-6.0)) ** 2
        low, high = (middle, high) if scaled > laplace else (low, middle)
    return str(best).split(":")[0], laplace, low


def _sigma(log_delta: float) -> float:
    return gaussian_noise_multiplier(EPSILON, 10.0**log_delta)


def table() -> None:
    """The δ below which Laplace noise wins, for each length."""
    print("| T | best with Laplace noise | its mean squared error | wins below δ = |")
    print("|---:|---|---:|---:|")
    for steps in LENGTHS:
        name, error, log_delta = crossing(steps)
        print(f"| 2^{math.log2(steps):.0f} | {name} | {error:.4g} | {10**log_delta:.1e} |")


if __name__ == "__main__":
    draw()
    table()
