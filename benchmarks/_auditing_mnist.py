"""What the final model alone shows of one image: MNIST at ε = 10, trained many times with and without a canary.

The canary is an image that nobody would draw: white where every training image is black, and black elsewhere. Its
gradient meets few others, so what it adds stays in the weights to the end. The attacker sees the final model only, and
of it only the loss of the canary. Trainings are independent, so their scores are too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._table import Row
from discreet.auditing import Audit, audit
from discreet.learning import Plan, train

EPSILON, DELTA, ALPHA = 10.0, 1e-5, 0.05
#: arXiv 2412.01756, final model only, MNIST at ε = 10: its adversarial canary, and the baseline that it improves on.
PUBLISHED = (("adversarial canary, arXiv 2412.01756", 4.914), ("its baseline", 4.385))
#: The label of the canary.
_LABEL = 9


def linear() -> nn.Module:
    """A linear model that starts at zero."""
    model = nn.Linear(784, 10)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def convolution() -> nn.Module:
    """One convolution and one linear layer, from the same random weights in every training."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 8, 8, stride=4), nn.Tanh(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10)
        return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *layers)


#: Models by name, each with its learning rate.
MODELS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "linear model": (linear, 4.0),
    "small convolution": (convolution, 2.0),
}


def images(folder: Path, many: int) -> tuple[Tensor, Tensor, Tensor]:
    """The first images of MNIST with their labels, and the canary."""
    from benchmarks.accuracy import _FILES, read_idx

    pixels, labels = (read_idx(folder, name) for name in _FILES[:2])
    flat = pixels.reshape(len(pixels), -1).float()
    return flat[:many] / flat.max(), labels[:many].long(), (flat.amax(dim=0) == 0).float()


def audited(
    make: Callable[[], nn.Module], rate: float, data: tuple[Tensor, Tensor, Tensor], steps: int, trainings: int
) -> tuple[Audit, float]:
    """The audit of many trainings, each with the canary or without by a fair coin, and their mean accuracy."""
    inputs, labels, canary = data
    plan = Plan.for_epsilon(
        EPSILON, delta=DELTA, examples=len(inputs), batch_size=len(inputs), steps=steps, clip_norm=1.0
    )
    own = canary[None], torch.tensor([_LABEL])
    loss = nn.functional.cross_entropy
    included = np.random.default_rng().permutation(np.arange(trainings) % 2 == 0)
    scores, right = [], []
    for coin in included:
        rows = (torch.cat([inputs, own[0]]), torch.cat([labels, own[1]])) if coin else (inputs, labels)
        model = make()
        sgd = torch.optim.SGD(model.parameters(), lr=rate)
        train(model, loss, rows, plan, optimizer=sgd, progress=False, compile=False)
        with torch.no_grad():
            scores.append(-float(loss(model(own[0]), own[1])))
            right.append(float((model(inputs).argmax(1) == labels).float().mean()))
    report = audit(np.array(scores), plan.event, included, estimator="independent", alpha=ALPHA, delta=DELTA)
    return report, float(np.mean(right))


def mnist_rows(folder: Path, quick: bool) -> list[Row]:
    """The lower bound on ε that each model shows, against the published ones."""
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        print(f"no MNIST in {folder}: its rows are left out")
        return []
    many, steps, trainings = (100, 5, 620) if quick else (1_000, 25, 1_000)
    data = images(folder, many)
    rows = []
    for name, (make, rate) in list(MODELS.items())[: 1 if quick else None]:
        start = time.perf_counter()
        report, accuracy = audited(make, rate, data, steps, trainings)
        seconds = time.perf_counter() - start
        verdict = "called a violation" if report.violated else "not called a violation"
        note = (
            f"{trainings:,} trainings of {many:,} images, {steps} steps; accuracy on them {accuracy:.0%}; "
            f"{seconds:.0f} s; {verdict}"
        )
        for reference, published in PUBLISHED:
            case = f"MNIST, ε = 10, final model only, {name}"
            rows.append(
                Row(case, "ε shown, 95%", report.epsilon_lower, f"{reference}, published", published, "higher", note)
            )
    return rows
