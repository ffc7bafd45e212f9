"""What kind of operation a node of a traced graph is, and how much memory its value takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

#: Elementwise operations that torch does not tag as such.
_CASTS = {torch.ops.aten._to_copy.default}


def size_in_bytes(node: Node) -> int:
    """The memory of a node's value; a view of a smaller storage takes no more than that. Zero if it is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return 0
    return min(value.numel() * value.element_size(), value.untyped_storage().nbytes())


def is_a_view(node: Node) -> bool:
    """Whether the value shows the memory of another one."""
    schema: Any = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info for result in schema.returns)


def is_elementwise(node: Node) -> bool:
    """Whether each number of the value comes from numbers at one place, and from nothing random."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return False
    return torch.Tag.pointwise in tags or node.target in _CASTS
