"""Random bits for noise on a CPU: the keystream of AES-256 in counter mode (FIPS 197, NIST SP 800-38A).

A cipher's keystream is what is XORed with a message to encrypt it: here the message is zeros. Nobody who lacks the key
can tell it from fair bits, unless AES is broken. Processors have instructions for AES, so it is also a fast source of
bits: several gigabytes a second on one core. It works without them, only slower.

The counter begins at zero, so a key is good for one keystream: each piece of a step's noise derives its own. After b
blocks of 16 bytes nobody tells an ideal cipher from fair bits with an advantage above b²/2¹²⁹, which comes from blocks
that never repeat (Bellare et al. 1997): 2⁻⁸³ in all for the pieces of a step of a billion parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import DTypeLike, NDArray

_ZEROS = memoryview(bytes(1 << 16))


class Keystream:
    """The bits of one key, read in order."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def read(self, count: int) -> NDArray[np.uint8]:
        """The next `count` bytes."""
        drawn = np.empty(count, dtype=np.uint8)
        for start in range(0, count, len(_ZEROS)):
            part = drawn.data[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)
        return drawn

    def uniform(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        """`count` numbers (k + ½)/2³¹ in float32, (k + ½)/2⁶³ in float64, for fair signed integers k of 32 and 64 bits.

        They are uniform between −1 and 1, with a fair sign, and never zero. Toward zero they are as fine as their
        integers, toward ±1, which rounding can reach, as fine as floats.
        """
        width = np.dtype(dtype).itemsize
        numbers = self.read(count * width).view(f"i{width}").astype(dtype)
        numbers += 0.5
        numbers *= 2.0 ** (1 - 8 * width)
        return numbers
