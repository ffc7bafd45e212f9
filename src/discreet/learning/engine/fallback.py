"""Per-example gradients of parameters that have no rule: `vmap` over the whole model, for those parameters alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)  # a fallback is slow by nature
        gradients, losses = lifted(differentiated, batch)
    return gradients, losses
