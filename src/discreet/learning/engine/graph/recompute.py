"""Recomputes cheap values of the forward pass where the backward pass needs them, instead of keeping them in memory.

A GELU in float32 leaves its input, a tanh and a sum behind for its backward pass: six times the memory of the 16-bit
tensor that all of them are computed from. Where a trace is cut into regions, each would be written by one region and
read by another. `recompute_cheap` computes such values again from what is kept anyway.

What the norms and sums of a rule read is never recomputed: both must see the very same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from discreet.learning.engine.graph.effects import in_place_writes
from discreet.learning.engine.graph.kinds import is_a_view, is_elementwise, size_in_bytes
from discreet.learning.engine.graph.marks import backward_range

PART = "discreet_part"
_FORWARD, _BACKWARD, RULES = "forward", "backward", "rules"

#: Copies of parameters are made again where they take this many bytes in all. In a model of 1.1 billion parameters
#: this takes 1% of a step on an H200.
_MUCH = 1 << 30

_aten = torch.ops.aten
#: Operations that a compiler fuses with the elementwise operations before them.
_REDUCTIONS = {
    _aten.sum.dim_IntList,
    _aten.sum.default,
    _aten.mean.dim,
    _aten.native_layer_norm_backward.default,
    _aten._softmax_backward_data.default,
    _aten._log_softmax_backward_data.default,
}


def tag_parts(module: GraphModule) -> None:
    """Note for each node whether it belongs to the forward pass, the backward pass, or the norms and sums.

    The marks tell, so this comes before they are removed and before nodes are moved.
    """
    nodes = list(module.graph.nodes)
    begin, end = backward_range(nodes)
    for position, node in enumerate(nodes):
        node.meta[PART] = _FORWARD if position < begin else _BACKWARD if position < end else RULES


def copy_part(source: Node, node: Node) -> None:
    """Note that a new node belongs where another one does."""
    node.meta[PART] = source.meta.get(PART, _FORWARD)


def recompute_cheap(module: GraphModule) -> None:
    """Replace kept values of the forward pass by copies that later operations compute; changes no value.

    A value is replaced if elementwise operations give it, from values that take less memory or are kept anyway, and
    if only the backward pass reads it, in operations that a compiler can fuse it into. Sums of two tensors stay: they
    join the layers of a model, and would be computed again from its very beginning. Views are replaced everywhere.
    So are the 16-bit copies of a large model's parameters: making them twice takes little time, and keeping them much
    memory.
    """
    if in_place_writes(list(module.graph.nodes)):
        return
    _drop_aliases(module)
    kept = {node for node in module.graph.nodes if _is_value(node) and not _is_later(node) and _later_users(node)}
    copies_of_arguments = {node for node in module.graph.nodes if _copies_an_argument(node)}
    if sum(size_in_bytes(node) for node in copies_of_arguments) < _MUCH:
        copies_of_arguments = set()
    replaced: list[Node] = []
    changed = True
    while changed:
        changed = False
        replaceable = [node for node in kept if node in copies_of_arguments or _replaceable(node)]
        for node in sorted(replaceable, reverse=True):
            needed = _sources(node, kept)
            more = sum(size_in_bytes(value) for value in needed - kept)
            if more < size_in_bytes(node) or (is_a_view(node) and more == size_in_bytes(node)):
                kept = (kept - {node}) | needed
                replaced.append(node)
                changed = True
    copies: dict[Node, Node] = {}
    for node in sorted(replaced, reverse=True):
        for user in sorted(_later_users(node)):
            user.replace_input_with(node, _computed_again(node, user, kept, copies))
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()


def _drop_aliases(module: GraphModule) -> None:
    """Remove operations that only give a value another name; without writes in place that makes no difference."""
    for node in list(module.graph.nodes):
        if node.target in (_aten.detach.default, _aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def _is_later(node: Node) -> bool:
    return node.op == "output" or node.meta.get(PART, _FORWARD) != _FORWARD


def _is_value(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), Tensor)


def _later_users(node: Node) -> list[Node]:
    return [user for user in node.users if _is_later(user)]


def _readers(node: Node) -> list[Node]:
    """The later nodes that read a value, also through views that the forward pass takes of it."""
    views = [user for user in node.users if not _is_later(user) and is_a_view(user)]
    return [*_later_users(node), *(reader for view in views for reader in _readers(view))]


def _copies_an_argument(node: Node) -> bool:
    """Whether the forward pass narrows an argument to fewer bytes, and the backward pass alone reads that later."""
    if node.target is not _aten._to_copy.default or _is_later(node) or node.all_input_nodes[0].op != "placeholder":
        return False
    smaller = size_in_bytes(node) < size_in_bytes(node.all_input_nodes[0])
    return smaller and all(_ends_in_backward(reader) for reader in _readers(node))


def _ends_in_backward(node: Node) -> bool:
    """Whether the backward pass alone reads a value, also through views."""
    users = node.users if is_a_view(node) else ()
    return node.meta.get(PART) == _BACKWARD and all(_ends_in_backward(user) for user in users)


def _replaceable(node: Node) -> bool:
    if is_a_view(node):
        return True
    if not is_elementwise(node):
        return False
    shape = node.meta["val"].shape
    same = [used for used in node.all_input_nodes if getattr(used.meta.get("val"), "shape", None) == shape]
    if node.target is _aten.add.Tensor and len(same) == 2:
        return False
    return all(_fusible(reader) for reader in _readers(node))


def _fusible(node: Node) -> bool:
    """Whether a node of the backward pass computes elementwise, or reads its input through views and then does so."""
    if node.meta.get(PART) != _BACKWARD:
        return False
    if is_a_view(node):
        return all(_fusible(user) for user in node.users)
    return is_elementwise(node) or node.target in _REDUCTIONS


def _sources(node: Node, kept: set[Node]) -> set[Node]:
    """What must be kept so that a value can be computed again: for a view, the value that it shows."""
    sources: set[Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        used = pending.pop()
        if used.op != "call_function":
            continue  # arguments and constants stay anyway
        through = is_a_view(used) or (is_elementwise(used) and not is_a_view(node))
        if used not in kept and through:
            pending.extend(used.all_input_nodes)
        else:
            sources.add(used)
    return sources


def _computed_again(node: Node, user: Node, kept: set[Node], copies: dict[Node, Node]) -> Node:
    """A copy of a value that is computed before `user`: one that is there already, or a new one."""
    if node.op != "call_function" or node in kept:
        return node
    if node in copies and copies[node] < user and not is_a_view(node):
        return copies[node]
    inputs = {used: _computed_again(used, user, kept, copies) for used in node.all_input_nodes}
    with user.graph.inserting_before(user):
        copies[node] = user.graph.node_copy(node, inputs.__getitem__)
    copy_part(user, copies[node])
    return copies[node]
