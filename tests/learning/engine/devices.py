"""The devices that a test runs on: the CPU, and a GPU where there is one."""

from __future__ import annotations

from typing import TypeVar

import pytest
import torch
from torch.utils import _pytree as pytree

T = TypeVar("T")

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


def on(device: str, batch: T) -> T:
    """The tensors of a batch on a device."""
    return pytree.tree_map(lambda value: value.to(device), batch)
