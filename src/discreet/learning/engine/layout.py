"""Which dimension of a tensor enumerates the examples, found by differentiation rather than by convention.

Models move the batch dimension around: [T, B, d] in recurrent layers, [B·T, d] in HuggingFace's `Conv1D`. The gradient
of example i's loss with respect to an operation's output is zero outside example i's elements. Three examples are
enough to see which dimension enumerates them. If more than one layout fits, none is chosen and the parameter goes
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
    """How the examples lie along `dim`.

    "whole": they are the whole dimension; "major" and "minor": they are the slow or the fast factor of a flattened
    dimension; "shared": the tensor has no dimension of examples, because all of them share it.
    """

    dim: int
    kind: Kind

    def examples_first(self, value: Tensor, examples: int) -> Tensor:
        """The tensor as [B, …], the other dimensions in their order."""
        if self.kind == "whole" or self.kind == "shared":
            return value if self.dim == 0 else value.movedim(self.dim, 0)
        sizes = (examples, -1) if self.kind == "major" else (-1, examples)
        dim = self.dim if self.kind == "major" else self.dim + 1
        split: Tensor = torch.unflatten(value, self.dim, sizes)
        return split if dim == 0 else split.movedim(dim, 0)

    def fits(self, shape: Sequence[int], examples: int) -> bool:
        """Whether a tensor of this shape can hold this number of examples in this layout."""
        if self.dim >= len(shape):
            return False
        size = shape[self.dim]
        return size == examples if self.kind in ("whole", "shared") else size % examples == 0

    def without_examples(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to the output, without the dimension of the examples, where its size is 1."""
        if self.kind in ("whole", "shared"):
            return (*shape[: self.dim], *shape[self.dim + 1 :])
        return tuple(shape)


def _candidates(shape: Sequence[int], examples: int) -> list[Layout]:
    whole = [Layout(dim, "whole") for dim, size in enumerate(shape) if size == examples]
    split = [dim for dim, size in enumerate(shape) if size % examples == 0 and size > examples]
    return whole + [Layout(dim, "major") for dim in split] + [Layout(dim, "minor") for dim in split]


def find_layout(gradients: Sequence[Tensor | None]) -> Layout | None:
    """The only layout that fits the gradients of each example's loss, or None.

    Guarantee:
        Looks only at which elements are zero. It is called on examples of the first batch, and its answer is a property
        of the model's code. The comparison with ordinary gradients that follows catches a wrong answer.
    """
    examples = len(gradients)
    shape = next((g.shape for g in gradients if g is not None), None)
    if shape is None:
        return None
    matching = [layout for layout in _candidates(shape, examples) if _matches(layout, gradients)]
    return matching[0] if len(matching) == 1 else None


def _matches(layout: Layout, gradients: Sequence[Tensor | None]) -> bool:
    """Whether the gradient of each example's loss is zero outside that example's elements."""
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


def repeat_per_example(value: Tensor, examples: int) -> Tensor:
    """A value that all examples share, once per example: a leading 1 is expanded, otherwise a dimension is added."""
    if value.dim() > 1 and value.shape[0] == 1:
        return value.expand(examples, *value.shape[1:])
    return value.unsqueeze(0).expand(examples, *value.shape)
