"""The keystream is AES-256 in counter mode, read in order, and its uniform numbers are as documented."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from discreet.learning.noise import Secret
from discreet.learning.noise.keystream import _ZEROS, Keystream
from discreet.mechanisms.sampling import entropy

#: The cipher's blocks at counters 0, 1 and 2 under the key of zeros: H of test case 13, E(K, Y₀) and the ciphertext of
#: test case 14 in McGrew and Viega, "The Galois/Counter Mode of Operation", their submission to NIST.
ZERO_KEY = "dc95c078a2408989ad48a21492842087530f8afbc74536b9a963b4f1c4cb738bcea7403d4d606b6e074ec5d3baf39d18"
#: NIST's AESAVS, KeySbox for 256 bits: the block of zeros under two keys.
KEY_SBOX = {
    "c47b0294dbbbee0fec4757f22ffeee3587ca4730c3d33b691df38bab076bc558": "46f2fb342d6f0ab477476fc501242c5f",
    "28d46cffa158533194214a91e712fc2b45b518076675affd910edeca5f41ac64": "4bf3b0a69aeb6657794f2901b1440ad4",
}


class Given(Keystream):
    """A keystream with the bytes of the given arrays instead of a cipher's."""

    __slots__ = ("_left",)

    def __init__(self, *words: np.ndarray) -> None:
        self._left = np.concatenate([word.view(np.uint8) for word in words])

    def fill(self, out: np.ndarray) -> None:
        out[:], self._left = self._left[: out.size], self._left[out.size :]


def read(key: bytes, count: int) -> bytes:
    return Keystream(key).read(count).tobytes()


def test_it_gives_the_published_blocks():
    assert read(bytes(32), 48).hex() == ZERO_KEY
    for key, block in KEY_SBOX.items():
        assert read(bytes.fromhex(key), 16).hex() == block


def test_each_block_is_the_cipher_of_its_number():
    """Over several of its internal pieces, block by block, against the bare cipher."""
    key, blocks = bytes(range(32)), 3 * len(_ZEROS) // 16 + 1
    numbers = b"".join(i.to_bytes(16, "big") for i in range(blocks))
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    assert read(key, 16 * blocks) == cipher.update(numbers)


def test_it_goes_on_where_the_last_read_ended():
    counts = (0, 1, 15, 16, len(_ZEROS) - 1, len(_ZEROS), len(_ZEROS) + 1, 3_360)
    stream, expected = Keystream(bytes(32)), read(bytes(32), sum(counts))
    parts = [stream.read(count).tobytes() for count in counts]
    assert b"".join(parts) == expected


def test_a_short_key_is_refused():
    with pytest.raises(ValueError, match="key size"):
        Keystream(bytes(16))


def test_each_place_of_a_secret_has_its_own_key():
    secret = Secret(7)
    places = [secret.keystream("a"), secret.keystream("b"), secret.at("a").keystream("a"), secret.keystream()]
    assert len({stream.read(32).tobytes() for stream in places}) == 4
    again = secret.keystream("a").read(32)
    assert again.tobytes() == Secret(7).keystream("a").read(32).tobytes()
    key = entropy.derived(secret.reveal(), "keystream", "a", size=32)  # a key of 256 derived bits
    assert again.tobytes() == read(key, 32)


@pytest.mark.parametrize(("dtype", "bits"), [(np.float32, 32), (np.float64, 64)])
def test_uniform_numbers_are_their_integers_and_a_half(dtype, bits):
    top = 2 ** (bits - 1)
    integers = [0, -1, 1, -2, 12_345, -12_346, top // 2, top - 1, -top]
    drawn = np.empty(len(integers), dtype)
    Given(np.array(integers, dtype=f"int{bits}")).uniform(drawn)
    for k, x in zip(integers, drawn.tolist(), strict=True):
        exact = (k + Fraction(1, 2)) / top
        assert abs(Fraction(x) - exact) <= abs(exact) * Fraction(float(np.finfo(dtype).eps))
        assert (x > 0) == (k >= 0)
        assert 0 < abs(x) <= 1


def test_uniform_numbers_can_have_another_range():
    angles, plain = np.empty(1000, np.float32), np.empty(1000, np.float32)
    Keystream(bytes(32)).uniform(angles, np.pi)
    Keystream(bytes(32)).uniform(plain)
    np.testing.assert_array_equal(angles, plain * np.float32(np.pi))


def test_many_uniform_numbers_are_each_made_of_their_own_bits():
    """In place, over more numbers than numpy converts at a time."""
    drawn = np.empty(100_003, np.float32)
    Keystream(bytes(32)).uniform(drawn)
    integers = np.frombuffer(read(bytes(32), 4 * drawn.size), "<i4")
    np.testing.assert_array_equal(drawn, (integers.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-31))
