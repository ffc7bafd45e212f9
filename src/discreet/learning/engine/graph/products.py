"""Multiplies large float32 matrices on a CPU with the faster of torch's two libraries.

torch multiplies with MKL, which is slow on processors of other makers: on an AMD EPYC (Zen 5), oneDNN takes half the
time. torch uses oneDNN for convolutions, and a product is a convolution with a kernel of one place: of a row of pixels
with `left`'s columns as channels, or, where `left` is transposed in memory, the gradient of its weight. Both libraries
are timed for each shape before a graph is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from discreet.learning.engine.graph.recompute import PART, RULES
from discreet.learning.engine.operations.arithmetic import float32_digits

_aten = torch.ops.aten
_PRODUCTS: set[Any] = {_aten.mm.default, _aten.addmm.default}
#: Products of fewer multiplications take little time in any library.
_FEWEST = 1 << 22
#: oneDNN must take at most this share of MKL's time to be preferred.
_SHARE = 0.9
_RUNS = 10
#: Where both libraries together take longer than this, each runs only twice: once to warm up, and once timed.
_LONG_SECONDS = 0.1
_CPU = torch.device("cpu")

_faster: dict[Hashable, bool] = {}


@torch.library.custom_op("discreet::product", mutates_args=())
def product_by_convolution(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """left · right, plus a bias for each column."""
    if _is_row_of_pixels(left, bias):
        images = F.conv2d(_pixels(left), right.t().reshape(right.shape[1], -1, 1, 1), bias)
        return images[0, :, :, 0].t().contiguous()
    weight = left.new_empty(()).expand(left.shape[0], right.shape[1], 1, 1)
    geometry = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    outputs = [False, True, False]
    gradients = _aten.convolution_backward(_pixels(left.t()), _pixels(right), weight, None, *geometry, outputs)
    result: Tensor = gradients[1].reshape(weight.shape[:2]).contiguous()
    return result


@product_by_convolution.register_fake
def _(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    return left.new_empty(left.shape[0], right.shape[1])


def _is_row_of_pixels(left: Tensor, bias: object) -> bool:
    return left.stride(1) == 1 or bias is not None


def _pixels(rows: Tensor) -> Tensor:
    """[M, K] as an image of M pixels with K channels, [1, K, M, 1], with torch's strides for channels last."""
    return rows.contiguous()[None, :, None].permute(0, 3, 1, 2)


def use_faster_products(module: GraphModule) -> None:
    """Replace those products of a graph that oneDNN computes faster on this machine. Changes no more than rounding.

    oneDNN's convolution of a row of pixels adds up to a thousand products in a row. Sums of clipped gradients are
    computed in another way than their norms, with margins for fewer additions, so they stay with MKL then.
    """
    coarser = float32_digits(_CPU, convolution=True) < float32_digits(_CPU)
    if coarser or not torch._C._has_mkldnn:
        return
    for node in list(module.graph.nodes):
        if node.target not in _PRODUCTS or node.kwargs:
            continue
        *bias, left, right = node.args
        if not _is_large(left, right, *bias):
            continue
        if node.meta.get(PART) == RULES and _is_row_of_pixels(left.meta["val"], bias or None):
            continue
        if _is_faster(left, right, *bias):
            with module.graph.inserting_before(node):
                faster = module.graph.call_function(
                    torch.ops.discreet.product.default, (left, right, bias[0] if bias else None)
                )
            faster.meta = dict(node.meta)
            node.replace_all_uses_with(faster)
            module.graph.erase_node(node)


def _is_large(left: Node, right: Node, *bias: Node) -> bool:
    values: list[Any] = [node.meta.get("val") for node in (left, right, *bias)]
    if not all(isinstance(v, Tensor) and v.dtype == torch.float32 and v.device.type == "cpu" for v in values):
        return False
    vector = all(value.shape == values[1].shape[1:] for value in values[2:])  # a bias of one number would be repeated
    return vector and bool(values[0].numel() * values[1].shape[1] >= _FEWEST)


def _is_faster(*nodes: Node) -> bool:
    values = [node.meta["val"] for node in nodes]
    key = (torch.get_num_threads(), *((tuple(value.shape), value.stride()) for value in values))
    if key not in _faster:
        with torch.no_grad(), _disable_current_modes():
            left, right, *bias = (
                torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=_CPU).fill_(1.0) for v in values
            )
            usual, other = _seconds(
                lambda: torch.addmm(bias[0], left, right) if bias else left @ right,
                lambda: product_by_convolution(left, right, bias[0] if bias else None),
            )
        _faster[key] = other <= _SHARE * usual
    return _faster[key]


def _seconds(*functions: Callable[[], object]) -> list[float]:
    """The shortest of several runs of each function, in turns; the first runs warm up."""
    times: list[list[float]] = [[] for _ in functions]
    begin = time.perf_counter()
    for run in range(_RUNS):
        if run > 1 and time.perf_counter() - begin > _LONG_SECONDS:
            break
        for function, taken in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return [min(taken[1:]) for taken in times]
