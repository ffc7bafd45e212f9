"""A replay looks into another library: Opacus divides noisy gradients by a number that tells neighbors apart.

Opacus's optimizer adds noise to the sum of clipped gradients and then divides by `expected_batch_size`, which
`make_private` computes from the length of the data. Two datasets that differ in one row are divided by different
numbers, although the noise and the sum are the same. The replay marks the place where noise is added, runs one step on
both datasets, and compares what comes out.

    python examples/audit_opacus.py       # needs opacus: pip install 'discreet[bench]'
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from discreet.auditing import Pair, declared, replay

CLIP_NORM, NOISE = 1.0, 1.0
# As many rows as both datasets have at most: each is one batch, so nothing depends on who is drawn.
LARGEST_BATCH = 64


class Watched:
    """Opacus's optimizer with a mark where all gradients together meet their noise."""

    def __enter__(self) -> None:
        self._before = DPOptimizer.add_noise
        DPOptimizer.add_noise = self._add_noise

    def __exit__(self, *error: Any) -> None:
        DPOptimizer.add_noise = self._before

    @staticmethod
    def _add_noise(optimizer: DPOptimizer) -> None:
        sums = [parameter.summed_grad for parameter in optimizer.params]
        total = torch.cat([part.reshape(-1) for part in sums]).double().numpy()
        scale = optimizer.noise_multiplier * optimizer.max_grad_norm
        noisy = declared(
            total,
            lambda: total + scale * np.random.default_rng().normal(size=len(total)),
            kind="normal",
            scale=scale,
            limit=optimizer.max_grad_norm,
            rounding=1e-6,  # Opacus clips in float32
        )
        parts = torch.split(torch.from_numpy(noisy).float(), [part.numel() for part in sums])
        for parameter, part in zip(optimizer.params, parts, strict=True):
            parameter.grad = part.view_as(parameter)


def one_step(rows: np.ndarray, *, normalizer: int | None = None) -> list[list[float]]:
    """The weights after one private step; `normalizer` is a public number to divide by instead of Opacus's own."""
    torch.manual_seed(0)  # for the first weights, which are public
    inputs = torch.from_numpy(rows).float()
    model = nn.Linear(inputs.shape[1], 2)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=LARGEST_BATCH),
            noise_multiplier=NOISE,
            max_grad_norm=CLIP_NORM,
        )
        if normalizer is not None:
            optimizer.expected_batch_size = normalizer
        with Watched():
            for batch, labels in loader:
                nn.functional.cross_entropy(model(batch), labels).backward()
                optimizer.step()
    return [parameter.detach().numpy().tolist() for parameter in model.parameters()]


def neighbors() -> Pair:
    """Generated rows, and one row more."""
    rows = np.random.default_rng(5).normal(size=(40, 3))
    return Pair(rows, np.append(rows, [[1.0, 2.0, 3.0]], axis=0), grows=True)


if __name__ == "__main__":
    print("As Opacus divides:", replay(one_step, [neighbors()]))
    print("By a public number:", replay(lambda rows: one_step(rows, normalizer=40), [neighbors()]))
