"""Copies of nodes and graphs. torch's own take several times as long, which a large model's start would notice."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule


def copy_nodes(nodes: Iterable[Node], graph: Graph, copies: dict[Node, Node]) -> None:
    """Copy nodes to where a graph grows. What they read is in `copies` already, or is copied before them."""
    for node in nodes:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), copies.__getitem__)
        copies[node] = graph.create_node(node.op, node.target, args, kwargs)
        copies[node].meta = dict(node.meta)


def copied(module: GraphModule) -> GraphModule:
    """The same graph once more, to be changed; what it reads beside its arguments is shared."""
    graph = Graph()
    copy_nodes(module.graph.nodes, graph, {})
    return _LazyGraphModule(module, graph)
