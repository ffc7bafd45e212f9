"""Local hashing: hash the category into a few values with a public random function, and report one of these."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.mechanisms.local.frequencies import FrequencyProtocol, Influence, moved
from discreet.mechanisms.local.protocol import odds_of_disjoint_sets
from discreet.mechanisms.local.reports import Payloads
from discreet.mechanisms.sampling import entropy

# A seed names the hash function: 48 random bits, drawn afresh for each report and sent with it.
SEED_BYTES = 6
_SEED_FIELDS = [("low", "<u4"), ("high", "<u2")]
# Reports that are decoded at once: it bounds the memory for hashes of all categories.
_ROWS = 1 << 12


@dataclass(frozen=True)
class LocalHashing(FrequencyProtocol):
    """A random hash of the category into g values, reported by randomized response among these g.

    Optimized local hashing (Wang, Blocki, Li & Jha 2017, §4.4): g = ⌊e^ε⌉ + 1 minimizes the variance, which is that of
    `UnaryEncoding`, 4e^ε/(n(e^ε − 1)²) for rare categories, with short reports. A report supports all categories with
    its hash: another category with probability 1/g over the choice of the hash function. ε-DP: given the seed, which is
    independent of the value, the report is randomized response.
    """

    @property
    def values(self) -> int:
        """g: the number of hash values."""
        return max(2, min(round(math.exp(self.epsilon)), 1 << 15) + 1)

    @property
    def truth(self) -> float:
        return 1 / (1 + (self.values - 1) * math.exp(-self.epsilon))

    @property
    def noise(self) -> float:
        return 1 / self.values

    @property
    def bits(self) -> float:
        return 8 * SEED_BYTES + math.log2(self.values)

    @property
    def size(self) -> int:
        return SEED_BYTES + self._value_bytes

    @property
    def _value_bytes(self) -> int:
        return math.ceil((self.values - 1).bit_length() / 8)

    @property
    def informative(self) -> float:
        # Two values that collide are not told apart, but how often they do rests on the quality of the hash.
        return odds_of_disjoint_sets(self.epsilon, 1, self.values)

    def encode(self, held: NDArray[np.int64], bits: entropy.Bits) -> Payloads:
        drawn = bits.read(SEED_BYTES * held.size)
        hashed = hashes(_seeds(drawn), held.view(np.uint64), self.values)
        # The seed in six bytes, then the value: fields without gaps are much faster than rows of bytes.
        packed = np.empty(held.size, dtype=[*_SEED_FIELDS, ("value", f"<u{self._value_bytes}")])
        fields = np.frombuffer(drawn, dtype=_SEED_FIELDS)
        packed["low"], packed["high"] = fields["low"], fields["high"]
        packed["value"] = moved(hashed, self.epsilon, self.values, bits)
        return packed.view(np.uint8).reshape(held.size, self.size)

    def _split(self, payloads: Payloads) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        padded = np.zeros((len(payloads), 8), dtype=np.uint8)
        padded[:, : self.size] = payloads
        packed = padded.view("<u8").reshape(len(payloads)).astype(np.uint64)
        return packed & np.uint64((1 << 8 * SEED_BYTES) - 1), (packed >> np.uint64(8 * SEED_BYTES)).astype(np.int64)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return np.asarray(self._split(payloads)[1] < self.values)

    def support(self, payloads: Payloads) -> NDArray[np.int64]:
        every = np.arange(len(self.categories), dtype=np.uint64)
        total = np.zeros(len(self.categories), dtype=np.int64)
        for start in range(0, len(payloads), _ROWS):
            seeds, reported = self._split(payloads[start : start + _ROWS])
            total += (hashes(seeds[:, None], every, self.values) == reported[:, None]).sum(axis=0)
        return total

    def probability(self, payload: bytes, held: int) -> float:
        seeds, reported = self._split(np.frombuffer(payload, dtype=np.uint8)[None])
        if reported[0] >= self.values:
            return 0.0
        same = hashes(seeds, np.array([held], dtype=np.uint64), self.values)[0] == reported[0]
        within = self.truth if same else (1 - self.truth) / (self.values - 1)
        return within / (1 << 8 * SEED_BYTES)

    def influence(self) -> Influence:
        apart = self.truth - self.noise
        per_category = (1 - self.noise) / apart
        return Influence(
            per_category, len(self.categories) * per_category
        )  # a seed can be searched under which many categories collide


def _seeds(drawn: bytes) -> NDArray[np.uint64]:
    """Seeds from six random bytes each: words of eight bytes that overlap by two, which are masked out."""
    buffer, count = drawn + bytes(8 - SEED_BYTES), len(drawn) // SEED_BYTES
    words: NDArray[np.uint64] = np.ndarray((count,), dtype="<u8", buffer=buffer, strides=(SEED_BYTES,))
    return words.astype(np.uint64) & np.uint64((1 << 8 * SEED_BYTES) - 1)


def text(value: Any) -> bytes:
    """The type and the text of a value: 1, True and "1" differ. No text fails, not even one without a form in UTF-8."""
    return f"{type(value).__name__}:{value}".encode(errors="surrogatepass")


def fingerprints(named: Iterable[Any]) -> NDArray[np.uint64]:
    """A public 64-bit number for each value: its `text` under BLAKE2b. Two values share one with chance 2⁻⁶⁴."""
    return text_fingerprints(text(value) for value in named)


def text_fingerprints(texts: Iterable[bytes]) -> NDArray[np.uint64]:
    """The `fingerprints` of values whose texts are at hand."""
    digests = (hashlib.blake2b(encoded, digest_size=8).digest() for encoded in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def hashes(seeds: NDArray[np.uint64], words: NDArray[np.uint64], modulus: int) -> NDArray[np.int64]:
    """Hash values in [0, modulus): the finalizer of MurmurHash3 on seed and value, twice, reduced by a product.

    The seed is uniform and enters through a full mix of 64 bits, so two values collide with probability 1/g to within
    the quality of the mix, which tests check. Privacy does not depend on it.
    """
    mixed = mix(seeds + words * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0xD1B54A32D192ED03))
    mixed = mix(mixed ^ seeds)
    return ((mixed >> np.uint64(33)) * np.uint64(modulus) >> np.uint64(31)).astype(np.int64)


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of 64-bit words in which every bit depends on every bit: the finalizer of MurmurHash3."""
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))
