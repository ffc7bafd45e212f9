"""The masks of secure aggregation: the keystream of AES-256 under a secret of two clients.

Flower derives masks from 32 bits of such a secret, with a generator that is not a cipher, so a server can try them all.
Here all 256 bits count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.learning.noise.keystream import Keystream
from discreet.mechanisms.sampling import entropy


def mask(secret: bytes, size: int, bits: int) -> NDArray[np.int64]:
    """`size` integers in [0, 2^bits), for at most 32 bits, that nobody without `secret` can tell from uniform ones."""
    key = entropy.derived(secret, "secure aggregation", size=entropy.KEY_BYTES)
    words = Keystream(key).read(4 * size).view("<u4").astype(np.int64)
    return words & ((1 << bits) - 1)


def to_bytes(integers: NDArray[np.int64]) -> bytes:
    """Integers in [0, 2³²) as little-endian words of 32 bits."""
    return integers.astype("<u4").tobytes()


def from_bytes(data: bytes, size: int) -> NDArray[np.int64] | None:
    """The integers of `to_bytes`; None if they are not `size` of them."""
    if not isinstance(data, bytes) or len(data) != 4 * size:
        return None
    return np.frombuffer(data, "<u4").astype(np.int64)
