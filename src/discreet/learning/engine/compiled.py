"""One graph of the whole clipped sum: traced once to torch's own operations, then compiled.

`make_fx` runs the pure function on tensors without data and writes down every operation below autograd, so the compiler
meets a flat graph without modes, hooks or autograd. Shapes are fixed; another shape is another graph.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

Flat = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Compiled:
    """A compiled function and the seconds that it took to trace."""

    function: Flat
    seconds: float


def compile_flat(function: Flat, arguments: Sequence[Tensor]) -> Compiled:
    """Trace and compile a function of tensors."""
    start = time.perf_counter()
    trace: Any = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's parts warn of each other; none of it is about the model
        compiled: Any = torch.compile(trace(*arguments), fullgraph=True, dynamic=False)
        with torch.no_grad():
            compiled(*arguments)
    return Compiled(compiled, time.perf_counter() - start)
