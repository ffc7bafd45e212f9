"""The order of images in memory: channels first or channels last."""

from __future__ import annotations

import torch
from torch import Tensor


def wants_channels_last(x: Tensor) -> bool:
    """Whether convolutions of this input are faster with channels last: images on CUDA that use its tensor cores."""
    return x.is_cuda and x.dim() == 4 and x.dtype != torch.float64


def in_format_of(value: Tensor, other: Tensor) -> Tensor:
    """The value in the memory format of `other`: channels last if `other` is, otherwise contiguous."""
    last = other.dim() == 4 and not other.is_contiguous() and other.is_contiguous(memory_format=torch.channels_last)
    return value.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
