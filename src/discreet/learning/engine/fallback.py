"""Per-example gradients without rules: `vmap` over the whole model, or one example after the other where vmap fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch import autograd_function
from torch.utils import _pytree as pytree

from discreet.learning.engine.replacement import Replacement

Forward = Callable[[Mapping[str, Tensor], Any], Tensor]


def per_example(
    forward: Forward, parameters: Mapping[str, Tensor], names: tuple[str, ...], batch: Any
) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients [B, *shape] of the named parameters, and the losses [B].

    Guarantee:
        Each example runs alone, so its gradient depends on no other example. If a model draws random numbers (dropout),
        they differ from those of the batched pass; the norm and the sum still use the same gradient.
    """
    fixed = {name: tensor.detach() for name, tensor in parameters.items() if name not in names}
    differentiated = {name: parameters[name].detach() for name in names}

    def loss_of_one(free: dict[str, Tensor], example: Any) -> Tensor:
        alone = pytree.tree_map_only(Tensor, lambda x: x.unsqueeze(0), example)
        return forward({**fixed, **free}, alone).sum()

    batch_dims = pytree.tree_map(lambda x: 0 if isinstance(x, Tensor) else None, batch)
    both = torch.func.grad_and_value(loss_of_one)
    lifted = torch.func.vmap(both, in_dims=(None, batch_dims), randomness="different")
    with warnings.catch_warnings(), _without_own_rules():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)  # a fallback is slow by nature
        gradients, losses = lifted(differentiated, batch)
    return gradients, losses


_functions: Any = autograd_function  # looks the name up whenever it lifts a function
_has_own_rule = _functions.has_overridden_vmap_rule


def _refused(function: Any) -> bool:
    if _has_own_rule(function):
        raise RuntimeError("an autograd function has a vmap rule of its own, which sees all examples at once")
    return False


def _refuse_own_rules() -> Callable[[], None]:
    _functions.has_overridden_vmap_rule = _refused
    return partial(setattr, _functions, "has_overridden_vmap_rule", _has_own_rule)


#: `vmap` fails within where a function says itself how it is lifted.
_without_own_rules = Replacement(_refuse_own_rules)


def row(batch: Any, position: int) -> Any:
    """A batch of one example, in memory of its own: a model may write to its inputs."""
    return pytree.tree_map_only(Tensor, lambda x: x[position : position + 1].clone(), batch)


def private(batch: Any) -> Any:
    """A copy that only the model will hold, so that `Isolation`, if it watches the copying, sees whether it is kept."""
    return pytree.tree_map_only(Tensor, torch.clone, batch)


def one_example(
    forward: Forward, parameters: Mapping[str, Tensor], names: tuple[str, ...], example: Any
) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients [1, *shape] of the named parameters and the loss [1] of a batch of one, by ordinary backward.

    The model's code runs as it is, so it may branch on values, change shapes and have backward passes in Python.
    """
    fixed = {name: tensor.detach() for name, tensor in parameters.items() if name not in names}
    live = {name: parameters[name].detach().requires_grad_() for name in names}
    with torch.enable_grad():
        loss = forward({**fixed, **live}, example).sum()
    per_parameter: tuple[Tensor | None, ...] = (None,) * len(live)
    if loss.requires_grad:
        per_parameter = torch.autograd.grad(loss, list(live.values()), allow_unused=True)
    gradients = {
        name: (torch.zeros_like(tensor) if gradient is None else gradient.to_dense()).detach().unsqueeze(0)
        for (name, tensor), gradient in zip(live.items(), per_parameter, strict=True)
    }
    return gradients, loss.detach().reshape(1)
