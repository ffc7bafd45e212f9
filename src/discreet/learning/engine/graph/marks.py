"""Marks in a traced graph: where the backward pass begins, and where each output gradient is ready."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


@torch.library.custom_op("discreet::mark", mutates_args=())
def mark(value: Tensor) -> Tensor:
    """The same value. In a trace, the first mark is where the backward pass begins; the others are on its results.

    An operation of our own, because a model may call any of torch's.
    """
    return value.clone()


@mark.register_fake
def _(value: Tensor) -> Tensor:
    return value.new_empty_strided(value.shape, value.stride())  # the rest is traced for the value's own memory layout


mark.register_autograd(lambda ctx, grad: grad)
MARK = torch.ops.discreet.mark.default


def backward_range(nodes: Sequence[torch.fx.Node]) -> tuple[int, int]:
    """Where the backward pass of a trace begins and ends."""
    marks = [position for position, node in enumerate(nodes) if node.target is MARK]
    return (marks[0], marks[1]) if len(marks) > 1 else (len(nodes), len(nodes))


def remove_marks(module: torch.fx.GraphModule) -> None:
    """Remove the marks, which would be copies in the compiled graph."""
    for node in list(module.graph.nodes):
        if node.target is MARK:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
