"""Noise has the distribution that its event names, comes from the operating system, and ignores all seeds."""

from __future__ import annotations

import copy
import math
import pickle
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from discreet import events
from discreet.errors import InvalidArgument
from discreet.learning import cpu_kernels
from discreet.learning.noise import FAMILIES, GaussianNoise, L2LaplaceNoise, LaplaceNoise, Noise, Secret, apart
from discreet.learning.noise.families import _MANY, _PIECE
from discreet.learning.noise.keystream import Keystream
from tests.learning.test_keystream import Given


@pytest.fixture(params=["numpy", "compiled"])
def _arithmetic(request, monkeypatch):
    """Normals in float32 are made with numpy until the kernels for CPUs are built, and by them from then on."""
    cpu_kernels.build()
    if request.param == "numpy":
        monkeypatch.setattr(cpu_kernels, "_library", None)
    elif not cpu_kernels.is_built():
        pytest.skip("no C++ compiler")


LAWS = {"gaussian": stats.norm, "laplace": stats.laplace, "l2-laplace": stats.laplace}
LIMIT = 9e-9


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_has_its_law(name, dtype):
    """Kolmogorov–Smirnov on 400,000 draws: false alarm 1e-7; a scale that is 5% off is found with near certainty."""
    (drawn,) = FAMILIES[name](1.0).draw([(400_000,)], 3.0, Secret(), dtype=dtype)
    assert drawn.dtype == dtype
    assert stats.kstest(drawn.double().numpy(), LAWS[name](scale=3.0).cdf).pvalue > 1e-7
    assert stats.kstest(drawn.double().numpy(), LAWS[name](scale=3.15).cdf).pvalue < 1e-7


# --- draws on a CPU, and mutants with mistakes that are easy to make --------------------------------------------------


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """The p-value of no correlation, for many pairs of finite variance."""
    return float(2 * stats.norm.sf(abs(np.corrcoef(x, y)[0, 1]) * math.sqrt(len(x))))


