"""Exact samplers for Laplace and Gaussian noise at any scale: a table of blocks, with more bits drawn only as needed.

The half line is cut into blocks [kM, (k+1)M) with M a power of two, about 1/32 of the noise's scale. One draw is

1. a block k ∝ exp(−h(kM)), by comparing a 31-bit prefix of a uniform real with the blocks' cumulative masses;
2. a uniform offset f ∈ [0, 1) inside the block, and a coin that keeps it with probability exp(−γ), where
   γ = h((k+f)M) − h(kM), in [0, 1): the kept draws have density ∝ exp(−h) exactly;
3. a fair sign; for discrete noise a negative zero is drawn again, so that zero is not counted twice.

With h(x) = x/b this is Laplace noise: γ = f·c, c = M/b. With h(x) = x²/2σ² it is Gaussian: γ = (kf + f²/2)·c,
c = M²/σ². For *discrete* noise f is a multiple of 1/M. For *rounded* noise f is a real number, of which only as many
bits are drawn as a decision needs, and the draw is rounded to the nearest integer at the end: this is continuous noise,
rounded, and not the discrete distribution of the same scale.

No floating-point number is involved. Each comparison is first made between integers that bound both sides. If they do
not decide it (less than one draw in 10⁴), it is repeated with more bits on both sides until they do.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.mechanisms.sampling.entropy import Bits
from discreet.mechanisms.sampling.fixed_point import exp_neg, uniform_below

_CHUNK = 1 << 15  # draws at a time; their arrays fit in the processor's cache
_PREFIX = 31  # bits of the uniform real that selects a block; the 32nd bit of the word is the sign
_CELL = 15  # one entry of the guide covers 2^15 adjacent prefixes
_OFFSET_BITS = 44  # bits of the offset in a block that are drawn at once
_COIN = 64 - _OFFSET_BITS  # bits of the coin that are drawn with them
_UNIT = 40  # the second comparison of a coin works in units of 2^−40


class Shape(Enum):
    """The exponent h: linear or quadratic."""

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"


class Support(Enum):
    """Which numbers are drawn: integers from the start, or reals that are rounded at the end."""

    DISCRETE = "discrete"
    ROUNDED = "rounded"


@lru_cache(maxsize=128)
def block_sampler(shape: Shape, support: Support, parameter: Fraction) -> BlockSampler:
    """A sampler with scale b = `parameter` (Laplace) or variance σ² = `parameter` (Gaussian). It is cached."""
    return BlockSampler(shape, support, parameter)


@dataclass(eq=False)
class BlockSampler:
    """Exact noise of one shape and scale; `parameter` is b for Laplace and σ² for Gaussian."""

    shape: Shape
    support: Support
    parameter: Fraction
    _log_block: int = field(init=False)  # M = 2^_log_block
    _ratio: Fraction = field(init=False)  # c
    _tables: dict[int, tuple[list[int], list[int]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        laplace = self.shape is Shape.LAPLACE
        scale_squared = self.parameter**2 if laplace else self.parameter
        self._log_block = _floor_log2_root(scale_squared / 1024)  # M ≤ scale/32 < 2M
        if self.support is Support.DISCRETE:
            self._log_block = max(self._log_block, 0)
        if self._log_block >= _OFFSET_BITS:
            raise _check.fail("scale", f"be < 2^{_OFFSET_BITS + 5}", float(self.parameter), "use a coarser grid")
        block = Fraction(2) ** self._log_block
        self._ratio = block / self.parameter if laplace else block**2 / self.parameter
        self._build()

    # --- the table ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        low, high = self._cumulative(_PREFIX)
        self._thresholds = np.array(low, dtype=np.uint32)
        # Prefixes from low to high − 1 do not tell on which side of a block's end the uniform real lies.
        self._doubtful = np.array(
            sorted({u for lo, hi in zip(low, high, strict=True) for u in range(lo, hi)}), dtype=np.uint32
        )
        cells = 1 << (_PREFIX - _CELL)
        starts = (np.arange(cells) << _CELL).astype(np.uint32)
        guide = np.searchsorted(self._thresholds, starts, side="right").astype(np.int16)
        guide[self._doubtful >> _CELL] = -1
        guide[guide == len(low)] = -1
        self._guide = guide
        self._sure = np.array([self._surely_kept(k) for k in range(len(low))] + [0], dtype=np.uint32)
        self._fixed_ratio = int(self._ratio * (1 << (32 if self.shape is Shape.LAPLACE else _UNIT)))

    def _surely_kept(self, block: int) -> int:
        """How many of the 2^20 first coin values keep every offset in a block, by 1 − γ ≤ exp(−γ)."""
        return max(0, int((1 - self._exponent(block, Fraction(1))) * (1 << _COIN)))

    def _exponent(self, block: int, offset: Fraction) -> Fraction:
        """γ of an offset in a block."""
        if self.shape is Shape.LAPLACE:
            return offset * self._ratio
        return (block * offset + offset * offset / 2) * self._ratio

    def _cumulative(self, precision: int) -> tuple[list[int], list[int]]:
        """For each block k, integers that enclose 2^precision · P(block ≤ k), until the rest is below 2^−precision."""
        if precision not in self._tables:
            self._tables[precision] = self._sum_blocks(precision)
        return self._tables[precision]

    def _sum_blocks(self, precision: int) -> tuple[list[int], list[int]]:
        width = precision + 128
        unit = 1 << width
        laplace = self.shape is Shape.LAPLACE
        # exp(−h((k+1)M)) = exp(−h(kM)) · step, and for a Gaussian the step shrinks by exp(−c) each time.
        step = exp_neg(self._ratio if laplace else self._ratio / 2, width)
        shrink = (unit, unit) if laplace else exp_neg(self._ratio, width)
        mass, total = (unit, unit), (0, 0)
        sums: list[tuple[int, int]] = []
        # The bound on the Gaussian's remainder is looser than the Laplace's, so more terms are summed.
        negligible = precision + (4 if laplace else 64)
        while not sums or mass[1] << negligible > total[0]:
            total = total[0] + mass[0], total[1] + mass[1]
            sums.append(total)
            mass, step = _times(mass, step, width), _times(step, shrink, width)
        # The remainder is a geometric series (Laplace) or below one (Gaussian): mass / (1 − step).
        total = (
            total[0] + (mass[0] * unit // (unit - step[0]) if laplace else mass[0]),
            total[1] + mass[1] * unit // (unit - step[1]) + 1,
        )
        low = [(s << precision) // total[1] for s, _ in sums]
        high = [min(1 << precision, -((-s << precision) // total[0])) for _, s in sums]
        return low, high

    # --- drawing --------------------------------------------------------------------------------------------------

    def draw(self, size: int, bits: Bits) -> NDArray[np.int64]:
        """`size` independent draws."""
        out = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            missing = size - filled
            drawn = self._draw_some(min(_CHUNK, missing + missing // 8 + 8), bits)[:missing]
            out[filled : filled + len(drawn)] = drawn
            filled += len(drawn)
        return out

    def _draw_some(self, count: int, bits: Bits) -> NDArray[np.int64]:
        """The draws that were kept from `count` tries."""
        words = bits.half_words(count)
        block = self._choose(words >> np.uint32(1), bits)
        kept: NDArray[np.bool_] | None = None
        if self.support is Support.DISCRETE and self._log_block == 0:
            magnitude = block
        else:
            fine = bits.words(count)
            offset = fine >> np.uint64(_COIN)
            if self.support is Support.DISCRETE:  # only the first log2 M bits of the offset exist
                spare = np.uint64(_OFFSET_BITS - self._log_block)
                offset = (offset >> spare) << spare
            kept = self._keep(block, offset, fine & np.uint64((1 << _COIN) - 1), bits)
            magnitude = self._magnitude(block, offset)
        negative = (words & np.uint32(1)).astype(np.int64)
        if self.support is Support.DISCRETE:
            valid = (magnitude | (negative - 1)) != 0  # False only for a negative zero
            kept = valid if kept is None else kept & valid
        magnitude = (magnitude ^ -negative) + negative
        return magnitude if kept is None else magnitude[kept]

    def _choose(self, prefix: NDArray[np.uint32], bits: Bits) -> NDArray[np.int64]:
        """The block of each uniform real, from its first 31 bits, or from more bits if these do not decide it."""
        block: NDArray[np.int64] = self._guide[prefix >> np.uint32(_CELL)].astype(np.int64)
        unresolved = np.flatnonzero(block < 0)
        near = prefix[unresolved]
        block[unresolved] = np.searchsorted(self._thresholds, near, side="right")
        at = np.minimum(np.searchsorted(self._doubtful, near), len(self._doubtful) - 1)
        for i in unresolved[(self._doubtful[at] == near) | (block[unresolved] == len(self._thresholds))]:
            block[i] = self._choose_exactly(int(prefix[i]), bits)
        return block

    def _choose_exactly(self, prefix: int, bits: Bits) -> int:
        width = _PREFIX
        while True:
            prefix, width = (prefix << 96) | bits.integer(96), width + 96
            low, high = self._cumulative(width)
            block = bisect.bisect_right(high, prefix)  # prefix ≥ high[k − 1]: it lies above the earlier blocks
            if block < len(low) and prefix + 1 <= low[block]:
                return block

    def _magnitude(self, block: NDArray[np.int64], offset: NDArray[np.uint64]) -> NDArray[np.int64]:
        log_block = self._log_block
        if self.support is Support.DISCRETE:
            return (block << log_block) + (offset >> np.uint64(_OFFSET_BITS - log_block)).astype(np.int64)
        if log_block >= 0:  # ⌊(k + f)M + 1/2⌋, with one fractional bit
            halves = (block << (log_block + 1)) + (offset >> np.uint64(_OFFSET_BITS - log_block - 1)).astype(np.int64)
            return (halves + 1) >> 1
        # M < 1: adding 1/2 to (k + f)M adds 2^(−log M − 1) to k, and the offset does not matter
        shift = -log_block
        return (block + (1 << (shift - 1))) >> shift if shift < 62 else np.zeros_like(block)

    # --- the coin -------------------------------------------------------------------------------------------------

    def _keep(
        self, block: NDArray[np.int64], offset: NDArray[np.uint64], coin: NDArray[np.uint64], bits: Bits
    ) -> NDArray[np.bool_]:
        """Which tries are kept: those whose coin, a uniform real, lies below exp(−γ)."""
        kept = coin < self._sure.take(block, mode="clip")
        second = np.flatnonzero(~kept)
        if not len(second):
            return kept
        more = bits.half_words(len(second))
        k, f = block[second], offset[second]
        v = (coin[second] << np.uint64(32)) | more  # 52 bits
        floor, ceiling = self._bound_survival(k, f)
        v_short = v >> np.uint64(_COIN + 32 - _UNIT)
        kept[second] = yes = v_short + np.uint64(1) <= floor
        outside = k >= len(self._thresholds)  # beyond the table the short integers could overflow
        for j in np.flatnonzero((~yes & (v_short < ceiling)) | outside):
            kept[second[j]] = self._keep_exactly(int(k[j]), int(f[j]), int(v[j]), bits)
        return kept

    def _bound_survival(
        self, block: NDArray[np.int64], offset: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Integers that enclose 2^40 exp(−γ), for blocks in the table.

        γ is rounded down (`slack` bounds its error), then 1 − γ + γ²/2 − γ³/6 ≤ exp(−γ) ≤ 1 − γ + γ²/2.
        """
        u = np.uint64
        short = offset >> u(_OFFSET_BITS - 30)  # f to 30 bits
        if self.shape is Shape.LAPLACE:  # c ≤ 2^−5 to 32 bits: the product has 57
            gamma = (short * u(self._fixed_ratio)) >> u(22)
            slack = u(1 << 10)  # f: 2^−30 c; c: 2^−32; the shift: 2^−40. Below 2^−30 together
        else:  # kf + f²/2 < 2^10 to 20 bits, c ≤ 2^−10 to 40 bits: the product has 60
            lever = (block.astype(np.uint64) * short + ((short * short) >> u(31))) >> u(10)
            gamma = (lever * u(self._fixed_ratio)) >> u(20)
            slack = u(1 << 13)  # kf: 2^−19 c ≤ 2^−29; c: 2^−40 · 2^10; the shift: 2^−40. Below 2^−27 together
        fixed_one = u(1 << _UNIT)
        above = gamma + slack
        low_root, high_root = gamma >> u(9), (above >> u(9)) + u(1)  # units of 2^−31, so that squares fit
        ceiling = fixed_one - gamma + (((low_root + u(1)) * (low_root + u(1))) >> u(23)) + u(1)
        half_square = (high_root * high_root) >> u(23)
        cube = (((half_square >> u(16)) + u(1)) * high_root >> u(15)) + u(1)  # γ³/2 in units of 2^−40
        floor = fixed_one - above + ((above >> u(9)) * (above >> u(9)) >> u(23)) - cube // u(3) - u(1)
        return floor, ceiling

    def _keep_exactly(self, block: int, offset: int, coin: int, bits: Bits) -> bool:
        """The same decision, with as many bits of the coin (and of the offset, if it is real) as needed."""
        exact_place = self.support is Support.DISCRETE
        width = _OFFSET_BITS

        def survival(precision: int) -> tuple[int, int]:
            nonlocal offset, width
            low_f = Fraction(offset, 1 << width)
            if exact_place:
                return exp_neg(self._exponent(block, low_f), precision)
            while width < precision + 64:
                offset, width = (offset << 64) | bits.integer(64), width + 64
                low_f = Fraction(offset, 1 << width)
            high_f = low_f + Fraction(1, 1 << width)
            low, _ = exp_neg(self._exponent(block, high_f), precision)
            _, high = exp_neg(self._exponent(block, low_f), precision)
            return low, high

        return uniform_below(survival, coin, _COIN + 32, bits)


def _times(a: tuple[int, int], b: tuple[int, int], width: int) -> tuple[int, int]:
    return (a[0] * b[0]) >> width, ((a[1] * b[1]) >> width) + 1


def _floor_log2_root(x: Fraction) -> int:
    """⌊log₂ √x⌋ for rational x > 0, exactly."""
    guess = (x.numerator.bit_length() - x.denominator.bit_length()) // 2 + 1
    while Fraction(4) ** guess > x:
        guess -= 1
    return guess
