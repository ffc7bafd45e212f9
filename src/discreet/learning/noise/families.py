"""The families of noise: Gaussian, Laplace under an L1 bound, and Laplace under an L2 bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil, pi, prod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from discreet import events
from discreet.events import Event
from discreet.learning import cpu_kernels
from discreet.learning.noise import chacha, chacha_kernel
from discreet.learning.noise.keystream import Keystream
from discreet.learning.noise.secret import Secret

# Noise on a CPU is drawn in pieces with separate keys, so that the result does not depend on the number of threads. The
# size of a piece is even, because normals come in pairs. In smaller pieces threads would wait for the interpreter.
_PIECE = 1 << 18
# From this many numbers on (a few ms), threads gain more than starting them and sharing the interpreter cost.
_MANY = 1 << 20
# How many of the cipher's blocks are computed at once with torch's operations on a device.
_STRETCH = 1 << 18


@dataclass(frozen=True)
class Noise(ABC):
    """Noise to add to a clipped sum. Abstract.

    Attributes:
        noise_multiplier: the noise's scale (σ, b or λ) over the sensitivity of the sum.
        order: the norm of the sensitivity: 2 if examples are clipped in L2, 1 if they are clipped in L1.
    """

    noise_multiplier: float
    order: ClassVar[int]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        _ = self.event  # checks the multiplier

    @property
    @abstractmethod
    def event(self) -> Event:
        """The event of adding this noise once to a sum."""

    @abstractmethod
    def in_words(self) -> str:
        """The noise and its size, as the subject of a sentence."""

    def draw(
        self,
        shapes: Sequence[Sequence[int]],
        scale: float,
        secret: Secret,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> list[Tensor]:
        """Fresh noise of `scale` for tensors of the given shapes: views of one flat buffer.

        Args:
            shapes: the shapes, in the order of the model's parameters.
            scale: σ, b or λ: the noise multiplier times the sensitivity.
            secret: that of the step, `secret.at(step)`. The same secret gives the same noise, so use it once. Normals
                in float32 on a CPU may differ in their last bits, by 1e-6 of the number and of `scale`: from when it is
                built, compiled code makes them.
            device: the device of the noise.
            dtype: float32, or float64 for models in float64; cast to narrower types afterwards.

        Guarantee:
            Each coordinate is an independent draw of the family, up to floating point (see the module's docstring).
        """
        flat = self.flat(sum(map(prod, shapes)), scale, secret, device=device, dtype=dtype)
        return split(flat, shapes)

    def noisy(
        self, values: Sequence[Tensor], factor: float, scale: float, secret: Secret, *, overwrite: bool = False
    ) -> list[Tensor]:
        """factor · value + fresh noise of `scale` for each value, without the memory for the noise where that works.

        Args:
            values: tensors of one type on one device.
            factor: what each value is multiplied by.
            scale: as for `draw`.
            secret: as for `draw`: use it once.
            overwrite: the values may be written over, because nobody else holds them; done where it saves memory.

        Guarantee: as `draw`.
        """
        del overwrite
        shapes = [value.shape for value in values]
        drawn = self.draw(shapes, scale, secret, device=values[0].device, dtype=values[0].dtype)
        torch._foreach_add_(drawn, list(values), alpha=factor)
        return drawn

    def flat(
        self,
        size: int,
        scale: float,
        secret: Secret,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Tensor:
        """The same noise as one buffer of `size` numbers."""
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"noise is drawn in float32 or float64, got {dtype}: cast the noisy sum afterwards")
        target = torch.device(device)
        if target.type != "cuda":  # others may have no float64, which the tails need
            return self._on_cpu(size, scale, secret, np.float32 if dtype == torch.float32 else np.float64).to(target)
        return self._on_device(size, scale, secret, target, dtype)

    def _on_device(self, size: int, scale: float, secret: Secret, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Draw with torch's operations: ChaCha20 in counter mode, a stretch of blocks at a time."""
        drawn = torch.empty(size, device=device, dtype=dtype)
        key, block, start = secret.cipher_key("device"), 0, 0
        while start < size:
            # A block of 16 words gives at least 8 numbers; whole groups of blocks keep the order of the kernel.
            groups = ceil((size - start) / (8 * chacha_kernel.LANES))
            count = min(_STRETCH, groups * chacha_kernel.LANES)
            chunk = self._from_words(chacha.blocks(key, block, count, device=device), dtype)[: size - start]
            torch.mul(chunk, scale, out=drawn[start : start + len(chunk)])
            block, start = block + count, start + len(chunk)
        return drawn

    def _on_cpu(self, size: int, scale: float, secret: Secret, dtype: DTypeLike) -> Tensor:
        """Draw with numpy: torch would split each of a dozen short passes among threads, and wait for all of them."""
        drawn: NDArray[Any] = np.empty(size + size % 2, dtype)
        starts = range(0, size, _PIECE)

        def fill(start: int) -> None:
            piece = drawn[start : start + _PIECE]
            self._standard(piece, secret.keystream("piece", start // _PIECE))
            piece *= scale

        if size >= _MANY and torch.get_num_threads() > 1:
            with ThreadPoolExecutor(min(len(starts), torch.get_num_threads())) as pool:
                list(pool.map(fill, starts))
        else:
            for start in starts:
                fill(start)
        return torch.from_numpy(drawn[:size])

    @abstractmethod
    def _standard(self, out: NDArray[Any], bits: Keystream) -> None:
        """Fill `out`, whose length is even, with draws of scale 1."""

    @abstractmethod
    def _from_words(self, words: Tensor, dtype: torch.dtype) -> Tensor:
        """Draws of scale 1 from the words of a cipher's blocks, [16, blocks]."""


@dataclass(frozen=True)
class GaussianNoise(Noise):
    """N(0, σ²) on each coordinate of a sum with an L2 sensitivity (Abadi et al. 2016).

    >>> GaussianNoise(1.5).event
    Gaussian(noise_multiplier=1.5)
    """

    order: ClassVar[int] = 2
    name: ClassVar[str] = "gaussian"

    @property
    def event(self) -> Event:
        return events.Gaussian(self.noise_multiplier)

    def in_words(self) -> str:
        return f"Gaussian noise with a standard deviation of {self.noise_multiplier:.6g} times the sensitivity"

    def _standard(self, out: NDArray[Any], bits: Keystream) -> None:
        """√(−2 ln u)·cos φ and √(−2 ln u)·sin φ are two independent normals (Box and Muller 1958).

        The tail comes from small u, and the center from u near 1. To be accurate in both, the logarithm is taken in
        float64, of a 64-bit u, whatever the dtype of the noise.
        """
        if out.dtype == np.float32 and cpu_kernels.is_built():
            cpu_kernels.normals(bits.read(6 * out.size), out)
            return
        cosines, sines = out.reshape(2, -1)
        bits.uniform(sines, pi)  # φ, until its sine takes its place
        np.cos(sines, out=cosines)
        np.sin(sines, out=sines)
        square = np.empty(sines.size)
        bits.uniform(square)
        square *= square
        np.log(square, out=square)  # 2 ln |u|
        radius = np.negative(square, out=square).astype(out.dtype, copy=False)
        np.sqrt(radius, out=radius)
        cosines *= radius
        sines *= radius

    def noisy(
        self, values: Sequence[Tensor], factor: float, scale: float, secret: Secret, *, overwrite: bool = False
    ) -> list[Tensor]:
        narrow = all(value.dtype == torch.float32 and _without_gaps(value) for value in values)
        if not (narrow and chacha_kernel.supports(values[0].device)):
            return super().noisy(values, factor, scale, secret, overwrite=overwrite)
        out = list(values) if overwrite and apart(values) else [torch.empty_like(value) for value in values]
        chacha_kernel.noisy(values, out, factor, scale, secret.cipher_key("device"))
        return out

    def _on_device(self, size: int, scale: float, secret: Secret, device: torch.device, dtype: torch.dtype) -> Tensor:
        if dtype == torch.float32 and chacha_kernel.supports(device):
            return chacha_kernel.normal(size, scale, secret.cipher_key("device"), device)
        return super()._on_device(size, scale, secret, device, dtype)

    def _from_words(self, words: Tensor, dtype: torch.dtype) -> Tensor:
        """As `_standard`: an angle from one word (two in float64), and a radius from two."""
        if dtype == torch.float32:
            angles, low, high = words[:15].view(chacha_kernel.PAIRS, 3, -1).unbind(1)
            angle = chacha.narrow_uniform(angles)
        else:
            first, second, low, high = words.view(4, 4, -1).unbind(1)
            angle = chacha.wide_uniform(first, second)
        uniform = chacha.wide_uniform(low, high)
        radius = uniform.square_().log_().neg_().to(dtype).sqrt_()
        angle = angle * pi
        pairs = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)  # [pairs, 2, blocks]
        # The order of the kernel, in which the numbers of one group of blocks lie next to each other.
        groups = pairs.view(len(pairs), 2, -1, chacha_kernel.LANES)
        return groups.permute(2, 0, 1, 3).reshape(-1)


@dataclass(frozen=True)
class _LaplaceDraws(Noise):
    """Laplace draws: an exponential with a fair sign, or the difference of two exponentials. Abstract."""

    def in_words(self) -> str:
        return f"Laplace noise with a scale of {self.noise_multiplier:.6g} times the L{self.order} sensitivity"

    def _standard(self, out: NDArray[Any], bits: Keystream) -> None:
        """−ln |u| is exponential, and the sign of u is independent of |u|."""
        uniform = np.empty(out.size)
        bits.uniform(uniform)
        out[:] = np.copysign(np.log(np.abs(uniform)), uniform)

    def _from_words(self, words: Tensor, dtype: torch.dtype) -> Tensor:
        low, high = words.view(8, 2, -1).unbind(1)
        uniform = chacha.wide_uniform(low, high)
        return torch.copysign(uniform.abs().log(), uniform).to(dtype).reshape(-1)


@dataclass(frozen=True)
class LaplaceNoise(_LaplaceDraws):
    """Laplace noise of scale b on a sum whose examples are clipped in L1: pure differential privacy.

    >>> LaplaceNoise(2.0).event
    Laplace(noise_multiplier=2.0)
    """

    order: ClassVar[int] = 1
    name: ClassVar[str] = "laplace"

    @property
    def event(self) -> Event:
        return events.Laplace(self.noise_multiplier)


@dataclass(frozen=True)
class L2LaplaceNoise(_LaplaceDraws):
    """Laplace noise of scale λ on a sum whose examples are clipped in L2 (arXiv 2408.07021).

    It costs the same ρ as a Gaussian with σ = λ, at twice its variance. For training it is worse than Gaussian noise;
    it is included for comparison.

    >>> L2LaplaceNoise(2.0).event.noise_multiplier
    2.0
    """

    order: ClassVar[int] = 2
    name: ClassVar[str] = "l2-laplace"

    @property
    def event(self) -> Event:
        return events.L2Laplace(self.noise_multiplier)


def apart(values: Sequence[Tensor]) -> bool:
    """Whether each tensor has memory of its own. A compiler may return one tensor for two equal results."""
    storages = [value.untyped_storage() for value in values]
    filled = all(s.nbytes() == v.numel() * v.element_size() for s, v in zip(storages, values, strict=True))
    return filled and len({storage.data_ptr() for storage in storages}) == len(storages)


def _without_gaps(value: Tensor) -> bool:
    return value.is_contiguous() or value.is_contiguous(memory_format=torch.channels_last)


def split(flat: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Views of `flat` with the given shapes, one after the other."""
    pieces: Sequence[Tensor] = torch.split(flat, [prod(shape) for shape in shapes])
    return [piece.view(tuple(shape)) for piece, shape in zip(pieces, shapes, strict=True)]


#: The families, by the names that a plan accepts.
FAMILIES: dict[str, Callable[[float], Noise]] = {
    family.name: family for family in (GaussianNoise, LaplaceNoise, L2LaplaceNoise)
}
