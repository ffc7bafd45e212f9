"""Draw disparate impact over ε on Adult: what training with noise does to it, and how well it can be measured.

    python docs/plots/evaluation.py      # run from the repository root; a minute

Left, models are trained privately at several ε and measured exactly, on people who were not trained on. Right, one of
them is measured privately at several ε.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray

from discreet import datasets
from discreet.learning import Plan, evaluate_privately, train, zoo

matplotlib.use("Agg")
TARGET = Path(__file__).parents[1] / "img/evaluation-groups.png"
DELTA, SEEDS = 1e-6, 5
TRAINED_AT = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
MEASURED_AT = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
GROUPS = ("Female", "Male")


def arrays(part: str) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.str_]]:
    """Inputs without sex, the label and the sex of each person."""
    people = datasets.adult(part)
    numbers = [np.asarray(people[name], dtype=np.float32) / 50 - 1 for name in ("age", "hours_per_week")]
    hot = [
        np.asarray(people[name] == value, dtype=np.float32)
        for name, values in (("education", datasets.EDUCATION), ("marital_status", datasets.MARITAL_STATUS))
        for value in values
    ]
    inputs = np.stack([*numbers, *hot], axis=1)
    return inputs, np.asarray(people["income"] == ">50K", dtype=np.int64), np.asarray(people["sex"], dtype=str)


def model(inputs: NDArray[np.float32], labels: NDArray[np.int64], epsilon: float) -> torch.nn.Module:
    """A linear model, trained at (ε, δ)."""
    plan = Plan.for_epsilon(epsilon, delta=DELTA, examples=32_000, batch_size=2048, epochs=4, clip_norm=1.0)
    fitted = zoo.build("logistic", inputs.shape[1:], 2)
    adam = zoo.optimizer("adam", fitted, 0.05)
    train(fitted, zoo.loss, (inputs, labels), plan, optimizer=adam, progress=False, compile=False)
    return fitted


def rates(labels: NDArray[np.int64], said: NDArray[np.int64], sex: NDArray[np.str_]) -> tuple[float, float]:
    """The exact disparate impact, and the exact gap of the accuracies."""
    shares = [float(said[sex == name].mean()) for name in GROUPS]
    right = [float((said == labels)[sex == name].mean()) for name in GROUPS]
    return min(shares) / max(*shares, 1e-9), max(right) - min(right)


def main() -> None:
    """Two panels."""
    torch.set_num_threads(1)
    inputs, labels, _ = arrays("train")
    others, truth, sex = arrays("test")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    found = np.array(
        [
            [rates(truth, zoo.predict(model(inputs, labels, epsilon), others), sex) for _ in range(SEEDS)]
            for epsilon in TRAINED_AT
        ]
    )
    for place, (name, color) in enumerate((("disparate impact", "#00796b"), ("gap of the accuracies", "#ef6c00"))):
        left.plot(TRAINED_AT, found[:, :, place].mean(1), "o-", color=color, label=name)
        left.fill_between(TRAINED_AT, found[:, :, place].min(1), found[:, :, place].max(1), color=color, alpha=0.2)
        print(name, dict(zip(TRAINED_AT, found[:, :, place].mean(1).round(3).tolist(), strict=True)))
    left.set(xscale="log", xlabel="ε of the training", ylim=(0, 1), title=f"exact, {SEEDS} trainings each")
    left.axhline(0.8, color="#999999", linestyle=":", linewidth=1)
    left.annotate("four fifths", (TRAINED_AT[0], 0.82), fontsize=8, color="#666666")
    said = zoo.predict(model(inputs, labels, 2.0), others)
    exact = rates(truth, said, sex)[0]
    options = {"classes": [0, 1], "groups": sex, "group_keys": GROUPS}
    measured = [evaluate_privately(truth, said, epsilon=epsilon, **options) for epsilon in MEASURED_AT]
    impacts = [one.disparate_impact for one in measured]
    for epsilon, one in zip(MEASURED_AT, impacts, strict=True):
        right.plot([epsilon, epsilon], [one.low, one.high], color="#00796b", linewidth=2)
        right.plot([epsilon], [one.value], "o", color="#00796b")
        print(epsilon, one)
    right.axhline(exact, color="#264653", linewidth=1, label="exact (secret)")
    right.set(
        xscale="log", xlabel="ε of the evaluation", ylim=(0, 1), title="disparate impact, measured privately, 95%"
    )
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=9, loc="upper right")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(TARGET, dpi=120)


if __name__ == "__main__":
    main()
