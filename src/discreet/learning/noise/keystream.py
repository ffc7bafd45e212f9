"""Random bits for noise on a CPU: the keystream of AES-256 in counter mode (FIPS 197, NIST SP 800-38A).

A cipher's keystream is XORed with a message to encrypt it; here the message is zeros. Without the key nobody can tell
it from fair bits, unless AES is broken. Processors have instructions for AES, so it is also a fast source of bits:
several gigabytes per second on one core. Without these instructions it works, but slower.

The counter starts at zero, so a key may be used for one keystream only: each piece of a step's noise derives its own.
After b blocks of 16 bytes, the advantage in telling an ideal cipher from fair bits is at most b²/2¹²⁹, because blocks
never repeat (Bellare et al. 1997). That is 2⁻⁸³ in total for the pieces of a step with a billion parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_ZEROS = memoryview(bytes(1 << 18))  # a message to encrypt, in pieces that fit in the cache


class Keystream:
    """The bits of one key, read in order."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Write the next bytes into a contiguous array."""
        for start in range(0, out.size, len(_ZEROS)):
            piece = out.data[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(piece)], piece)

    def read(self, count: int) -> NDArray[np.uint8]:
        """The next `count` bytes."""
        drawn = np.empty(count, dtype=np.uint8)
        self.fill(drawn)
        return drawn

    def uniform(self, out: NDArray[Any], half_width: float = 1.0) -> None:
        """Fill a contiguous array of floats with uniform numbers between −half_width and half_width.

        They are (k + ½)/2³¹ in float32 and (k + ½)/2⁶³ in float64, for fair signed integers k of 32 and 64 bits, times
        `half_width`: with a fair sign, and never zero. Near zero their spacing is that of the integers; near the ends,
        which rounding can reach, it is that of floats.
        """
        width = out.dtype.itemsize
        self.fill(out.view(np.uint8))
        # In place: numpy converts a few thousand integers at a time, and writes each where it was read.
        np.add(out.view(f"i{width}"), 0.5, out=out, dtype=out.dtype, casting="unsafe")
        out *= half_width * 2.0 ** (1 - 8 * width)
