"""CUDA kernels that draw normal noise from ChaCha20 in one pass: cipher, Box and Muller, scale, one write.

`normal` gives the same numbers as `families.GaussianNoise` gives with the cipher of `chacha`, up to the rounding of
cos, sin and log. `noisy` adds such noise to many tensors in one launch, and never writes the noise itself to memory.
Triton comes with CUDA builds of torch.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# Triton kernels have no Python types.

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate

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
#: How many numbers one group of blocks gives.
_STRETCH = 2 * PAIRS * LANES


def supports(device: torch.device) -> bool:
    """Whether the kernels run on this device."""
    return triton is not None and device.type == "cuda"


if triton is not None:

    @triton.jit
    def _rotated(value, bits: tl.constexpr):
        return (value << bits) | (value >> (32 - bits))

    @triton.jit
    def _quarter_round(a, b, c, d, one):
        # Sums as a · 1 + b: a GPU multiplies and adds in other units than those that rotate and XOR, at the same time.
        # The 1 is an argument, so that a compiler does not take it out again.
        a = a * one + b
        d = _rotated(d ^ a, 16)
        c = c * one + d
        b = _rotated(b ^ c, 12)
        a = a * one + b
        d = _rotated(d ^ a, 8)
        c = c * one + d
        b = _rotated(b ^ c, 7)
        return a, b, c, d

    @triton.jit
    def _cosine_and_sine(word):
        """cos φ and sin φ of φ = (word + ½)·π/2³¹: the nearest quarter turn, and Taylor series for the rest, |x| ≤ π/4.

        The first terms left out are x¹²/12! < 2e-10 and x¹¹/11! < 2e-9.
        """
        turns = word.to(tl.int32, bitcast=True)
        quarter = (turns + (1 << 29)) >> 30
        x = ((turns - (quarter << 30)).to(tl.float32) + 0.5) * 1.4629180792671596e-09  # π/2³¹
        z = x * x
        cosine = 4.1666667e-2 + z * (-1.3888889e-3 + z * (2.4801587e-5 + z * -2.7557319e-7))
        cosine = 1.0 + z * (-0.5 + z * cosine)
        sine = -1.6666667e-1 + z * (8.3333333e-3 + z * (-1.9841270e-4 + z * 2.7557319e-6))
        sine = x + x * z * sine
        odd = (quarter & 1) != 0
        first, second = tl.where(odd, sine, cosine), tl.where(odd, cosine, sine)
        first = tl.where(((quarter + 1) & 2) != 0, -first, first)
        return first, tl.where((quarter & 2) != 0, -second, second)

    @triton.jit
    def _squared_radius(low, high):
        """−2 ln |u| of the 64-bit u = (n + ½)·2⁻⁶³ that the words of n give, within 2⁻²² of itself.

        |u| = 2ᵏ·(1 + s) with √½ ≤ 1 + s < √2. s is exact in float64, however close to zero it is, so the result is
        accurate in the tail and in the center. ln(1 + s) = s + s²·P(s) with a polynomial P that was fitted on that
        range, with an error below 5e-9; it and the sum with k ln 2 are computed in float32.
        """
        integer = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
        bits = (integer.to(tl.int64, bitcast=True).to(tl.float64) + 0.5).to(tl.int64, bitcast=True)
        # The upper half of a float64: sign, exponent, 20 bits. Moved so that the exponent changes at √2.
        upper = ((bits >> 32).to(tl.int32) & 0x7FFFFFFF) + 0x00095F62
        k = ((upper >> 20) - (1023 + 63)).to(tl.float32)
        mantissa = (((upper & 0x000FFFFF) + 0x3FE6A09E).to(tl.int64) << 32) | (bits & 0xFFFFFFFF)
        s = (mantissa.to(tl.float64, bitcast=True) - 1.0).to(tl.float32)
        p = 0.13004824689937391 + s * -0.07823356034859662
        p = 0.14163470487821425 + s * (-0.1320880046542975 + s * p)
        p = 0.20003015531423746 + s * (-0.16611149906017295 + s * p)
        p = 0.33333308293210373 + s * (-0.25001522064137144 + s * p)
        p = -0.4999998915729502 + s * p
        # ln 2 in two pieces, of which the first has 12 digits, so that its product with k is exact.
        logarithm = k * 0.693115234375 + (k * 3.194618494528623e-05 + (s + s * s * p))
        return -2.0 * logarithm

    @triton.jit
    def _store_pair(
        source, out, start, size, angle_word, low, high, factor, scale,
        pair: tl.constexpr, lanes: tl.constexpr, adds: tl.constexpr,
    ):  # fmt: skip
        """Write √(−2 ln |u|)·cos φ and √(−2 ln |u|)·sin φ."""
        radius = tl.sqrt(_squared_radius(low, high)) * scale
        positions = start + 2 * pair * lanes + tl.arange(0, lanes)
        cosine, sine = _cosine_and_sine(angle_word)
        first, second = radius * cosine, radius * sine
        if adds:
            first += factor * tl.load(source + positions, mask=positions < size, other=0.0)
            second += factor * tl.load(source + positions + lanes, mask=positions + lanes < size, other=0.0)
        tl.store(out + positions, first, mask=positions < size)
        tl.store(out + positions + lanes, second, mask=positions + lanes < size)

    @triton.jit
    def _store_group(
        source, out, start, size, group, one, w0, w1, w2, w3, w4, w5, w6, w7, factor, scale,
        lanes: tl.constexpr, pairs: tl.constexpr, adds: tl.constexpr,
    ):  # fmt: skip
        """One group of blocks: the block at counter i is computed by thread i; w0 to w7 are the words of the key."""
        zero = tl.zeros((lanes,), tl.uint32)
        unit = zero + one.to(tl.uint32)
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
            a0, b0, e0, d0 = _quarter_round(a0, b0, e0, d0, unit)
            a1, b1, e1, d1 = _quarter_round(a1, b1, e1, d1, unit)
            a2, b2, e2, d2 = _quarter_round(a2, b2, e2, d2, unit)
            a3, b3, e3, d3 = _quarter_round(a3, b3, e3, d3, unit)
            a0, b1, e2, d3 = _quarter_round(a0, b1, e2, d3, unit)
            a1, b2, e3, d0 = _quarter_round(a1, b2, e3, d0, unit)
            a2, b3, e0, d1 = _quarter_round(a2, b3, e0, d1, unit)
            a3, b0, e1, d2 = _quarter_round(a3, b0, e1, d2, unit)
        _store_pair(source, out, start, size, a0 + c0, a1 + c1, a2 + c2, factor, scale, 0, lanes, adds)
        _store_pair(source, out, start, size, a3 + c3, b0 + k0, b1 + k1, factor, scale, 1, lanes, adds)
        _store_pair(source, out, start, size, b2 + k2, b3 + k3, e0 + k4, factor, scale, 2, lanes, adds)
        _store_pair(source, out, start, size, e1 + k5, e2 + k6, e3 + k7, factor, scale, 3, lanes, adds)
        _store_pair(source, out, start, size, d0 + counter, d1, d2, factor, scale, 4, lanes, adds)

    @triton.jit(do_not_specialize=["one", "w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"])
    def _normal(
        out, one, w0, w1, w2, w3, w4, w5, w6, w7, size, scale, lanes: tl.constexpr, pairs: tl.constexpr
    ):  # fmt: skip
        """Noise alone: each program writes one stretch."""
        group = tl.program_id(0).to(tl.int64)
        start = group * (2 * pairs * lanes)
        _store_group(
            out, out, start, size, group, one, w0, w1, w2, w3, w4, w5, w6, w7, scale, scale, lanes, pairs, False
        )  # fmt: skip

    @triton.jit(do_not_specialize=["one", "w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "count"])
    def _noisy(
        table, count, one, w0, w1, w2, w3, w4, w5, w6, w7, factor, scale,
        halvings: tl.constexpr, lanes: tl.constexpr, pairs: tl.constexpr,
    ):  # fmt: skip
        """A stretch of one of `count` tensors. Rows of the table: first groups, sizes, addresses to read, to write."""
        group = tl.program_id(0).to(tl.int64)
        low, high = count * 0, count
        for _ in range(halvings):  # the last tensor whose first group is not after this one
            middle = (low + high) // 2
            begun = tl.load(table + middle) <= group
            low, high = tl.where(begun, middle, low), tl.where(begun, high, middle)
        start = (group - tl.load(table + low)) * (2 * pairs * lanes)
        size = tl.load(table + count + low)
        source = tl.load(table + 2 * count + low).to(tl.pointer_type(tl.float32))
        out = tl.load(table + 3 * count + low).to(tl.pointer_type(tl.float32))
        _store_group(
            source, out, start, size, group, one, w0, w1, w2, w3, w4, w5, w6, w7, factor, scale, lanes, pairs, True
        )  # fmt: skip


def _words(key: bytes) -> tuple[int, ...]:
    """The words of a key as int32. They travel with the launch, which costs less than a copy to the device."""
    return struct.unpack("<8i", key)


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Launch on this device. Entering it costs a tenth of a draw, so it is entered only if another one is current."""
    is_current = device.index is None or device.index == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(device)


