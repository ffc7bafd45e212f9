"""Arithmetic that the rules share: wide accumulation, chunks of examples, norms and weighted sums."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from discreet.learning import cpu_kernels

#: The most elements of per-example gradients to hold at a time: 256 MiB in float32.
CHUNK_ELEMENTS = 1 << 26


#: How many roundings of a float32 sum margins allow for, over the sum of its terms' sizes: the worst case of this many
#: additions in a row; rounding errors of blocked sums of thousands of terms stay below it.
_ROUNDINGS = 32
#: The binary digits that products keep of a float32, by the name of torch's setting.
_DIGITS = {"none": 24, "ieee": 24, "tf32": 11, "bf16": 8}
_FLOAT32_DIGITS = 24
_NARROW_DIGITS = {torch.bfloat16: 8, torch.float16: 11}


def rounding(kind: torch.dtype) -> float:
    """The relative error of one operation in float32, or in float64 for float64."""
    return torch.finfo(torch.float64 if kind == torch.float64 else torch.float32).eps / 2


def accumulation(kind: torch.dtype, terms: int = _ROUNDINGS) -> float:
    """The error of a sum of this many products in float32 or float64, over the sum of their sizes."""
    return min(terms + 1, _ROUNDINGS) * rounding(kind)


def precise(value: Tensor) -> Tensor:
    """The value in the type that norms and sums are accumulated in: float64 stays, anything else becomes float32."""
    return value if value.dtype == torch.float64 else value.float()


@torch.library.custom_op("discreet::widened", mutates_args=())
def _widened(value: Tensor) -> Tensor:
    return value.float()


@_widened.register_fake
def _(value: Tensor) -> Tensor:
    return torch.empty_like(value, dtype=torch.float32)


def widened(value: Tensor) -> Tensor:
    """`precise` as one operation that a compiler can't look into.

    A compiler may compute a 16-bit tensor in float32 and skip the rounding where it is widened again. Then the norm and
    the sum could see different numbers. An opaque operation reads the rounded tensor from memory.
    """
    result: Tensor = value if value.dtype in (torch.float32, torch.float64) else _widened(value)
    return result


def precision_settings() -> tuple[str, ...]:
    """torch's settings that decide how float32 products round: a graph that was traced under others is not reused."""
    backends: Any = torch.backends
    scopes = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn, backends.mkldnn.matmul, backends.mkldnn.conv)
    return tuple(str(scope.fp32_precision) for scope in (*scopes, backends.mkldnn, backends))


@functools.cache
def _onednn_may_round() -> bool:
    """Whether the environment lets oneDNN compute in a narrower type, which torch's settings do not show."""
    modes = (os.environ.get(f"{prefix}_DEFAULT_FPMATH_MODE", "") for prefix in ("ONEDNN", "DNNL"))
    return any(mode.upper() not in ("", "STRICT") for mode in modes)


def float32_digits(device: torch.device, convolution: bool = False) -> int:
    """How many binary digits of a float32 the products of a device keep; with `convolution`, its convolutions too."""
    if device.type == "cpu" and _onednn_may_round():
        return min(_DIGITS.values())
    matmul, conv, all_cuda, cpu_matmul, cpu_conv, all_cpu, everywhere = precision_settings()
    if device.type == "cuda":
        chosen, family = [matmul, conv] if convolution else [matmul], all_cuda
    else:
        chosen, family = [cpu_matmul, cpu_conv] if convolution else [cpu_matmul], all_cpu
    inherited = family if family != "none" else everywhere
    least = min(_DIGITS.values())  # of a setting that this code does not know
    return min(_DIGITS.get(name if name != "none" else inherited, least) for name in chosen)


def on_grid(value: Tensor, digits: int) -> Tensor:
    """A float32 cut to this many binary digits, so that a product which keeps only these rounds nothing."""
    if value.dtype != torch.float32 or digits >= _FLOAT32_DIGITS:
        return value
    return (value.view(torch.int32) & -(1 << (_FLOAT32_DIGITS - digits))).view(torch.float32)


@torch.library.custom_op("discreet::cut", mutates_args=())
def _cut(value: Tensor, digits: int) -> Tensor:
    return on_grid(value, digits)


@_cut.register_fake
def _(value: Tensor, digits: int) -> Tensor:
    return torch.empty_like(value)


def cut(value: Tensor, digits: int) -> Tensor:
    """`on_grid` as one operation, whose result has the memory order of `value`.

    A compiler would write the factor of each product anew, and may choose another memory order for it.
    """
    if value.dtype != torch.float32 or digits >= _FLOAT32_DIGITS:
        return value
    result: Tensor = _cut(value, digits)
    return result


def _nearest(value: Tensor, digits: int) -> Tensor:
    """A float32 rounded to this many binary digits."""
    if value.dtype != torch.float32 or digits >= _FLOAT32_DIGITS:
        return value
    dropped = _FLOAT32_DIGITS - digits
    return ((value.view(torch.int32) + (1 << (dropped - 1))) & -(1 << dropped)).view(torch.float32)


def multiplies_narrow(value: Tensor) -> bool:
    """Whether the device multiplies this 16-bit type itself, with a float32 result."""
    return value.dtype in _NARROW_DIGITS and value.device.type == "cuda"


