"""Group normalization for a graph that is traced: the same numbers as torch's, in whatever order the images lie.

torch's own operation answers with channels first. In a network whose convolutions want channels last, each one would
then be turned around twice. Here only a dimension is split, which any order allows, and the compiler makes the kernels.
Its statistics come out too, so that the rule for the scale need not compute them again.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.rules.base import in_memory_like, precise


def standardized(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """(x − mean) · scale."""
    return (precise(x) - mean) * scale


class _GroupNorm(torch.autograd.Function):
    """From [N, channels, …] to the normalized input, and the mean and 1/deviation at each channel, [N, channels, 1, …].

    All that is as large as the input keeps the input's shape; only small tensors are split into groups.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Any:
        x = _written(x)
        each = (1, -1) + (1,) * (x.dim() - 2)
        split: Tensor = torch.unflatten(precise(x), 1, (groups, x.shape[1] // groups))
        variance, middle = torch.var_mean(split, list(range(2, split.dim())), correction=0)
        mean, scale = (_at_channels(value, x) for value in (middle, torch.rsqrt(variance + eps)))
        output = standardized(x, mean, scale)
        if weight is not None:
            output = output * weight.view(each)
        if bias is not None:
            output = output + bias.view(each)
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.groups, ctx.biased = groups, bias is not None
        ctx.mark_non_differentiable(mean, scale)
        return output, mean, scale

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, mean, scale = ctx.saved_tensors
        grad, places = precise(grads[0]), list(range(2, x.dim()))
        normal = standardized(x, mean, scale)
        by_scale, by_shift = (grad * normal).sum(places), grad.sum(places)  # [N, channels]
        weighted = grad if weight is None else grad * weight.view(1, -1, *(1 for _ in places))

        def average(sums: Tensor) -> Tensor:
            sums = sums if weight is None else sums * weight
            parts: Tensor = torch.unflatten(sums, 1, (ctx.groups, sums.shape[1] // ctx.groups))
            return _at_channels(parts.sum(2) / (prod(x.shape[1:]) // ctx.groups), x)

        back = (weighted - average(by_shift) - normal * average(by_scale)) * scale
        of_weight = None if weight is None else by_scale.sum(0).to(weight.dtype)
        of_bias = by_shift.sum(0) if ctx.biased else None
        return in_memory_like(back.to(x.dtype), x), of_weight, of_bias, None, None


def _written(x: Tensor) -> Tensor:
    """The same tensor, but a compiler has to write it to memory.

    It is read here four times, and a sum of residual branches would be added up anew each time. A view is left as it
    is: the compiler would take its strides for places in a memory that it may have laid out otherwise.
    """
    whole = x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * x.element_size()
    return x.as_strided(x.shape, x.stride(), 0) if whole and not x._is_view() else x


def _at_channels(value: Tensor, x: Tensor) -> Tensor:
    """From [N, groups] to [N, channels, 1, …], for an input x of as many dimensions."""
    each = value.unsqueeze(2).expand(-1, -1, x.shape[1] // value.shape[1]).flatten(1)
    return each.view(*each.shape, *(1 for _ in range(x.dim() - 2)))


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized input, in the type that torch's operation would answer in, and its statistics."""
    output, mean, scale = _GroupNorm.apply(x, weight, bias, groups, eps)  # type: ignore[no-untyped-call]  # torch's own
    wide = torch.is_autocast_enabled(x.device.type) or x.dtype == torch.float64
    return in_memory_like(output if wide else output.to(x.dtype), x), mean, scale
