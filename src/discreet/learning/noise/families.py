"""The families of noise: Gaussian, Laplace under an L1 bound, and Laplace under an L2 bound."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import pi, prod, sqrt
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from discreet import events
from discreet.events import Event
from discreet.learning.noise.keystream import Keystream
from discreet.learning.noise.secret import Secret

# Noise on a CPU is drawn in pieces with separate keys, so that the result does not depend on the number of threads. The
# size of a piece is even, because normals come in pairs.
_PIECE = 1 << 18
# From this many numbers on (a few ms), threads gain more than starting them and sharing the interpreter cost.
_MANY = 1 << 21


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
            secret: that of the step, `secret.at(step)`. The same secret gives the same noise, so use it once.
            device: the device of the noise.
            dtype: float32, or float64 for models in float64; cast to narrower types afterwards.

        Guarantee:
            Each coordinate is an independent draw of the family, up to floating point (see the module's docstring).
        """
        flat = self.flat(sum(map(prod, shapes)), scale, secret, device=device, dtype=dtype)
        return split(flat, shapes)

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
        if torch.device(device).type == "cpu":
            return self._on_cpu(size, scale, secret, np.float32 if dtype == torch.float32 else np.float64)
        first = torch.empty(size, device=device, dtype=dtype)
        self._fill(first, scale, secret.generator(first.device, "first"))
        second = torch.empty_like(first)
        self._fill(second, scale, secret.generator(first.device, "second"))
        return self._joined(first, second)

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
    def _fill(self, out: Tensor, scale: float, generator: torch.Generator) -> None:
        """Fill a tensor on a device with one of the two streams, for noise of this scale."""

    @abstractmethod
    def _joined(self, first: Tensor, second: Tensor) -> Tensor:
        """The two streams as one; may use their memory."""


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
        cosines, sines = out.reshape(2, -1)
        angle = bits.uniform(sines.size, out.dtype)
        angle *= pi
        np.cos(angle, out=cosines)
        np.sin(angle, out=sines)
        square = bits.uniform(sines.size, np.float64)
        square *= square
        radius = np.log(square, out=square).astype(out.dtype)  # 2 ln |u|
        np.negative(radius, out=radius)
        np.sqrt(radius, out=radius)
        cosines *= radius
        sines *= radius

    def _fill(self, out: Tensor, scale: float, generator: torch.Generator) -> None:
        out.normal_(0.0, sqrt(0.5) * scale, generator=generator)

    def _joined(self, first: Tensor, second: Tensor) -> Tensor:
        return first.add_(second)


@dataclass(frozen=True)
class _LaplaceDraws(Noise):
    """Laplace draws: an exponential with a fair sign, or the difference of two exponentials. Abstract."""

    def in_words(self) -> str:
        return f"Laplace noise with a scale of {self.noise_multiplier:.6g} times the L{self.order} sensitivity"

    def _standard(self, out: NDArray[Any], bits: Keystream) -> None:
        """−ln |u| is exponential, and the sign of u is independent of |u|."""
        uniform = bits.uniform(out.size, np.float64)
        out[:] = np.copysign(np.log(np.abs(uniform)), uniform)

    def _fill(self, out: Tensor, scale: float, generator: torch.Generator) -> None:
        out.exponential_(1.0 / scale, generator=generator)

    def _joined(self, first: Tensor, second: Tensor) -> Tensor:
        return first.sub_(second)


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


def split(flat: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Views of `flat` with the given shapes, one after the other."""
    pieces: Sequence[Tensor] = torch.split(flat, [prod(shape) for shape in shapes])
    return [piece.view(tuple(shape)) for piece, shape in zip(pieces, shapes, strict=True)]


#: The families, by the names that a plan accepts.
FAMILIES: dict[str, Callable[[float], Noise]] = {
    family.name: family for family in (GaussianNoise, LaplaceNoise, L2LaplaceNoise)
}
