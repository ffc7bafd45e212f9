"""One graph of the whole clipped sum: traced once to torch's own operations, then compiled.

`make_fx` runs the pure function on tensors without data and writes down every operation below autograd, so the compiler
meets a flat graph without modes, hooks or autograd. Shapes are fixed; another shape is another graph.
"""

from __future__ import annotations

import heapq
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from discreet.learning.engine.replay import Replay, is_launch_bound

Flat = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Compiled:
    """A compiled function and the seconds that it took to trace."""

    function: Flat
    seconds: float


@torch.library.custom_op("discreet::mark", mutates_args=())
def mark(value: Tensor) -> Tensor:
    """The same value: in a trace, where the backward pass begins and, for each output gradient, where it ends.

    An operation of our own, because a model may call any of torch's.
    """
    return value.clone()


@mark.register_fake
def _(value: Tensor) -> Tensor:
    return value.new_empty_strided(value.shape, value.stride())  # what follows is traced for memory as it is


mark.register_autograd(lambda ctx, grad: grad)
_MARK = torch.ops.discreet.mark.default


def marks(nodes: Sequence[torch.fx.Node]) -> tuple[int, int]:
    """Where the backward pass of a trace begins and ends."""
    found = [place for place, node in enumerate(nodes) if node.target is _MARK]
    return (found[0], found[1]) if len(found) > 1 else (len(nodes), len(nodes))


def without_marks(module: torch.fx.GraphModule) -> None:
    """Let go of the marks, which would be copies."""
    for node in list(module.graph.nodes):
        if node.target is _MARK:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()


def once(module: torch.fx.GraphModule) -> None:
    """Let what the backward pass and the norms both compute be computed once.

    What the forward pass computed is not taken from there: it would have to be kept in memory for so long.
    """
    nodes = list(module.graph.nodes)
    later = [node for node in nodes[marks(nodes)[0] :] if node.op == "call_function"]
    pure = [node for node in later if isinstance(node.target, torch._ops.OpOverload)]
    if any(node.target._schema.is_mutable for node in pure):
        return
    names = {_MARK, torch.ops.aten.alias.default, torch.ops.aten.detach.default}

    def is_name(value: torch.fx.Node) -> bool:
        """Whether a node is only another name for its first argument."""
        if value.target is torch.ops.aten.as_strided.default:
            now, before = value.meta["val"], value.all_input_nodes[0].meta["val"]
            where = (now.stride(), now.storage_offset()), (before.stride(), before.storage_offset())
            return now.shape == before.shape and where[0] == where[1]
        return value.target in names

    def same(value: Any) -> Any:
        """A value under a name that is the same for equal values."""
        if isinstance(value, torch.fx.Node):
            while is_name(value):
                value = value.all_input_nodes[0]
            return value
        if isinstance(value, (list, tuple)):
            return tuple(same(one) for one in value)
        return type(value), value

    seen: dict[Any, torch.fx.Node] = {}
    for node in later:
        drawn = node in pure and torch.Tag.nondeterministic_seeded in node.target.tags
        if drawn or is_name(node):
            continue
        key = (node.target, same(node.args), same(tuple(sorted(node.kwargs.items()))))
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            module.graph.erase_node(node)


def norms_early(module: torch.fx.GraphModule) -> None:
    """Move what is made from each output gradient to where that gradient is made.

    The trace has the whole backward pass first and all norms after it, so every output gradient would live until the
    end. The marks that `clip` puts on them tell where the backward pass ends; nothing after that writes in place.
    What is made from activations alone comes no sooner than something that needs it.
    """
    nodes = list(module.graph.nodes)
    order = {node: place for place, node in enumerate(nodes)}
    end = marks(nodes)[1]
    later = [node for node in nodes[end:] if node.op != "output"]
    moved = set(later)
    driven: set[torch.fx.Node] = set()  # what an output gradient leads to
    waiting: dict[torch.fx.Node, int] = {}
    for node in later:
        if node.target is _MARK or driven & set(node.all_input_nodes):
            driven.add(node)
            waiting[node] = len([one for one in node.all_input_nodes if one in driven or one not in moved])
    last = nodes[0]

    def put(node: torch.fx.Node) -> None:
        nonlocal last
        for one in node.all_input_nodes:
            if one in moved and one not in driven:
                put(one)
        moved.discard(node)
        if node is not last:
            last.append(node)
            last = node

    for node in nodes[:end]:
        ready = [order[node]]
        while ready:
            placed = nodes[heapq.heappop(ready)]
            put(placed)
            for user in placed.users:
                if user in waiting:
                    waiting[user] -= 1
                    if not waiting[user]:
                        heapq.heappush(ready, order[user])
    module.graph.lint()
    module.recompile()


def compile_flat(function: Flat, arguments: Sequence[Tensor], fixed: int, lend: bool = False) -> Compiled:
    """Trace and compile a function of tensors, of which the first `fixed` stay where they are from call to call.

    With `lend`, what a call returns may be written over by the next one.
    """
    start = time.perf_counter()
    trace: Any = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's parts warn of each other; none of it is about the model
        graph: Any = trace(*arguments)
        once(graph)
        norms_early(graph)
        without_marks(graph)
        # On a CPU, channels last makes the per-example gradients of convolutions a quarter slower than eager.
        options: Any = None if arguments[0].is_cuda else {"layout_optimization": False}
        compiled: Any = torch.compile(graph, fullgraph=True, dynamic=False, options=options)
        with torch.no_grad():
            compiled(*arguments)
            if arguments[0].is_cuda and is_launch_bound(compiled, arguments):
                compiled = Replay(compiled, arguments, fixed, lend)
    return Compiled(compiled, time.perf_counter() - start)