def factors(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors as `product` multiplies them without rounding: both 16-bit, or both float32 with the digits it keeps.

    Norms and sums both take the factors of a product from here, so that they are about the same numbers.
    """
    if left.dtype == right.dtype and multiplies_narrow(left):
        return left, right
    digits = float32_digits(left.device)
    left, right = (on_grid(widened(value), digits) for value in (left, right))
    return (left, right) if left.dtype == right.dtype else (left.double(), right.double())


def product(left: Tensor, right: Tensor) -> Tensor:
    """A (batched) matrix product with a float32 result even where the factors are narrower."""
    return multiplied(*factors(left, right))


def multiplied(left: Tensor, right: Tensor) -> Tensor:
    """`product` of factors that it need not round any more."""
    if left.dtype not in _NARROW_DIGITS:
        return left @ right
    if left.device.type != "cuda":
        return left.float() @ right.float()
    multiply = torch.bmm if left.dim() == 3 else torch.mm
    result: Tensor = multiply(left, right, out_dtype=torch.float32)
    return result


def gram(rows: Tensor) -> Tensor:
    """The products of all pairs of rows of each example, from [B, T, d] to [B, T, T]."""
    (rows, _) = factors(rows, rows)
    if rows.device.type != "cpu" or rows.dtype != torch.float32:
        return multiplied(rows, rows.mT)
    result: Tensor = cpu_kernels.grams(rows)
    return result


def scaled(grad: Tensor, weights: Tensor, dim: int = 0, *, digits: int = _FLOAT32_DIGITS) -> Tensor:
    """Each example's slice times its weight; `dim` enumerates the examples.

    bfloat16 stays bfloat16, and a float32 is rounded to `digits`: `weighting_error` says by how much that moves a sum.
    Rounding to float16 may double a small value, so the result is float32 instead. Zero times infinity is not zero, so
    a batch with a non-finite example is computed again without that example.
    """
    result = _nearest(precise(grad) * weights.view(-1, *(1,) * (grad.dim() - dim - 1)), digits)
    return result.to(grad.dtype) if grad.dtype == torch.bfloat16 else result


def weighted_digits(factor: Tensor) -> int:
    """The binary digits that `scaled` keeps of a factor: those of bfloat16, or those that products keep."""
    return _NARROW_DIGITS[factor.dtype] if factor.dtype == torch.bfloat16 else float32_digits(factor.device)


def weighting_error(factor: Tensor, digits: int, terms: int) -> float:
    """How far a weighted sum of products and its norm can be apart because of rounding, over the sum of terms' sizes.

    Args:
        factor: one of the two factors, as `factors` returns it.
        digits: how many binary digits the weighted factor has.
        terms: how many terms an example has. The norm of a single 16-bit term takes no product, so a compiler may
            compute it before the term is rounded: that rounding comes on top.
    """
    if factor.dtype == torch.float64:
        return 2 * accumulation(factor.dtype, terms)
    early = 2.0 ** -_NARROW_DIGITS[factor.dtype] if terms == 1 and factor.dtype in _NARROW_DIGITS else 0.0
    # The sizes of terms are computed from rounded numbers, hence the 2%.
    return 1.02 * (2.0**-digits + early) + 2 * accumulation(factor.dtype, terms)


def enlarged(powers: Tensor, margin: Tensor, order: int) -> Tensor:
    """(norm + margin)^order, from norm^order."""
    return powers + margin if order == 1 else (powers.sqrt() + margin).square()


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


#: How many numbers of a long dimension are added up together on a CPU.
_ADDED_TOGETHER = 512


def summed(values: Tensor) -> Tensor:
    """The sum over all dimensions but the first.

    On a CPU, dimensions are added up one after the other, and long ones in pieces: a compiler would add thousands of
    numbers in a row, and if they are equal, each addition may round in the same direction.
    """
    if values.device.type != "cpu":
        # Over dimensions rather than flattened: a reshape would copy what has another memory layout.
        rest = list(range(1, values.dim()))
        return values.sum(rest) if rest else values
    while values.dim() > 1:
        innermost = min(range(1, values.dim()), key=values.stride)
        is_long = values.shape[innermost] > _ADDED_TOGETHER
        values = _summed_in_pieces(values, innermost) if is_long else values.sum(innermost)
    return values


def _summed_in_pieces(values: Tensor, dim: int) -> Tensor:
    """The tensor with a dimension replaced by the sums of its pieces. Splitting it copies nothing."""
    whole = values.shape[dim] // _ADDED_TOGETHER * _ADDED_TOGETHER
    pieces: Tensor = torch.unflatten(values.narrow(dim, 0, whole), dim, (-1, _ADDED_TOGETHER))
    sums = pieces.sum(dim + 1)
    if whole == values.shape[dim]:
        return sums
    return torch.cat([sums, values.narrow(dim, whole, values.shape[dim] - whole).sum(dim, keepdim=True)], dim)


def power_sums(gradients: Tensor, order: int) -> Tensor:
    """Σ|g|^order of each example, from its materialized gradient."""
    gradients = precise(gradients)
    return summed(gradients.square() if order == 2 else gradients.abs())


#: Up to this many examples, a compiler reads all gradients in one pass if their sum is written as additions; as a
#: reduction over so short a dimension it takes four times as long on an H200.
_FEW_EXAMPLES = 16


def weighted_total(gradients: Tensor, weights: Tensor) -> Tensor:
    """Σ weight_i · gradient_i of materialized per-example gradients, in float32 and read in memory order."""
    order = [0, *sorted(range(1, gradients.dim()), key=gradients.stride, reverse=True)]
    ordered = gradients.permute(order)
    if gradients.is_cuda and len(gradients) <= _FEW_EXAMPLES:
        total = _added_up(ordered, weights)
    else:
        total = scaled(precise(ordered), weights).sum(0)
    return total.permute([order.index(dim) - 1 for dim in range(1, gradients.dim())])


def _added_up(values: Tensor, weights: Tensor) -> Tensor:
    wide = torch.promote_types(precise(values[:0]).dtype, weights.dtype)
    # Each example is widened by itself: a compiler writes what many operations read to memory.
    total = precise(values[0]).to(wide) * weights[0]
    for position in range(1, len(values)):
        total = total + precise(values[position]).to(wide) * weights[position]
    return total
