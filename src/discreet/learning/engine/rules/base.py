"""What a rule is: from an operation's input and the gradient of its output to per-example gradients of one parameter.

A rule sees one use of one parameter. Its `inputs` and the output's gradient `grad` come with the examples in their
first dimension, whatever the model's own layout was. All three of its answers are about the same per-example gradients:
the gradients themselves, their norms, and their weighted sum. Only the first must be written; the others have exact
defaults and are overridden where a faster closed form exists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from discreet.learning.engine.layout import Layout

#: Per-example gradients are made at most so many elements at a time.
CHUNK_ELEMENTS = 1 << 26


def precise(value: Tensor) -> Tensor:
    """A value in the type that norms and sums are accumulated in: float64 stays, all else is float32."""
    return value if value.dtype == torch.float64 else value.float()


def product(left: Tensor, right: Tensor) -> Tensor:
    """A (batched) matrix product whose result is in float32 even where its factors are narrower."""
    if left.dtype != right.dtype:
        left, right = precise(left), precise(right)
    if left.dtype not in (torch.bfloat16, torch.float16):
        return left @ right
    if left.device.type == "cuda":
        multiply = torch.bmm if left.dim() == 3 else torch.mm
        result: Tensor = multiply(left, right, out_dtype=torch.float32)
        return result
    return left.float() @ right.float()


def scaled(grad: Tensor, weights: Tensor, dim: int = 0) -> Tensor:
    """Each example's slice times its weight, in the slice's type (or float32); the examples lie along `dim`.

    Zero times infinity is not zero: a batch in which an example is not finite is computed again without that example.
    In bfloat16 rounding may lengthen a slice by half of the type's epsilon, so weights are less by that. In float16 it
    may double what is small, so the result is wide.
    """
    if grad.dtype == torch.float16:
        grad = precise(grad)
    if grad.dtype == torch.bfloat16:
        weights = weights * (1.0 - torch.finfo(grad.dtype).eps)
    return (precise(grad) * weights.view(-1, *(1,) * (grad.dim() - dim - 1))).to(grad.dtype)


def pieces(examples: int, elements: int) -> list[slice]:
    """Ranges of examples such that one range holds about `CHUNK_ELEMENTS`, given the elements of one example."""
    size = max(1, min(examples, CHUNK_ELEMENTS // max(1, elements)))
    return [slice(start, min(start + size, examples)) for start in range(0, examples, size)]


def part(value: Tensor, piece: slice) -> Tensor:
    """Some examples of a value; the value itself where they are all, so that a trace sees the same thing twice."""
    return value if piece == slice(0, value.shape[0]) else value[piece]


def in_pieces(examples: int, elements: int, function: Callable[[slice], Tensor]) -> Tensor:
    """A function of ranges of examples, put together again."""
    parts = [function(piece) for piece in pieces(examples, elements)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def power_sums(gradients: Tensor, order: int) -> Tensor:
    """Σ|g|^order of each example, from its whole gradient."""
    gradients, rest = precise(gradients), list(range(1, gradients.dim()))  # no reshape: it would copy another layout
    powers = gradients.square() if order == 2 else gradients.abs()
    return powers.sum(rest) if rest else powers


def in_memory_like(value: Tensor, other: Tensor) -> Tensor:
    """The value in memory as `other` lies there: with channels last, or else in the order of its shape."""
    last = other.dim() == 4 and not other.is_contiguous() and other.is_contiguous(memory_format=torch.channels_last)
    return value.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def weighted_total(gradients: Tensor, weights: Tensor) -> Tensor:
    """Σ weight_i · gradient_i of whole per-example gradients, read in the order in which they lie in memory."""
    order = [0, *sorted(range(1, gradients.dim()), key=gradients.stride, reverse=True)]
    total = scaled(gradients.permute(order), weights).sum(0)
    return total.permute([order.index(dim) - 1 for dim in range(1, gradients.dim())])


class Rule(ABC):
    """Per-example gradients of one parameter in one use."""

    #: Whether the per-example gradients are always smaller than an activation.
    small: ClassVar[bool] = False

    def keeps(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        """Whether per-example gradients are made once, for the norm, and kept for the sum in place of what made them.

        That saves the second product, and is right where they take no more memory than input and output gradient.
        """
        del inputs, grad
        return self.small

    def kept(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        """The per-example gradients of a rule that keeps them."""

        def of(piece: slice) -> Tensor:
            return self.per_example(tuple(part(x, piece) for x in inputs), part(grad, piece))

        return in_pieces(grad.shape[0], self.elements(inputs, grad), of)

    def placed(self, layout: Layout) -> Rule:
        """This rule for inputs whose examples were moved to the front from where `layout` says."""
        del layout
        return self

    @abstractmethod
    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        """The gradient of each example: [examples, *parameter.shape]."""

    @abstractmethod
    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        """The elements that `per_example` holds for one example, so that the caller can choose its chunks."""

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        """Σ|g|^order of each example: the squared norm for order 2, the L1 norm for order 1."""

        def of(piece: slice) -> Tensor:
            return power_sums(self.per_example(tuple(part(x, piece) for x in inputs), part(grad, piece)), order)

        return in_pieces(grad.shape[0], self.elements(inputs, grad), of)

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        """Σ weight_i · gradient_i, in float32 or wider, of the parameter's shape."""
        return self.per_example(inputs, scaled(grad, weights)).sum(0)
