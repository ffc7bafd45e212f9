"""A CUDA kernel for norms from Gram matrices, which never writes the matrices themselves.

The squared norm of Σ_t g_t a_tᵀ is Σ_{t,s} ⟨a_t, a_s⟩⟨g_t, g_s⟩. Both matrices are symmetric. Each program computes
one pair of tiles on or above the diagonal, multiplies them in registers and writes a single number, so half of the
products and all of the traffic to memory are saved. The diagonals, whose roots are the lengths of the vectors, are
written too: the margins for rounding need them.

Triton comes with CUDA builds of torch. Where it is missing, or this kernel does not cover a case, `supports` is false.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# Triton kernels have no Python types.

from __future__ import annotations

import torch
from torch import Tensor

try:
    import triton  # type: ignore[import-not-found,unused-ignore]  # not on every machine
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # CPU builds of torch come without it
    triton = None

_TYPES = (torch.bfloat16, torch.float16)
#: For shorter sequences a tile would be mostly empty.
_SHORTEST = 32


def supports(a: Tensor, g: Tensor) -> bool:
    """Whether the kernel can compute norms from inputs [B, T, d] and output gradients [B, T, p]."""
    # The kernel indexes the elements of one example in 32 bits.
    small = a[0].numel() < 1 << 30 and g[0].numel() < 1 << 30
    narrow = a.dtype == g.dtype and a.dtype in _TYPES
    # Otherwise rows do not begin where they can be read 16 bytes at a time, which is many times slower.
    aligned = all(value.stride(2) == 1 and value.stride(1) % 8 == 0 for value in (a, g))
    return triton is not None and a.is_cuda and g.is_cuda and narrow and small and aligned and a.shape[1] >= _SHORTEST


if triton is not None:

    @triton.jit
    def _gram(base, rows, columns, length, stride, width, even: tl.constexpr, tile: tl.constexpr, block: tl.constexpr):
        """One tile of a Gram matrix, in float32."""
        total = tl.zeros((tile, tile), tl.float32)
        for start in range(0, width, block):
            k = start + tl.arange(0, block)
            left_valid = (rows < length)[:, None]
            right_valid = (columns < length)[None, :]
            if not even:
                left_valid = left_valid & (k < width)[None, :]
                right_valid = right_valid & (k < width)[:, None]
            left = tl.load(base + rows[:, None] * stride + k[None, :], mask=left_valid, other=0.0)
            right = tl.load(base + columns[None, :] * stride + k[:, None], mask=right_valid, other=0.0)
            total = tl.dot(left, right, total)
        return total

    @triton.jit
    def _products(
        a, g, squares, of_a, of_g, pairs, length, a_example, a_row, a_width, g_example, g_row, g_width,
        a_even: tl.constexpr, g_even: tl.constexpr, tile: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """One pair of tiles (i, j), i ≤ j, of one example."""
        pair = tl.program_id(0) % pairs
        example = (tl.program_id(0) // pairs).to(tl.int64)
        j = ((tl.sqrt(8.0 * pair.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
        j += (((j + 1) * (j + 2)) // 2 <= pair).to(tl.int32)  # the root may be rounded
        j -= ((j * (j + 1)) // 2 > pair).to(tl.int32)
        i = pair - (j * (j + 1)) // 2
        rows, columns = i * tile + tl.arange(0, tile), j * tile + tl.arange(0, tile)
        left = _gram(a + example * a_example, rows, columns, length, a_row, a_width, a_even, tile, block)
        right = _gram(g + example * g_example, rows, columns, length, g_row, g_width, g_even, tile, block)
        total = tl.sum(left * right)
        if i == j:
            diagonal = rows[:, None] == columns[None, :]
            positions = example * length + rows
            tl.store(of_a + positions, tl.sum(tl.where(diagonal, left, 0.0), 1), mask=rows < length)
            tl.store(of_g + positions, tl.sum(tl.where(diagonal, right, 0.0), 1), mask=rows < length)
        else:
            total = 2.0 * total
        tl.store(squares + example * pairs + pair, total)


@torch.library.custom_op("discreet::gram_products", mutates_args=())
def _gram_products(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, g = (value if value.stride(2) == 1 else value.contiguous() for value in (a, g))
    examples, length = a.shape[:2]
    # The fastest tiles, warps and stages of those tried on an H200.
    tile, warps, stages = (128, 8, 4) if length > 64 else (64, 4, 4)
    block = 64
    tiles = triton.cdiv(length, tile)
    pairs = tiles * (tiles + 1) // 2
    squares = torch.empty((examples, pairs), dtype=torch.float32, device=a.device)
    of_a, of_g = (torch.empty((examples, length), dtype=torch.float32, device=a.device) for _ in range(2))
    with torch.cuda.device(a.device):
        _products[(pairs * examples,)](
            a, g, squares, of_a, of_g, pairs, length, a.stride(0), a.stride(1), a.shape[2], g.stride(0), g.stride(1),
            g.shape[2], a.shape[2] % block == 0, g.shape[2] % block == 0, tile, block,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return squares.sum(1), of_a, of_g


@_gram_products.register_fake
def _(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.float32
    return (
        a.new_empty(a.shape[0], dtype=wide),
        a.new_empty(a.shape[:2], dtype=wide),
        g.new_empty(g.shape[:2], dtype=wide),
    )


def gram_products(a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Σ_{t,s} ⟨a_t, a_s⟩⟨g_t, g_s⟩ of each example, [B], and the diagonals ‖a_t‖² and ‖g_t‖², [B, T], in float32."""
    squares, of_a, of_g = _gram_products(a, g)
    return squares, of_a, of_g
