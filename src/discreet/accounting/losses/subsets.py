"""Many subsets of fixed size with Gaussian noise, when one unit is replaced: a pair for a whole block of steps.

In one step the value of the release is u with the unit, v with its replacement and 0 without, and any two of them
differ by at most Δ. Each step may have another u and v. What is worst at one ε is not worst at another, so a pair
that covers all of them in one step overstates many steps. Here the worst choice is made anew after each step, for the
ε that is left: a recursion as for selections (`ranges`). Proof: docs/proofs/fixed-size-samples.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from discreet.accounting.losses import envelopes
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.collapse import Way
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.continuous import normal
from discreet.accounting.losses.ranges import BoundedRangeEvent
from discreet.events import Event, Gaussian, SampledWithoutReplacement
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]

# Steps of one block. The pairs of two blocks allow for more than the two together, so longer blocks are tighter.
_BLOCK = 256
# Choices of v are distinguished by ‖v‖²/μ², in the intervals between these: narrow ones at both ends gain most.
_SHARES = (0.0, 0.05, 0.15, 0.35, 0.6, 0.8, 0.93, 1.0)
# Cells of the plane along u and across it, and how far out they go, in standard deviations of the noise.
_CELLS_ALONG, _CELLS_ACROSS, _CELLS_REACH = 160, 320, 8.5
# Grid points within one standard deviation of a step's loss, in blocks of up to 64 steps and in longer ones, where a
# coarser grid costs less than 0.3%; and on the whole grid at most.
_FINE, _COARSE, _FEW_STEPS, _LONGEST = 24, 6, 64, 1 << 14
# How many standard deviations of a block's loss the grid holds, besides one large loss.
_DEVIATIONS = 12.0
# Noise so small, or a grid so long, that exponentials of losses could leave the range of floats.
_LARGEST_MU, _LARGEST_REACH = 4.0, 300.0
# From this sum of squared losses on, a second attack on subsets of fixed size is tried. Noise so small that e^{1/σ²}
# exceeds e^50 counts as that.
_MANY_LOSSES, _LARGE_SQUARE = 1.0, 50.0
# Relative error of the masses, and absolute error of 1 − ΣP.
_MASS_ERROR, _OUTSIDE_ERROR = 1e-11, 1e-14
# Roundings for each stage of the three FFTs of a convolution, relative to the 2-norm of one and the sum of the other.
_FFT_ROUNDINGS = 16


def applies(rate: float, mu: float, count: int) -> bool:
    """Whether there is a pair for a block of such steps, and more than one step to gain from."""
    if not (count > 1 and 0 < rate < 1 and mu <= _LARGEST_MU):
        return False
    return _reach(rate, mu, min(count, _BLOCK))[1] <= _LARGEST_REACH


def steered_leaf(way: Way) -> SampledWithoutReplacement | None:
    """The subsets of fixed size that are priced block by block. All other parts must have pairs that are fixed."""
    candidates = [
        (count, repr(leaf), leaf)
        for leaf, count in way
        if isinstance(leaf, SampledWithoutReplacement)
        and isinstance(leaf.event, Gaussian)
        and applies(*rate_and_mu(leaf), count)
    ]
    if not candidates or any(isinstance(leaf, BoundedRangeEvent) for leaf, _ in way):
        return None
    return max(candidates)[2]


def rate_and_mu(leaf: SampledWithoutReplacement) -> tuple[float, float]:
    """γ = size/population, and μ = Δ/σ of the Gaussian noise."""
    assert isinstance(leaf.event, Gaussian)
    return leaf.size / leaf.population, 1 / float(leaf.event.noise_multiplier)


def triangle_gains(leaf: Event, count: int) -> bool:
    """Whether this many subsets of fixed size are better attacked by `triangle`: the squares of their losses add up."""
    match leaf:
        case SampledWithoutReplacement(size, population, Gaussian(multiplier)):
            square = min(float(multiplier) ** -2, _LARGE_SQUARE)
            return count * (size / population) ** 2 * math.expm1(square) >= _MANY_LOSSES
        case _:
            return False


def steered(rate: float, mu: float, count: int) -> Losses:
    """`count` steps on subsets of fixed size, from above."""
    size = min(count, _BLOCK)
    blocks, rest = divmod(count, size)
    total = Losses.of(block(rate, mu, size)).times(blocks)
    return total + Losses.of(block(rate, mu, rest)) if rest else total


@lru_cache(maxsize=32)
def block(rate: float, mu: float, steps: int) -> AtomLoss:
    """A pair that dominates `steps` steps, whatever u and v are in each."""
    largest, reach = _reach(rate, mu, steps)
    spread = rate * math.sqrt(math.expm1(mu * mu))
    width = max(spread / (_FINE if steps <= _FEW_STEPS else _COARSE), 2 * (reach + largest) / _LONGEST)
    half, jump = math.ceil(reach / width), math.ceil(largest / width) + 1
    size = fft.next_fast_len(2 * (half + 2 * jump) + 1, real=True)
    x = width * np.arange(-half, half + 1, dtype=np.float64)
    single = width * np.arange(-jump, jump + 1, dtype=np.float64)
    nothing = np.maximum(-np.expm1(x), 0.0)
    choices = []
    for profile in _choices(rate, mu, width, jump):
        mass = envelopes.from_above(single, np.maximum(profile - profile[-1], 0.0)).p * (1 + _MASS_ERROR)
        alone = nothing + np.interp(x, single, profile - np.maximum(-np.expm1(single), 0.0))
        choices.append((fft.rfft(mass, size), float(np.sum(mass)), alone))
    below = np.exp(width * np.arange(-half - jump, -half))
    gained = np.zeros_like(x)
    for _ in range(steps):
        # What the steps so far add to `nothing`; at most e^x below the grid, and no more than at its end above it.
        padded = np.concatenate((below, gained, np.full(jump, gained[-1])))
        spectrum, norm = fft.rfft(padded, size), float(np.linalg.norm(padded))
        after = np.zeros_like(x)
        for transform, total, alone in choices:
            moved = fft.irfft(spectrum * transform, size)[2 * jump : 2 * jump + len(x)]
            error = _FFT_ROUNDINGS * UNIT * math.log2(size) * norm * total
            after = np.maximum(after, alone - nothing + moved + error)
        gained = np.minimum(after * (1 + _MASS_ERROR), 1 - nothing)
    values = nothing + gained
    top = float(values[-1])
    loss = envelopes.from_above(x, np.maximum(values - top, 0.0))
    return replace(loss, infinite=top * (1 + _MASS_ERROR), only_q=top)


def _reach(rate: float, mu: float, steps: int) -> tuple[float, float]:
    """The largest loss of one step that is followed, and the reach of the grid for all of them."""
    largest = math.log1p(rate * math.expm1(mu * (_CELLS_REACH + mu))) - math.log1p(-rate)
    spread = rate * math.sqrt(math.expm1(mu * mu))
    return largest, min(steps * largest, largest + _DEVIATIONS * math.sqrt(steps) * spread)


def _choices(rate: float, mu: float, width: float, jump: int) -> list[Floats]:
    """δ at the grid points from −jump to jump, for each interval of ‖v‖² and each order of the two datasets.

    δ falls with ‖v‖² for e^ε > 1 and grows with it for e^ε < 1, so each interval has one end for either side. With the
    datasets in the other order it is the other way around.
    """
    x = width * np.arange(-jump, jump + 1)
    nodes = [_profiles(rate, mu, share, width, jump) for share in _SHARES]
    forward = [np.where(x >= 0, low[0], high[0]) for low, high in itertools.pairwise(nodes)]
    return forward + [np.where(x >= 0, high[1], low[1]) for low, high in itertools.pairwise(nodes)]


def _profiles(rate: float, mu: float, share: float, width: float, jump: int) -> tuple[Floats, Floats]:
    """δ at each point of the grid, from above, for ‖u‖ = ‖u − v‖ = μ and ‖v‖² = share·μ², in both orders.

    Each cell of the plane is split between its smallest and its largest loss, so that P and Q of it are kept.
    """
    # v lies on the first axis; ⟨u, v⟩ = ‖v‖²/2.
    length = mu * math.sqrt(share)
    first = length / 2
    second = math.sqrt(mu * mu - first * first)
    far = _CELLS_REACH + mu
    along = np.linspace(-_CELLS_REACH, far, _CELLS_ALONG + 1)
    across = np.linspace(-_CELLS_REACH, far, _CELLS_ACROSS + 1)

    def masses(a: float, b: float) -> Floats:
        return np.outer(normal(along[:-1] - a, along[1:] - a), normal(across[:-1] - b, across[1:] - b))

    without = (1 - rate) * masses(0.0, 0.0)
    p, q = without + rate * masses(first, second), without + rate * masses(length, 0.0)
    # ln of the density over that of N(0, I) grows with ⟨u, z⟩ for P and with ⟨v, z⟩ for Q; u and v are ≥ 0.
    of_p = np.log1p(rate * np.expm1(first * along[:, None] + second * across[None, :] - mu * mu / 2))
    of_q = np.log1p(rate * np.expm1(length * along - length * length / 2))[:, None]
    low, high = of_p[:-1, :-1] - of_q[1:], of_p[1:, 1:] - of_q[:-1]
    upper = np.clip((p - q * np.exp(low)) / -np.expm1(low - high), 0.0, p)
    losses = np.concatenate((low.ravel(), high.ravel()))
    mass = np.concatenate(((p - upper).ravel(), upper.ravel())) * (1 + _MASS_ERROR)
    outside_p, outside_q = (max(0.0, 1 - float(np.sum(each))) + _OUTSIDE_ERROR for each in (p, q))
    return (
        _on_grid(losses, mass, outside_p, width, jump),
        _on_grid(-losses, mass * np.exp(-losses), outside_q, width, jump),
    )


def _on_grid(losses: Floats, mass: Floats, outside: float, width: float, jump: int) -> Floats:
    """δ at each grid point of losses that are split between the grid points next to them; `outside` is infinite."""
    above = losses > width * jump
    outside += float(np.sum(mass[above]))
    losses, mass = losses[~above], mass[~above]
    position = np.clip(losses / width, -jump, jump)
    below = np.minimum(np.floor(position), jump - 1)
    upper = np.clip(np.expm1((below - position) * width) / math.expm1(-width), 0.0, 1.0)
    index = (below + jump).astype(np.int64)
    points = np.bincount(index, mass * (1 - upper), 2 * jump + 1) + np.bincount(index + 1, mass * upper, 2 * jump + 1)
    x = width * np.arange(-jump, jump + 1)
    # δ(x_i) = δ(x_{i+1}) + (e^{x_{i+1}} − e^{x_i})·Q(l > x_i), with Q = e^{−l}P of each point.
    beyond = np.cumsum((points * np.exp(-x))[::-1])[::-1]
    deltas = np.append(np.cumsum((np.exp(x[:-1]) * math.expm1(width) * beyond[1:])[::-1])[::-1], 0.0)
    return np.asarray(np.maximum(deltas * (1 + _MASS_ERROR), -np.expm1(x)) + outside, dtype=np.float64)
