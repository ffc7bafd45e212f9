"""Where the examples are in a tensor: found by differentiation, not by convention.

Models move the batch dimension about: [T, B, d] in recurrent layers, [B·T, d] in HuggingFace's `Conv1D`. The gradient
of example i's loss with respect to an operation's output is zero outside of example i's places. Three examples are
enough to see which dimension they lie along; where more than one answer fits, none is taken and the parameter goes
through the fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["whole", "major", "minor", "shared"]


@dataclass(frozen=True)
class Layout:
    """The examples lie along `dim`: alone ("whole"), as its slow or fast part ("major", "minor"), or are not there."""

    dim: int
    kind: Kind

    def examples_first(self, value: Tensor, examples: int) -> Tensor:
        """The tensor as [B, …], the other dimensions in their order."""
        if self.kind == "whole" or self.kind == "shared":
            return value if self.dim == 0 else value.movedim(self.dim, 0)
        sizes = (examples, -1) if self.kind == "major" else (-1, examples)
        place = self.dim if self.kind == "major" else self.dim + 1
        parts: Tensor = torch.unflatten(value, self.dim, sizes)
        return parts if place == 0 else parts.movedim(place, 0)

    def fits(self, shape: Sequence[int], examples: int) -> bool:
        """Whether a tensor of this shape can hold so many examples in this layout."""
        if self.dim >= len(shape):
            return False
        size = shape[self.dim]
        return size == examples if self.kind in ("whole", "shared") else size % examples == 0

    def without(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that is broadcast to the output's (1 along the examples) in what is left after `examples_first`."""
        if self.kind in ("whole", "shared"):
            return (*shape[: self.dim], *shape[self.dim + 1 :])
        return tuple(shape)


def _candidates(shape: Sequence[int], examples: int) -> list[Layout]:
    whole = [Layout(dim, "whole") for dim, size in enumerate(shape) if size == examples]
    split = [dim for dim, size in enumerate(shape) if size % examples == 0 and size > examples]
    return whole + [Layout(dim, "major") for dim in split] + [Layout(dim, "minor") for dim in split]


def find(gradients: Sequence[Tensor | None]) -> Layout | None:
    """The one layout that fits the gradients of each example's loss, or None.

    Guarantee:
        Sees only which elements are zero; it is called on the examples of the first batch, and its answer is a property
        of the model's code. A wrong answer is caught by the comparison with ordinary gradients that follows.
    """
    examples = len(gradients)
    shape = next((g.shape for g in gradients if g is not None), None)
    if shape is None:
        return None
    found = [layout for layout in _candidates(shape, examples) if holds(layout, gradients)]
    return found[0] if len(found) == 1 else None


def holds(layout: Layout, gradients: Sequence[Tensor | None]) -> bool:
    """Whether the gradient of each example's loss is zero outside of that example's places."""
    examples = len(gradients)
    for example, gradient in enumerate(gradients):
        if gradient is None:
            continue
        if not layout.fits(gradient.shape, examples):
            return False
        rows = layout.examples_first(gradient != 0, examples).clone()
        rows[example] = False
        if bool(rows.any()):
            return False
    return True


def spread(value: Tensor, examples: int) -> Tensor:
    """A value that all examples share, once for each of them: a leading 1 is expanded, else a dimension is added."""
    if value.dim() > 1 and value.shape[0] == 1:
        return value.expand(examples, *value.shape[1:])
    return value.unsqueeze(0).expand(examples, *value.shape)
