"""Norms of Σ_t g_t a_tᵀ, the gradient behind every matrix product, rounded up.

With inputs a [B, T, d] and output gradients g [B, T, p], the squared norm for one example is
Σ_{t,s} ⟨a_t, a_s⟩⟨g_t, g_s⟩ (Goodfellow 2015, arXiv 1510.01799, for T = 1; Li et al. 2022, arXiv 2110.05679).
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor

from discreet.learning.engine.operations import gram_kernels
from discreet.learning.engine.operations.arithmetic import (
    accumulation,
    enlarged,
    factors,
    gram,
    in_chunks,
    power_sums,
    precise,
    product,
    summed,
    take,
    weighted_digits,
    weighting_error,
)

#: How many operations a device computes while it moves one byte of memory: about 150 on an H200 in bfloat16, less
#: elsewhere.
OPERATIONS_PER_BYTE = 128


def gram_is_cheaper(length: int, width_in: int, width_out: int) -> bool:
    """Whether two T×T Gram matrices cost less than the d×p gradient itself.

    Both are counted in operations: the products, and eight bytes for each element that is written and read again.
    """
    gradient = width_in * width_out * (2 * length + 8 * OPERATIONS_PER_BYTE)
    grams = length * length * (2 * (width_in + width_out) + 16 * OPERATIONS_PER_BYTE)
    return grams <= gradient


def keeps_gradient(length: int, width_in: int, width_out: int, bytes_each: int, bytes_kept: int = 4) -> bool:
    """Whether the norm is computed from the d×p gradient, and that gradient is no larger than a and g together."""
    smaller = bytes_kept * width_in * width_out <= bytes_each * length * (width_in + width_out)
    return smaller and length > 1 and not gram_is_cheaper(length, width_in, width_out)


def as_sequence(value: Tensor) -> Tensor:
    """[B, …, d] as [B, T, d]."""
    return value.reshape(value.shape[0], -1, value.shape[-1])


def sequence_norm_squared(a: Tensor, g: Tensor, digits: int | None = None) -> Tensor:
    """‖Σ_t g_t a_tᵀ‖² of each example, by the cheaper of the two ways, with the margin of a weighted sum.

    Args:
        a: the inputs, [B, T, d].
        g: the output gradients, [B, T, p].
        digits: what the weighted sum keeps of a float32, if that is not a matrix product.
    """
    a, g = factors(a, g)
    length, d, p = a.shape[1], a.shape[2], g.shape[2]
    error = weighting_error(a, weighted_digits(a) if digits is None else digits, length)
    if length == 1:
        of_inputs, of_outputs = (power_sums(value, 2) + underflow(value) for value in (a, g))
        return of_inputs * of_outputs * (1 + error) ** 2
    if gram_is_cheaper(length, d, p):
        lost = underflow(a), underflow(g)
        if gram_kernels.supports(a, g):
            return _from_lengths(*_kernel_products(a, g), lost, error)

        def from_grams(chunk: slice) -> Tensor:
            return norm_from_grams(gram(take(a, chunk)), gram(take(g, chunk)), lost, error)

        return in_chunks(a.shape[0], 2 * length * length, from_grams)

    def from_gradients(chunk: slice) -> Tensor:
        squares = power_sums(product(take(g, chunk).mT, take(a, chunk)), 2)
        return enlarged(squares, error * reach(take(a, chunk), take(g, chunk), 2), 2)

    return in_chunks(a.shape[0], d * p, from_gradients)


def _kernel_products(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Σ_{t,s} ⟨a_t, a_s⟩⟨g_t, g_s⟩ and the lengths of the vectors a_t and g_t."""
    squares, of_a, of_g = gram_kernels.gram_products(a, g)
    return squares, _lengths(of_a, underflow(a)), _lengths(of_g, underflow(g))


def norm_from_grams(left: Tensor, right: Tensor, lost: tuple[float, float], error: float, roundings: int = 3) -> Tensor:
    """‖Σ_t g_t a_tᵀ‖² of each example from both Gram matrices, [B, T, T], rounded up.

    Args:
        left: ⟨a_t, a_s⟩.
        right: ⟨g_t, g_s⟩.
        lost: the most that underflow may have taken from an entry of each.
        error: as `weighting_error` gives it.
        roundings: how many sums round one after the other; three for two Gram matrices and the sum of their product.
    """
    of_a, of_g = vector_lengths(left, lost[0]), vector_lengths(right, lost[1])
    return _from_lengths(summed(left * right), of_a, of_g, lost, error, roundings)


def _from_lengths(
    products: Tensor, of_a: Tensor, of_g: Tensor, lost: tuple[float, float], error: float, roundings: int = 3
) -> Tensor:
    """Squared norms from Σ_{t,s} ⟨a_t, a_s⟩⟨g_t, g_s⟩ and the lengths of the vectors a_t and g_t, rounded up."""
    # What one Gram matrix lost to underflow is multiplied by the other Gram matrix.
    of_underflow = (of_g.sum(1) * sqrt(lost[0])).square() + (of_a.sum(1) * sqrt(lost[1])).square()
    squares = rounded_up(products, of_a * of_g, roundings) + of_underflow
    return enlarged(squares, error * (of_a * of_g).sum(1), 2)


def reach(a: Tensor, g: Tensor, order: int) -> Tensor:
    """Σ_t ‖a_t‖‖g_t‖ of each example: the norm of its gradient if nothing canceled."""
    if order == 1:
        return (precise(a).abs().sum(2) * precise(g).abs().sum(2)).sum(1)
    if gram_is_cheaper(a.shape[1], a.shape[2], g.shape[2]) and gram_kernels.supports(a, g):
        _, of_a, of_g = _kernel_products(a, g)  # a trace computes them once, for the norm, which needs them too
        return (of_a * of_g).sum(1)
    of_a, of_g = ((precise(value).square().sum(2) + underflow(value)).sqrt() for value in (a, g))
    return (of_a * of_g).sum(1)


def underflow(value: Tensor) -> float:
    """The most that underflow can take from a product of two vectors of this width.

    Squares of numbers below 1e-19 lose digits in float32, or become zero. That matters where such a sum is multiplied
    by a large one: an input of 1e-23 and an output gradient of 1e19 have a gradient of 1e-4, not of zero.
    """
    kind = torch.float64 if value.dtype == torch.float64 else torch.float32
    return value.shape[-1] * torch.finfo(kind).tiny


def vector_lengths(gram: Tensor, lost: float = 0.0) -> Tensor:
    """The lengths of the vectors behind a Gram matrix, whose entries may be too small by `lost`."""
    return _lengths(gram.diagonal(dim1=1, dim2=2), lost)


def _lengths(squares: Tensor, lost: float) -> Tensor:
    return (squares.clamp_min(0.0) + lost).sqrt()


def rounded_up(squares: Tensor, lengths: Tensor, roundings: int = 3) -> Tensor:
    """Squared norms ‖Σ_t v_t‖² from sums of products, plus what rounding may have taken from them.

    Where the terms v_t cancel, their products cancel too, and an error of about u·(Σ‖v_t‖)² remains, u being the
    accumulated rounding of a sum. Two Gram matrices and the sum over their product round three times; one more covers
    products of errors. Adding that error overestimates the norm slightly, so the clipped gradient is slightly too
    short. Without it, a gradient could seem shorter than it is and escape clipping.
    """
    return squares.clamp_min(0.0) + (roundings + 1) * accumulation(squares.dtype) * lengths.sum(1).square()
