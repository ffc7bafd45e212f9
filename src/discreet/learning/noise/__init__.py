"""Noise for training: what is added to a clipped sum, and the secret that it is drawn from.

A `Noise` is a frozen description: a family and a noise multiplier, which is the noise's scale over the sensitivity. It
emits its own event. The random numbers are derived from a `Secret`, 32 bytes of the operating system, and the number of
the step. torch's default generator is not used, so `torch.manual_seed` does not affect noise, and no other code can
find or repeat it.

What is guaranteed, and what is not:

- On a CPU the bits come from AES-256 in counter mode, with a key for each step. Without the key nobody can tell them
  from fair bits, unless AES is broken, or BLAKE2b, which derives the keys. (torch's own CPU generator, MT19937, is not
  used: it takes 32 bits of a seed, all of which can be tried, and its output is linear in its state.)
- On CUDA they come from ChaCha20 in counter mode (RFC 8439), with a key for each step: normals from a kernel of one
  pass, other noise from torch's operations. `chacha` says why no block is used twice. (torch's own CUDA generator,
  Philox, is not used: it is not proved to be a cipher, and its seed has 64 bits.) For other devices, noise is drawn on
  the CPU.
- Floats are not real numbers: noise is drawn in fp32 (fp64 for fp64 models), so the lowest bits of a gradient can, in
  principle, distinguish sums (Mironov 2012). The event is stated for real numbers. Releases outside of training use
  exact integer noise instead.
- The tails are finite, because the bits are: they end at 9.4 σ for normals and at 44 b for Laplace noise. An
  ideal draw is larger with probability at most 2⁻⁶⁴. In a training of 10¹³ draws, the chance that any of them would be
  is one in two million.
"""

from discreet.learning.noise.correlation import NoiseCorrelation, Pending
from discreet.learning.noise.families import FAMILIES, GaussianNoise, L2LaplaceNoise, LaplaceNoise, Noise, apart, split
from discreet.learning.noise.secret import Secret

__all__ = [
    "FAMILIES",
    "GaussianNoise",
    "L2LaplaceNoise",
    "LaplaceNoise",
    "Noise",
    "NoiseCorrelation",
    "Pending",
    "Secret",
    "apart",
    "split",
]
