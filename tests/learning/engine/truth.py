"""Reference per-example gradients: one example at a time, by ordinary differentiation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def gradients(model: nn.Module, loss: Callable, batch: object) -> list[dict[str, Tensor]]:
    """The gradient of each example, by parameter name."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    size = pytree.tree_leaves(batch)[0].shape[0]
    by_example = []
    for i in range(size):
        one = pytree.tree_map(lambda x: x[i : i + 1], batch)  # noqa: B023  # called within the iteration
        values = torch.autograd.grad(loss(model, one).sum(), list(named.values()), allow_unused=True)
        pairs = zip(named.items(), values, strict=True)
        by_example.append({name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs})
    return by_example


def norms(each: list[dict[str, Tensor]], order: int = 2, only: set[str] | None = None) -> Tensor:
    """The norm of each example's gradient, over all parameters or `only` some."""
    chosen = [torch.cat([g.flatten() for name, g in one.items() if only is None or name in only]) for one in each]
    return torch.stack([g.norm(order) for g in chosen])


#: Weights below 1 are shrunk by this many units of the machine epsilon, so that rounding lengthens no gradient.
SHRUNK_BY = 256


def shrunk(dtype: torch.dtype = torch.float32) -> float:
    """What a weight below 1 is multiplied by."""
    return 1 - SHRUNK_BY * torch.finfo(dtype).eps


def clipped(each: list[dict[str, Tensor]], weights: Tensor) -> dict[str, Tensor]:
    """Σ weight_i · gradient_i."""
    wide = any(value.dtype == torch.float64 for value in each[0].values())
    weights = torch.where(weights < 1, weights * shrunk(torch.float64 if wide else torch.float32), weights)
    return {name: sum(w * one[name] for w, one in zip(weights, each, strict=True)) for name in each[0]}


def worst(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest error of a parameter's sum, relative to the norm over all parameters."""
    norm = torch.stack([g.norm() for g in expected.values()]).norm().clamp_min(1e-30)
    assert found.keys() == expected.keys()
    return max(float((found[name] - g).norm() / norm) for name, g in expected.items())
