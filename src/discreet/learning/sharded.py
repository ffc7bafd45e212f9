"""Models whose parameters are spread over processes by FSDP2 (`torch.distributed.fsdp.fully_shard`).

Between steps each process holds its shard of the parameters and of the optimizer's state. A step gathers the whole
parameters, computes the clipped sum of its share of the batch with them, and drops them; the noisy sum of all processes
is cut into shards again. So a step gives the same sums as in one process. FSDP's own hooks, which gather and reduce
module by module, are left out meanwhile: their reduction would add up gradients without clipping or noise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

_HOOKS_OF = "torch.distributed.fsdp"


def _is_sharded(value: object) -> bool:
    if not dist.is_available():
        return False
    from torch.distributed.tensor import DTensor

    return isinstance(value, DTensor)


def any_sharded(tensors: Iterable[Tensor]) -> bool:
    """Whether one of the tensors is spread over processes."""
    return any(map(_is_sharded, tensors))


def whole(value: Any) -> Any:
    """A tensor, or the tensors in a nesting, gathered from all processes. All processes must call it together."""
    return pytree.tree_map(lambda leaf: leaf.full_tensor() if _is_sharded(leaf) else leaf, value)


def own_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    local: Tensor = tensor.to_local() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]  # a DTensor
    return local


def sharded_like(like: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, spread over processes as another one is; as it is if the other one is not."""
    if not _is_sharded(like):
        return value
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]  # a DTensor
    lengths, starts = compute_local_shape_and_global_offset(like.shape, mesh, placements)
    local = value.to(like.device)
    for dim, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        local = local.narrow(dim, min(start, local.shape[dim]), length)
    return DTensor.from_local(local.clone(), mesh, placements, run_check=False, shape=like.shape, stride=like.stride())


def model_state(model: nn.Module, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A saved state of whole tensors, spread over processes as the model is."""
    now = model.state_dict()
    return {name: sharded_like(now.get(name, value), value) for name, value in saved.items()}


def optimizer_state(optimizer: Optimizer, saved: Mapping[str, Any]) -> dict[str, Any]:
    """A saved optimizer's state of whole tensors, spread over processes as its parameters are."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

    def spread(number: int, value: Any) -> Any:
        like = parameters[number]
        return sharded_like(like, value) if isinstance(value, Tensor) and value.shape == like.shape else value

    state = {
        number: {name: spread(number, value) for name, value in held.items()} for number, held in saved["state"].items()
    }
    return {**saved, "state": state}


@contextlib.contextmanager
def without_hooks(model: nn.Module) -> Iterator[None]:
    """Run the modules of a sharded model without FSDP's hooks."""
    taken: list[tuple[dict[int, Any], dict[int, Any]]] = []
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            theirs = [key for key, hook in hooks.items() if str(getattr(hook, "__module__", "")).startswith(_HOOKS_OF)]
            if theirs:
                taken.append((hooks, dict(hooks)))
            for key in theirs:
                del hooks[key]
    try:
        yield
    finally:
        for hooks, before in taken:
            hooks.clear()
            hooks.update(before)
