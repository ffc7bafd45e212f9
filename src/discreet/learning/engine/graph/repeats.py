"""Functions that a trace calls for many layers: each is traced once, and its operations are copied for the others.

Tracing takes about half a millisecond for each operation. The norm of one layer is forty of them, the same forty for
all layers of a shape. So `repeated` puts a single node into the trace, and `expand` replaces it by the operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from discreet.learning.engine.graph.copies import copy_nodes
from discreet.learning.engine.tracing import TRACE_LOCK

#: Computes a tensor from tensors. Functions that are equal compute the same, and look at nothing but their arguments.
Repeatable = Callable[..., Tensor]

_numbers: dict[Repeatable, int] = {}
_functions: dict[int, Repeatable] = {}
_count = itertools.count()
#: How the results of functions look that the trace at hand has called already.
_results: dict[Hashable, tuple[Sequence[int], Sequence[int], torch.dtype]] = {}


def repeated(function: Repeatable, *tensors: Tensor) -> Tensor:
    """`function(*tensors)`, which a trace follows once for all calls that look alike. No gradient passes through it."""
    if not isinstance(tensors[0], FakeTensor):
        return function(*tensors)
    number = _numbers.setdefault(function, next(_count))
    _functions[number] = function
    result: Tensor = _repeat(number, list(tensors))
    return result


@torch.library.custom_op("discreet::repeat", mutates_args=())
def _repeat(number: int, tensors: list[Tensor]) -> Tensor:
    result = _functions[number](*tensors)
    shared = any(result.untyped_storage()._cdata == tensor.untyped_storage()._cdata for tensor in tensors)
    return result.clone() if shared else result  # an operation's result must have memory of its own


@_repeat.register_fake
def _(number: int, tensors: list[Tensor]) -> Tensor:
    key = (number, *(look(tensor) for tensor in tensors))
    known = _results.get(key)
    if known is None:
        result = _functions[number](*tensors)
        known = _results[key] = (result.shape, result.stride(), result.dtype)
    return tensors[0].new_empty_strided(known[0], known[1], dtype=known[2])


_REPEAT = torch.ops.discreet.repeat.default


def look(value: Any) -> Hashable:
    """How a value looks: its type, shape and place in its memory, or what else it is."""
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), str(value.device)
    return type(value).__name__


def apart(value: Any) -> Any:
    """A tensor without data that looks like another one and shares no memory with any."""
    if not isinstance(value, Tensor):
        return value
    last = value.storage_offset() + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    memory = value.new_empty(last + 1 if value.numel() else value.storage_offset())
    return memory.as_strided(value.shape, value.stride(), value.storage_offset()).detach()


def count_repeats(module: GraphModule) -> int:
    """How many calls of repeated functions a graph has."""
    return len(module.graph.find_nodes(op="call_function", target=_REPEAT))


def expand(module: GraphModule) -> None:
    """Replace each call of a repeated function by its operations.

    A graph can also run before that; then it computes again what two calls have in common. Values of the copies share
    the tensors without data that stand for them.
    """
    graph, bodies = module.graph, dict[Hashable, Graph]()
    for node in graph.find_nodes(op="call_function", target=_REPEAT):
        number, arguments = node.args
        key = (number, *(look(argument.meta["val"]) for argument in arguments))
        if key not in bodies:
            bodies[key] = _body(_functions[number], [argument.meta["val"] for argument in arguments])
        with graph.inserting_before(node):
            node.replace_all_uses_with(_copied(bodies[key], graph, arguments))
        graph.erase_node(node)
    _results.clear()
    module.recompile()


def _body(function: Repeatable, values: Sequence[Tensor]) -> Graph:
    """The operations of a function."""
    mode: Any = next(value.fake_mode for value in values if isinstance(value, FakeTensor))
    with TRACE_LOCK, mode:
        # Arguments of which one is the other would become one input.
        traced: GraphModule = make_fx(function)(*(apart(value) for value in values))
    return traced.graph


def _copied(body: Graph, graph: Graph, arguments: Sequence[Node]) -> Node:
    """Copy the operations of a function into a graph, for these arguments; returns the result."""
    copies = dict(zip(body.find_nodes(op="placeholder"), arguments, strict=True))
    copy_nodes((node for node in body.nodes if node.op not in ("placeholder", "output")), graph, copies)
    result: Node = copies[next(iter(body.find_nodes(op="output"))).args[0]]
    return result
