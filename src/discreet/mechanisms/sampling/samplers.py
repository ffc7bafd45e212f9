"""Exact random integers: every probability is exactly the one in the docstring.

Scales are rational, randomness comes as bits, and comparisons are between integers: no floating-point number decides a
sample. All functions are vectorized and take their bits from `entropy.SYSTEM` by default. They know nothing about
privacy: a mechanism chooses the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.mechanisms.sampling.blocks import Shape, Support, block_sampler
from discreet.mechanisms.sampling.entropy import SYSTEM, Bits
from discreet.mechanisms.sampling.fixed_point import bernoulli, exp_neg

#: The largest noise scale, in grid units. At this scale a draw beyond ±2^62 has a probability below exp(−2^13).
MAX_SCALE = 1 << 48
# From this many uniform samples on, small ones are drawn from bytes.
_MANY = 256


def _size(size: int) -> int:
    return _check.integer("size", size, "it is the number of samples to draw", at_least=0)


def _scale(name: str, value: Fraction, largest: int = MAX_SCALE) -> Fraction:
    exact = _check.positive(name, value, "it is the noise's scale in grid units")
    if exact > largest:
        raise _check.fail(name, f"be ≤ {float(largest):.4g}", value, "use a coarser grid or more ε")
    return exact


def bernoulli_exp(gamma: Fraction, size: int, bits: Bits = SYSTEM) -> NDArray[np.bool_]:
    """Coins that fall heads with probability exp(−γ), for rational γ ≥ 0."""
    exponent = _check.nonnegative("gamma", gamma, "it is the exponent in exp(−γ)")
    return bernoulli(lambda precision: exp_neg(exponent, precision), _size(size), bits)


def discrete_laplace(scale: Fraction, size: int, bits: Bits = SYSTEM) -> NDArray[np.int64]:
    """Integers with P(x) = tanh(1/2b) e^{−|x|/b}, where b = `scale`.

    The two-sided geometric distribution of Ghosh, Roughgarden & Sundararajan 2009.
    """
    return block_sampler(Shape.LAPLACE, Support.DISCRETE, _scale("scale", scale)).draw(_size(size), bits)


def discrete_gaussian(variance: Fraction, size: int, bits: Bits = SYSTEM) -> NDArray[np.int64]:
    """Integers with P(x) ∝ e^{−x²/2σ²}, where σ² = `variance` (Canonne, Kamath & Steinke 2020, Definition 1)."""
    exact = _scale("variance", variance, MAX_SCALE**2)
    return block_sampler(Shape.GAUSSIAN, Support.DISCRETE, exact).draw(_size(size), bits)


def rounded_laplace(scale: Fraction, size: int, bits: Bits = SYSTEM) -> NDArray[np.int64]:
    """Continuous Laplace noise of scale b, rounded to the nearest integer: P(x) = P(|Lap(b) − x| ≤ 1/2)."""
    return block_sampler(Shape.LAPLACE, Support.ROUNDED, _scale("scale", scale)).draw(_size(size), bits)


def rounded_gaussian(variance: Fraction, size: int, bits: Bits = SYSTEM) -> NDArray[np.int64]:
    """Continuous Gaussian noise N(0, σ²), rounded to the nearest integer: P(x) = P(|N − x| ≤ 1/2)."""
    exact = _scale("variance", variance, MAX_SCALE**2)
    return block_sampler(Shape.GAUSSIAN, Support.ROUNDED, exact).draw(_size(size), bits)


def uniform(bound: int, size: int, bits: Bits = SYSTEM) -> NDArray[np.int64]:
    """Uniform integers in [0, bound). Draws outside are repeated, so there is no modulo bias."""
    bound = _check.integer("bound", bound, "samples lie in [0, bound)", at_most=1 << 62)
    width = max(1, (bound - 1).bit_length())
    if _size(size) >= _MANY and width <= 16:
        return _many_small(bound, size, bits)
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        # A draw is kept with probability bound/2^width > 1/2; a few more than needed on average are drawn.
        wanted = ((size - filled) << width) // bound
        drawn = bits.words(wanted + wanted // 64 + 8) >> np.uint64(64 - width)
        drawn = drawn[drawn < bound][: size - filled]
        out[filled : filled + len(drawn)] = drawn
        filled += len(drawn)
    return out


def _many_small(bound: int, size: int, bits: Bits) -> NDArray[np.int64]:
    """The same from one or two random bytes each: random bytes are most of the time.

    A word below the largest multiple of `bound` has a uniform remainder. The few others are drawn again in their place.
    """
    size_of_word = 1 if bound <= 1 << 8 else 2
    values = 1 << 8 * size_of_word
    limit = values - values % bound

    def words(count: int) -> NDArray[np.unsignedinteger[Any]]:
        return np.frombuffer(bits.read(count * size_of_word), dtype=f"u{size_of_word}")

    drawn = words(size)
    out = drawn.astype(np.int64) if bound == values else (drawn % drawn.dtype.type(bound)).astype(np.int64)
    rejected = np.flatnonzero(drawn >= limit) if limit < values else np.empty(0, dtype=np.intp)
    while rejected.size:
        drawn = words(rejected.size)
        kept = drawn < limit
        out[rejected[kept]] = drawn[kept] % drawn.dtype.type(bound)
        rejected = rejected[~kept]
    return out


def permutation(size: int, bits: Bits = SYSTEM) -> list[int]:
    """A uniformly random order of 0, …, size − 1 (Fisher & Yates)."""
    order = list(range(_size(size)))
    for i in range(size - 1, 0, -1):
        j = int(uniform(i + 1, 1, bits)[0])
        order[i], order[j] = order[j], order[i]
    return order


def softmax(penalties: Sequence[int], rate: Fraction, bits: Bits = SYSTEM) -> int:
    """One index i with P(i) ∝ exp(−rate · penalties[i]), for integers penalties[i] ≥ 0 of which one is 0.

    Every weight is enclosed between integers, and a uniform real is compared with the enclosed cumulative weights. If
    that does not decide, both get more bits.
    """
    precision = 96
    prefix = bits.integer(precision)
    while True:
        cache = {penalty: exp_neg(rate * penalty, precision + 32) for penalty in set(penalties)}
        low = list(accumulate(cache[penalty][0] for penalty in penalties))
        high = list(accumulate(cache[penalty][1] for penalty in penalties))
        # U lies in [prefix, prefix + 1)/2^precision and is compared with (sum up to i)/(sum of all).
        for i in range(len(penalties)):
            above_previous = i == 0 or prefix * low[-1] >= high[i - 1] << precision
            below_this = (prefix + 1) * high[-1] <= low[i] << precision or i == len(penalties) - 1
            if above_previous and below_this:
                return i
        prefix, precision = (prefix << 64) | bits.integer(64), precision + 64
