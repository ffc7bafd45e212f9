"""Convolutions of one, two and three dimensions, with stride, padding, dilation and groups.

The weighted sum is an ordinary weight gradient of the convolution, with the output gradients scaled: it costs what
plain training costs. Norms come from patches: with the input unfolded to [B, d·k, L], a convolution is a matrix product
over L places (Lee and Kifer 2021, arXiv 2009.03106; Bu et al. 2022, arXiv 2205.10683).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.rules import kernels
from discreet.learning.engine.rules.base import Rule, in_pieces, part, precise, product, scaled
from discreet.learning.engine.rules.linear import gram_is_cheaper, keeps_gradient, sequence_norm_squared


@dataclass(frozen=True)
class ConvolutionWeight(Rule):
    """The weight [p, d / groups, *kernel] of a convolution."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    def patches(self, x: Tensor) -> Tensor:
        """The input as [b, groups, L, kernel · d / groups]: channels last, as fast kernels lay them out."""
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
        whole = view.reshape(x.shape[0], prod(lengths), prod(kernel), self.groups, x.shape[-1] // self.groups)
        return whole.permute(0, 3, 1, 2, 4).flatten(3)

    def outputs(self, g: Tensor) -> Tensor:
        """The output gradient as [b, groups, L, p / groups]."""
        last = g.movedim(1, -1)
        return last.reshape(g.shape[0], -1, self.groups, self.shape[0] // self.groups).movedim(2, 1)

    def sequences(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Patches and output gradients as [b·groups, places, width]; frames of one example are more places."""
        frames = x.dim() > len(self.shape)
        a, out = self.patches(x.flatten(0, 1) if frames else x), self.outputs(g.flatten(0, 1) if frames else g)
        if frames:
            a, out = (torch.unflatten(v, 0, x.shape[:2]).transpose(1, 2).flatten(2, 3) for v in (a, out))
        return a.flatten(0, 1), out.flatten(0, 1)

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        if grad.device.type == "cpu" and grad.dim() == len(self.shape):
            return self.side_by_side(precise(inputs[0]), precise(grad))
        if self.has_kernel(inputs[0], grad):
            return kernels.gradients(inputs[0], grad, self.geometry()).movedim(-1, 2)
        a, g = self.sequences(inputs[0], grad)
        whole = product(g.mT, a).view(grad.shape[0], self.shape[0], *self.shape[2:], self.shape[1])
        return whole.movedim(-1, 2)

    def has_kernel(self, x: Tensor, g: Tensor) -> bool:
        """Whether there is a kernel that needs no patches."""
        even = all(low == high for low, high in self.padding)
        apart = all(step >= extent > 1 for step, extent in zip(self.stride, self.shape[2:], strict=True))
        # Patches that do not overlap are the image itself in another order: there a product of matrices is quicker.
        return even and not apart and kernels.fits(x, g, self.shape[2:], self.groups)

    def geometry(self) -> tuple[int, ...]:
        """Kernel, stride, padding and dilation in one row."""
        return (*self.shape[2:], *self.stride, *(low for low, _ in self.padding), *self.dilation)

    def side_by_side(self, x: Tensor, g: Tensor) -> Tensor:
        """All examples as the groups of one convolution: quick on a CPU, slow in a GPU's library."""
        examples = x.shape[0]
        x, g = x.reshape(1, -1, *x.shape[2:]), g.reshape(1, -1, *g.shape[2:])
        shape = (examples * self.shape[0], *self.shape[1:])
        return self.gradient(x, g, shape, examples * self.groups).view(examples, *self.shape)

    def elements(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        if self.has_kernel(inputs[0], grad):
            return prod(self.shape)
        places = grad[0].numel() // self.shape[0]
        return max(prod(self.shape), self.groups * places * prod(self.shape[1:]))

    def keeps(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        x, places = inputs[0], grad[0].numel() // self.shape[0]
        widths = prod(self.shape[1:]), self.shape[0] // self.groups
        size = x.element_size()
        return 4 * prod(self.shape) <= size * (x[0].numel() + grad[0].numel()) and keeps_gradient(places, *widths, size)

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        if self.has_kernel(inputs[0], grad):
            return kernels.powers(inputs[0], grad, self.geometry(), order)
        if order != 2:
            return super().norm_power(inputs, grad, order)

        places = grad[0].numel() // self.shape[0]
        if not gram_is_cheaper(places, prod(self.shape[1:]), self.shape[0] // self.groups):
            return super().norm_power(inputs, grad, order)

        def of(piece: slice) -> Tensor:
            a, g = self.sequences(part(inputs[0], piece), part(grad, piece))
            return sequence_norm_squared(a, g).view(-1, self.groups).sum(1)

        return in_pieces(grad.shape[0], self.elements(inputs, grad), of)

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        x, g = precise(inputs[0]), scaled(precise(grad), weights)
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
        found = torch.ops.aten.convolution_backward(
            g, x, weight, None, self.stride, padding, self.dilation, False, none, groups, [False, True, False]
        )
        result: Tensor = found[1]
        return result
