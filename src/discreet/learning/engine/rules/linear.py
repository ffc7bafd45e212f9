"""Matrix products with a parameter: `linear`, `addmm`, `matmul`, and the bias that is added to their output.

With inputs a [B, T, d] and output gradients g [B, T, p] the gradient of example b is Σ_t g_t a_tᵀ. Its squared norm is
Σ_{t,s} ⟨a_t, a_s⟩⟨g_t, g_s⟩ (Goodfellow 2015, arXiv 1510.01799, for T = 1; Li et al. 2022, arXiv 2110.05679).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor

from discreet.learning.engine.rules.base import Rule, in_pieces, part, power_sums, precise, product, scaled

#: What a device computes while it moves one byte of its memory: about 150 on an H200 in bfloat16, less elsewhere.
OPERATIONS_PER_BYTE = 128


def gram_is_cheaper(length: int, width_in: int, width_out: int) -> bool:
    """Whether two T×T Gram matrices cost less than the d×p gradient itself.

    Both are counted in operations: the products, and eight bytes for each element that is written and read again.
    """
    gradient = width_in * width_out * (2 * length + 8 * OPERATIONS_PER_BYTE)
    grams = length * length * (2 * (width_in + width_out) + 16 * OPERATIONS_PER_BYTE)
    return grams <= gradient


def keeps_gradient(length: int, width_in: int, width_out: int, bytes_each: int) -> bool:
    """Whether the d×p gradient in float32 is what the norm is made from, and is no larger than a and g together."""
    smaller = 4 * width_in * width_out <= bytes_each * length * (width_in + width_out)
    return smaller and length > 1 and not gram_is_cheaper(length, width_in, width_out)


def as_sequence(value: Tensor) -> Tensor:
    """[B, …, d] as [B, T, d]."""
    return value.reshape(value.shape[0], -1, value.shape[-1])


def sequence_norm_squared(a: Tensor, g: Tensor) -> Tensor:
    """‖Σ_t g_t a_tᵀ‖² of each example, by the cheaper of the two ways."""
    length, d, p = a.shape[1], a.shape[2], g.shape[2]
    if length == 1:
        of_inputs, of_outputs = (power_sums(value, 2) + vanished(value) for value in (a, g))
        return of_inputs * of_outputs
    if gram_is_cheaper(length, d, p):

        def of_grams(piece: slice) -> Tensor:
            left, right = product(part(a, piece), part(a, piece).mT), product(part(g, piece), part(g, piece).mT)
            of_a, of_g = terms_of(left, vanished(a)), terms_of(right, vanished(g))
            # What vanished in one Gram matrix is multiplied by the other.
            lost = (of_g.sum(1) * sqrt(vanished(a))).square() + (of_a.sum(1) * sqrt(vanished(g))).square()
            return rounded_up((left * right).sum((1, 2)), of_a * of_g) + lost

        return in_pieces(a.shape[0], 2 * length * length, of_grams)
    return in_pieces(a.shape[0], d * p, lambda piece: power_sums(product(part(g, piece).mT, part(a, piece)), 2))


def vanished(value: Tensor) -> float:
    """The most that underflow can have taken from a product of two vectors of this width.

    Squares of numbers below 1e-19 lose digits in float32, or vanish. That matters where such a sum is multiplied by a
    large one: an input of 1e-23 and an output gradient of 1e19 have a gradient of 1e-4, not of zero.
    """
    kind = torch.float64 if value.dtype == torch.float64 else torch.float32
    return value.shape[-1] * torch.finfo(kind).tiny


def terms_of(gram: Tensor, lost: float = 0.0) -> Tensor:
    """The lengths of the vectors behind a Gram matrix, whose entries may be too small by `lost`."""
    return (gram.diagonal(dim1=1, dim2=2).clamp_min(0.0) + lost).sqrt()


def rounded_up(squares: Tensor, lengths: Tensor) -> Tensor:
    """Squared norms ‖Σ_t v_t‖² from sums of products, plus what rounding can have taken from them.

    Where the terms v_t cancel, their products cancel too, and an error of u·(Σ‖v_t‖)² remains, u being the machine
    epsilon. Added, it makes the norm too large by a little, and the clipped gradient too short; left out, a gradient
    might seem shorter than it is.
    """
    return squares.clamp_min(0.0) + 4.0 * torch.finfo(squares.dtype).eps * lengths.sum(1).square()


@dataclass(frozen=True)
class LinearWeight(Rule):
    """The weight of a product: [p, d] as `linear` keeps it, or [d, p] (`transposed`) as `addmm` and `matmul` do."""

    transposed: bool = False

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        a, g = as_sequence(inputs[0]), as_sequence(grad)
        return product(a.mT, g) if self.transposed else product(g.mT, a)

    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return inputs[0].shape[-1] * grad.shape[-1]

    def keeps(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        a, g = as_sequence(inputs[0]), as_sequence(grad)
        return keeps_gradient(a.shape[1], a.shape[2], g.shape[2], max(a.element_size(), g.element_size()))

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        a, g = as_sequence(inputs[0]), as_sequence(grad)
        if order == 2:
            return sequence_norm_squared(a, g)
        if a.shape[1] == 1:
            return power_sums(a, 1) * power_sums(g, 1)
        return super().norm_power(inputs, grad, order)

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        a, g, examples = inputs[0], grad, 0
        # Σ_t (w g_t) a_tᵀ = Σ_t g_t (w a_t)ᵀ: the narrower of the two is written anew, in the other's order of memory.
        narrow = a.shape[-1] < g.shape[-1]
        wider = g if narrow else a
        if a.dim() == 3 and wider.stride(0) < wider.stride(1):
            a, g, examples = a.transpose(0, 1), g.transpose(0, 1), 1
        a, g = (scaled(a, weights, examples), g) if narrow else (a, scaled(g, weights, examples))
        a, g = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
        return product(a.mT, g) if self.transposed else product(g.mT, a)


@dataclass(frozen=True)
class Bias(Rule):
    """A vector added along one dimension of the output, counted from its end: -1 for linear, -3 for conv2d."""

    channel: int = -1

    small = True

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        channel = grad.dim() + self.channel
        others = [dim for dim in range(1, grad.dim()) if dim != channel]
        return precise(grad.sum(others, dtype=precise(grad[:0]).dtype)) if others else precise(grad)

    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return grad.shape[self.channel]
