"""Random bits for noise on a device: the keystream of ChaCha20 in counter mode (RFC 8439).

ChaCha20 is made of additions, XORs and rotations of 32-bit words, which every device has, and its blocks are
independent, so each thread computes its own. A block of 64 bytes is a function of a key of 256 bits, a nonce of 96 and
a counter of 32. Without the key nobody can tell blocks at different (nonce, counter) from fair bits, unless ChaCha20 is
broken. It is a pseudorandom function and no permutation, so there is no bound on the number of blocks as AES has one.

**No block is used twice.** A run's key is 256 fresh bits of the operating system. The key of one draw is derived from
it by a keyed hash at the path (noise, step, …), and each step is drawn once, in one call, so two draws share a
key only if the hash collides (2⁻¹²⁸). Within a draw the nonce is zero and the counter counts the blocks from 0; more
than 2³² blocks are refused. A resumed run and another process have fresh keys. An `insecure_seed` repeats its noise by
design, and its event guarantees nothing.

The operations here are torch's own and run on every device; CUDA has a kernel that does the same (`chacha_kernel`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from discreet.errors import DiscreetError

#: "expand 32-byte k", as four words in little-endian order (RFC 8439, section 2.3).
_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_MASK = 0xFFFFFFFF
#: A round of columns and a round of diagonals, ten times: twenty rounds.
_DOUBLE_ROUNDS = 10
_MOST_BLOCKS = 1 << 32


def words_of(data: bytes) -> list[int]:
    """Bytes as 32-bit words in little-endian order."""
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def check_count(first: int, count: int) -> None:
    """Refuse a draw whose counter would come round."""
    if first + count > _MOST_BLOCKS:
        raise DiscreetError(f"one draw of noise must take at most 2³² blocks, got {first + count}: draw it in parts")


def _rotated(value: Tensor, bits: int) -> Tensor:
    return ((value << bits) | (value >> (32 - bits))) & _MASK


def _quarter_round(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Section 2.1, on words in 64-bit integers."""
    a = (a + b) & _MASK
    d = _rotated(d ^ a, 16)
    c = (c + d) & _MASK
    b = _rotated(b ^ c, 12)
    a = (a + b) & _MASK
    d = _rotated(d ^ a, 8)
    c = (c + d) & _MASK
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def blocks(
    key: bytes, first: int, count: int, *, device: torch.device | str = "cpu", nonce: bytes = bytes(12)
) -> Tensor:
    """The words of blocks first, first + 1, …: [16, count], each word as a 64-bit integer below 2³² (section 2.3)."""
    check_count(first, count)
    counter = torch.arange(first, first + count, dtype=torch.int64, device=device)
    fixed = torch.tensor([*_CONSTANTS, *words_of(key), 0, *words_of(nonce)], dtype=torch.int64, device=device)
    state = fixed.unsqueeze(1).repeat(1, count)
    state[12] = counter
    a, b, c, d = state.view(4, 4, count).unbind(0)
    for _ in range(_DOUBLE_ROUNDS):
        a, b, c, d = _quarter_round(a, b, c, d)
        # The diagonals are columns after rows 1, 2 and 3 are turned by 1, 2 and 3 places.
        a, b, c, d = _quarter_round(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return (torch.cat([a, b, c, d]) + state) & _MASK


def narrow_uniform(words: Tensor) -> Tensor:
    """(k + ½)/2³¹ in float32 for the signed integer k in each word, as `Keystream.uniform` has it."""
    signed = words - ((words >> 31) << 32)
    return (signed.to(torch.float32) + 0.5) * 2.0**-31


def wide_uniform(low: Tensor, high: Tensor) -> Tensor:
    """(k + ½)/2⁶³ in float64 for the signed integer k in each pair of words."""
    return (((high << 32) | low).to(torch.float64) + 0.5) * 2.0**-63
