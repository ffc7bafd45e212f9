"""Scattering features of small images: fixed wavelets, a modulus and a blur, twice, for one image at a time.

Nothing is learned and nothing is shared between images, so the features cost no privacy. With two scales and eight
angles there are 1 + 16 + 64 = 81 channels of 7×7 for an image of 28×28 (Bruna & Mallat 2013; for private training
Tramèr & Boneh 2021, arXiv 2011.11660).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

_SCALES, _ANGLES, _SIZE, _PAD = 2, 8, 36, 4


def _gabor(sigma: float, theta: float, frequency: float, slant: float) -> Tensor:
    """A plane wave times a Gaussian on a torus: parts that wrap around the edge are added."""
    grid = torch.arange(_SIZE, dtype=torch.float64)
    total = torch.zeros(_SIZE, _SIZE, dtype=torch.complex128)
    cosine, sine = math.cos(theta), math.sin(theta)
    for down in range(-2, 3):
        for right in range(-2, 3):
            y, x = torch.meshgrid(grid + down * _SIZE, grid + right * _SIZE, indexing="ij")
            along, across = x * cosine + y * sine, -x * sine + y * cosine
            envelope = torch.exp(-(along**2 + slant**2 * across**2) / (2 * sigma**2))
            total += envelope * torch.exp(1j * frequency * along)
    return torch.div(total, 2 * math.pi * sigma**2 / slant)


def _wavelet(scale: int, angle: int) -> Tensor:
    """A Morlet wavelet in the frequency domain: a Gabor filter minus the Gaussian that makes its mean zero."""
    sigma, frequency = 0.8 * 2**scale, 3 / 4 * math.pi / 2**scale
    theta, slant = (math.floor(_ANGLES - _ANGLES / 2 - 1) - angle) * math.pi / _ANGLES, 4 / _ANGLES
    wave, blob = _gabor(sigma, theta, frequency, slant), _gabor(sigma, theta, 0.0, slant)
    spectrum: Tensor = torch.fft.fft2(wave - blob * (wave.sum() / blob.sum())).real
    return spectrum.float()


def _folded(spectrum: Tensor, factor: int) -> Tensor:
    """The spectrum of every `factor`-th sample: the average over its periods."""
    size = spectrum.shape[-1] // factor
    rows = sum(spectrum[..., i * size : (i + 1) * size, :] for i in range(factor))
    assert isinstance(rows, Tensor)
    both = sum(rows[..., i * size : (i + 1) * size] for i in range(factor))
    assert isinstance(both, Tensor)
    return both.div_(factor**2)


def _smooth(spectrum: Tensor, blur: Tensor, factor: int) -> Tensor:
    """Blur, sample on the coarsest grid, and cut off the padding."""
    blurred: Tensor = torch.fft.ifft2(_folded(spectrum * blur, factor)).real
    return blurred[..., 1:-1, 1:-1]


@lru_cache(maxsize=1)
def _filters() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The blur, the blur on the half grid, and the wavelets of both scales, all in the frequency domain."""
    blur = torch.fft.fft2(_gabor(0.8 * 2 ** (_SCALES - 1), 0.0, 0.0, 1.0)).real.float()
    half = _folded(blur, 2) * 4  # the blur has no high frequencies, so one period holds it all
    fine, coarse = (torch.stack([_wavelet(scale, angle) for angle in range(_ANGLES)]) for scale in (0, 1))
    return blur, half, fine, coarse


def scattering(images: Tensor) -> Tensor:
    """[B, 28, 28] in [0, 1] → [B, 81, 7, 7]."""
    blur, half, fine, coarse = (spectrum.to(images.device) for spectrum in _filters())
    padded = torch.nn.functional.pad(images[:, None], (_PAD,) * 4, mode="reflect")[:, 0]
    spectrum = torch.fft.fft2(padded)
    channels = [_smooth(spectrum, blur, 4)[:, None]]
    first = torch.fft.fft2(torch.fft.ifft2(spectrum[:, None] * fine).abs())
    channels.append(_smooth(first, blur, 4))
    second = torch.fft.fft2(torch.fft.ifft2(_folded(spectrum[:, None] * coarse, 2)).abs())
    channels.append(_smooth(second, half, 2))
    both = torch.fft.fft2(torch.fft.ifft2(_folded(first[:, :, None] * coarse, 2)).abs())
    channels.append(_smooth(both, half, 2).flatten(1, 2))
    return torch.cat(channels, dim=1)
