"""Passes over the traced graph that save work and memory and change no value."""

from __future__ import annotations

import heapq
from typing import Any

import torch

from discreet.learning.engine.graph.effects import in_place_writes
from discreet.learning.engine.graph.marks import MARK, backward_range


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
    activations alone move no earlier than the first node that needs them. The graph is left alone if the backward pass
    (of `y[:, 0] = 0`) or the fallback's model writes in place.
    """
    nodes = list(module.graph.nodes)
    order = {node: position for position, node in enumerate(nodes)}
    begin, end = backward_range(nodes)
    if in_place_writes(nodes[begin:]):
        return
    later = [node for node in nodes[end:] if node.op != "output"]
    unplaced = set(later)
    driven: set[torch.fx.Node] = set()  # nodes that depend on an output gradient
    missing: dict[torch.fx.Node, int] = {}  # how many inputs of a driven node are not placed yet
    for node in later:
        if node.target is MARK or driven & set(node.all_input_nodes):
            driven.add(node)
            missing[node] = len([i for i in node.all_input_nodes if i in driven or i not in unplaced])
    last = nodes[0]

    def place(node: torch.fx.Node) -> None:
        """Put a node after the last one, and before it the nodes that it needs from activations alone."""
        nonlocal last
        for needed in node.all_input_nodes:
            if needed in unplaced and needed not in driven:
                place(needed)
        unplaced.discard(node)
        if node is not last:
            last.append(node)
            last = node

    for node in nodes[:end]:
        ready = [order[node]]
        while ready:
            placed = nodes[heapq.heappop(ready)]
            place(placed)
            for user in placed.users:
                if user in missing:
                    missing[user] -= 1
                    if not missing[user]:
                        heapq.heappush(ready, order[user])
    module.graph.lint()
    module.recompile()
