"""Launches a compiled function's kernels as one CUDA graph, where launching them one by one takes longer than they do.

A graph works on fixed addresses: parameters and buffers are used where they lie, and the batch is copied to a place of
its own first. What it returns is copied out, so that the next call does not change it, or lent until then. A graph
keeps its memory for itself, which is why it is made only where it pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Flat = Callable[..., Sequence[Tensor]]

#: A graph pays where handing over the kernels one by one takes this share of the time until they are done.
LAUNCH_BOUND = 0.4


def is_launch_bound(function: Flat, arguments: Sequence[Tensor]) -> bool:
    """Whether the device waits for the host for a good part of the time."""
    shares = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function(*arguments)
        launched = time.perf_counter() - start
        torch.cuda.synchronize()
        shares.append(launched / (time.perf_counter() - start))
    return sorted(shares)[1] > LAUNCH_BOUND


class Replay:
    """A function of tensors as one graph; the first `fixed` of its arguments are used where they lie.

    If one of those has moved since, the function itself is called. With `lend`, a call writes over what the one before
    it returned.
    """

    def __init__(self, function: Flat, arguments: Sequence[Tensor], fixed: int, lend: bool = False) -> None:
        self._function = function
        self._lend = lend
        self._fixed = fixed
        self._places = [argument.data_ptr() for argument in arguments[:fixed]]
        self._inputs = [argument.clone() for argument in arguments[fixed:]]
        self._kept = list(arguments[:fixed])
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            function(*self._kept, *self._inputs)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = function(*self._kept, *self._inputs)

    def __call__(self, *arguments: Tensor) -> Sequence[Tensor]:
        if [argument.data_ptr() for argument in arguments[: self._fixed]] != self._places:
            return self._function(*arguments)
        torch._foreach_copy_(self._inputs, list(arguments[self._fixed :]))
        self._graph.replay()
        if self._lend:
            return self._outputs
        results = [torch.empty_like(output) for output in self._outputs]
        torch._foreach_copy_(results, list(self._outputs))  # a few launches, not one for each
        return results