def p_values(noise: Noise, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """One p-value for each promise about independent draws of scale 1; all are uniform if it holds."""
    secret, law, half = Secret(), LAWS[noise.name], _PIECE // 2
    one, two = (noise.flat(4 * _PIECE, 1.0, secret.at("step", i), dtype=dtype).double().numpy() for i in (0, 1))
    far = 4.0 if noise.name == "gaussian" else 10.0
    sizes = abs(one)
    outside, beyond = sizes > far, 2 * law.sf(far)
    mean = math.sqrt(2 / math.pi) if noise.name == "gaussian" else 1.0
    deviation = math.sqrt(law.var() - mean**2)
    bins = np.bincount((1000 * law.cdf(one)).astype(int).clip(0, 999), minlength=1000)
    by_test = {
        "law": stats.chisquare(bins).pvalue,
        "size": float(2 * stats.norm.sf(abs(sizes.mean() - mean) / deviation * math.sqrt(len(one)))),
        "signs": stats.binomtest(int((one > 0).sum()), len(one)).pvalue,
        "how many are far out": stats.binomtest(int(outside.sum()), len(one), beyond).pvalue,
        "how far out they are": stats.kstest(2 * law.sf(sizes[outside]) / beyond, "uniform").pvalue,
        "steps": correlation(one, two),
        "sizes in steps": correlation(sizes, abs(two)),
    }
    for lag in (1, 2, half, _PIECE):  # neighbors, the two of a pair, and the same position in the next piece
        by_test[f"lag {lag}"] = correlation(one[lag:], one[:-lag])
        by_test[f"sizes at lag {lag}"] = correlation(sizes[lag:], sizes[:-lag])
    if noise.name == "gaussian":
        x, y = one.reshape(-1, 2, half).swapaxes(0, 1).reshape(2, -1)
        by_test["angles of pairs"] = stats.kstest(np.arctan2(y, x), "uniform", (-math.pi, 2 * math.pi)).pvalue
        by_test["radii of pairs"] = stats.kstest((x**2 + y**2) / 2, "expon").pvalue
    return by_test


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_million_draws_are_independent_and_have_their_law_and_tails(name, dtype):
    """At most 17 tests in each of 6 cases at the limit: false alarm 1e-6. Their power: the mutants below."""
    by_test = p_values(FAMILIES[name](1.0), dtype)
    assert min(by_test.values()) > LIMIT, by_test


@pytest.mark.usefixtures("_arithmetic")
def test_a_million_normals_are_independent_however_they_are_made():
    """False alarm 3e-7. Those in float32, as above, with numpy and compiled."""
    by_test = p_values(GaussianNoise(1.0))
    assert min(by_test.values()) > LIMIT, by_test


def test_normals_are_the_same_before_and_after_kernels_are_built(monkeypatch):
    cpu_kernels.build()
    secret = Secret()
    drawn = [GaussianNoise(1.0).flat(_PIECE + 4_001, 3.0, secret)]
    monkeypatch.setattr(cpu_kernels, "_library", None)
    drawn.append(GaussianNoise(1.0).flat(_PIECE + 4_001, 3.0, secret))
    torch.testing.assert_close(*drawn, rtol=1e-6, atol=5e-6)


def test_normals_are_drawn_by_compiled_code_once_it_is_built(monkeypatch):
    cpu_kernels.build()
    if not cpu_kernels.is_built():
        pytest.skip("no C++ compiler")
    kernel, calls = cpu_kernels._library.normals, []
    counting = SimpleNamespace(normals=lambda *given: calls.append(given) or kernel(*given))
    monkeypatch.setattr(cpu_kernels, "_library", counting)
    GaussianNoise(1.0).flat(_PIECE + 3, 3.0, Secret())
    assert len(calls) == 2, "one for each piece"


class BothCosines(GaussianNoise):
    def _standard(self, out, bits):
        super()._standard(out, bits)
        out[len(out) // 2 :] = out[: len(out) // 2]


class HalfTurn(GaussianNoise):
    def _standard(self, out, bits):
        super()._standard(out, bits)
        np.abs(out, out=out, where=np.arange(len(out)) >= len(out) // 2)


class ShortTail(GaussianNoise):
    """A radius from 12 bits ends at 4.1 σ."""

    def _standard(self, out, bits):
        super()._standard(out, bits)
        out.clip(-4.1, 4.1, out=out)


class OneRadiusForTwo(GaussianNoise):
    def _standard(self, out, bits):
        super()._standard(out, bits)
        x, y = out.reshape(2, -1)
        radius = np.hypot(x, y)
        ratio = radius[0::2] / radius[1::2]
        x[1::2] *= ratio
        y[1::2] *= ratio


class SamePieces(LaplaceNoise):
    def _standard(self, out, bits):
        super()._standard(out, Keystream(bytes(32)))


class NoSign(LaplaceNoise):
    def _standard(self, out, bits):
        super()._standard(out, bits)
        np.abs(out, out=out)


class NarrowLaplace(LaplaceNoise):
    def _standard(self, out, bits):
        super()._standard(out, bits)
        out *= 0.98


@pytest.mark.parametrize(
    ("mutant", "promise"),
    [
        (BothCosines, f"lag {_PIECE // 2}"),
        (HalfTurn, "signs"),
        (ShortTail, "how far out they are"),
        (OneRadiusForTwo, "sizes at lag 1"),
        (SamePieces, f"lag {_PIECE}"),
        (SamePieces, "steps"),
        (NoSign, "signs"),
        (NarrowLaplace, "size"),
    ],
)
def test_wrong_draws_are_found(mutant, promise):
    """At the same limit, each with a probability above 1 − 1e-8; the hardest has a p-value of about 1e-24."""
    assert p_values(mutant(1.0))[promise] < LIMIT


def reference(angles: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Box and Muller's pairs from the integers, in 40 digits."""
    with mpmath.workdps(40):
        turns = [mpmath.pi * (2 * int(k) + 1) / 2 ** (8 * angles.itemsize) for k in angles]
        radii = [mpmath.sqrt(-2 * mpmath.log(abs(2 * int(k) + 1) / mpmath.mpf(2) ** 64)) for k in words]
        pairs = list(zip(radii, turns, strict=True))
        return np.array([float(r * f(a)) for f in (mpmath.cos, mpmath.sin) for r, a in pairs])


@pytest.mark.usefixtures("_arithmetic")
@pytest.mark.parametrize(("floats", "integers", "error"), [("f4", "i4", 3e-6), ("f8", "i8", 1e-12)])
def test_normals_are_the_function_of_their_bits_that_they_should_be(floats, integers, error):
    """So fair bits give the distribution, more exactly than any number of draws could show."""
    random, ends = np.random.default_rng(3), np.iinfo(integers)
    angles = random.integers(ends.min, ends.max, 500, dtype=integers, endpoint=True)
    words = random.integers(-(2**63), 2**63 - 1, 500) >> random.integers(0, 63, 500)  # half of them far in the tail
    drawn = np.empty(1000, dtype=floats)
    GaussianNoise(1.0)._standard(drawn, Given(angles, words))
    np.testing.assert_allclose(drawn, reference(angles, words), rtol=0, atol=error)


@pytest.mark.usefixtures("_arithmetic")
def test_the_radius_is_accurate_in_the_tail_and_in_the_center():
    """For u of every size, down to 2⁻⁶⁴, and at every distance from 1 and from where the exponent changes."""
    sizes = [1 << bits for bits in range(63)]
    near_one = [(1 << 63) - size for size in sizes[11:]]  # closer ones are 1 in float64
    at_root = [int(2.0**62.5) + sign * size for size in sizes[:60] for sign in (-1, 1)]
    drawn = np.random.default_rng(3).integers(-(1 << 63), 1 << 63, 200_000)
    words = np.array([0, -1, *sizes, *near_one, *at_root, *(-size for size in sizes), *drawn], np.int64)
    exact = np.sqrt(-2 * np.log(np.abs(words + 0.5) * 2.0**-63))
    normals = np.empty(2 * len(words), np.float32)
    GaussianNoise(1.0)._standard(normals, Given(np.zeros(len(words), np.int32), words))  # an angle of almost zero
    found = normals[: len(words)]
    assert (np.abs(found - exact) <= 2.0**-22 * exact).all()


@pytest.mark.usefixtures("_arithmetic")
@pytest.mark.parametrize(("floats", "integers"), [("f4", "i4"), ("f8", "i8")])
def test_tails_end_where_64_bits_do_and_nothing_is_infinite(floats, integers):
    words = np.array([0, -1, 2**63 - 1, -(2**63)], dtype=np.int64)
    angles = np.array([0, -1, np.iinfo(integers).max, np.iinfo(integers).min], dtype=integers)
    normals, laplace = np.empty(8, dtype=floats), np.empty(4, dtype=floats)
    GaussianNoise(1.0)._standard(normals, Given(angles, words))
    LaplaceNoise(1.0)._standard(laplace, Given(words))
    assert normals[:2] == pytest.approx(math.sqrt(128 * math.log(2)))
    assert laplace[:2] == pytest.approx([64 * math.log(2), -64 * math.log(2)])
    assert abs(normals[2:4]).max() < 1e-7
    assert abs(laplace[2:]).max() < 1e-7


def test_draws_in_float64_have_all_of_its_bits():
    for noise in (GaussianNoise(1.0), LaplaceNoise(1.0)):
        drawn = noise.flat(100_000, 1.0, Secret(), dtype=torch.float64)
        assert (drawn != drawn.float()).float().mean() > 0.999
        assert drawn.unique().numel() == 100_000


@pytest.mark.usefixtures("_arithmetic")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1001, _PIECE - 1, _PIECE, _PIECE + 1, 2 * _PIECE + 3])
def test_every_size_is_filled(size):
    drawn = GaussianNoise(1.0).flat(size, 2.0, Secret())
    assert drawn.shape == (size,)
    assert drawn.isfinite().all()
    assert drawn.count_nonzero() == size


@pytest.mark.parametrize(("family", "law"), [(GaussianNoise, "norm"), (LaplaceNoise, "laplace")])
def test_the_cipher_of_a_device_makes_noise_of_the_scale(family, law):
    """The cipher of other devices, computed on this one; false alarm 1e-7."""
    drawn = family(1.0)._on_device(50_000, 3.0, Secret(), torch.device("cpu"), torch.float32)
    assert stats.kstest(drawn.double().numpy() / 3.0, law).pvalue > 1e-7


def test_no_seed_of_torch_or_numpy_changes_noise_or_is_changed_by_it():
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 # the legacy generator is the point
        drawn.append(GaussianNoise(1.0).flat(100, 1.0, Secret()))
    assert not torch.equal(*drawn)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    GaussianNoise(1.0).flat(100, 1.0, Secret())
    assert torch.equal(before, torch.get_rng_state())


def test_a_place_gives_the_same_noise_again_and_another_place_gives_other_noise():
    secret, noise = Secret(), GaussianNoise(1.0)
    again = noise.flat(1000, 1.0, secret.at("step", 3))
    assert torch.equal(again, noise.flat(1000, 1.0, secret.at("step", 3)))
    assert not torch.isclose(again, noise.flat(1000, 1.0, secret.at("step", 4))).any()
    assert torch.equal(noise.flat(10, 1.0, Secret(7)), noise.flat(10, 1.0, Secret(7)))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_threads_does_not_change_noise(name, dtype):
    """Nor does a default device that the user set."""
    secret, before, drawn = Secret(), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.device("meta" if threads == 3 else "cpu"):
                drawn.append(FAMILIES[name](1.0).flat(_MANY + 1, 1.0, secret, dtype=dtype))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[0], drawn[2])


def test_shapes_are_views_of_one_buffer():
    parts = GaussianNoise(1.0).draw([(2, 3), (), (4,)], 1.0, Secret())
    assert [tuple(part.shape) for part in parts] == [(2, 3), (), (4,)]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1


def test_a_secret_shows_nothing_and_cannot_be_written():
    secret = Secret()
    assert secret.reveal().hex() not in repr(secret)
    with pytest.raises(TypeError, match="cannot be written"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="cannot be written"):
        copy.deepcopy(secret)


def test_events_are_those_of_the_families():
    assert GaussianNoise(1.5).event == events.Gaussian(1.5)
    assert LaplaceNoise(1.5).event == events.Laplace(1.5)
    assert L2LaplaceNoise(1.5).event == events.L2Laplace(1.5)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, "1", True])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_multiplier_that_is_no_noise_is_refused(name, value):
    with pytest.raises(InvalidArgument):
        FAMILIES[name](value)


