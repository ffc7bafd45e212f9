"""Passes over the traced graph that save work and memory and change no value."""

from __future__ import annotations

import heapq
from typing import Any

import torch

from discreet.learning.engine.graph.effects import in_place_writes
from discreet.learning.engine.graph.kinds import is_a_view, is_elementwise, size_in_bytes
from discreet.learning.engine.graph.marks import MARK, backward_range


def share_casts(module: torch.fx.GraphModule) -> None:
    """Convert a value of the forward pass to another type once, not once for each layer that reads it.

    Under autocast, the projections to queries, keys and values each get a 16-bit copy of the same input, and the rules
    of their weights would keep all three.
    """
    nodes = list(module.graph.nodes)
    if in_place_writes(nodes):
        return
    first_by_key: dict[Any, torch.fx.Node] = {}
    for node in nodes[: backward_range(nodes)[0]]:
        if node.target is not torch.ops.aten._to_copy.default:
            continue
        first = first_by_key.setdefault((node.args, tuple(sorted(node.kwargs.items()))), node)
        if first is not node:
            node.replace_all_uses_with(first)
            module.graph.erase_node(node)


def share_after_forward(module: torch.fx.GraphModule) -> None:
    """Compute once what both the backward pass and the norms compute.

    Results of the forward pass are not reused: they would have to stay in memory until then.
    """
    nodes = list(module.graph.nodes)
    later = [node for node in nodes[backward_range(nodes)[0] :] if node.op == "call_function"]
    if in_place_writes(later):
        return
    renaming = {MARK, torch.ops.aten.alias.default, torch.ops.aten.detach.default}

    def is_alias(value: torch.fx.Node) -> bool:
        """Whether a node is only another name for its first argument."""
        if value.target is torch.ops.aten.as_strided.default:
            now, before = value.meta["val"], value.all_input_nodes[0].meta["val"]
            where = (now.stride(), now.storage_offset()), (before.stride(), before.storage_offset())
            return now.shape == before.shape and where[0] == where[1]
        return value.target in renaming

    def canonical(value: Any) -> Any:
        """A value in a form that is equal for equal values."""
        if isinstance(value, torch.fx.Node):
            while is_alias(value):
                value = value.all_input_nodes[0]
            return value
        if isinstance(value, (list, tuple)):
            return tuple(canonical(item) for item in value)
        return type(value), value

    first_by_key: dict[Any, torch.fx.Node] = {}
    for node in later:
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random or is_alias(node):
            continue
        key = (node.target, canonical(node.args), canonical(tuple(sorted(node.kwargs.items()))))
        first = first_by_key.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            module.graph.erase_node(node)


def move_norms_early(module: torch.fx.GraphModule) -> None:
    """Move everything computed from an output gradient to the point where that gradient is ready.

    The trace has the whole backward pass first and all norms after it, so every output gradient would stay in memory
    until the end. The marks that `clip` puts on them tell where the backward pass ends. Nodes that depend on
    activations alone move no earlier than the first node that needs them. Neither do those that take more memory than
    they save, such as a copy in float32 that only a sum reads, at the very end. The graph is left alone if the backward
    pass (of `y[:, 0] = 0`) or the fallback's model writes in place.
    """
    nodes = list(module.graph.nodes)
    order = {node: position for position, node in enumerate(nodes)}
    begin, end = backward_range(nodes)
    if in_place_writes(nodes[begin:]):
        return
    later = [node for node in nodes[end:] if node.op != "output"]
    driven: set[torch.fx.Node] = set()  # nodes that depend on an output gradient
    on_demand: set[torch.fx.Node] = set()
    missing: dict[torch.fx.Node, int] = {}  # how many nodes that a driven node waits for are not placed yet
    waiting: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in later:
        if node.target is MARK or driven & set(node.all_input_nodes):
            driven.add(node)
        if node not in driven or _saves_no_memory(node):
            on_demand.add(node)
            continue
        sources = _through(node, on_demand)
        missing[node] = len(sources)
        for source in sources:
            waiting.setdefault(source, []).append(node)
    unplaced, last = set(on_demand), nodes[0]

    def place(node: torch.fx.Node) -> None:
        """Put a node after the last one, and before it those that are computed on demand."""
        nonlocal last
        pending = [node]
        while pending:
            needed = [used for used in pending[-1].all_input_nodes if used in unplaced]
            if needed:
                pending += needed
                continue
            following = pending.pop()
            if following in unplaced or following is node:
                unplaced.discard(following)
                if following is not last:
                    last.append(following)
                    last = following

    for node in nodes[:end]:
        ready = [order[node]]
        while ready:
            placed = nodes[heapq.heappop(ready)]
            place(placed)
            for user in waiting.get(placed, ()):
                missing[user] -= 1
                if not missing[user]:
                    heapq.heappush(ready, order[user])
    module.graph.lint()
    module.recompile()


def _saves_no_memory(node: torch.fx.Node) -> bool:
    """Whether a node is cheap, and its value takes at least the memory of each value that it is computed from."""
    if is_a_view(node):
        return True
    sizes = [size_in_bytes(used) for used in node.all_input_nodes]
    return is_elementwise(node) and size_in_bytes(node) >= max(sizes, default=0)


def _through(node: torch.fx.Node, on_demand: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """What a node is computed from, seen through nodes that are computed on demand."""
    sources: set[torch.fx.Node] = set()
    seen: set[torch.fx.Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        used = pending.pop()
        if used in seen:
            continue
        seen.add(used)
        if used in on_demand:
            pending.extend(used.all_input_nodes)
        else:
            sources.add(used)
    return sources
