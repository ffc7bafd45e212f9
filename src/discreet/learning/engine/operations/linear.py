"""Matrix products with a parameter: `linear`, `addmm`, `matmul`, and the bias that is added to their output.

With inputs a [B, T, d] and output gradients g [B, T, p], the gradient of example b is Σ_t g_t a_tᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations.arithmetic import (
    enlarged,
    factors,
    float32_digits,
    multiplies_narrow,
    precise,
    product,
    scaled,
    weighted_digits,
    weighting_error,
)
from discreet.learning.engine.operations.base import (
    Args,
    Function,
    GradientRule,
    Handlers,
    Kwargs,
    ParameterUse,
    Recorder,
    arguments,
    autocast_input,
)
from discreet.learning.engine.operations.sequence_norms import as_sequence, keeps_gradient, reach, sequence_norm_squared
from discreet.learning.engine.operations.transformed import TransformedParameter


@dataclass(frozen=True)
class LinearWeight(GradientRule):
    """The weight of a product: [p, d] as `linear` keeps it, or [d, p] (`transposed`) as `addmm` and `matmul` do.

    Attributes:
        transposed: whether it is [d, p].
        rows: how many rows a weight has whose output got more columns, which are not used; None if it has all.
    """

    transposed: bool = False
    rows: int | None = None

    shared = True

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        a, g = as_sequence(inputs[0]), as_sequence(grad)
        return product(a.mT, g) if self.transposed else product(g.mT, a)[:, : self.rows]

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return inputs[0].shape[-1] * grad.shape[-1]

    def keeps_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        a, kept = inputs[0], 2 if _keeps_narrow(inputs[0], grad) else 4
        length, size = prod(a.shape[1:-1]), max(a.element_size(), grad.element_size())
        return keeps_gradient(length, a.shape[-1], grad.shape[-1], size, kept)

    def kept_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        a, g = as_sequence(inputs[0]), as_sequence(grad)
        if not _keeps_narrow(a, g):
            return super().kept_gradients(inputs, grad)
        return a.mT @ g if self.transposed else (g.mT @ a)[:, : self.rows]

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        a, g = as_sequence(inputs[0]), as_sequence(grad)
        if order == 2:
            return sequence_norm_squared(a, g)
        margin = self.margin(inputs, grad, order)
        return enlarged(super().norm_power(inputs, grad, order), margin, order)

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        a, g = factors(as_sequence(inputs[0]), as_sequence(grad))
        return weighting_error(a, weighted_digits(a), a.shape[1]) * reach(a, g, order)

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        (a, g), examples = factors(inputs[0], grad), 0
        digits = float32_digits(a.device)
        # Σ_t (w g_t) a_tᵀ = Σ_t g_t (w a_t)ᵀ: scale the narrower of the two, in the memory order of the other.
        narrow = a.shape[-1] < g.shape[-1]
        wider = g if narrow else a
        if a.dim() == 3 and wider.stride(0) < wider.stride(1):
            a, g, examples = a.transpose(0, 1), g.transpose(0, 1), 1
        if narrow:
            a = scaled(a, weights, examples, digits=digits)
        else:
            g = scaled(g, weights, examples, digits=digits)
        a, g = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
        return product(a.mT, g) if self.transposed else product(g.mT, a)[: self.rows]


def _keeps_narrow(a: Tensor, g: Tensor) -> bool:
    """Whether kept gradients are bfloat16, as ordinary training under autocast has them.

    Norm and sum are then of the rounded gradients. float16 has too small a range: it could round them to zero.
    """
    return a.dtype == g.dtype == torch.bfloat16 and multiplies_narrow(a)


@dataclass(frozen=True)
class BiasVector(GradientRule):
    """A vector added along one dimension of the output, counted from its end: -1 for linear, -3 for conv2d."""

    channel: int = -1

    small = True
    shared = True

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        channel = grad.dim() + self.channel
        others = [dim for dim in range(1, grad.dim()) if dim != channel]
        return precise(grad.sum(others, dtype=precise(grad[:0]).dtype)) if others else precise(grad)

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return grad.shape[self.channel]


#: Matrix units read 16 bytes at a time, and kernels work on tiles of this many columns.
_COLUMNS = 64
#: From how many columns on misaligned rows take more time than adding columns does.
_MANY = 1024


def _missing_columns(x: Tensor, weight: Tensor) -> int:
    """How many columns an output of 16-bit numbers on a GPU lacks, so that all its rows begin where they are read fast.

    The scores of 50,257 words do not: each product with their gradient takes many times as long on an H200.
    """
    return -weight.shape[0] % _COLUMNS if multiplies_narrow(x) and weight.shape[0] >= _MANY else 0


def linear(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    x, weight, bias = arguments("input weight bias", args, kwargs)
    source = recorder.transposed.get(id(weight))
    x = autocast_input(x)
    if recorder.traced and source is None and bias is None and (missing := _missing_columns(x, weight)):
        output = func(x, F.pad(weight, (0, 0, 0, missing)))
        rule = LinearWeight(rows=weight.shape[0])
        return recorder.record("linear", output, [ParameterUse(weight, rule, (x,))])[..., : weight.shape[0]]
    output = func(x, weight, bias)
    claims = [ParameterUse(source if source is not None else weight, LinearWeight(source is not None), (x,))]
    if bias is not None:
        claims.append(ParameterUse(bias, BiasVector()))
    return recorder.record("linear", output, claims)


def addmm(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    bias, x, weight = arguments("input mat1 mat2", args, kwargs)
    if len(args) > 3 or set(kwargs) - {"input", "mat1", "mat2"} or id(x) in recorder.names or bias.dim() != 1:
        return NotImplemented
    source = recorder.transposed.get(id(weight))
    x = autocast_input(x)
    output = func(bias, x, weight)
    weight_claim = ParameterUse(source if source is not None else weight, LinearWeight(source is None), (x,))
    return recorder.record("addmm", output, [weight_claim, ParameterUse(bias, BiasVector())])


def _as_row(value: Tensor) -> Tensor:
    return value[None]


def matmul(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    if len(args) != 2 or kwargs:
        return NotImplemented
    x, weight = args
    if x.dim() == 2 and weight.dim() > 2 and id(x) in recorder.names:  # W x = (xᵀ Wᵀ)ᵀ
        a = autocast_input(weight.mT)
        return recorder.record("matmul", F.linear(a, x), [ParameterUse(x, LinearWeight(), (a,))]).mT
    if weight.dim() == 1 and x.dim() > 1 and id(weight) in recorder.names:
        x = autocast_input(x)
        rule = TransformedParameter(_as_row, weight, LinearWeight(), rearranges=True)
        return recorder.record("matmul", F.linear(x, weight[None]), [ParameterUse(weight, rule, (x,))]).squeeze(-1)
    if weight.dim() != 2 or x.dim() < 2:
        return NotImplemented
    if id(x) in recorder.names or id(x) in recorder.transposed:
        return NotImplemented
    source = recorder.transposed.get(id(weight))
    x = autocast_input(x)
    claim = ParameterUse(source if source is not None else weight, LinearWeight(source is None), (x,))
    return recorder.record("matmul", func(x, weight), [claim])


def transpose(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """A parameter's transpose holds the same elements in another order, so a product with it still has a rule."""
    if kwargs or args[0].dim() != 2 or id(args[0]) not in recorder.names:
        return NotImplemented
    if len(args) == 3 and {args[1] % 2, args[2] % 2} != {0, 1}:
        return NotImplemented
    return recorder.alias(args[0], func(*args))


#: `x.T` and `x.mT` reach a torch function mode as the getters of these properties.
_PROPERTIES = [vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT")]

HANDLERS: Handlers = {
    F.linear: linear,
    torch.addmm: addmm,
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), matmul),
    **dict.fromkeys((torch.t, Tensor.t, torch.transpose, Tensor.transpose, *_PROPERTIES), transpose),
}
