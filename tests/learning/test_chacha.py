"""ChaCha20 gives the blocks of RFC 8439, and noise on a device is computed from them as on a CPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from discreet.errors import DiscreetError
from discreet.learning.noise import GaussianNoise, L2LaplaceNoise, LaplaceNoise, Secret, chacha, chacha_kernel
from tests.learning import triton_in_numpy
from tests.learning.test_keystream import Given

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
KEY = bytes(range(32))
#: RFC 8439, section 2.3.2: counter 1.
NONCE = bytes.fromhex("000000090000004a00000000")
BLOCK = (
    "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
)
#: Appendix A.1, test vector 1: key, nonce and counter zero.
ZEROS = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)


def keystream(words):
    """Blocks [16, count] as bytes, one block after the other."""
    return words.t().contiguous().numpy().astype("<u4").tobytes()


def test_a_quarter_round_is_that_of_the_standard():
    given = (0x11111111, 0x01020304, 0x9B8D6F43, 0x01234567)  # section 2.1.1
    found = chacha._quarter_round(*(torch.tensor([word]) for word in given))
    assert [int(word) for word in found] == [0xEA2A92F4, 0xCB1CF8CE, 0x4581472E, 0x5881C4BB]


def test_it_gives_the_published_blocks():
    assert keystream(chacha.blocks(KEY, 1, 1, nonce=NONCE)).hex() == BLOCK
    assert keystream(chacha.blocks(bytes(32), 0, 1)).hex() == ZEROS


@pytest.mark.parametrize("first", [0, 1, 77, (1 << 32) - 5])
def test_a_keystream_is_that_of_another_implementation(first):
    key = bytes(np.random.default_rng(first).bytes(32))
    other = Cipher(algorithms.ChaCha20(key, first.to_bytes(4, "little") + NONCE), None).encryptor()
    assert keystream(chacha.blocks(key, first, 5, nonce=NONCE)) == other.update(bytes(320))


def test_a_counter_never_comes_round():
    with pytest.raises(DiscreetError, match="2³² blocks"):
        chacha.blocks(KEY, (1 << 32) - 4, 5)


def test_normals_are_computed_from_the_words_as_on_a_cpu():
    count = chacha_kernel.LANES
    words = chacha.blocks(KEY, 0, count)
    found = GaussianNoise(1.0)._from_words(words, torch.float32)
    for pair in range(chacha_kernel.PAIRS):
        angle, low, high = words[3 * pair : 3 * pair + 3].numpy().astype(np.uint64)
        expected = np.empty(2 * count, np.float32)
        GaussianNoise(1.0)._standard(expected, Given(angle.astype("<u4"), (low | high << np.uint64(32)).view(np.uint8)))
        np.testing.assert_allclose(found[2 * pair * count : 2 * (pair + 1) * count], expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("family", [LaplaceNoise, L2LaplaceNoise])
def test_laplace_noise_is_computed_from_the_words_as_on_a_cpu(family):
    words = chacha.blocks(KEY, 3, 40)
    pairs = words.numpy().astype(np.uint64)
    expected = np.empty(8 * 40)
    family(1.0)._standard(expected, Given((pairs[::2] | pairs[1::2] << np.uint64(32)).reshape(-1).view(np.uint8)))
    np.testing.assert_allclose(family(1.0)._from_words(words, torch.float64), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_on_a_device_is_normal_and_uses_no_block_twice(dtype, monkeypatch):
    """The largest distance to the normal distribution; above 2.7/√n once in a million runs."""
    monkeypatch.setattr("discreet.learning.noise.families._STRETCH", 1 << 12)
    size, secret = 100_003, Secret()
    drawn = GaussianNoise(1.0)._on_device(size, 3.0, secret, torch.device("cpu"), dtype)
    assert drawn.dtype == dtype
    assert len(drawn) == size
    assert len(torch.unique(drawn)) > 0.99 * size, "a block that is used twice gives its numbers twice"
    ordered = (drawn.double() / 3.0).sort().values
    expected = 0.5 * (1 + torch.erf(ordered / math.sqrt(2)))
    steps = torch.arange(size, dtype=torch.float64) / size
    assert float((expected - steps).abs().max()) < 2.7 / math.sqrt(size)
    again = GaussianNoise(1.0)._on_device(size, 3.0, secret, torch.device("cpu"), dtype)
    assert torch.equal(drawn, again), "the secret alone decides"
    other = GaussianNoise(1.0)._on_device(size, 3.0, secret.at("step", 1), torch.device("cpu"), dtype)
    assert not torch.isin(other, drawn).any() or dtype == torch.float32


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=cuda)])
def device(request, monkeypatch):
    """Where the kernels run: on a GPU, or in numpy, so that a fault shows on every machine."""
    if request.param == "cpu":
        emulated = triton_in_numpy.emulated(monkeypatch)
        monkeypatch.setattr("discreet.learning.noise.families.chacha_kernel", emulated)
    return torch.device(request.param)


def test_the_kernel_gives_the_numbers_of_the_cipher(device):
    secret = Secret()
    for size in (1, 2, 2559, 2560, 2561, 1_000_003 if device.type == "cuda" else 100_003):
        found = GaussianNoise(1.0)._on_device(size, 2.0, secret, device, torch.float32)
        words = chacha.blocks(secret.cipher_key("device"), 0, -(-size // 2560) * chacha_kernel.LANES, device=device)
        expected = GaussianNoise(1.0)._from_words(words, torch.float32)[:size] * 2.0
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6)


def words_of(integers):
    """The words of 64-bit integers, as a kernel has them."""
    integers = np.asarray(integers, np.int64).view(np.uint64)
    low, high = (integers & 0xFFFFFFFF).astype(np.uint32), (integers >> np.uint64(32)).astype(np.uint32)
    return low.view(triton_in_numpy.Numbers), high.view(triton_in_numpy.Numbers)


def test_the_radius_is_accurate_in_the_tail_and_in_the_center(monkeypatch):
    """For u of every size, down to 2⁻⁶⁴, and at every distance from 1 and from where the exponent changes."""
    kernel = triton_in_numpy.emulated(monkeypatch)
    sizes = [1 << bits for bits in range(63)]
    near_one = [(1 << 63) - size for size in sizes[11:]]  # closer ones are 1 in float64
    at_root = [int(2.0**62.5) + sign * size for size in sizes[:60] for sign in (-1, 1)]
    drawn = np.random.default_rng(3).integers(-(1 << 63), 1 << 63, 200_000)
    integers = np.array([0, -1, *sizes, *near_one, *at_root, *(-size for size in sizes), *drawn], np.int64)
    exact = -2 * np.log(np.abs(integers + 0.5) * 2.0**-63)
    found = np.asarray(kernel._squared_radius(*words_of(integers)), np.float64)
    assert (found >= 0).all()
    assert (np.abs(found - exact) <= 2.0**-22 * exact).all()


def test_cosine_and_sine_are_accurate_all_around(monkeypatch):
    kernel = triton_in_numpy.emulated(monkeypatch)
    around = [sign * (quarter << 29) + step for quarter in range(5) for step in (-2, -1, 0, 1) for sign in (-1, 1)]
    around = [turn for turn in around if -(1 << 31) <= turn < 1 << 31]
    drawn = np.random.default_rng(4).integers(-(1 << 31), 1 << 31, 200_000)
    turns = np.array([*around, *drawn], np.int64)
    angle = (turns + 0.5) * (np.pi / 2**31)
    words = turns.astype(np.int32).view(np.uint32).view(triton_in_numpy.Numbers)
    for found, exact in zip(kernel._cosine_and_sine(words), (np.cos(angle), np.sin(angle)), strict=True):
        assert (np.abs(np.asarray(found, np.float64) - exact) <= 2e-7).all()
        nearly_zero = np.abs(exact) < 1e-3
        assert (np.abs(np.asarray(found, np.float64) / exact - 1)[nearly_zero] <= 3e-7).all()


def blocks_of_each(values: list[torch.Tensor], secret: Secret) -> list[torch.Tensor]:
    """The normals that each tensor must get: groups of blocks of its own, one tensor after the other."""
    group, expected = 0, []
    for value in values:
        groups = max(1, -(-value.numel() // 2560))
        words = chacha.blocks(secret.cipher_key("device"), group * 256, groups * 256, device=value.device)
        expected.append(GaussianNoise(1.0)._from_words(words, torch.float32)[: value.numel()])
        group += -(-value.numel() // 2560)
    return expected


@pytest.mark.parametrize("overwrite", [True, False])
def test_the_kernel_adds_the_cipher_s_numbers_to_each_tensor(overwrite, device):
    secret, shapes = Secret(), [(3,), (2560,), (0,), (2561, 5), (1,), (64, 3, 5, 5)]
    values = [torch.randn(shape, device=device) for shape in shapes]
    values[-1] = values[-1].to(memory_format=torch.channels_last)
    before = [value.clone(memory_format=torch.preserve_format) for value in values]
    results = GaussianNoise(1.0).noisy(values, 0.25, 2.0, secret, overwrite=overwrite)
    for value, old, result, normals in zip(values, before, results, blocks_of_each(values, secret), strict=True):
        in_memory = (lambda x: x.permute(0, 2, 3, 1).flatten()) if value.dim() == 4 else torch.flatten
        assert result.stride() == old.stride()
        torch.testing.assert_close(in_memory(result), in_memory(old) * 0.25 + 2.0 * normals, rtol=1e-5, atol=5e-6)
        assert (result is value) == overwrite
        assert overwrite or torch.equal(value, old)


def test_one_tensor_for_two_equal_sums_gets_noise_twice(device):
    """A compiler returns one tensor for two equal results, such as the two biases of an LSTM."""
    value = torch.zeros(5000, device=device)
    first, second = GaussianNoise(1.0).noisy([value, value], 1.0, 1.0, Secret(), overwrite=True)
    assert float((first - second).std()) > 1.3  # √2 for independent noise; 0 if both are one tensor
    assert not value.any()


@pytest.mark.parametrize("kind", ["every second", "transposed", "repeated", "wide"])
def test_tensors_that_the_kernel_cannot_read_in_a_row_get_noise_in_every_element(kind, device):
    values = {
        "every second": torch.ones(60, 40, device=device)[:, ::2],
        "transposed": torch.ones(30, 40, device=device).t(),
        "repeated": torch.ones(30, 1, device=device).expand(30, 40),
        "wide": torch.ones(30, 40, device=device, dtype=torch.float64),
    }
    value = values[kind]
    (result,) = GaussianNoise(1.0).noisy([value], 0.25, 2.0, Secret(), overwrite=True)
    noise = (result - 0.25) / 2.0
    assert result.shape == value.shape
    assert result.dtype == value.dtype
    # Of 1,200 float32 numbers, two are equal once in 60 runs; five pairs, in fewer than one in 10⁹.
    assert len(torch.unique(noise)) > value.numel() - 5
    assert 0.88 < float(noise.std()) < 1.12  # 1,200 numbers: six standard errors
    assert bool((value == 1.0).all())
