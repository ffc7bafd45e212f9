"""Draw docs/img/mechanisms.png: the shape and the size of each kind of noise.

Run it from the repository root with the docs extra installed: `python docs/plots/mechanisms.py`. Every number in the
figure comes from the mechanisms themselves; nothing random is drawn.
"""

from fractions import Fraction
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from scipy.special import ndtr

import discreet as dp
from discreet.mechanisms import Gaussian, L2Laplace, Laplace

DELTA = 1e-6
LAPLACE, L2_LAPLACE, GAUSSIAN = "#1b6b52", "#c07a12", "#5b4a9e"
TARGET = Path(__file__).parent.parent / "img" / "mechanisms.png"


def moved(coordinates: int) -> dp.Bounded:
    """A vector of zeros of which one row moves `coordinates` entries by 1 each."""
    bound = dp.Sensitivity(coordinates, coordinates, coordinates, 1)
    return dp.Bounded(np.zeros(coordinates, dtype=np.int64), Fraction(1), {dp.ADD_REMOVE: bound}, "example")


def noises(axes: plt.Axes) -> None:
    """Left: the probabilities of the noise on a count at ε = 1."""
    x = np.arange(-12, 13)
    laplace = np.tanh(0.5) * np.exp(-np.abs(x))
    sigma = float(Gaussian.for_epsilon(moved(1), 1.0, DELTA).standard_deviation)
    gaussian = ndtr((x + 0.5) / sigma) - ndtr((x - 0.5) / sigma)
    axes.bar(x - 0.2, laplace, 0.4, color=LAPLACE, label="Laplace")
    axes.bar(x + 0.2, gaussian, 0.4, color=GAUSSIAN, label=f"Gaussian, σ = {sigma:.2f}")
    axes.set(title="Noise on a count", xlabel="noise added", ylabel="probability", xlim=(-12.6, 12.6))
    axes.set_xticks([-10, -5, 0, 5, 10])
    axes.legend(
        frameon=False, loc="upper left", fontsize=9, title="ε = 1, δ = 10⁻⁶", title_fontsize=9, alignment="left"
    )
    axes.set_ylim(0, 0.62)


def against_epsilon(axes: plt.Axes) -> None:
    """Middle: the standard error of a count as ε grows."""
    count, grid = moved(1), np.geomspace(0.05, 10, 60)
    axes.loglog(grid, [Laplace.for_epsilon(count, e).standard_error(count) for e in grid], color=LAPLACE, lw=2)
    axes.loglog(grid, [Gaussian.for_epsilon(count, e, DELTA).standard_error(count) for e in grid], color=GAUSSIAN, lw=2)
    axes.annotate("Laplace", (0.5, 2.83), xytext=(0.055, 3.2), color=LAPLACE, fontsize=10)
    axes.annotate("Gaussian, δ = 10⁻⁶", (0.5, 8), xytext=(0.55, 11), color=GAUSSIAN, fontsize=10)
    axes.set(title="One count: error against ε", xlabel="ε", ylabel="standard error")
    axes.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    axes.set_ylim(0.04, 120)


def against_dimension(axes: plt.Axes) -> None:
    """Right: the standard error of each coordinate when one row moves d of them by 1 each."""
    grid = sorted({round(d) for d in np.geomspace(1, 1000, 60)})
    curves = [
        ("Laplace: √2·d/ε", LAPLACE, [Laplace.for_epsilon(moved(d), 1.0).standard_error(moved(d)) for d in grid]),
        (
            "L2-Laplace",
            L2_LAPLACE,
            [L2Laplace.for_epsilon(moved(d), 1.0, DELTA).standard_error(moved(d)) for d in grid],
        ),
        (
            "Gaussian: σ·√d",
            GAUSSIAN,
            [Gaussian.for_epsilon(moved(d), 1.0, DELTA).standard_error(moved(d)) for d in grid],
        ),
    ]
    for label, color, errors in curves:
        style = (0, (4, 2)) if color == L2_LAPLACE else "-"
        axes.loglog(grid, errors, color=color, lw=2, linestyle=style, label=label, zorder=3 if style != "-" else 2)
    axes.set(
        title="Vectors: error against d",
        xlabel="d, how many numbers one row moves by 1",
        ylabel="standard error of each number",
    )
    axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    axes.legend(
        frameon=False, loc="upper left", fontsize=9, title="ε = 1, δ = 10⁻⁶", title_fontsize=9, alignment="left"
    )


def main() -> None:
    plt.rcParams.update({"font.family": "DejaVu Sans", "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 3, figsize=(11.4, 3.7), layout="constrained")
    noises(axes[0])
    against_epsilon(axes[1])
    against_dimension(axes[2])
    for one in axes[1:]:
        one.grid(True, which="major", color="#d9dde1", lw=0.7)
    for one in axes:
        one.title.set_fontsize(11.5)
        one.title.set_fontweight("bold")
    figure.savefig(TARGET, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