def test_narrow_noise_is_refused():
    with pytest.raises(ValueError, match="float32"):
        GaussianNoise(1.0).flat(3, 1.0, Secret(), dtype=torch.bfloat16)


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("family", [GaussianNoise, LaplaceNoise, L2LaplaceNoise])
def test_noisy_values_are_the_scaled_values_plus_one_draw(family, overwrite):
    secret, values = Secret(), [torch.randn(5, 3), torch.randn(7)]
    before = [value.clone() for value in values]
    noise = family(1.0).draw([value.shape for value in values], 2.0, secret)
    results = family(1.0).noisy(values, 0.25, 2.0, secret, overwrite=overwrite)
    for result, value, drawn in zip(results, before, noise, strict=True):
        torch.testing.assert_close(result, 0.25 * value + drawn)


def test_noisy_values_keep_their_type():
    (result,) = GaussianNoise(1.0).noisy([torch.zeros(4, dtype=torch.float64)], 1.0, 1.0, Secret())
    assert result.dtype == torch.float64


def test_tensors_are_apart_if_each_has_memory_of_its_own():
    whole = torch.zeros(6)
    assert apart([torch.zeros(2, 3), torch.zeros(6), torch.zeros(2, 3).t()])
    assert not apart([whole, whole])
    assert not apart([whole, whole.view(2, 3)])
    assert not apart([whole[:3], whole[3:]])
    assert not apart([whole[:3]])
    assert not apart([torch.zeros(1).expand(6)])
