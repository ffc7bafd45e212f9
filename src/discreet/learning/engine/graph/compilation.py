"""One graph of the whole clipped sum: traced once to torch's own operations, then compiled.

`make_fx` runs the pure function on tensors without data and records every operation below autograd, so the compiler
gets a flat graph without modes, hooks or autograd. Shapes are fixed; another shape is another graph.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from discreet.learning.engine.graph.effects import backward_draws, written_arguments
from discreet.learning.engine.graph.marks import remove_marks
from discreet.learning.engine.graph.passes import move_norms_early, share_after_forward
from discreet.learning.engine.graph.replay import FlatFunction, Replay, is_launch_bound


class NotCompiled(Exception):
    """Why a graph must not be compiled, in words."""


@dataclass(frozen=True)
class Compiled:
    """A traced function, the seconds that tracing and compiling it took, and whether it was compiled."""

    function: FlatFunction
    seconds: float
    compiled: bool = True


def trace_flat(function: FlatFunction, arguments: Sequence[Tensor]) -> Any:
    """The graph of a function of tensors, for these shapes. Calling it runs no Python code of the model."""
    trace: Any = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parts of the tracer warn about each other, never about the model
        return trace(*arguments)


def run_flat(function: FlatFunction, arguments: Sequence[Tensor]) -> Compiled:
    """Trace a function of tensors, to be run as it is."""
    start = time.perf_counter()
    graph = trace_flat(function, arguments)
    if backward_draws(graph):
        raise NotCompiled("a traced graph would draw other random numbers in the backward pass")
    remove_marks(graph)
    originals = [(arguments[position], arguments[position].clone()) for position in written_arguments(graph)]
    devices = [arguments[0].device] if arguments[0].is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        try:
            graph(*arguments)
        except RuntimeError as error:  # some kernels return other results than they declare while tracing
            raise NotCompiled("the traced graph does not run") from error
        for argument, value in originals:  # undo the writes of this trial run
            argument.copy_(value)
    return Compiled(graph, time.perf_counter() - start, compiled=False)


def compile_flat(function: FlatFunction, arguments: Sequence[Tensor], fixed: int, lend: bool = False) -> Compiled:
    """Trace and compile a function of tensors, of which the first `fixed` keep their addresses from call to call.

    With `lend`, a call may overwrite what the call before it returned.
    """
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parts of the compiler warn about each other, never about the model
        graph = trace_flat(function, arguments)
        originals = [(arguments[position], arguments[position].clone()) for position in written_arguments(graph)]
        if backward_draws(graph) or any(value.dim() == 0 and value.dtype == torch.float64 for _, value in originals):
            # torch.compile (2.13) treats a float64 scalar as a constant that nobody writes to.
            raise NotCompiled("a compiled graph would have other values than the model itself")
        share_after_forward(graph)
        move_norms_early(graph)
        remove_marks(graph)
        # On a CPU, channels last makes the per-example gradients of convolutions a quarter slower than eager.
        options: Any = None if arguments[0].is_cuda else {"layout_optimization": False}
        compiled: Any = torch.compile(graph, fullgraph=True, dynamic=False, options=options)
        with torch.no_grad():
            compiled(*arguments)
            if arguments[0].is_cuda and is_launch_bound(compiled, arguments):
                compiled = Replay(compiled, arguments, fixed, lend)
            for argument, value in originals:  # undo the writes of these trial runs
                argument.copy_(value)
    return Compiled(compiled, time.perf_counter() - start)
