"""Convolutions of one, two and three dimensions, with stride, padding, dilation and groups.

The weighted sum is the ordinary weight gradient of the convolution with scaled output gradients, so it costs what plain
training costs. Norms come from patches: with the input unfolded to [B, d·k, L], a convolution is a matrix product over
L positions (Lee and Kifer 2021, arXiv 2009.03106; Bu et al. 2022, arXiv 2205.10683). Where positions are few and
channels many, no patch is needed: the patches' Gram matrix is a sum of shifted copies of the image's own Gram matrix.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations import convolution_kernels, memory_format
from discreet.learning.engine.operations.arithmetic import (
    cut,
    enlarged,
    float32_digits,
    in_chunks,
    multiplied,
    multiplies_narrow,
    on_grid,
    power_sums,
    precise,
    product,
    rounding,
    scaled,
    take,
    weighting_error,
    widened,
)
from discreet.learning.engine.operations.base import (
    Args,
    Function,
    GradientRule,
    Handlers,
    Kwargs,
    ParameterUse,
    Recorder,
    arguments,
    autocast_input,
)
from discreet.learning.engine.operations.linear import BiasVector
from discreet.learning.engine.operations.sequence_norms import (
    OPERATIONS_PER_BYTE,
    gram_is_cheaper,
    keeps_gradient,
    norm_from_grams,
    sequence_norm_squared,
)

#: Gram matrices over positions are added up for at most so many places of a kernel: each is an operation of the graph.
_MOST_PLACES = 64

#: How many roundings of norm and sum together weights cover, by being shrunk: 2⁻¹⁵ in float32.
_COVERED = 512


@dataclass(frozen=True)
class ConvolutionWeight(GradientRule):
    """The weight [p, d / groups, *kernel] of a convolution."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    shared = True

    def patches(self, x: Tensor) -> Tensor:
        """The input as [b, groups, L, kernel · d / groups], with channels last, the layout that fast kernels expect."""
        kernel = self.shape[2:]
        if any(low or high for low, high in self.padding):
            x = F.pad(x, [side for pair in reversed(self.padding) for side in pair])
        lengths = [
            (size - step * (extent - 1) - 1) // stride + 1
            for size, step, extent, stride in zip(x.shape[2:], self.dilation, kernel, self.stride, strict=True)
        ]
        x = x.movedim(1, -1).contiguous()
        inner = x.stride()[1:-1]
        taps = [s * step for s, step in zip(inner, self.dilation, strict=True)]
        moves = [s * step for s, step in zip(inner, self.stride, strict=True)]
        view = x.as_strided((x.shape[0], *lengths, *kernel, x.shape[-1]), (x.stride(0), *moves, *taps, 1))
        patches = view.reshape(x.shape[0], prod(lengths), prod(kernel), self.groups, x.shape[-1] // self.groups)
        return patches.permute(0, 3, 1, 2, 4).flatten(3)

    def outputs(self, g: Tensor) -> Tensor:
        """The output gradient as [b, groups, L, p / groups]."""
        channels_last = g.movedim(1, -1)
        return channels_last.reshape(g.shape[0], -1, self.groups, self.shape[0] // self.groups).movedim(2, 1)

    def sequences(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Patches and output gradients as [b·groups, L, width]; the frames of one example are further positions."""
        frames = x.dim() > len(self.shape)
        a, out = self.patches(x.flatten(0, 1) if frames else x), self.outputs(g.flatten(0, 1) if frames else g)
        if frames:
            a, out = (torch.unflatten(v, 0, x.shape[:2]).transpose(1, 2).flatten(2, 3) for v in (a, out))
        return a.flatten(0, 1), out.flatten(0, 1)

    def images(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Input and output gradient with the digits that both products and convolutions keep of a float32."""
        digits, shorten = float32_digits(x.device, convolution=True), cut if self.has_small_grams(x, g) else on_grid
        return shorten(x, digits), shorten(g, digits)

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        x, grad = self.images(inputs[0], grad)
        if grad.device.type == "cpu" and grad.dim() == len(self.shape):
            return self.as_groups(widened(x), widened(grad))
        if self.has_kernel(x, grad):
            digits = float32_digits(x.device, convolution=True)
            return convolution_kernels.gradients(inputs[0], grad, self.geometry(), digits).movedim(-1, 2)
        a, g = self.sequences(x, grad)
        gradients = product(g.mT, a).view(grad.shape[0], self.shape[0], *self.shape[2:], self.shape[1])
        return gradients.movedim(-1, 2)

    def has_kernel(self, x: Tensor, g: Tensor) -> bool:
        """Whether a CUDA kernel can compute this without patches, and faster."""
        symmetric = all(low == high for low, high in self.padding)
        disjoint = all(step >= extent > 1 for step, extent in zip(self.stride, self.shape[2:], strict=True))
        # Patches that do not overlap are the image itself in another order: a matrix product is faster for them.
        return symmetric and not disjoint and convolution_kernels.supports(x, g, self.shape[2:], self.groups)

    def has_small_grams(self, x: Tensor, g: Tensor) -> bool:
        """Whether norms come from Gram matrices over positions, because these cost less than a gradient.

        Both are counted in operations, with eight bytes for each element of a Gram matrix, written once and read once.
        """
        if self.groups > 1 or x.dim() > len(self.shape) or prod(self.shape[2:]) > _MOST_PLACES:
            return False
        inside, positions = self.padded_places(x), prod(g.shape[2:])
        products = 2 * (inside**2 * self.shape[1] + positions**2 * self.shape[0])
        memory = 8 * OPERATIONS_PER_BYTE * (inside**2 + positions**2)
        return products + memory <= 2 * positions * prod(self.shape)

    def padded_places(self, x: Tensor) -> int:
        """How many places an image has with its padding."""
        return prod(size + low + high for size, (low, high) in zip(x.shape[2:], self.padding, strict=True))

    def patch_grams(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """⟨patch_t, patch_s⟩ = Σ_tap ⟨x_{t+tap}, x_{s+tap}⟩ for all pairs of the L positions, [b, L, L]."""
        spatial, pixels = x.shape[2:], x.flatten(2)
        grams = multiplied(pixels.mT, pixels).view(-1, *spatial, *spatial)
        if any(low or high for low, high in self.padding):
            grams = F.pad(grams, [side for pair in reversed(self.padding) for side in pair] * 2)

        def shifted(tap: tuple[int, ...]) -> Tensor:
            starts = [place * step for place, step in zip(tap, self.dilation, strict=True)]
            seen = [
                slice(start, start + stride * (length - 1) + 1, stride)
                for start, stride, length in zip(starts, self.stride, lengths, strict=True)
            ]
            return grams[(slice(None), *seen, *seen)]

        taps = itertools.product(*(range(extent) for extent in self.shape[2:]))
        return _added_in_pairs(shifted(tap) for tap in taps).reshape(-1, prod(lengths), prod(lengths))

    def geometry(self) -> tuple[int, ...]:
        """Kernel, stride, padding and dilation, as the CUDA kernels take them."""
        return (*self.shape[2:], *self.stride, *(low for low, _ in self.padding), *self.dilation)

    def as_groups(self, x: Tensor, g: Tensor) -> Tensor:
        """The gradients with all examples as the groups of one convolution: fast on a CPU, slow in cuDNN."""
        examples = x.shape[0]
        x, g = x.reshape(1, -1, *x.shape[2:]), g.reshape(1, -1, *g.shape[2:])
        shape = (examples * self.shape[0], *self.shape[1:])
        return self.gradient(x, g, shape, examples * self.groups).view(examples, *self.shape)

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        if self.has_kernel(inputs[0], grad):
            return prod(self.shape)
        positions = grad[0].numel() // self.shape[0]
        return max(prod(self.shape), self.groups * positions * prod(self.shape[1:]))

    def keeps_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        x, positions = inputs[0], grad[0].numel() // self.shape[0]
        widths = prod(self.shape[1:]), self.shape[0] // self.groups
        size = x.element_size()
        # Patches repeat the input, so the float32 gradient must also be no larger than the input itself and `grad`.
        smaller = 4 * prod(self.shape) <= size * (x[0].numel() + grad[0].numel())
        return smaller and keeps_gradient(positions, *widths, size)

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        x, g = self.images(inputs[0], grad)
        if order == 2 and self.has_small_grams(x, g):
            return self.norm_from_positions(x, g)
        if self.has_kernel(x, g):
            digits = float32_digits(x.device, convolution=True)
            powers = convolution_kernels.powers(inputs[0], g, self.geometry(), digits, order)
            return enlarged(powers, self.margin(inputs, grad, order), order)
        positions = grad[0].numel() // self.shape[0]
        if order != 2 or not gram_is_cheaper(positions, prod(self.shape[1:]), self.shape[0] // self.groups):
            return enlarged(super().norm_power(inputs, grad, order), self.margin(inputs, grad, order), order)

        def squares_of(chunk: slice) -> Tensor:
            a, out = self.sequences(take(x, chunk), take(g, chunk))
            digits = float32_digits(x.device, convolution=True)
            return sequence_norm_squared(a, out, digits).view(-1, self.groups).sum(1)

        return in_chunks(grad.shape[0], self.elements_per_example(inputs, grad), squares_of)

    def norm_from_positions(self, x: Tensor, g: Tensor) -> Tensor:
        """The squared norm from Gram matrices over positions, of what `images` returns.

        Adding up the taps is one more sum that rounds.
        """
        x, g = (value if multiplies_narrow(value) else widened(value) for value in (x, g))
        positions, places = prod(g.shape[2:]), prod(self.shape[2:])
        error = self._error(x, positions)
        smallest = torch.finfo(precise(x[:0]).dtype).tiny
        lost = prod(self.shape[1:]) * smallest, self.shape[0] * smallest

        def squares_of(chunk: slice) -> Tensor:
            outputs = take(g, chunk).flatten(2)
            of_patches, of_outputs = self.patch_grams(take(x, chunk), g.shape[2:]), multiplied(outputs.mT, outputs)
            return norm_from_grams(of_patches, of_outputs, lost, error, roundings=4)

        return in_chunks(
            g.shape[0], 2 * self.padded_places(x) ** 2 + (2 + places.bit_length()) * positions**2, squares_of
        )

    def _error(self, x: Tensor, positions: int) -> float:
        """`weighting_error` of a convolution, with what weights do not cover of positions that are added up in a row.

        oneDNN does so on a CPU. If they are equal, norm and sum may each be off by a quarter of a rounding for each.
        """
        error = weighting_error(x, float32_digits(x.device, convolution=True), positions)
        uncovered = max(0.0, positions / 2 - _COVERED) if x.device.type == "cpu" else 0.0
        return error + uncovered * rounding(x.dtype)

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        """The sum is a convolution in float32.

        Σ_t ‖patch_t‖‖g_t‖ ≤ (Σ_t ‖patch_t‖²)^½ (Σ_t ‖g_t‖²)^½ by Cauchy and Schwarz, and each number of the image is in
        at most `kernel_size` patches. In L1, Σ_t ‖patch_t‖‖g_t‖ ≤ Σ_t ‖patch_t‖ · max_t ‖g_t‖.
        """
        x, g = (precise(value) for value in self.images(inputs[0], grad))
        kernel_size, axis = prod(self.shape[2:]), g.dim() - len(self.shape) + 1
        positions = grad[0].numel() // self.shape[0]
        error = self._error(x, positions)
        if self.has_kernel(inputs[0], grad):
            error += convolution_kernels.ERROR
        if order == 1:
            return error * kernel_size * power_sums(x, 1) * g.abs().sum(axis).flatten(1).amax(1)
        if self.has_kernel(inputs[0], grad) and inputs[0].dtype == torch.float32:
            squares = convolution_kernels.input_squares(inputs[0], float32_digits(x.device, convolution=True))
        else:
            squares = power_sums(x, 2)
        of_x, of_g = squares + _underflow(x), power_sums(g, 2) + _underflow(g)
        return error * (kernel_size * of_x).sqrt() * of_g.sqrt()

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        digits = float32_digits(grad.device, convolution=True)
        x, g = (widened(value) for value in self.images(inputs[0], grad))
        g = scaled(g, weights, digits=digits)
        if x.dim() > len(self.shape):
            x, g = x.flatten(0, 1), g.flatten(0, 1)
        return self.gradient(x, g, self.shape, self.groups)

    def gradient(self, x: Tensor, g: Tensor, shape: tuple[int, ...], groups: int) -> Tensor:
        """The ordinary weight gradient of a convolution."""
        padding = [low for low, _ in self.padding]
        if any(low != high for low, high in self.padding):
            x = F.pad(x, [side for pair in reversed(self.padding) for side in pair])
            padding = [0] * len(padding)
        weight = g.new_empty(()).expand(shape)
        none = [0] * len(padding)
        gradients = torch.ops.aten.convolution_backward(
            g, x, weight, None, self.stride, padding, self.dilation, False, none, groups, [False, True, False]
        )
        result: Tensor = gradients[1]
        return result


def _added_in_pairs(terms: Iterable[Tensor]) -> Tensor:
    """Their sum. Added up one after the other, many terms would round more often than margins allow for."""
    sums: list[tuple[int, Tensor]] = []  # of 1, 2, 4, … terms, at most one of each
    for term in terms:
        count, total = 1, term
        while sums and sums[-1][0] == count:
            count, total = 2 * count, sums.pop()[1] + total
        sums.append((count, total))
    total = sums.pop()[1]
    while sums:
        total = sums.pop()[1] + total
    return total


def _underflow(value: Tensor) -> float:
    """The most that underflow can take from a sum of an example's squares."""
    return torch.finfo(value.dtype).tiny * value[0].numel()


@dataclass(frozen=True)
class TransposedConvolutionWeight(GradientRule):
    """The weight [d, p / groups, *kernel] of a transposed convolution.

    It is the weight of the convolution that leads from its output to its input, with these two exchanged.
    """

    convolution: ConvolutionWeight

    shared = True

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return self.convolution.per_example((grad,), inputs[0])

    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        return self.convolution.elements_per_example((grad,), inputs[0])

    def keeps_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        return self.convolution.keeps_gradients((grad,), inputs[0])

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        return self.convolution.norm_power((grad,), inputs[0], order)

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        return self.convolution.weighted_sum((grad,), inputs[0], weights)

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        return self.convolution.margin((grad,), inputs[0], order)


def _per_dimension(value: Any, spatial: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * spatial
    sizes = tuple(int(size) for size in value)
    return sizes * spatial if len(sizes) == 1 else sizes


def convolution(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    x, weight, bias, stride, padding, dilation, groups = arguments(
        "input weight bias stride padding dilation groups", args, kwargs, stride=1, padding=0, dilation=1, groups=1
    )
    spatial: int = weight.dim() - 2
    if x.dim() != weight.dim():
        return NotImplemented
    x = autocast_input(x)
    kernel = weight
    if recorder.traced and memory_format.wants_channels_last(x):
        x, kernel = (value.contiguous(memory_format=torch.channels_last) for value in (x, weight))
    output = func(x, kernel, bias, stride, padding, dilation, groups)

    steps, gaps = _per_dimension(stride, spatial), _per_dimension(dilation, spatial)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(gaps, weight.shape[2:], strict=True)]
        sides = tuple((total // 2, total - total // 2) for total in totals)
    else:
        sides = tuple((side, side) for side in _per_dimension(0 if padding == "valid" else padding, spatial))
    rule = ConvolutionWeight(tuple(weight.shape), steps, sides, gaps, groups)
    claims = [ParameterUse(weight, rule, (x,))]
    if bias is not None:
        claims.append(ParameterUse(bias, BiasVector(-1 - spatial)))
    return recorder.record("convolution", output, claims)


def transposed_convolution(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    x, weight, bias, stride, padding, more, groups, dilation = arguments(
        "input weight bias stride padding output_padding groups dilation",
        args,
        kwargs,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        dilation=1,
    )
    spatial: int = weight.dim() - 2
    if x.dim() != weight.dim():
        return NotImplemented
    x = autocast_input(x)
    output = func(x, weight, bias, stride, padding, more, groups, dilation)
    sides = tuple((side, side) for side in _per_dimension(padding, spatial))
    steps, gaps = _per_dimension(stride, spatial), _per_dimension(dilation, spatial)
    rule = TransposedConvolutionWeight(ConvolutionWeight(tuple(weight.shape), steps, sides, gaps, groups))
    claims = [ParameterUse(weight, rule, (x,))]
    if bias is not None:
        claims.append(ParameterUse(bias, BiasVector(-1 - spatial)))
    return recorder.record("transposed convolution", output, claims)


HANDLERS: Handlers = {
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), convolution),
    **dict.fromkeys((F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d), transposed_convolution),
}
