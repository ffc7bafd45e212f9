"""Draw the figures of the training guide: three kinds of noise, and privacy as regularization.

    python docs/plots/training.py --data DIR      # MNIST's idx files; run from the repository root

The figures on noise come from benchmarks/results/accuracy.json; the gap is measured here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

matplotlib.use("Agg")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import accuracy as bench  # noqa: E402 # after the path is set
from discreet.learning import Plan  # noqa: E402

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
EXAMPLES, BATCH, EPOCHS = 1000, 250, 100


def kinds_of_noise(target: Path) -> None:
    """Accuracy at the same (ε, δ), and ε at the same noise level."""
    rows = json.loads((ROOT / "benchmarks/results/accuracy.json").read_text())["rows"]
    names = ["gaussian", "l2-laplace", "laplace"]
    right = {"gaussian": next(r["ours"] for r in rows if "linear" in r["case"])} | {
        r["case"].split(",")[0]: r["ours"] for r in rows if "ε = 3" in r["case"][-5:]
    }
    price = {"gaussian": 3.0} | {r["case"].split(",")[0]: r["ours"] for r in rows if "same" in r["case"]}
    labels = ["Gaussian", "Laplace,\nL2 clipping", "Laplace,\nL1 clipping"]
    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axis, values, title in zip(
        axes, (right, price), ("test accuracy, %, at ε = 3", "ε at the same noise level"), strict=True
    ):
        bars = axis.bar(labels, [values[name] for name in names], color=["#00796b", "#4db6ac", "#b2dfdb"])
        axis.bar_label(bars, fmt="%.4g")
        axis.set_title(title)
        axis.margins(y=0.15)
    axes[1].set_yscale("log")
    figure.savefig(target, dpi=120)


def fitted(data: tuple[Tensor, Tensor], epsilon: float | None) -> nn.Linear:
    """A linear model on few examples, private or not, by the same optimizer for as many steps."""
    if epsilon is not None:
        plan = Plan.for_epsilon(epsilon, delta=1e-5, examples=EXAMPLES, batch_size=BATCH, epochs=EPOCHS, clip_norm=0.1)
        return bench.fit(plan, data, learning_rate=min(8.0, 1.5 * epsilon))
    model = nn.Linear(data[0].shape[1], 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(EPOCHS * EXAMPLES // BATCH):
        rows = torch.randperm(EXAMPLES)[:BATCH]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0][rows]), data[1][rows]).backward()
        optimizer.step()
    return model


def gap(folder: Path, target: Path) -> None:
    """The accuracy on the examples that were trained on, and on others, against ε."""
    images, labels, test_images, test_labels = (bench.read_idx(folder, name) for name in bench._FILES)
    train = bench.features(images[:EXAMPLES]), labels[:EXAMPLES].long()
    test = bench.features(test_images[:5000]), test_labels[:5000].long()
    seen, unseen = [], []
    for epsilon in (*EPSILONS, None):
        models = [fitted(train, epsilon) for _ in range(3)]
        seen.append(sum(bench.accuracy(model, train) for model in models) / 3)
        unseen.append(sum(bench.accuracy(model, test) for model in models) / 3)
        print(epsilon, f"train {seen[-1]:.2f} test {unseen[-1]:.2f} gap {seen[-1] - unseen[-1]:.2f}", flush=True)
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    places = range(len(seen))
    axis.plot(places, seen, "o-", label=f"the {EXAMPLES} examples it was trained on", color="#00796b")
    axis.plot(places, unseen, "o--", label="5000 others", color="#d84315")
    axis.set_xticks(list(places), [*(f"{epsilon:g}" for epsilon in EPSILONS), "not private"])
    axis.set(xlabel="ε", ylabel="accuracy, %")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=("noise", "gap"))
    asked = parser.parse_args()
    if asked.only != "gap":
        kinds_of_noise(ROOT / "docs/img/training-noise.png")
    if asked.only != "noise":
        gap(asked.data, ROOT / "docs/img/training-gap.png")
