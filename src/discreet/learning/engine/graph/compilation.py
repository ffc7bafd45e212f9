"""One graph of the whole clipped sum: traced once to torch's own operations, run as it is, and compiled where it pays.

`make_fx` runs the pure function on tensors without data and records every operation below autograd, so the compiler
gets a flat graph without modes, hooks or autograd. Shapes are fixed; another shape is another graph. Repeated blocks
are compiled once (`regions`), and torch keeps what it compiled on disk, so a second run starts faster.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import make_fx

from discreet.learning import cpu_kernels
from discreet.learning.engine.graph.announcement import Announcement
from discreet.learning.engine.graph.copies import copied
from discreet.learning.engine.graph.cross_entropy import fuse_cross_entropy
from discreet.learning.engine.graph.effects import backward_draws, in_place_writes, written_arguments
from discreet.learning.engine.graph.freed_memory import keep_freed_memory
from discreet.learning.engine.graph.marks import remove_marks
from discreet.learning.engine.graph.passes import move_norms_early, share_after_forward, share_casts
from discreet.learning.engine.graph.products import use_faster_products
from discreet.learning.engine.graph.recompute import recompute_cheap, tag_parts
from discreet.learning.engine.graph.regions import compile_regions
from discreet.learning.engine.graph.repeats import count_repeats, expand
from discreet.learning.engine.graph.replay import FlatFunction, GraphReplay, has_room, is_launch_bound
from discreet.learning.engine.independence.origin import storage_of
from discreet.learning.engine.operations.arithmetic import precision_settings
from discreet.learning.engine.restoring import for_writing, put_back
from discreet.learning.engine.tracing import TRACE_LOCK, tracing

_log = logging.getLogger("discreet.learning")


class NotCompiled(Exception):
    """Why a graph must not be compiled, in words."""


#: Which result of a clipped sum tells whether all examples are finite.
FINITE = 2

#: The first calls warm caches up, so they don't tell how long a call takes.
_FIRST_CALLS = 3


@dataclass
class Compiled:
    """A traced function, the seconds that trying or compiling it took, and whether it is compiled now."""

    function: FlatFunction
    seconds: float
    compiled: bool = True
    #: Compiles it in the background, while that is open.
    later: Later | None = None
    #: The positions of the arguments that it writes to.
    written: Sequence[int] = ()
    calls: int = 0
    fastest: float = math.inf

    @property
    def announcement(self) -> Announcement | None:
        """Tells early whether all examples are finite, if this function does that."""
        announcement: Announcement | None = getattr(self.function, "announcement", None)
        return announcement

    def note(self, seconds: float) -> None:
        """Note how long a call took."""
        self.calls += 1
        self.fastest = min(self.fastest, seconds)

    def advance(self, arguments: Sequence[Tensor], calls_left: int | None) -> None:
        """Before the next call: take over compiled code if it is ready, or begin to compile if that pays now."""
        if self.later is None:
            return
        if self.later.started:
            ready = self.later.taken_over(arguments)
            if ready is not None:
                self.function, self.compiled, self.later = ready, True, None
        elif self.calls >= _FIRST_CALLS and self.later.pays(self.fastest, self.calls, calls_left):
            self.later.start()


def _layer_norm_backward(grad: Tensor, x: Tensor, *rest: Any) -> Any:
    """The kernels return contiguous results, whatever strides torch declares while tracing."""
    if grad.is_contiguous() and x.is_contiguous():
        return NotImplemented  # the operation itself
    return torch.ops.aten.native_layer_norm_backward.default(grad.contiguous(), x.contiguous(), *rest)


_DECOMPOSITIONS = {torch.ops.aten.native_layer_norm_backward.default: _layer_norm_backward}


def trace_flat(function: FlatFunction, arguments: Sequence[Tensor]) -> GraphModule:
    """The graph of a function of tensors, for these shapes. Calling it runs no Python code of the model.

    Calls of repeated functions are not expanded yet.
    """
    if arguments[0].device.type == "cpu":
        keep_freed_memory()
    trace: Any = make_fx(function, _DECOMPOSITIONS, tracing_mode="fake", _allow_non_fake_inputs=True)
    # Code is made of the graph when it runs first, after all changes: for a large model it takes half a second.
    with tracing(), _use_lazy_graph_module(True):
        graph: GraphModule = trace(*arguments)
    return graph


def run_flat(
    graph: GraphModule, arguments: Sequence[Tensor], fixed: int = 0, *, lend: bool = False, later: bool = False
) -> Compiled:
    """A traced function of tensors, to be run as it is and, with `later`, to be compiled when that pays.

    The first `fixed` arguments keep their addresses from call to call. With `lend`, a call of compiled code may
    overwrite what the call before it returned.
    """
    start = time.perf_counter()
    if backward_draws(graph):
        raise NotCompiled("a traced graph would draw other random numbers in the backward pass")
    written = written_arguments(graph)
    background = None
    ready = graph
    if later and not _writes_uncompiled(arguments, written):
        background = Later(graph, arguments[0].is_cuda, written, fixed, lend)
        if count_repeats(graph) >= _MANY_REPEATS:  # expanding them takes seconds, so the background does it
            ready = copied(graph)
            background.expanded = False
    if ready is graph:
        expand(graph)
    _improve(ready)
    arguments = for_writing(arguments, written, fixed)
    devices = [arguments[0].device] if arguments[0].is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices), put_back([arguments[i] for i in written]):
        try:
            ready = _running(ready, arguments)
        except torch.OutOfMemoryError as error:
            if background is None:
                raise
            # Compiled code needs less memory, and the caller compiles at once.
            raise MemoryError("the traced graph needs more memory than there is") from error
    return Compiled(ready, time.perf_counter() - start, compiled=False, later=background, written=written)


def _running(graph: GraphModule, arguments: Sequence[Tensor]) -> GraphModule:
    """The graph, or one with the same values, after it has run once. Raises `NotCompiled` if neither runs."""
    try:
        graph(*arguments)
        return graph
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # some kernels return results of other types or strides than torch declares
        views = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
        if in_place_writes(list(graph.graph.nodes)) or not views:
            raise NotCompiled("the traced graph does not run") from error
    graph = copied(graph)
    for view in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        view.target = torch.ops.aten.reshape.default  # copies where it must; nothing is written through it
    graph.recompile()
    try:
        graph(*arguments)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise NotCompiled("the traced graph does not run") from error
    return graph


def compile_flat(graph: GraphModule, arguments: Sequence[Tensor], fixed: int, lend: bool = False) -> Compiled:
    """Compile a traced function of tensors at once; the arguments are those of `run_flat`."""
    start = time.perf_counter()
    written = written_arguments(graph)
    if backward_draws(graph) or _writes_uncompiled(arguments, written):
        raise NotCompiled("a compiled graph would have other values than the model itself")
    expand(graph)
    _improve(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parts of the compiler warn about each other, never about the model
        compiled = _tried(_compile(graph, arguments[0].is_cuda), arguments, written, fixed, lend)
    return Compiled(compiled, time.perf_counter() - start, written=written)


def _writes_uncompiled(arguments: Sequence[Tensor], written: Sequence[int]) -> bool:
    """Whether torch's compiler (2.13) would miss a write.

    It treats a float64 scalar as a constant that nobody writes to, and takes no argument for a view of another one.
    """
    storages = [storage_of(argument) for argument in arguments] if written else []
    return any(
        (arguments[i].dim() == 0 and arguments[i].dtype == torch.float64) or storages.count(storages[i]) > 1
        for i in written
    )


def _improve(graph: GraphModule) -> None:
    """Save work and memory; changes no value."""
    tag_parts(graph)
    share_casts(graph)
    share_after_forward(graph)
    move_norms_early(graph)
    remove_marks(graph)


#: The compiler takes the memory of several results of one operation for nothing when it looks for an order of all
#: operations that needs little memory. So it would split inputs as soon as they are there, and keep both halves. Graphs
#: with these operations keep the order of `move_norms_early`: the compiler's other pass, for locality, would move norms
#: to the end, where they are read.
_UNCOUNTED = {"discreet.split_in_halves.default"}
_OWN_ORDER = {"reorder_for_peak_memory": False, "reorder_for_locality": False}


def _compile(graph: GraphModule, on_gpu: bool) -> FlatFunction:
    """Compile a traced graph without running it; the graph stays as it is."""
    # On a GPU, graphs are ours to capture: results that torch's own graphs reuse would be taken for fresh tensors.
    # On a CPU, channels last makes the per-example gradients of convolutions a quarter slower than eager.
    options: Any = {"triton.cudagraphs": False} if on_gpu else {"layout_optimization": False}
    # Their numbers are those of this process, and the compiler keeps its results on disk.
    assert not count_repeats(graph), "repeated functions must be expanded"

    def compiler(module: GraphModule, inputs: Sequence[Tensor]) -> FlatFunction:
        from torch._dynamo.convert_frame import compile_lock  # slow to import

        uncounted = any(str(node.target) in _UNCOUNTED for node in module.graph.nodes)
        own = options | (_OWN_ORDER if uncounted else {})
        # The compiler keeps global state. `torch.compile` takes this lock too, so that threads compile one by one.
        with TRACE_LOCK, compile_lock:
            function: FlatFunction = torch._inductor.compile(module, list(inputs), options=own)  # type: ignore[assignment, no-untyped-call, unused-ignore]  # torch's own
        return function

    graph = copied(graph)
    if on_gpu:  # where moving memory takes longer than computing
        fuse_cross_entropy(graph)
        recompute_cheap(graph)
    else:
        use_faster_products(graph)
        cpu_kernels.build(any(str(node.target) in cpu_kernels.OPERATIONS for node in graph.graph.nodes))
    with torch.no_grad():
        return compile_regions(graph, compiler, FINITE if on_gpu else None)[0]


def _tried(
    compiled: FlatFunction, arguments: Sequence[Tensor], written: Sequence[int], fixed: int, lend: bool
) -> FlatFunction:
    """Compiled code after a trial run, as a CUDA graph where that is faster."""
    arguments, device = for_writing(arguments, written, fixed), arguments[0].device
    undone = put_back([arguments[i] for i in written])  # the writes of trial runs
    with torch.no_grad(), undone, torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what torch keeps after the trial run is then what the run needs
        compiled(*arguments)
        if device.type == "cuda" and is_launch_bound(compiled, arguments) and has_room():
            compiled = GraphReplay(compiled, arguments, fixed, lend)
            torch.cuda.empty_cache()  # gives back what the trial runs needed: the graph has memory of its own
    return compiled


#: A graph with so many calls of repeated functions runs with them at first.
_MANY_REPEATS = 100
#: Compiling takes about this many seconds, and this many more per operation of the graph.
_START_SECONDS, _SECONDS_PER_OPERATION = 6.0, 0.02
#: The share of a step that compiled code saves, by the benchmarks of this project.
_SAVED_ON_CPU, _SAVED_ON_GPU = 0.25, 0.5


class Later:
    """A graph that already runs uncompiled and may be compiled in the background.

    The thread compiles for tensors without data. The trial run and the capture of a CUDA graph use the device, so they
    happen between two steps, when the compiled code is taken over.
    """

    def __init__(self, graph: GraphModule, on_gpu: bool, written: Sequence[int], fixed: int, lend: bool) -> None:
        self._graph, self._on_gpu, self._written = graph, on_gpu, list(written)
        #: Whether repeated functions in the graph are expanded, and the graph is improved.
        self.expanded = True
        self._fixed, self._lend = fixed, lend
        self._precision = precision_settings()  # margins for rounding in the graph are those of its trace
        self._compiled: FlatFunction | None = None
        self._thread: threading.Thread | None = None
        self._operations = len([node for node in graph.graph.nodes if node.op == "call_function"])

    def pays(self, seconds_per_call: float, calls_so_far: int, calls_left: int | None) -> bool:
        """Whether compiling saves more time than it takes.

        If nobody knows how many calls are left, compiling starts when the calls so far took as long as it will take:
        then the total is at most twice that of the better choice made in advance.
        """
        cost = _START_SECONDS + _SECONDS_PER_OPERATION * self._operations
        if calls_left is None:
            return seconds_per_call * calls_so_far >= cost
        return seconds_per_call * calls_left * (_SAVED_ON_GPU if self._on_gpu else _SAVED_ON_CPU) >= cost

    @property
    def started(self) -> bool:
        """Whether compiling has begun."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to compile."""
        # A daemon: a training that ends before does not wait for it.
        self._thread = threading.Thread(
            target=_compile_in_turn, args=(weakref.ref(self),), name="discreet-compile", daemon=True
        )
        _threads.add(self._thread)
        self._thread.start()

    def compile(self) -> None:
        """Compile now, in this thread."""
        try:
            if not self.expanded:
                expand(self._graph)
                _improve(self._graph)
            compiled = _compile(self._graph, self._on_gpu)
            if precision_settings() != self._precision:
                raise RuntimeError("torch's settings for float32 products changed since the graph was traced")
            self._compiled = compiled
        except Exception as error:  # the compiler may raise anything; the uncompiled graph goes on
            if not _ENDING.is_set():
                _log.warning("torch.compile failed (%s); continuing without it, slower", type(error).__name__)

    def wait(self) -> None:
        """Wait until compiling has ended."""
        if self._thread is not None:
            self._thread.join()

    def taken_over(self, arguments: Sequence[Tensor]) -> FlatFunction | None:
        """The compiled code, tried on the arguments of the next step; None while it is not ready."""
        if self._compiled is None:
            return None
        try:
            return _tried(self._compiled, arguments, self._written, self._fixed, self._lend)
        except Exception as error:  # the compiler may raise anything
            _log.warning("compiled code failed (%s); continuing without it, slower", type(error).__name__)
            self._compiled = None
            return None


#: Graphs are compiled in the background one at a time.
_TURN = threading.Lock()
#: Set when the process ends.
_ENDING = threading.Event()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_LONGEST_WAIT_SECONDS = 60.0


@atexit.register
def _end() -> None:
    """Wait for a graph that is being compiled: a thread that is killed within the compiler aborts the process."""
    _ENDING.set()
    for thread in list(_threads):
        thread.join(_LONGEST_WAIT_SECONDS)


def _compile_in_turn(waiting: weakref.ref[Later]) -> None:
    """Compile a graph when its turn comes, unless the training that wanted it has ended."""
    with _TURN:
        later = waiting()
        if later is not None and not _ENDING.is_set():
            later.compile()
