"""Replays a compiled function's kernels as one CUDA graph where launching them one by one takes a large share of time.

A CUDA graph works on fixed addresses: parameters and buffers are used in place, and the batch is first copied into the
graph's own inputs. Results are copied out, so that the next call does not change them, or lent: then the graph is
replayed only when nobody refers to them any more and, if they became gradients, when the device is done with all that
may read these. A CUDA graph holds on to its memory, so one is captured only where it pays.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from discreet.learning.engine.graph.announcement import Announcement

_log = logging.getLogger("discreet.learning")

#: A function of tensors alone, which returns tensors alone.
FlatFunction = Callable[..., Sequence[Tensor]]

#: A CUDA graph pays where launching the kernels takes more than this share of the time until they are done. Far below
#: it the host is ahead of the device anyway; close to it, or where other processes disturb the host, it falls behind.
LAUNCH_BOUND = 0.5
#: A graph may take up to this share of the device's free memory.
_SHARE_OF_FREE_MEMORY = 0.5


def is_launch_bound(function: FlatFunction, arguments: Sequence[Tensor]) -> bool:
    """Whether the device waits for the host much of the time, by the median of three runs."""
    shares = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function(*arguments)
        launched = time.perf_counter() - start
        torch.cuda.synchronize()
        shares.append(launched / (time.perf_counter() - start))
    return sorted(shares)[1] > LAUNCH_BOUND


def has_room() -> bool:
    """Whether the device has memory for a graph of a function that has just run.

    The graph needs what the allocator keeps since that run, and nothing else can use it then.
    """
    kept = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    free, _ = torch.cuda.mem_get_info()
    return kept <= _SHARE_OF_FREE_MEMORY * free


class Loans:
    """Tensors that are handed out, and written again only when nobody refers to their memory any more.

    A gradient that someone keeps must not turn into the next step's sums, which have no noise yet.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._own_references = self._references()

    def hand_out(self) -> list[Tensor]:
        """Other tensors with the same memory, so that it shows how long someone refers to it."""
        return [tensor.detach() for tensor in self._tensors]

    @property
    def returned(self) -> bool:
        """Whether nobody in this process refers to the memory: no tensor, no view of one, no storage, no numpy array.

        Work that was launched on the device may still read it.
        """
        return self._references() == self._own_references

    def _references(self) -> list[tuple[int, int]]:
        """How often each memory is referred to, and the Python object of its storage, of which there is only one."""
        counts = []
        for tensor in self._tensors:
            storage = tensor.untyped_storage()
            counts.append((torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage)))
        return counts


class GraphReplay:
    """A function of tensors as one CUDA graph, which uses the first `fixed` arguments in place.

    If one of those has another address in a call, the function itself is called. With `lend`, the function itself is
    also called while someone refers to the results of a call before.
    """

    def __init__(self, function: FlatFunction, arguments: Sequence[Tensor], fixed: int, lend: bool = False) -> None:
        self._function = function
        self.announcement: Announcement | None = getattr(function, "announcement", None)
        self._fixed = fixed
        self._addresses = [argument.data_ptr() for argument in arguments[:fixed]]
        self._inputs = [argument.clone() for argument in arguments[fixed:]]
        self._fixed_arguments = list(arguments[:fixed])
        # torch asks for a warm-up on another stream before a capture.
        warm_up = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's own
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            function(*self._fixed_arguments, *self._inputs)
        torch.cuda.current_stream().wait_stream(warm_up)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = function(*self._fixed_arguments, *self._inputs)
        self._loans = Loans(self._outputs) if lend else None
        self._read_by_others = False
        self._warned = False

    def wait_for_readers(self) -> None:
        """Others read what was lent, perhaps on other streams: the next call waits until the device is done."""
        self._read_by_others = True

    def __call__(self, *arguments: Tensor) -> Sequence[Tensor]:
        # As late as possible: until here, the host worked while the device did. The function itself must wait too: it
        # may be given memory that was that of gradients.
        if self._read_by_others:
            torch.cuda.synchronize(self._inputs[0].device)
            self._read_by_others = False
        if [argument.data_ptr() for argument in arguments[: self._fixed]] != self._addresses:
            return self._function(*arguments)
        if self._loans is not None and not self._loans.returned:
            if not self._warned:
                _log.warning("gradients of an earlier step are still in use, so this step runs slower")
                self._warned = True
            return self._function(*arguments)
        torch._foreach_copy_(self._inputs, list(arguments[self._fixed :]))
        self._graph.replay()
        if self._loans is not None:
            return self._loans.hand_out()
        results = [torch.empty_like(output) for output in self._outputs]
        torch._foreach_copy_(results, list(self._outputs))  # a few launches instead of one per tensor
        return results
