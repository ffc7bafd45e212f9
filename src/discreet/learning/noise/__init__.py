"""Noise for training: what is added to a clipped sum, and the secret that it is drawn from.

A `Noise` is a frozen description: a family and a noise multiplier, which is the noise's scale over the sensitivity. It
makes its own event. The random numbers come from a `Secret`: 32 bytes of the operating system, and the number of the
step. torch's default generator has no part in it, so `torch.manual_seed` changes no noise, and no code outside can find
or repeat the noise.

What is promised, and what is not:

- On a CPU the bits are those of AES-256 in counter mode, with a key for each step: without the key nobody can tell them
  from fair bits, unless AES, or BLAKE2b which derives the keys, is broken. (torch's own CPU generator, MT19937, takes
  32 bits of a seed, all of which can be tried, and its output is linear in its state: it is not used.)
- On other devices it is the device's own Philox4x32-10, which is not proved to be a cipher, and whose seed has 64 bits.
  A search through 2⁶⁴ seeds is not out of reach for ever, so each step adds up two streams with seeds of their own:
  someone who looks for both needs 2⁶⁴ tries *and* a table of 2⁶⁴ entries. It takes a few fused kernels over one flat
  buffer.
- Floats are not real numbers: noise is drawn in fp32 (fp64 for fp64 models), so that the lowest bits of a gradient can,
  in principle, tell sums apart (Mironov 2012). The event speaks of real numbers. Releases outside of training use exact
  integer noise instead.
- A tail ends where the bits do: on a CPU at 9.4 σ for normals and at 44 b for Laplace noise. A real draw is larger with
  probability 2⁻⁶⁴ at most. In a training of 10¹³ draws the chance that any of them is cut is one in two million.
"""

from discreet.learning.noise.families import FAMILIES, GaussianNoise, L2LaplaceNoise, LaplaceNoise, Noise, split
from discreet.learning.noise.secret import Secret

__all__ = ["FAMILIES", "GaussianNoise", "L2LaplaceNoise", "LaplaceNoise", "Noise", "Secret", "split"]
