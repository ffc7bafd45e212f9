"""What canaries show in one run: ideal ones, and those of a small model in training."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks._table import Row
from discreet.accounting import closed_forms
from discreet.auditing import Audit, audit, training
from discreet.guarantees import GDP
from discreet.learning import Plan

DELTA, ALPHA = 1e-5, 0.05
METRIC = "ε that one run shows, 95%"
#: Medians of 5,000 ideal canaries at ε = 2, 4, 8: Steinke et al., the f-DP bound, and Clopper–Pearson with a Gaussian.
PUBLISHED = {
    "one_run": ("Steinke et al. 2023", (0.96, 1.89, 3.40)),
    "one_run_f": ("Mahloujifar et al. 2024", (1.16, 2.45, 4.88)),
    "independent": ("Gaussian and Clopper–Pearson", (1.49, 3.43, 7.31)),
}


def ideal_rows(repeats: int) -> list[Row]:
    """Canaries whose scores are N(μ, 1) if they are included and N(0, 1) otherwise."""
    generator = np.random.default_rng()
    rows = []
    for estimator, (reference, values) in PUBLISHED.items():
        for epsilon, published in zip((2, 4, 8), values, strict=True):
            mu = 1 / closed_forms.gaussian_noise_multiplier(epsilon, DELTA)
            lower_bounds = []
            for _ in range(repeats):
                included = generator.random(5_000) < 0.5
                scores = generator.normal(size=5_000) + mu * included
                report = audit(scores, GDP(mu), included, estimator=estimator, alpha=ALPHA, delta=DELTA)  # type: ignore[arg-type] # one of the names
                lower_bounds.append(report.epsilon_lower)
            case = f"5,000 ideal canaries, ε = {epsilon}, {estimator}"
            rows.append(
                Row(case, METRIC, statistics.median(lower_bounds), f"{reference}, published", published, "higher")
            )
    return rows


def small_task(rows: int, canaries: int) -> tuple[nn.Module, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A linear model over ten features and one for each canary, data for it, and canaries with inputs of their own."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(rows, 10, generator=generator)
    inputs = torch.cat([features, torch.zeros(rows, canaries)], dim=1)
    own = torch.cat([torch.zeros(canaries, 10), 10 * torch.eye(canaries)], dim=1)
    model = nn.Linear(10 + canaries, 2, bias=False)
    nn.init.zeros_(model.weight)
    return model, (inputs, (features[:, 0] > 0).long()), (own, torch.zeros(canaries, dtype=torch.long))


def training_rows(repeats: int, canaries: int) -> list[Row]:
    """A small model at ε = 1, 2, 4, 8: white box by canary gradients, black box by canary examples."""
    rows = []
    data_rows, steps = 500, 10
    model, data, own = small_task(data_rows, canaries)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    loss = nn.functional.cross_entropy
    examples = data_rows + canaries // 2
    for epsilon in (1, 2, 4, 8):
        plan = Plan.for_epsilon(
            epsilon, delta=DELTA, examples=examples, batch_size=examples, steps=steps, clip_norm=1.0
        )
        white = partial(
            training.canary_gradients, plan, model, loss, data, optimizer=sgd, canaries=canaries, alpha=ALPHA
        )
        runs: dict[str, Callable[[], Audit]] = {
            "white box, one_run_f": white,
            "white box, independent": partial(white, estimator="independent"),
            "black box, one_run_f": partial(
                training.canary_examples, plan, model, loss, data, own, optimizer=sgd, alpha=ALPHA
            ),
        }
        for name, run in runs.items():
            start = time.perf_counter()
            reports = [run() for _ in range(repeats)]
            seconds = (time.perf_counter() - start) / repeats
            violated = sum(report.violated for report in reports)
            lower = statistics.median(report.epsilon_lower for report in reports)
            note = f"median of {repeats}, {canaries:,} canaries, {seconds:.1f} s each, {violated} called a violation"
            rows.append(Row(f"DP-SGD, {name}", METRIC, lower, "claimed ε", float(epsilon), "higher", note))
    return rows
