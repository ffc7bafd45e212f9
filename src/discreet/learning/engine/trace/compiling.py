"""Lets the code of a model take the way that it takes when it is compiled.

Some models look at values to leave out work, such as a mask that masks nothing, but not while they are traced. The dry
run has values, and must record the same operations as the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from discreet.learning.engine.replacement import Replacement

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


def _raise_flag() -> Callable[[], None]:
    before, _flags._is_compiling_flag = _flags._is_compiling_flag, True
    return partial(setattr, _flags, "_is_compiling_flag", before)


#: `torch.compiler.is_compiling()` is true within.
as_compiled = Replacement(_raise_flag)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, whose code believes that it is compiled."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with as_compiled():
            return function(*args, **kwargs)

    return call
