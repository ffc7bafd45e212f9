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


def with_usual_strides(value: Tensor) -> Tensor:
    """A tensor without gaps with the strides that torch gives to its memory format.

    Those of dimensions of size 1 are arbitrary. They would tell which operation made it.
    """
    if 1 not in value.shape:
        return value
    last = not value.is_contiguous() and value.dim() == 4
    memory_format = torch.channels_last if last else torch.contiguous_format
    usual = torch.empty(value.shape, device="meta", memory_format=memory_format).stride()
    dense = value.is_contiguous(memory_format=memory_format)
    return value if not dense or value.stride() == usual else value.as_strided(value.shape, usual)
