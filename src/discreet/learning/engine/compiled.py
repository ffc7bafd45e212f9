"""One graph of the whole clipped sum: traced once to torch's own operations, then compiled.

`make_fx` runs the pure function on tensors without data and writes down every operation below autograd, so the compiler
meets a flat graph without modes, hooks or autograd. Shapes are fixed; another shape is another graph.
"""

from __future__ import annotations

import heapq
import operator
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from discreet.learning.engine.replay import Replay, is_launch_bound

Flat = Callable[..., Sequence[Tensor]]


class NotCompiled(Exception):
    """Why a graph must not be compiled, in words."""


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


def writes(nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """Those that write in place. Who reads what they write does not show in a graph: their order must stay."""
    schemas: list[Any] = [getattr(node.target, "_schema", None) for node in nodes]
    return [node for node, schema in zip(nodes, schemas, strict=True) if schema is not None and schema.is_mutable]


def written(module: torch.fx.GraphModule) -> list[int]:
    """The places of arguments that are written to: running values of the model, or the batch itself."""
    found = set()
    for writer in writes(list(module.graph.nodes)):
        target: Any = writer.target
        given = _given(writer)
        changed = [one.name for one in target._schema.arguments if one.alias_info and one.alias_info.is_write]
        values = pytree.tree_leaves([given.get(name) for name in changed])
        found |= {_memory_of(value) for value in values if isinstance(value, torch.fx.Node)}
    return [place for place, node in enumerate(module.graph.find_nodes(op="placeholder")) if node in found]


def _memory_of(node: torch.fx.Node) -> torch.fx.Node:
    """Whose memory a value has: a view has that of its first argument, also where it comes out of a list of views."""
    schema: Any = getattr(node.target, "_schema", None)
    view = node.target is operator.getitem or (schema is not None and any(one.alias_info for one in schema.returns))
    return _memory_of(node.all_input_nodes[0]) if view else node


def draws_again(module: torch.fx.GraphModule) -> bool:
    """Whether the backward pass draws: it runs a part of the model again (a checkpoint), with other random numbers."""
    nodes = list(module.graph.nodes)
    return any(_draws(node) for node in nodes[slice(*marks(nodes))])


def _draws(node: torch.fx.Node) -> bool:
    """Whether a node may draw new numbers: attention does not on its way back, nor without dropout."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = _given(node)
    return "philox_seed" not in given and bool(given.get("dropout_p", 1.0))


def _given(node: torch.fx.Node) -> dict[str, Any]:
    """An operation's arguments by their names, with those that were left out."""
    target: Any = node.target
    names = {one.name: one.default_value for one in target._schema.arguments}
    return names | dict(zip(names, node.args, strict=False)) | node.kwargs


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
    if writes(later):
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
        drawn = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
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
    end. The marks that `clip` puts on them tell where the backward pass ends. What is made from activations alone comes
    no sooner than something that needs it. All stays as it is where the backward pass (of `y[:, 0] = 0`) or the
    fallback's model writes in place.
    """
    nodes = list(module.graph.nodes)
    order = {node: place for place, node in enumerate(nodes)}
    begin, end = marks(nodes)
    if writes(nodes[begin:]):
        return
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
        kept = [(arguments[place], arguments[place].clone()) for place in written(graph)]
        if draws_again(graph) or any(value.dim() == 0 and value.dtype == torch.float64 for _, value in kept):
            # torch.compile (2.13) takes a float64 number for a constant that nobody writes to.
            raise NotCompiled("a compiled graph would have other values than the model itself")
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
            for argument, value in kept:  # the runs up to here were trials
                argument.copy_(value)
    return Compiled(compiled, time.perf_counter() - start)
