"""CUDA kernels for the per-example gradients of a convolution, computed from the images without patches.

The gradient of one example at one tap of the kernel is a matrix product over all positions, Σ_t g_t x_{t+tap}ᵀ. A
library needs the shifted inputs in memory for it: nine times the image for a 3×3 kernel. Here each program reads the
image through the shift, keeps its tile of the gradient in registers, and writes either the tile or its sum of powers.

A float32 is split into two bfloat16 numbers, v = high + low with a rest below 2⁻¹⁶|v|, and a product into
high·high + high·low + low·high in float32. Tensor cores multiply bfloat16 from any layout, but not tf32, so this is
faster than tf32, and it keeps 16 binary digits where tf32 keeps 11.

Triton comes with CUDA builds of torch. Where it is missing, or these kernels do not cover a case, `supports` is false.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# Triton kernels have no Python types.

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]  # not on every machine
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # CPU builds of torch come without it
    triton = None

_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def supports(x: Tensor, g: Tensor, kernel: Sequence[int], groups: int) -> bool:
    """Whether these kernels can compute the gradients of a convolution with this input and output gradient."""
    # The kernels index the elements of one example in 32 bits.
    small = x[0].numel() < 1 << 31 and g[0].numel() < 1 << 31
    plain = len(kernel) == 2 and x.dim() == 4 and groups == 1
    return triton is not None and x.is_cuda and plain and small and x.dtype == g.dtype and x.dtype in _TYPES


if triton is not None:

    @triton.jit
    def _halves(v, high, low, size, block: tl.constexpr):
        """Split numbers into high + low, in memory order."""
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        value = tl.load(v + at, mask=at < size)
        upper = value.to(tl.bfloat16)
        tl.store(high + at, upper, mask=at < size)
        tl.store(low + at, (value - upper.to(tl.float32)).to(tl.bfloat16), mask=at < size)

    @triton.jit
    def _tap(left, left_low, x, x_low, at, seen, total, two: tl.constexpr):
        """Add one tap's product over a block of places to its tile of the gradient."""
        right = tl.load(x + at, mask=seen, other=0.0)
        total = tl.dot(left, right, total)
        if two:
            total = tl.dot(left_low, right, total)
            total = tl.dot(left, tl.load(x_low + at, mask=seen, other=0.0), total)
        return total

    @triton.jit
    def _gradients(
        x, x_low, g, g_low, out, parts, xb, xc, xh, xw, gb, gc, gh, gw,
        channels: tl.constexpr, outputs: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
        columns: tl.constexpr, places: tl.constexpr, kernel_h: tl.constexpr, kernel_w: tl.constexpr,
        stride_h: tl.constexpr, stride_w: tl.constexpr, pad_h: tl.constexpr, pad_w: tl.constexpr,
        step_h: tl.constexpr, step_w: tl.constexpr, taps: tl.constexpr, order: tl.constexpr, two: tl.constexpr,
        tile_o: tl.constexpr, tile_c: tl.constexpr, tile_t: tl.constexpr,
    ):  # fmt: skip
        """One tile of outputs × channels, at one tap or three neighboring ones, of one example."""
        part = tl.program_id(0) % parts
        example = (tl.program_id(0) // parts).to(tl.int64)
        tap = (part % (kernel_h * kernel_w // taps)) * taps
        tile = part // (kernel_h * kernel_w // taps)
        tiles = tl.cdiv(channels, tile_c)
        output = (tile // tiles) * tile_o + tl.arange(0, tile_o)
        channel = (tile % tiles) * tile_c + tl.arange(0, tile_c)
        first = tl.zeros((tile_o, tile_c), tl.float32)
        second = tl.zeros((tile_o, tile_c), tl.float32)
        third = tl.zeros((tile_o, tile_c), tl.float32)
        for start in range(0, places, tile_t):
            place = start + tl.arange(0, tile_t)
            row, column = place // columns, place % columns
            at = example * gb + (row * gh + column * gw)[:, None] + (output * gc)[None, :]
            known = (place < places)[:, None] & (output < outputs)[None, :]
            left = tl.trans(tl.load(g + at, mask=known, other=0.0))
            left_low = left
            if two:
                left_low = tl.trans(tl.load(g_low + at, mask=known, other=0.0))
            y = row * stride_h + (tap // kernel_w) * step_h - pad_h
            z = column * stride_w + (tap % kernel_w) * step_w - pad_w
            inside = (place < places) & (y >= 0) & (y < height)
            there = (channel < channels)[None, :]
            at = example * xb + (y * xh + z * xw)[:, None] + (channel * xc)[None, :]
            seen = (inside & (z >= 0) & (z < width))[:, None] & there
            first = _tap(left, left_low, x, x_low, at, seen, first, two)
            if taps == 3:
                seen = (inside & (z >= -step_w) & (z < width - step_w))[:, None] & there
                second = _tap(left, left_low, x, x_low, at + step_w * xw, seen, second, two)
                seen = (inside & (z >= -2 * step_w) & (z < width - 2 * step_w))[:, None] & there
                third = _tap(left, left_low, x, x_low, at + 2 * step_w * xw, seen, third, two)
        if order == 0:
            known = (output < outputs)[:, None] & (channel < channels)[None, :]
            rows = (example * outputs + output) * (kernel_h * kernel_w * channels)
            to = out + rows[:, None] + (tap * channels + channel)[None, :]
            tl.store(to, first, mask=known)
            if taps == 3:
                tl.store(to + channels, second, mask=known)
                tl.store(to + 2 * channels, third, mask=known)
        else:
            if order == 1:
                total = tl.sum(tl.abs(first)) + tl.sum(tl.abs(second)) + tl.sum(tl.abs(third))
            else:
                total = tl.sum(first * first) + tl.sum(second * second) + tl.sum(third * third)
            tl.store(out + example * parts + part, total)


def _tile(size: int) -> int:
    return max(16, min(128, 1 << (size - 1).bit_length()))


def _run(
    x: Tensor, x_low: Tensor | None, g: Tensor, g_low: Tensor | None, geometry: Sequence[int], order: int
) -> Tensor:
    """The gradients themselves (order 0), [B, outputs, *kernel, channels], or power sums of their tiles, [B, parts]."""
    examples, channels, outputs, places = x.shape[0], x.shape[1], g.shape[1], g.shape[2] * g.shape[3]
    kernel = geometry[:2]
    across, along, block = _tile(outputs), _tile(channels), 32
    # The fastest tiles, taps per program, warps and stages of those tried on an H200.
    if min(across, along) == 128:
        taps, warps, stages = 1, 8, 3
    else:
        taps, warps, stages = 3 if kernel[1] == 3 else 1, 4 if across <= 64 else 8, 3 if across <= 64 else 2
        along = min(along, 64)
        if along == 16:
            block, stages = 64, 2
    parts = prod(kernel) // taps * triton.cdiv(channels, along) * triton.cdiv(outputs, across)
    shape = (examples, parts) if order else (examples, outputs, *kernel, channels)
    out = torch.empty(shape, dtype=torch.float32, device=x.device)
    sizes = [channels, outputs, x.shape[2], x.shape[3], g.shape[3], places]
    settings = [taps, order, x_low is not None, across, along, block]
    with torch.cuda.device(x.device):
        _gradients[(parts * examples,)](
            x, x if x_low is None else x_low, g, g if g_low is None else g_low, out, parts,
            *x.stride(), *g.stride(), *sizes, *geometry, *settings, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out


@torch.library.custom_op("discreet::halves", mutates_args=())
def halves(value: Tensor) -> tuple[Tensor, Tensor]:
    """A float32 tensor with dense memory as high + low, both bfloat16."""
    high, low = (torch.empty_like(value, dtype=torch.bfloat16) for _ in range(2))
    block = 1024
    with torch.cuda.device(value.device):
        _halves[(triton.cdiv(value.numel(), block),)](value, high, low, value.numel(), block)
    return high, low


@halves.register_fake
def _(value: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(value, dtype=torch.bfloat16), torch.empty_like(value, dtype=torch.bfloat16)


@torch.library.custom_op("discreet::convolution_gradients", mutates_args=())
def _gradients_op(x: Tensor, x_low: Tensor | None, g: Tensor, g_low: Tensor | None, geometry: Sequence[int]) -> Tensor:
    return _run(x, x_low, g, g_low, geometry, 0)


@_gradients_op.register_fake
def _(x: Tensor, x_low: Tensor | None, g: Tensor, g_low: Tensor | None, geometry: Sequence[int]) -> Tensor:
    return x.new_empty((x.shape[0], g.shape[1], *geometry[:2], x.shape[1]), dtype=torch.float32)


@torch.library.custom_op("discreet::convolution_powers", mutates_args=())
def _powers_op(
    x: Tensor, x_low: Tensor | None, g: Tensor, g_low: Tensor | None, geometry: Sequence[int], order: int
) -> Tensor:
    return _run(x, x_low, g, g_low, geometry, order).sum(1)


@_powers_op.register_fake
def _(x: Tensor, *rest: object) -> Tensor:
    return x.new_empty((x.shape[0],), dtype=torch.float32)


def _factors(value: Tensor) -> tuple[Tensor, Tensor | None]:
    """A value with channels last in memory, as (high, low); a 16-bit type has no low part."""
    value = value.contiguous(memory_format=torch.channels_last)
    if value.dtype != torch.float32:
        return value, None
    high, low = halves(value)
    return high, low


def gradients(x: Tensor, g: Tensor, geometry: Sequence[int]) -> Tensor:
    """The gradient of each example, [B, outputs, *kernel, channels], in float32.

    Args:
        x: the convolution's input, [B, channels, height, width].
        g: the gradient of its output, [B, outputs, …].
        geometry: height and width of the kernel, then of stride, padding and dilation.
    """
    result: Tensor = _gradients_op(*_factors(x), *_factors(g), list(geometry))
    return result


def powers(x: Tensor, g: Tensor, geometry: Sequence[int], order: int) -> Tensor:
    """Σ|gradient|^order of each example; arguments as for `gradients`."""
    result: Tensor = _powers_op(*_factors(x), *_factors(g), list(geometry), order)
    return result
