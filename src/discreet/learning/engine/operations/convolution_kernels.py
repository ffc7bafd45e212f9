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

from discreet.learning.engine.operations.arithmetic import on_grid, power_sums

try:
    import triton  # type: ignore[import-not-found,unused-ignore]  # not on every machine
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # CPU builds of torch come without it
    triton = None

#: The error of a float32 product over the sizes of its terms, rounded up: the rests of two factors, at most 2⁻¹⁶ each,
#: and low·low, which is left out: at most 2⁻⁹·2⁻⁷, for one half rounded and the other one cut.
ERROR = 2.0**-14

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_FLOAT32_DIGITS = 24


def supports(x: Tensor, g: Tensor, kernel: Sequence[int], groups: int) -> bool:
    """Whether these kernels can compute the gradients of a convolution with this input and output gradient."""
    # The kernels index the elements of one example in 32 bits.
    small = x[0].numel() < 1 << 31 and g[0].numel() < 1 << 31
    plain = len(kernel) == 2 and x.dim() == 4 and groups == 1
    return triton is not None and x.is_cuda and plain and small and x.dtype == g.dtype and x.dtype in _TYPES


if triton is not None:

    @triton.jit
    def _halves(v, high, low, squares, size, kept, block: tl.constexpr):
        """Split numbers, cut to the bits that are `kept`, into high + low, in memory order; and their squares' sum."""
        offset = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        value = tl.load(v + offset, mask=offset < size, other=0.0)
        value = (value.to(tl.int32, bitcast=True) & kept).to(tl.float32, bitcast=True)
        upper = value.to(tl.bfloat16)
        tl.store(high + offset, upper, mask=offset < size)
        tl.store(low + offset, (value - upper.to(tl.float32)).to(tl.bfloat16), mask=offset < size)
        tl.store(squares + tl.program_id(0), tl.sum(value * value))

    @triton.jit
    def _tap(left, left_low, x, x_low, offset, valid, total, split: tl.constexpr):
        """Add one tap's product over a block of positions to its tile of the gradient."""
        right = tl.load(x + offset, mask=valid, other=0.0)
        total = tl.dot(left, right, total)
        if split:
            total = tl.dot(left_low, right, total)
            total = tl.dot(left, tl.load(x_low + offset, mask=valid, other=0.0), total)
        return total

    @triton.jit
    def _gradients(
        x, x_low, g, g_low, out, programs, xb, xc, xh, xw, gb, gc, gh, gw,
        channels: tl.constexpr, outputs: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
        columns: tl.constexpr, positions: tl.constexpr, kernel_h: tl.constexpr, kernel_w: tl.constexpr,
        stride_h: tl.constexpr, stride_w: tl.constexpr, pad_h: tl.constexpr, pad_w: tl.constexpr,
        step_h: tl.constexpr, step_w: tl.constexpr, taps: tl.constexpr, order: tl.constexpr, split: tl.constexpr,
        tile_o: tl.constexpr, tile_c: tl.constexpr, tile_t: tl.constexpr,
    ):  # fmt: skip
        """One tile of outputs × channels, at one tap or three neighboring ones, of one example."""
        program = tl.program_id(0) % programs
        example = (tl.program_id(0) // programs).to(tl.int64)
        tap = (program % (kernel_h * kernel_w // taps)) * taps
        tile = program // (kernel_h * kernel_w // taps)
        tiles = tl.cdiv(channels, tile_c)
        output = (tile // tiles) * tile_o + tl.arange(0, tile_o)
        channel = (tile % tiles) * tile_c + tl.arange(0, tile_c)
        first = tl.zeros((tile_o, tile_c), tl.float32)
        second = tl.zeros((tile_o, tile_c), tl.float32)
        third = tl.zeros((tile_o, tile_c), tl.float32)
        for start in range(0, positions, tile_t):
            position = start + tl.arange(0, tile_t)
            row, column = position // columns, position % columns
            offset = example * gb + (row * gh + column * gw)[:, None] + (output * gc)[None, :]
            in_gradient = (position < positions)[:, None] & (output < outputs)[None, :]
            left = tl.trans(tl.load(g + offset, mask=in_gradient, other=0.0))
            left_low = left
            if split:
                left_low = tl.trans(tl.load(g_low + offset, mask=in_gradient, other=0.0))
            x_row = row * stride_h + (tap // kernel_w) * step_h - pad_h
            x_column = column * stride_w + (tap % kernel_w) * step_w - pad_w
            in_rows = (position < positions) & (x_row >= 0) & (x_row < height)
            in_channels = (channel < channels)[None, :]
            offset = example * xb + (x_row * xh + x_column * xw)[:, None] + (channel * xc)[None, :]
            valid = (in_rows & (x_column >= 0) & (x_column < width))[:, None] & in_channels
            first = _tap(left, left_low, x, x_low, offset, valid, first, split)
            if taps == 3:
                valid = (in_rows & (x_column >= -step_w) & (x_column < width - step_w))[:, None] & in_channels
                second = _tap(left, left_low, x, x_low, offset + step_w * xw, valid, second, split)
                valid = (in_rows & (x_column >= -2 * step_w) & (x_column < width - 2 * step_w))[:, None] & in_channels
                third = _tap(left, left_low, x, x_low, offset + 2 * step_w * xw, valid, third, split)
        if order == 0:
            in_gradient = (output < outputs)[:, None] & (channel < channels)[None, :]
            rows = (example * outputs + output) * (kernel_h * kernel_w * channels)
            target = out + rows[:, None] + (tap * channels + channel)[None, :]
            tl.store(target, first, mask=in_gradient)
            if taps == 3:
                tl.store(target + channels, second, mask=in_gradient)
                tl.store(target + 2 * channels, third, mask=in_gradient)
        else:
            if order == 1:
                total = tl.sum(tl.abs(first)) + tl.sum(tl.abs(second)) + tl.sum(tl.abs(third))
            else:
                total = tl.sum(first * first) + tl.sum(second * second) + tl.sum(third * third)
            tl.store(out + example * programs + program, total)


def _tile(size: int) -> int:
    return max(16, min(128, 1 << (size - 1).bit_length()))


def _run(
    x: Tensor, x_low: Tensor | None, g: Tensor, g_low: Tensor | None, geometry: Sequence[int], order: int
) -> Tensor:
    """The gradients (order 0) as [B, outputs, *kernel, channels], or the power sums of their tiles as [B, programs]."""
    examples, channels, outputs, positions = x.shape[0], x.shape[1], g.shape[1], g.shape[2] * g.shape[3]
    kernel = geometry[:2]
    tile_outputs, tile_channels, tile_positions = _tile(outputs), _tile(channels), 32
    # The fastest tiles, taps per program, warps and stages of those tried on an H200.
    if min(tile_outputs, tile_channels) == 128:
        taps, warps, stages = 1, 8, 3
    else:
        taps, warps, stages = 3 if kernel[1] == 3 else 1, 4 if tile_outputs <= 64 else 8, 3 if tile_outputs <= 64 else 2
        tile_channels = min(tile_channels, 64)
        if tile_channels == 16:
            tile_positions, stages = 64, 2
    programs = prod(kernel) // taps * triton.cdiv(channels, tile_channels) * triton.cdiv(outputs, tile_outputs)
    shape = (examples, programs) if order else (examples, outputs, *kernel, channels)
    out = torch.empty(shape, dtype=torch.float32, device=x.device)
    sizes = [channels, outputs, x.shape[2], x.shape[3], g.shape[3], positions]
    settings = [taps, order, x_low is not None, tile_outputs, tile_channels, tile_positions]
    with torch.cuda.device(x.device):
        _gradients[(programs * examples,)](
            x, x if x_low is None else x_low, g, g if g_low is None else g_low, out, programs,
            *x.stride(), *g.stride(), *sizes, *geometry, *settings, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out


#: How many numbers one program splits.
_BLOCK = 1024


@torch.library.custom_op("discreet::split_in_halves", mutates_args=())
def halves(value: Tensor, digits: int) -> tuple[Tensor, Tensor, Tensor]:
    """A float32 tensor [B, …] with dense memory, cut to this many binary digits, as high + low, both bfloat16.

    The third result is the sum of squares of each example, so that the numbers need not be read again for it. All
    results are used at once: the memory of several results is free only when none of them is needed any more.
    """
    high, low = (torch.empty_like(value, dtype=torch.bfloat16) for _ in range(2))
    blocks = triton.cdiv(value.numel(), _BLOCK)
    squares = torch.empty(blocks, dtype=torch.float32, device=value.device)
    kept = -(1 << max(0, _FLOAT32_DIGITS - digits))
    with torch.cuda.device(value.device):
        _halves[(blocks,)](value, high, low, squares, value.numel(), kept, _BLOCK)
    if value[0].numel() % _BLOCK == 0:
        return high, low, squares.view(value.shape[0], -1).sum(1)
    return high, low, power_sums(on_grid(value, digits), 2)


@halves.register_fake
def _(value: Tensor, digits: int) -> tuple[Tensor, Tensor, Tensor]:
    high, low = (torch.empty_like(value, dtype=torch.bfloat16) for _ in range(2))
    return high, low, value.new_empty(value.shape[0])


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


def fused_halves(value: Tensor) -> tuple[Tensor, Tensor]:
    """As `halves`, in operations that a compiler fuses with those that compute the value; `high` is cut, not rounded.

    It has to be cut by its bits: a compiler skips the rounding of a number that is widened again.
    """
    high = (value.view(torch.int32) & -(1 << 16)).view(torch.float32)
    return high.to(torch.bfloat16), (value - high).to(torch.bfloat16)


def _both(x: Tensor, g: Tensor, digits: int) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Both factors with channels last in memory, as (high, low); a 16-bit type has no low part.

    The input's halves must not be made where the input is, long before they are needed: a compiler can't look into the
    operation that makes them. So its digits are cut there too, else a copy of the input would be written before.
    """
    x, g = (value.contiguous(memory_format=torch.channels_last) for value in (x, g))
    if x.dtype != torch.float32:
        return x, None, g, None
    high, low, _ = halves(x, digits)
    return high, low, *fused_halves(g)


def input_squares(x: Tensor, digits: int) -> Tensor:
    """Σx² of each example of a float32 input, with the digits that are used; a trace splits the input only once."""
    result: Tensor = halves(x.contiguous(memory_format=torch.channels_last), digits)[2]
    return result


def gradients(x: Tensor, g: Tensor, geometry: Sequence[int], digits: int) -> Tensor:
    """The gradient of each example, [B, outputs, *kernel, channels], in float32.

    Args:
        x: the convolution's input, [B, channels, height, width].
        g: the gradient of its output, [B, outputs, …], with the digits that are to be used.
        geometry: height and width of the kernel, then of stride, padding and dilation.
        digits: how many binary digits of a float32 input are used.
    """
    result: Tensor = _gradients_op(*_both(x, g, digits), list(geometry))
    return result


def powers(x: Tensor, g: Tensor, geometry: Sequence[int], digits: int, order: int) -> Tensor:
    """Σ|gradient|^order of each example; arguments as for `gradients`."""
    result: Tensor = _powers_op(*_both(x, g, digits), list(geometry), order)
    return result
