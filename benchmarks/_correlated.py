"""Correlated against independent noise in training, at equal (ε, δ), with paired seeds.

A logistic regression on the Adult census: who earns more than 50,000? Batches have a fixed order without amplification,
and one person may be replaced. Poisson batches of the same size, under the same relation, are shown beside them: where
batches can be drawn at random, amplification is usually worth more than correlation.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._table import Row
from discreet import datasets
from discreet.learning import (
    BandedCorrelation,
    BufferedCorrelation,
    CancelingCorrelation,
    NoiseCorrelation,
    Plan,
    SquareRootCorrelation,
)

_DELTA = 1e-6
_BATCH = 256
_CLIP = 1.0


_EPSILON, _EPOCHS = 0.5, 2
_SEEDS = 10
#: Learning rates to choose from, for each kind of noise on rows that are neither trained on nor tested.
_RATES = (0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class Task:
    """Data with public features: one column for each public category, numbers over public bounds."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def adult(examples: int) -> Task:
    """The census as features and labels. Categories and bounds are those of the data dictionary."""
    (x, y), test = (_features(datasets.adult(split)) for split in ("train", "test"))
    return Task((x[:examples], y[:examples]), (x[examples:], y[examples:]), test)


def _features(people: dict[str, np.ndarray]) -> tuple[Tensor, Tensor]:
    categories = {
        "workclass": datasets.WORKCLASS,
        "education": datasets.EDUCATION,
        "marital_status": datasets.MARITAL_STATUS,
        "occupation": datasets.OCCUPATION,
        "relationship": datasets.RELATIONSHIP,
        "sex": datasets.SEX,
    }
    bounds = {"age": (17, 90), "hours_per_week": (0, 100), "capital_gain": (0, 20_000), "capital_loss": (0, 4_000)}
    columns = [np.asarray(people[name]) == value for name, values in categories.items() for value in values]
    for name, (low, high) in bounds.items():
        columns.append(np.clip((np.asarray(people[name], dtype=float) - low) / (high - low), 0, 1) * 2 - 1)
    x = torch.tensor(np.stack([np.asarray(column, dtype=np.float32) for column in columns], 1))
    return x, torch.tensor((np.asarray(people["income"]) == ">50K").astype(np.int64))


def plan(task: Task, epsilon: float, epochs: int, correlation: NoiseCorrelation | None) -> Plan:
    """Fixed order with a correlation; Poisson batches without one."""
    return Plan.for_epsilon(
        epsilon,
        delta=_DELTA,
        examples=len(task.train[0]),
        batch_size=_BATCH,
        epochs=epochs,
        clip_norm=_CLIP,
        relation="zero-out",
        sampling="poisson" if correlation is None else "ordered",
        correlation=correlation,
    )


def loss_after(made: Plan, task: Task, seed: int, learning_rate: float) -> tuple[float, float, float]:
    """The loss on validation data, the loss and the accuracy on test data, after one training.

    The seed decides where the model begins. Noise and batches are fresh.
    """
    torch.manual_seed(seed)
    model = nn.Linear(task.train[0].shape[1], 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    step = made.step(model, nn.functional.cross_entropy, optimizer, compile=False)
    for batch in made.batches(task.train):
        step(batch)
    with torch.no_grad():
        scores = model(task.test[0])
        validation = float(nn.functional.cross_entropy(model(task.validation[0]), task.validation[1]))
    right = float((scores.argmax(1) == task.test[1]).float().mean())
    return validation, float(nn.functional.cross_entropy(scores, task.test[1])), 100 * right


def measure(quick: bool) -> list[Row]:
    """Each correlation against independent noise, and Poisson batches beside them."""
    examples, seeds = (6_400, 2) if quick else (25_600, _SEEDS)
    task = adult(examples)
    in_epoch = examples // _BATCH
    kinds: dict[str, NoiseCorrelation | None] = {
        "independent": BandedCorrelation((1.0,)),
        "square root, 16 bands": SquareRootCorrelation(bands=min(16, in_epoch)),
        f"square root, {in_epoch} bands": SquareRootCorrelation(bands=in_epoch),
        "4 buffers": BufferedCorrelation.for_steps(_EPOCHS * in_epoch),
        "canceling 0.9": CancelingCorrelation(0.9),
        "Poisson batches, independent": None,
    }
    trained = {name: _trained(plan(task, _EPSILON, _EPOCHS, kind), task, seeds, quick) for name, kind in kinds.items()}
    setting = f"Adult, logistic regression, ε = {_EPSILON:g}, δ = {_DELTA:g}, {examples} examples, {_EPOCHS} epochs"
    rate, base = trained["independent"]
    rows = []
    for name, (chosen, results) in trained.items():
        if name == "independent":
            continue
        batches = "amplified by sampling" if kinds[name] is None else "fixed order"
        losses, accuracies = ([result[index] for result in results] for index in (0, 1))
        base_losses, base_accuracies = ([result[index] for result in base] for index in (0, 1))
        lower = [theirs - ours for ours, theirs in zip(losses, base_losses, strict=True)]
        spread = statistics.stdev(lower) / math.sqrt(len(lower))
        wins = sum(difference > 0 for difference in lower)
        note = (
            f"{batches}; lower in {wins} of {len(lower)} paired seeds, by {statistics.mean(lower):.4f} ± {spread:.4f}; "
            f"learning rates {chosen:g} and {rate:g}, chosen on other rows"
        )
        case, reference = f"{name}: {setting}", "independent noise, fixed order"
        means = [statistics.mean(values) for values in (losses, base_losses, accuracies, base_accuracies)]
        rows.append(Row(case, "test loss, mean", means[0], reference, means[1], "lower", note))
        rows.append(Row(case, "test accuracy, %, mean", means[2], reference, means[3], "higher"))
    return rows


def _trained(made: Plan, task: Task, seeds: int, quick: bool) -> tuple[float, list[tuple[float, float]]]:
    """The learning rate with the least validation loss over two other seeds, and what it reaches on test data."""
    tried = _RATES[1:4] if quick else _RATES
    tuning_seeds = (1000,) if quick else (1000, 1001)
    chosen = min(tried, key=lambda rate: sum(loss_after(made, task, seed, rate)[0] for seed in tuning_seeds))
    return chosen, [loss_after(made, task, seed, chosen)[1:] for seed in range(seeds)]
