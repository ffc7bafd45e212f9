"""Lets the code of a model take the way that it takes when it is compiled.

Some models look at values to leave out work, such as a mask that masks nothing, but not while they are traced. The dry
run has values, and must record the same operations as the trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
#: Functions that turn a tensor into a number of Python's.
READS = {
    Tensor.__bool__,
    Tensor.__float__,
    Tensor.__int__,
    Tensor.__index__,
    Tensor.item,
    Tensor.tolist,
    Tensor.numpy,
    Tensor.allclose,
    torch.allclose,
    Tensor.__format__,
    Tensor.is_nonzero,
    Tensor.equal,
    torch.is_nonzero,
    torch.equal,
}


_flags: Any = torch.compiler
_lock = threading.Lock()
_passes = 0
#: The flag as it was before the first of the passes that are running.
_before = False


@contextmanager
def as_compiled() -> Iterator[None]:
    """`torch.compiler.is_compiling()` is true within; passes may overlap in several threads."""
    _enter(1)
    try:
        yield
    finally:
        _enter(-1)


def _enter(change: int) -> None:
    global _passes, _before
    with _lock:
        if not _passes:
            _before = _flags._is_compiling_flag
        _passes += change
        _flags._is_compiling_flag = True if _passes else _before


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, whose code believes that it is compiled."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with as_compiled():
            return function(*args, **kwargs)

    return call