def normal(size: int, scale: float, key: bytes, device: torch.device) -> Tensor:
    """`size` normals of standard deviation `scale` in float32, from the blocks of `key` at counters 0, 1, …"""
    out = torch.empty(size, device=device, dtype=torch.float32)
    groups = -(-size // _STRETCH)
    chacha.check_count(0, groups * LANES)
    if groups:
        with _on(device):
            _normal[(groups,)](out, 1, *_words(key), size, scale, lanes=LANES, pairs=PAIRS, num_warps=4)
    return out


def noisy(values: Sequence[Tensor], out: Sequence[Tensor], factor: float, scale: float, key: bytes) -> None:
    """Write factor · value + noise of standard deviation `scale` for each value, in one launch.

    Each tensor begins with a group of blocks of its own, so no block serves two of them.

    Args:
        values: float32 tensors on one CUDA device, without gaps in memory.
        out: tensors of the same shapes and strides; they may be `values` themselves.
        factor: what each value is multiplied by.
        scale: the standard deviation of the noise.
        key: that of this draw; it must not serve another one.
    """
    sizes = [value.numel() for value in values]
    *firsts, groups = accumulate((-(-size // _STRETCH) for size in sizes), initial=0)
    chacha.check_count(0, groups * LANES)
    if not groups:
        return
    addresses = [[tensor.data_ptr() for tensor in tensors] for tensors in (values, out)]
    table = torch.tensor([firsts, sizes, *addresses], pin_memory=True)
    device, halvings = values[0].device, len(values).bit_length()
    with _on(device):
        _noisy[(groups,)](
            table.to(device, non_blocking=True), len(values), 1, *_words(key), factor, scale,
            halvings=halvings, lanes=LANES, pairs=PAIRS, num_warps=4,
        )  # fmt: skip
