"""Real numbers as certified integer intervals, to as many bits as a comparison needs.

A sampler that compares a uniform real U with a real number x does not need x itself. It needs integers
lo ≤ 2^p x ≤ hi, for growing precision p. Everything here is integer arithmetic, without any floating-point rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.sampling.entropy import Bits

#: p ↦ (lo, hi) with lo ≤ 2^p x ≤ hi, where hi − lo stays bounded as p grows.
Enclosure = Callable[[int], tuple[int, int]]


def exp_neg(gamma: Fraction, precision: int) -> tuple[int, int]:
    """Integers lo ≤ 2^precision · exp(−γ) ≤ hi for rational γ ≥ 0, with hi − lo ≤ 2.

    γ is halved h times until it is below 2^−8; the alternating Taylor series is summed, rounding every term down;
    and the result is squared h times. Each squaring doubles the relative error, so h + 32 guard bits are kept.

    >>> exp_neg(Fraction(1), 20)
    (385749, 385750)
    """
    if not gamma:
        return 1 << precision, 1 << precision
    if 1000 * gamma > 694 * (precision + 2):  # ln 2 < 0.694, so exp(−γ) < 2^−(precision + 2)
        return 0, 1
    halvings = (gamma.numerator // gamma.denominator).bit_length() + 8
    width = precision + halvings + 32
    x = (gamma.numerator << (width - halvings)) // gamma.denominator  # x ≤ 2^width · γ/2^h < x + 1
    low, terms = _taylor_exp_neg(x + 1, width)
    high, _ = _taylor_exp_neg(x, width)
    low, high = low - 2 * terms, high + 2 * terms  # one unit for each rounded term, and one for its argument
    for _ in range(halvings):
        low, high = (low * low) >> width, ((high * high) >> width) + 1
    return low >> (width - precision), min(1 << precision, (high >> (width - precision)) + 1)


#: The precision of `exp_neg_multiples`, in bits: products of two such numbers fit into two halves of 31 bits each.
MULTIPLES_BITS = 62


def exp_neg_multiples(gamma: Fraction, counts: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Integers lo ≤ 2^62 · exp(−γ·count) ≤ hi for each of many counts ≥ 0, with hi − lo of at most a few dozen.

    exp(−γ·count) is the product of exp(−γ·2^j) over the bits of the count. Lower ends are rounded down, upper ends up.
    """
    top = np.uint64(1 << MULTIPLES_BITS)
    low, high = np.full(counts.shape, top), np.full(counts.shape, top)
    for bit in range(int(counts.max(initial=0)).bit_length()):
        chosen = (counts >> bit) & 1 == 1
        if chosen.any():
            least, most = exp_neg(gamma * (1 << bit), MULTIPLES_BITS)
            low[chosen] = _product(low[chosen], least)
            high[chosen] = np.minimum(_product(high[chosen], most) + np.uint64(1), top)
    return low, high


def _product(values: NDArray[np.uint64], factor: int) -> NDArray[np.uint64]:
    """⌊values·factor / 2^62⌋ for numbers up to 2^62."""
    half, mask = np.uint64(31), np.uint64((1 << 31) - 1)
    upper, lower = values >> half, values & mask
    factor_upper, factor_lower = np.uint64(factor >> 31), np.uint64(factor) & mask
    middle = upper * factor_lower + lower * factor_upper + (lower * factor_lower >> half)
    product: NDArray[np.uint64] = upper * factor_upper + (middle >> half)
    return product


def _taylor_exp_neg(x: int, width: int) -> tuple[int, int]:
    """Σ (−x)ⁿ/n! in units of 2^−width, and the number of terms summed until they became zero."""
    total = term = 1 << width
    n = 0
    while term:
        n += 1
        term = (term * x >> width) // n
        total += term if n % 2 == 0 else -term
    return total, n + 1


def uniform_below(target: Enclosure, prefix: int, width: int, bits: Bits) -> bool:
    """Whether U < x, where `prefix` holds the first `width` bits of the uniform U. Draws more bits as needed."""
    while True:
        low, high = target(width)
        if prefix + 1 <= low:
            return True
        if prefix >= high:
            return False
        prefix, width = (prefix << 64) | bits.integer(64), width + 64


def bernoulli(target: Enclosure, size: int, bits: Bits) -> NDArray[np.bool_]:
    """`size` independent coins that fall heads with probability exactly x, for a real x ∈ [0, 1] given by `target`.

    The first 62 bits of U decide all but a fraction 2^−61 of the coins. These get more bits until they are decided.
    """
    low, high = target(62)
    prefixes = bits.words(size) >> np.uint64(2)
    heads = prefixes < np.uint64(low)
    undecided = np.flatnonzero(~heads & (prefixes < np.uint64(high)))
    for i in undecided:
        heads[i] = uniform_below(target, int(prefixes[i]), 62, bits)
    return heads


def coins(target: Enclosure, size: int, bits: Bits) -> NDArray[np.bool_]:
    """The same coins as `bernoulli` in distribution, from about one random byte each: for millions of them.

    The first byte of U decides all but about 1 in 128 coins. These get 54 more bits, and then as many as they need.
    """
    low, high = target(8)
    prefixes = np.frombuffer(bits.read(size), dtype=np.uint8)
    heads = prefixes < low
    undecided = np.flatnonzero((prefixes >= low) & (prefixes < high))
    longer = (prefixes[undecided].astype(np.uint64) << np.uint64(54)) | (bits.words(undecided.size) >> np.uint64(10))
    low, high = target(62)
    heads[undecided] = longer < np.uint64(low)
    for index in np.flatnonzero((longer >= np.uint64(low)) & (longer < np.uint64(high))):
        heads[undecided[index]] = uniform_below(target, int(longer[index]), 62, bits)
    return heads


def logistic(epsilon: Fraction, others: Fraction = Fraction(1)) -> Enclosure:
    """The enclosure of e^ε/(e^ε + m) = 1/(1 + m·e^{−ε}), for rational ε ≥ 0 and m ≥ 0."""

    def enclosed(precision: int) -> tuple[int, int]:
        guard = precision + 16 + max(0, others.numerator.bit_length() - others.denominator.bit_length())
        low, high = exp_neg(epsilon, guard)
        fixed_one, top, below = 1 << guard, others.numerator, others.denominator
        return (
            (fixed_one * below << precision) // (fixed_one * below + top * high),
            min(1 << precision, (fixed_one * below << precision) // (fixed_one * below + top * low) + 1),
        )

    return enclosed


def complement(target: Enclosure) -> Enclosure:
    """The enclosure of 1 − x."""

    def enclosed(precision: int) -> tuple[int, int]:
        low, high = target(precision)
        return (1 << precision) - high, (1 << precision) - low

    return enclosed
