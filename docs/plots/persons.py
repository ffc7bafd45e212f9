"""Draw when to clip the sum of a person's gradients and when to clip each of them.

    python docs/plots/persons.py      # run from the repository root

A person has n ≤ m examples. The gradient of each is c·u + √(1 − c²)·e, with the common direction u, the cosine c and a
random direction e of its own, in many dimensions, times a length in units of the clip norm. What the noisy sum gets
from this person along u, over the clip norm, is the signal; the noise is the same for both ways.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

matplotlib.use("Agg")
TARGET = Path(__file__).parents[1] / "img/training-persons.png"
MOST, DIMENSION = 16, 4000
COSINES = np.linspace(0.02, 1.0, 40)


def signals(count: int, cosine: float, lengths: NDArray[np.float64]) -> tuple[float, float]:
    """The signal of one person with `count` examples: clipped as a sum, and clipped one by one to 1/m of the norm."""
    generator = np.random.default_rng(7)
    own = generator.standard_normal((count, DIMENSION))
    own[:, 0] = 0.0
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    away = own[0].copy()
    own *= np.sqrt(1 - cosine**2)
    own[:, 0] = cosine
    if lengths[0] > 1:  # the outlier has nothing of the common direction
        own[0] = away
    gradients = own * lengths[:count, None]

    def clipped(vectors: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
        return vectors * np.minimum(1.0, norm / np.linalg.norm(vectors, axis=1, keepdims=True))

    summed = clipped(gradients.sum(0, keepdims=True), 1.0)[0, 0]
    return float(summed), float(clipped(gradients, 1.0 / MOST).sum(0)[0])


def main() -> None:
    """Three panels: one example, many examples, many with an outlier."""
    plain = np.ones(MOST)
    outlier = plain.copy()
    outlier[0] = 50.0
    panels = [
        ("one example", 1, plain),
        (f"{MOST} examples", MOST, plain),
        (f"{MOST} examples, one 50 times as long", MOST, outlier),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), layout="constrained", sharey=True)
    for axis, (title, count, lengths) in zip(axes, panels, strict=True):
        both = np.array([signals(count, cosine, lengths) for cosine in COSINES])
        axis.plot(COSINES, both[:, 0], color="#00796b", label="the sum is clipped")
        axis.plot(COSINES, both[:, 1], color="#ef6c00", label=f"each is clipped to 1/{MOST}")
        axis.set(title=title, xlabel="cosine with the common direction")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("signal, over the clip norm")
    axes[0].legend(fontsize=8)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(TARGET, dpi=120)


if __name__ == "__main__":
    main()
