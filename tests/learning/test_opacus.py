"""Utility stays honest: from the same weights, batches and noise, Opacus's steps and ours give the same model."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from torch import nn

from discreet.learning import Plan

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

STEPS = 50


class Network(nn.Module):
    """One of each kind of layer that Opacus and we have rules for."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.out = nn.Linear(4 * 16, 3)

    def forward(self, images):
        return self.out(torch.tanh(self.norm(self.convolution(images))).flatten(1))


def task():
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(120, 1, 4, 4, generator=generator, dtype=torch.float64)
    return images, (images.sum((1, 2, 3)) * 0.6 + 1).clamp(0, 2).long()


def losses(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.mark.parametrize(
    ("clip_norm", "tolerance"),
    [
        (1e3, 1e-12),  # nothing is clipped: the same sums
        (0.5, 2e-6),  # Opacus divides by the norm plus 1e-6, so that what it clips is shorter by 2e-6 of it
    ],
)
def test_fifty_steps_are_those_of_opacus(clip_norm, tolerance, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer
        from opacus.optimizers import optimizer as opacus_optimizer
    torch.manual_seed(2)
    ours = Network().double()
    start, theirs = copy.deepcopy(ours.state_dict()), GradSampleModule(copy.deepcopy(ours))
    multiplier = 0.3 / clip_norm
    plan = Plan.for_noise(
        multiplier, delta=1e-5, examples=120, batch_size=30, steps=STEPS, clip_norm=clip_norm, insecure_seed=3
    )
    sgd = torch.optim.SGD(ours.parameters(), lr=0.2, momentum=0.9)
    step = plan.step(ours, losses, sgd, compile=False)
    private = DPOptimizer(
        torch.optim.SGD(theirs.parameters(), lr=0.2, momentum=0.9),
        noise_multiplier=multiplier,
        max_grad_norm=clip_norm,
        expected_batch_size=30,
    )
    drawn: list[torch.Tensor] = []
    monkeypatch.setattr(opacus_optimizer, "_generate_noise", lambda reference, **_: drawn.pop(0))
    images, labels = task()
    sizes = [tuple(parameter.shape) for parameter in ours.parameters()]
    for batch in plan.batches((images, labels)):
        rows = torch.from_numpy(batch._rows)
        scale = plan.noise_scale(clip_norm, 1)
        flat = plan.noise.flat(
            sum(map(math.prod, sizes)), scale, step._secret.at("step", batch.step), device="cpu", dtype=torch.float64
        )
        drawn[:] = [
            part.reshape(shape) for part, shape in zip(flat.split([*map(math.prod, sizes)]), sizes, strict=True)
        ]
        step(batch)
        private.zero_grad()
        losses(theirs, (images[rows], labels[rows])).mean().backward()
        private.step()
        assert not drawn
    for (name, parameter), other in zip(ours.named_parameters(), theirs._module.parameters(), strict=True):
        moved = (parameter - start[name]).norm()
        assert moved > 0.01
        assert (parameter - other).norm() <= 50 * tolerance * moved, name
