"""Draw the figures of the page on audits: canaries, membership inference, and secrets in a language model.

    python docs/plots/audits.py        # run from the repository root; takes about two minutes

The canaries' figure comes from benchmarks/results/auditing.json; the others are measured here, on generated data.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from discreet.auditing import Membership, attack_training, reidentification  # noqa: E402 # after the path is set
from discreet.events import Event  # noqa: E402
from discreet.learning import Plan  # noqa: E402

IMAGES = ROOT / "docs" / "img"
PLAIN, PRIVATE, INK, MUTED = "#e76f51", "#2a9d8f", "#264653", "#999999"
EXAMPLES, FEATURES = 800, 60


def canaries() -> None:
    """What one training shows, against what is claimed."""
    rows = json.loads((ROOT / "benchmarks/results/auditing.json").read_text())["rows"]
    figure, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    axes.plot([0, 8], [0, 8], color=MUTED, linestyle=":", label="the claim: no bound is above")
    for name, color in (
        ("white box, independent", PRIVATE),
        ("white box, one_run_f", INK),
        ("black box, one_run_f", PLAIN),
    ):
        shown = [(row["theirs"], row["ours"]) for row in rows if row["case"] == f"DP-SGD, {name}"]
        axes.plot(*zip(*shown, strict=True), color=color, marker="o", label=name)
    axes.set(xlabel="claimed ε", ylabel="ε that one training shows, 95%", xlim=(0, 8.4), ylim=(0, 8.4))
    axes.set_xticks([1, 2, 4, 8])
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "audits-canaries.png", dpi=160)


def attacked(plan: Plan | None, shadows: int) -> Membership:
    """LiRA on a small network that learns random labels by heart, or is kept from it."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(EXAMPLES, FEATURES, generator=generator)
    labels = torch.randint(2, (EXAMPLES,), generator=generator)
    loss = nn.functional.cross_entropy

    def train(included: np.ndarray) -> np.ndarray:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 2))
        kept = torch.from_numpy(included)
        data = inputs[kept], labels[kept]
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        if plan is None:
            for _ in range(60):
                adam.zero_grad()
                loss(model(data[0]), data[1]).backward()
                adam.step()
        else:
            step = plan.step(model, loss, adam, compile=False)
            for batch in plan.batches(data):
                step(batch)
        with torch.no_grad():
            scores = model(inputs)
        return (scores[range(EXAMPLES), labels] - scores[range(EXAMPLES), 1 - labels]).double().numpy()

    return attack_training(train, EXAMPLES, shadows=shadows)


def members() -> None:
    """ROC curves on logarithmic axes, the claim's curve above the private one."""
    plan = Plan.for_epsilon(2.0, delta=1e-5, examples=EXAMPLES // 2, batch_size=200, steps=60, clip_norm=1.0)
    curves: list[tuple[str, Membership, Event | None]] = [
        ("without privacy", attacked(None, 16), None),
        ("ε = 2", attacked(plan, 16), plan.event),
    ]
    figure, places = plt.subplots(1, 2, figsize=(8.6, 4.0), layout="constrained")
    for axes, (title, curve, claim) in zip(places, curves, strict=True):
        curve.plot(axes, claim=claim)
        found = f"{curve.hits_at(0.01):.0%} found at 1% false alarms, area {curve.area:.2f}"
        axes.set_title(f"{title}: {found}", fontsize=10, color=INK)
        axes.set(xlim=(2e-3, 1), ylim=(2e-3, 1))
    figure.savefig(IMAGES / "audits-membership.png", dpi=160)


def secrets() -> None:
    """The exposure of twenty secrets under two models."""
    seen = reidentification.remember()
    figure, axes = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
    bins = np.linspace(0, np.ceil(seen.most), 21)
    for bits, color, name, share in zip(
        seen.exposures, (PLAIN, PRIVATE), ("without privacy", f"ε = {seen.epsilon:g}"), seen.extracted, strict=True
    ):
        axes.hist(bits, bins, color=color, alpha=0.85, label=f"{name}: {share:.0%} extracted")
    axes.axvline(seen.most, color=MUTED, linestyle=":", linewidth=1)
    axes.set(xlabel="exposure of a secret code, bits (dotted: ranked first of all codes)", ylabel="codes")
    axes.legend(frameon=False, fontsize=9, loc="upper center")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "audits-secrets.png", dpi=160)


if __name__ == "__main__":
    for draw in (canaries, members, secrets) if len(sys.argv) < 2 else [globals()[name] for name in sys.argv[1:]]:
        draw()
