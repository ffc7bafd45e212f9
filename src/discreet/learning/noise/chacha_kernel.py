"""A CUDA kernel that draws normal noise from ChaCha20 in one pass: cipher, Box and Muller, scale, one write.

It gives the same numbers as `families.GaussianNoise` gives with the cipher of `chacha`, up to the rounding of cos, sin
and log. Nothing but the noise is written to memory. Triton comes with CUDA builds of torch.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# Triton kernels have no Python types.

from __future__ import annotations

import torch
from torch import Tensor

from discreet.learning.noise import chacha

try:
    import triton  # type: ignore[import-not-found,unused-ignore]  # not on every machine
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # CPU builds of torch come without it
    triton = None

#: Each group of this many blocks gives one stretch of the noise; its threads write neighboring numbers.
LANES = 256
#: A block of 16 words gives five pairs of normals, each from one word for the angle and two for the radius.
PAIRS = 5


def supports(device: torch.device) -> bool:
    """Whether the kernel runs on this device."""
    return triton is not None and device.type == "cuda"


if triton is not None:

    @triton.jit
    def _rotated(value, bits: tl.constexpr):
        return (value << bits) | (value >> (32 - bits))

    @triton.jit
    def _quarter_round(a, b, c, d):
        a = a + b
        d = _rotated(d ^ a, 16)
        c = c + d
        b = _rotated(b ^ c, 12)
        a = a + b
        d = _rotated(d ^ a, 8)
        c = c + d
        b = _rotated(b ^ c, 7)
        return a, b, c, d

    @triton.jit
    def _stored_pair(out, start, size, angle_word, low, high, scale, pair: tl.constexpr, lanes: tl.constexpr):
        """Write √(−2 ln |u|)·cos φ and √(−2 ln |u|)·sin φ; the logarithm is in float64, as on a CPU."""
        angle = (angle_word.to(tl.int32, bitcast=True).to(tl.float32) + 0.5) * 1.4629180792671596e-09  # π/2³¹
        integer = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
        uniform = (integer.to(tl.int64, bitcast=True).to(tl.float64) + 0.5) * 1.0842021724855044e-19  # 2⁻⁶³
        radius = tl.sqrt((-tl.log(uniform * uniform)).to(tl.float32)) * scale
        place = start + 2 * pair * lanes + tl.arange(0, lanes)
        tl.store(out + place, radius * tl.cos(angle), mask=place < size)
        tl.store(out + place + lanes, radius * tl.sin(angle), mask=place + lanes < size)

    @triton.jit(do_not_specialize=["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"])
    def _normal(
        out, w0, w1, w2, w3, w4, w5, w6, w7, size, scale, lanes: tl.constexpr, pairs: tl.constexpr
    ):  # fmt: skip
        """One group of blocks: the block at counter i is computed by thread i; w0 to w7 are the words of the key."""
        group = tl.program_id(0).to(tl.int64)
        zero = tl.zeros((lanes,), tl.uint32)
        counter = (group * lanes + tl.arange(0, lanes)).to(tl.uint32)
        k0 = zero + w0.to(tl.uint32)
        k1 = zero + w1.to(tl.uint32)
        k2 = zero + w2.to(tl.uint32)
        k3 = zero + w3.to(tl.uint32)
        k4 = zero + w4.to(tl.uint32)
        k5 = zero + w5.to(tl.uint32)
        k6 = zero + w6.to(tl.uint32)
        k7 = zero + w7.to(tl.uint32)
        c0 = zero + 0x61707865
        c1 = zero + 0x3320646E
        c2 = zero + 0x79622D32
        c3 = zero + 0x6B206574
        a0, a1, a2, a3 = c0, c1, c2, c3
        b0, b1, b2, b3 = k0, k1, k2, k3
        e0, e1, e2, e3 = k4, k5, k6, k7
        d0, d1, d2, d3 = counter, zero, zero, zero
        for _ in range(10):
            a0, b0, e0, d0 = _quarter_round(a0, b0, e0, d0)
            a1, b1, e1, d1 = _quarter_round(a1, b1, e1, d1)
            a2, b2, e2, d2 = _quarter_round(a2, b2, e2, d2)
            a3, b3, e3, d3 = _quarter_round(a3, b3, e3, d3)
            a0, b1, e2, d3 = _quarter_round(a0, b1, e2, d3)
            a1, b2, e3, d0 = _quarter_round(a1, b2, e3, d0)
            a2, b3, e0, d1 = _quarter_round(a2, b3, e0, d1)
            a3, b0, e1, d2 = _quarter_round(a3, b0, e1, d2)
        start = group * (2 * pairs * lanes)
        _stored_pair(out, start, size, a0 + c0, a1 + c1, a2 + c2, scale, 0, lanes)
        _stored_pair(out, start, size, a3 + c3, b0 + k0, b1 + k1, scale, 1, lanes)
        _stored_pair(out, start, size, b2 + k2, b3 + k3, e0 + k4, scale, 2, lanes)
        _stored_pair(out, start, size, e1 + k5, e2 + k6, e3 + k7, scale, 3, lanes)
        _stored_pair(out, start, size, d0 + counter, d1, d2, scale, 4, lanes)


def normal(size: int, scale: float, key: bytes, device: torch.device) -> Tensor:
    """`size` normals of standard deviation `scale` in float32, from the blocks of `key` at counters 0, 1, …"""
    out = torch.empty(size, device=device, dtype=torch.float32)
    groups = -(-size // (2 * PAIRS * LANES))
    chacha.check_count(0, groups * LANES)
    if groups:
        # The key travels with the launch: a copy to the device would cost more than the kernel of a small model.
        words = [int(word) - (int(word) >> 31 << 32) for word in chacha.words_of(key)]  # the same bits, as int32
        with torch.cuda.device(device):
            _normal[(groups,)](out, *words, size, scale, lanes=LANES, pairs=PAIRS, num_warps=4)
    return out
