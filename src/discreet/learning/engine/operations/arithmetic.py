"""Arithmetic that the rules share: wide accumulation, chunks of examples, norms and weighted sums."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: The most elements of per-example gradients to hold at a time: 256 MiB in float32.
CHUNK_ELEMENTS = 1 << 26


def precise(value: Tensor) -> Tensor:
    """The value in the type that norms and sums are accumulated in: float64 stays, anything else becomes float32."""
    return value if value.dtype == torch.float64 else value.float()


def product(left: Tensor, right: Tensor) -> Tensor:
    """A (batched) matrix product with a float32 result even where the factors are narrower."""
    if left.dtype != right.dtype:
        left, right = precise(left), precise(right)
    if left.dtype not in (torch.bfloat16, torch.float16):
        return left @ right
    if left.device.type == "cuda":
        multiply = torch.bmm if left.dim() == 3 else torch.mm
        result: Tensor = multiply(left, right, out_dtype=torch.float32)
        return result
    return left.float() @ right.float()


def scaled(grad: Tensor, weights: Tensor, dim: int = 0) -> Tensor:
    """Each example's slice times its weight, in the slice's type (or float32); `dim` enumerates the examples.

    Zero times infinity is not zero, so a batch with a non-finite example is computed again without that example.
    Rounding to bfloat16 may lengthen a slice by half of the type's epsilon, so the weights are reduced by one epsilon.
    Rounding to float16 may double a small value, so the result is float32 instead.
    """
    if grad.dtype == torch.float16:
        grad = precise(grad)
    if grad.dtype == torch.bfloat16:
        weights = weights * (1.0 - torch.finfo(grad.dtype).eps)
    return (precise(grad) * weights.view(-1, *(1,) * (grad.dim() - dim - 1))).to(grad.dtype)


def chunks(examples: int, elements: int) -> list[slice]:
    """Ranges of examples that hold about `CHUNK_ELEMENTS` each, given the number of elements per example."""
    size = max(1, min(examples, CHUNK_ELEMENTS // max(1, elements)))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]


def take(value: Tensor, chunk: slice) -> Tensor:
    """The examples in a chunk.

    A chunk with all examples returns the value itself, so that a trace sees the same tensor each time and the compiler
    can share work on it.
    """
    return value if chunk == slice(0, value.shape[0]) else value[chunk]


def in_chunks(examples: int, elements: int, function: Callable[[slice], Tensor]) -> Tensor:
    """The concatenated results of a function over chunks of examples."""
    results = [function(chunk) for chunk in chunks(examples, elements)]
    return results[0] if len(results) == 1 else torch.cat(results)


def power_sums(gradients: Tensor, order: int) -> Tensor:
    """Σ|g|^order of each example, from its materialized gradient."""
    # Sum over the dimensions rather than flatten: a reshape would copy gradients with another memory layout.
    gradients, rest = precise(gradients), list(range(1, gradients.dim()))
    powers = gradients.square() if order == 2 else gradients.abs()
    return powers.sum(rest) if rest else powers


def weighted_total(gradients: Tensor, weights: Tensor) -> Tensor:
    """Σ weight_i · gradient_i of materialized per-example gradients, read in memory order."""
    order = [0, *sorted(range(1, gradients.dim()), key=gradients.stride, reverse=True)]
    total = scaled(gradients.permute(order), weights).sum(0)
    return total.permute([order.index(dim) - 1 for dim in range(1, gradients.dim())])
