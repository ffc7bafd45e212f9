"""Normalizations: `layer_norm`, `rms_norm`, `group_norm` and `instance_norm`, with the rules for scale and shift.

A traced graph on CUDA gets a group normalization of our own. It computes the same numbers as torch's, whatever the
memory order of the images is. torch's operation returns channels first, so in a network whose convolutions want
channels last every image would be reordered twice. Ours only splits a dimension, which any order allows, and leaves the
kernels to the compiler. It also returns its statistics, so that the rule for the scale need not compute them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations import memory_format
from discreet.learning.engine.operations.arithmetic import precise
from discreet.learning.engine.operations.base import Args, Function, Handler, Handlers, Kwargs, ParameterUse, Recorder
from discreet.learning.engine.operations.elementwise import Broadcast


@dataclass(frozen=True)
class NormalizationScale(Broadcast):
    """The scale of a normalization: it multiplies the normalized input, which is recomputed here."""

    operation: str = "layer_norm"
    options: tuple[Any, ...] = ()
    rank: int = 0

    def factor(self, inputs: tuple[Tensor, ...]) -> Tensor | None:
        x = precise(inputs[0])
        if len(inputs) == 3:  # the input came with its statistics
            return standardized(*inputs)
        option, eps = self.options
        default = {} if eps is None else {"eps": eps}
        if self.operation == "layer_norm":
            return F.layer_norm(x, option, **default)
        if self.operation == "rms_norm":
            return F.rms_norm(x, option, None, eps)
        frames = x.flatten(0, 1) if x.dim() > self.rank else x  # [B, frames, channels, …] from a split dimension
        if self.operation == "group_norm":
            return F.group_norm(frames, option, **default).reshape(x.shape)
        return F.instance_norm(frames, **default).reshape(x.shape)


def standardized(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """(x − mean) · scale."""
    return (precise(x) - mean) * scale


class _GroupNorm(torch.autograd.Function):
    """From [N, channels, …] to the normalized input, and the mean and 1/deviation of each channel, [N, channels, 1, …].

    Tensors as large as the input keep its shape; only small tensors are split into groups.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Any:
        x = _materialized(x)
        per_channel = (1, -1) + (1,) * (x.dim() - 2)
        split: Tensor = torch.unflatten(precise(x), 1, (groups, x.shape[1] // groups))
        variance, group_mean = torch.var_mean(split, list(range(2, split.dim())), correction=0)
        mean, scale = (_at_channels(value, x) for value in (group_mean, torch.rsqrt(variance + eps)))
        output = standardized(x, mean, scale)
        if weight is not None:
            output = output * weight.view(per_channel)
        if bias is not None:
            output = output + bias.view(per_channel)
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.groups, ctx.biased = groups, bias is not None
        ctx.mark_non_differentiable(mean, scale)
        return output, mean, scale

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, weight, mean, scale = ctx.saved_tensors
        grad, spatial = precise(grads[0]), list(range(2, x.dim()))
        normalized = standardized(x, mean, scale)
        by_scale, by_shift = (grad * normalized).sum(spatial), grad.sum(spatial)  # [N, channels]
        weighted = grad if weight is None else grad * weight.view(1, -1, *(1 for _ in spatial))

        def average(sums: Tensor) -> Tensor:
            sums = sums if weight is None else sums * weight
            by_group: Tensor = torch.unflatten(sums, 1, (ctx.groups, sums.shape[1] // ctx.groups))
            return _at_channels(by_group.sum(2) / (prod(x.shape[1:]) // ctx.groups), x)

        back = (weighted - average(by_shift) - normalized * average(by_scale)) * scale
        of_weight = None if weight is None else by_scale.sum(0).to(weight.dtype)
        of_bias = by_shift.sum(0) if ctx.biased else None
        return memory_format.in_format_of(back.to(x.dtype), x), of_weight, of_bias, None, None


def _materialized(x: Tensor) -> Tensor:
    """The same tensor, but a compiler must write it to memory.

    The normalization reads it four times, and the compiler would recompute a sum of residual branches each time. Views
    are left alone: the compiler would apply their strides to memory that it may have laid out differently.
    """
    owns_storage = x.storage_offset() == 0 and x.untyped_storage().nbytes() == x.numel() * x.element_size()
    return x.as_strided(x.shape, x.stride(), 0) if owns_storage and not x._is_view() else x


def _at_channels(value: Tensor, x: Tensor) -> Tensor:
    """From [N, groups] to [N, channels, 1, …], with as many dimensions as the input x."""
    repeated = value.unsqueeze(2).expand(-1, -1, x.shape[1] // value.shape[1]).flatten(1)
    return repeated.view(*repeated.shape, *(1 for _ in range(x.dim() - 2)))


def group_norm(
    x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalized input, in the type that torch's operation would return, and its statistics."""
    output, mean, scale = _GroupNorm.apply(x, weight, bias, groups, eps)  # type: ignore[no-untyped-call]  # torch's own
    wide = torch.is_autocast_enabled(x.device.type) or x.dtype == torch.float64
    return memory_format.in_format_of(output if wide else output.to(x.dtype), x), mean, scale


def _normalization(operation: str, names: str, by_channel: bool) -> Handler:
    """The handler of a normalization.

    Args:
        operation: its name in reports.
        names: the names of its arguments, in order.
        by_channel: whether scale and shift are vectors over the channels (dimension 1), or have the shape of the last
            dimensions.
    """

    def handle(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
        given = dict(zip(names.split(), args, strict=False)) | kwargs
        x, weight, bias = given["input"], given.get("weight"), given.get("bias")
        if operation == "instance_norm" and (
            given.get("running_mean") is not None or not given.get("use_input_stats", True)
        ):
            return NotImplemented
        statistics: tuple[Tensor, ...] = ()
        if operation == "group_norm" and recorder.traced and memory_format.wants_channels_last(x):
            output, *mean_and_scale = group_norm(x, given["num_groups"], weight, bias, given.get("eps", 1e-5))
            statistics = tuple(mean_and_scale)
        else:
            output = func(**given) if operation != "rms_norm" else func(*args, **kwargs)
        claims = []
        for parameter, is_scale in ((weight, True), (bias, False)):
            if parameter is None:
                continue
            shape = tuple(parameter.shape)
            padded = (1, *shape) + (1,) * (x.dim() - 2) if by_channel else (1,) * (x.dim() - len(shape)) + shape
            if not is_scale:
                claims.append(ParameterUse(parameter, Broadcast(shape, padded)))
                continue
            option = given.get("num_groups") or given.get("normalized_shape") or shape
            options = (option if isinstance(option, int) else tuple(option), given.get("eps"))
            claims.append(
                ParameterUse(
                    parameter, NormalizationScale(shape, padded, 1.0, operation, options, x.dim()), (x, *statistics)
                )
            )
        return recorder.record(operation, output, claims)

    return handle


HANDLERS: Handlers = {
    F.layer_norm: _normalization("layer_norm", "input normalized_shape weight bias eps", False),
    F.rms_norm: _normalization("rms_norm", "input normalized_shape weight eps", False),
    torch.rms_norm: _normalization("rms_norm", "input normalized_shape weight eps", False),
    F.group_norm: _normalization("group_norm", "input num_groups weight bias eps", True),
    F.instance_norm: _normalization(
        "instance_norm", "input running_mean running_var weight bias use_input_stats momentum eps", True
    ),
}
