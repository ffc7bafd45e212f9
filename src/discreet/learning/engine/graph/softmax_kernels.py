"""The two passes over memory that a cross entropy over many classes needs: log-sums of rows, and its gradients.

A compiler reads rows of 50,257 scores one number at a time, because a mask ends them at an odd place. It also adds up
the gradients of all classes, of which only one is not zero. These CUDA kernels read whole blocks without a mask, and
only the rest of a row with one. On other devices, torch's own operations compute the same.

Triton comes with CUDA builds of torch.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# Triton kernels have no Python types.

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]  # not on every machine
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # CPU builds of torch come without it
    triton = None

_BLOCK = 4096
_GRADIENT_BLOCK = 2048


if triton is not None:

    @triton.jit
    def _joined(largest, total, values):
        """A running maximum, and the sum of exponentials relative to it, with further values."""
        greater = tl.maximum(largest, tl.max(values, 0))
        shift = tl.where(greater == float("-inf"), 0.0, greater)  # −inf minus −inf is not a number
        return greater, total * tl.exp(largest - shift) + tl.sum(tl.exp(values - shift), 0)

    @triton.jit
    def _log_sums(scores, out, classes, stride, block: tl.constexpr):
        """One row."""
        row = tl.program_id(0).to(tl.int64)
        base, columns = scores + row * stride, tl.arange(0, block)
        whole = (classes // block) * block
        rest = tl.load(base + whole + columns, mask=whole + columns < classes, other=float("-inf")).to(tl.float32)
        largest = tl.max(rest, 0)
        total = tl.sum(tl.exp(rest - tl.where(largest == float("-inf"), 0.0, largest)), 0)
        for start in range(0, whole, block):
            largest, total = _joined(largest, total, tl.load(base + start + columns).to(tl.float32))
        tl.store(out + row, largest + tl.log(total))

    @triton.jit
    def _gradients(
        scores, log_sums, targets, weights, out, classes, width, stride, blocks, block: tl.constexpr
    ):  # fmt: skip
        """A block of one row: weight · (softmax − 1 at the target), and zeros in columns that are no classes."""
        row = (tl.program_id(0) // blocks).to(tl.int64)
        start = (tl.program_id(0) % blocks) * block
        columns = start + tl.arange(0, block)
        log_sum, target, weight = tl.load(log_sums + row), tl.load(targets + row), tl.load(weights + row)
        if start + block <= classes:
            score = tl.load(scores + row * stride + columns).to(tl.float32)
            share = tl.exp(score - log_sum) - tl.where(columns == target, 1.0, 0.0)
            tl.store(out + row * width + columns, (share * weight).to(out.dtype.element_ty))
        else:
            valid = columns < classes
            score = tl.load(scores + row * stride + columns, mask=valid, other=0.0).to(tl.float32)
            share = tl.exp(score - log_sum) - tl.where(columns == target, 1.0, 0.0)
            value = tl.where(valid, share * weight, 0.0)
            tl.store(out + row * width + columns, value.to(out.dtype.element_ty), mask=columns < width)


@torch.library.custom_op("discreet::row_log_sums", mutates_args=())
def row_log_sums(scores: Tensor) -> Tensor:
    """log Σ exp of each row of [N, classes], in float32. Numbers of a row lie next to each other."""
    if triton is None or not scores.is_cuda:
        return torch.logsumexp(scores.float(), 1)
    return _launch_log_sums(scores)


def _launch_log_sums(scores: Tensor) -> Tensor:
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    out = torch.empty(scores.shape[0], dtype=torch.float32, device=scores.device)
    with torch.cuda.device(scores.device):
        _log_sums[(scores.shape[0],)](scores, out, scores.shape[1], scores.stride(0), _BLOCK, num_warps=8)
    return out


@row_log_sums.register_fake
def _(scores: Tensor) -> Tensor:
    return scores.new_empty(scores.shape[0], dtype=torch.float32)


@torch.library.custom_op("discreet::class_gradients", mutates_args=())
def class_gradients(scores: Tensor, log_sums: Tensor, targets: Tensor, weights: Tensor, width: int) -> Tensor:
    """weight · (softmax − 1 at the target) of each row, in the type of the scores, as [N, width] with zeros at the end.

    Args:
        scores: [N, classes]; numbers of a row lie next to each other.
        log_sums: what `row_log_sums` gives for them.
        targets: the class of each row; where it is none, nothing is subtracted.
        weights: the gradient of each row's loss, in float32.
        width: at least the number of classes.
    """
    classes = scores.shape[1]
    if triton is None or not scores.is_cuda:
        shares = torch.exp(scores.float() - log_sums.unsqueeze(1))
        shares -= (targets.unsqueeze(1) == torch.arange(classes, device=scores.device)).float()
        return torch.nn.functional.pad((shares * weights.unsqueeze(1)).to(scores.dtype), (0, width - classes))
    return _launch_gradients(scores, log_sums, targets, weights, width)


def _launch_gradients(scores: Tensor, log_sums: Tensor, targets: Tensor, weights: Tensor, width: int) -> Tensor:
    # The kernel takes strides of scores alone. Targets may be a column of a batch: read as if they lay next to each
    # other, they would be those of other examples.
    log_sums, targets, weights = (value.contiguous() for value in (log_sums, targets, weights))
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    rows, classes = scores.shape
    out = torch.empty((rows, width), dtype=scores.dtype, device=scores.device)
    blocks = triton.cdiv(width, _GRADIENT_BLOCK)
    with torch.cuda.device(scores.device):
        _gradients[(rows * blocks,)](
            scores, log_sums, targets, weights, out, classes, width, scores.stride(0), blocks, _GRADIENT_BLOCK,
            num_warps=4,
        )  # fmt: skip
    return out


@class_gradients.register_fake
def _(scores: Tensor, log_sums: Tensor, targets: Tensor, weights: Tensor, width: int) -> Tensor:
    return scores.new_empty((scores.shape[0], width))
