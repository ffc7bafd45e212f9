"""A small task that trains in milliseconds, for the tests of the training loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from discreet.events import Event
from discreet.learning import Plan, Step


def data(rows: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(rows, 4, generator=generator)
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    generator = torch.Generator().manual_seed(6)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return net.to(dtype)


def loss(net: Any, batch: Any) -> torch.Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(net(inputs.to(next(net.parameters()).dtype)), targets, reduction="none")


def plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "examples": 60,
        "batch_size": 12,
        "steps": 4,
        "insecure_seed": 1,
    }
    settings |= changes
    if "clipping" not in settings:
        settings.setdefault("clip_norm", 0.5)
    return Plan.for_noise(settings.pop("noise_multiplier"), **settings)


def flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in net.parameters()])


def gradients(net: nn.Module) -> torch.Tensor:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in net.parameters()]
    return torch.cat([part.double().reshape(-1) for part in parts])


def step(plan: Plan) -> Step:
    """A step of a plan with a small model."""
    net = model()
    return plan.step(net, loss, torch.optim.SGD(net.parameters(), 0.1), compile=False)


def charges(account: Any) -> list[Event | None]:
    """The events that an account was charged."""
    return [entry.event for entry in account.history() if entry.kind in ("spend", "reserve")]
