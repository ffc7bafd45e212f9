"""Effects of a traced graph that its edges do not show: writes in place, and random draws."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from discreet.learning.engine.graph.marks import backward_range


def in_place_writes(nodes: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """In-place operations. The graph does not record who reads their result, so they must not be reordered."""
    schemas: list[Any] = [getattr(node.target, "_schema", None) for node in nodes]
    return [node for node, schema in zip(nodes, schemas, strict=True) if schema is not None and schema.is_mutable]


def written_arguments(module: torch.fx.GraphModule) -> list[int]:
    """The positions of the arguments that the graph writes to: running values of the model, or the batch itself."""
    owners = set()
    for writer in in_place_writes(list(module.graph.nodes)):
        target: Any = writer.target
        given = _arguments(writer)
        written = [a.name for a in target._schema.arguments if a.alias_info and a.alias_info.is_write]
        values = pytree.tree_leaves([given.get(name) for name in written])
        owners |= {_memory_owner(value) for value in values if isinstance(value, torch.fx.Node)}
    return [position for position, node in enumerate(module.graph.find_nodes(op="placeholder")) if node in owners]


def _memory_owner(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory a value uses: a view uses that of its first argument, also when it is one of several."""
    schema: Any = getattr(node.target, "_schema", None)
    is_view = node.target is operator.getitem or (schema is not None and any(r.alias_info for r in schema.returns))
    return _memory_owner(node.all_input_nodes[0]) if is_view else node


def backward_draws(module: torch.fx.GraphModule) -> bool:
    """Whether the backward pass draws random numbers.

    It does where it runs a part of the model again (a checkpoint), and its numbers would differ from the forward pass.
    """
    nodes = list(module.graph.nodes)
    return any(_draws(node) for node in nodes[slice(*backward_range(nodes))])


def _draws(node: torch.fx.Node) -> bool:
    """Whether a node may draw new random numbers. Attention's backward pass does not, nor attention without dropout."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = _arguments(node)
    return "philox_seed" not in given and bool(given.get("dropout_p", 1.0))


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """An operation's arguments by name, with the defaults of those left out."""
    target: Any = node.target
    defaults = {argument.name: argument.default_value for argument in target._schema.arguments}
    return defaults | dict(zip(defaults, node.args, strict=False)) | node.kwargs
