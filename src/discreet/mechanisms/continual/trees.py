"""Trees: noise on the sums of blocks of steps, of which each running answer needs few.

In a tree with k children for each node, a node on level i covers kⁱ steps. `Tree` writes t in base k and adds up the
nodes of its digits. `SubtractionTree` writes t with digits between −(k−1)/2 and (k−1)/2, which needs fewer nodes: it
subtracts those that end after t. One step lies in one node of each level, so the L1 sensitivity is the number of
levels, and the squared L2 sensitivity too.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, events
from discreet.accounting import closed_forms
from discreet.mechanisms._gaussian import Gaussian
from discreet.mechanisms._laplace import Laplace
from discreet.mechanisms.continual.counter import Content, Counter, CounterNoise, Drawn
from discreet.mechanisms.continual.stream import Stream, Vector
from discreet.numeric.rounding import float_root_down, root_up, rounded_up, up

#: A little more noise than the formula asks for, so that the certified price, which has an error of its own, fits too.
MARGIN = 1 + Fraction(1, 1 << 40)


def calibrated(stream: Stream, levels: int, branching: int, epsilon: float, delta: float | None) -> CounterNoise:
    """The least noise on each node of a tree: Laplace for ε-DP, Gaussian for (ε, δ)-DP.

    Laplace: λ = Δ₁/ε, with Δ₁ = levels · participations · that of one step. Gaussian: the analytic σ of Balle & Wang
    2018 for the L2 sensitivity `tree_squares`.
    """
    if delta is None:
        moved = levels * stream.most_participations * stream.sensitivity.l1
        return Laplace(rounded_up(moved / _check.epsilon(epsilon)))
    squares = tree_squares(stream, levels, branching) * stream.sensitivity.l2_squared
    multiplier = Fraction(up(closed_forms.gaussian_noise_multiplier(epsilon, delta))) * MARGIN
    return Gaussian(root_up(multiplier**2 * squares))


def tree_event(stream: Stream, noise: CounterNoise, levels: int, branching: int) -> events.Event:
    """The event of noise on every node of a tree with this many levels."""
    if isinstance(noise, Laplace):
        return events.DiscreteLaplace(levels * stream.most_participations * stream.sensitivity.l1, noise.scale)
    squares = tree_squares(stream, levels, branching) * stream.sensitivity.l2_squared
    return events.Gaussian(float_root_down(noise.standard_deviation**2 / squares))


def tree_squares(stream: Stream, levels: int, branching: int) -> int:
    """The squared L2 sensitivity of a tree, if one unit moves each of its steps by 1.

    A node over w steps holds at most m = min(p, ⌈w/b⌉) of a unit's p steps, which are b apart, so that the squares on
    its level sum to at most ⌊p/m⌋m² + (p mod m)² (docs/proofs/correlated-noise.md, section 3).
    """
    count = stream.most_participations
    total = 0
    for level in range(levels):
        most = min(count, -(-(branching**level) // stream.separation))
        total += (count // most) * most**2 + (count % most) ** 2
    return total


@dataclass(frozen=True)
class Tree(Counter):
    """Noise on the nodes of a complete tree (Dwork, Naor, Pitassi & Rothblum 2010; Chan, Shi & Song 2011).

    With `refined`, a node's estimate combines its own noisy sum with those of its children, weighted for the least
    variance, from the bottom up (Honaker 2015). That is post-processing; it nearly halves the error of binary trees.

    Privacy: see `calibrated`. Error: Σ dᵢ·vᵢ times the variance of a node's noise for the digits dᵢ of t in base k,
    with vᵢ = 1, or vᵢ = kvᵢ₋₁/(1 + kvᵢ₋₁) from v₀ = 1 if refined.

    Attributes:
        branching: k ≥ 2: the children of a node.
        refined: whether the noisy sums below a node improve it.
    """

    branching: int = 2
    refined: bool = True

    def __post_init__(self) -> None:
        _check.settle_integers(self, "branching", remedy="it is the number of children of a node", at_least=2)

    @classmethod
    def for_epsilon(
        cls, stream: Stream, epsilon: float, delta: float | None = None, *, branching: int = 2, refined: bool = True
    ) -> Tree:
        """The least noise for ε-DP (Laplace), or for (ε, δ)-DP (Gaussian)."""
        noise = calibrated(stream, _levels(stream.steps, branching), branching, epsilon, delta)
        return cls(stream, noise, branching, refined)

    @cached_property
    def levels(self) -> int:
        """h: the least number of digits in base k that write T."""
        return _levels(self.stream.steps, self.branching)

    @property
    def event(self) -> events.Event:
        return tree_event(self.stream, self.noise, self.levels, self.branching)

    @property
    def draws_per_step(self) -> int:
        return 2

    @property
    def state_size(self) -> int:
        return 2 * self.levels

    @cached_property
    def _variances(self) -> list[float]:
        """vᵢ of a node's estimate on each level, in units of the noise's variance."""
        variances = [1.0]
        for _ in range(self.levels - 1):
            children = self.branching * variances[-1]
            variances.append(children / (1 + children) if self.refined else 1.0)
        return variances

    def errors(self) -> Vector:
        remaining = np.arange(1, self.stream.steps + 1)
        total = np.zeros(self.stream.steps)
        for variance in self._variances:
            total += remaining % self.branching * variance
            remaining = remaining // self.branching
        return total * self._noise_variance

    def _initial(self) -> Content:
        zeros = [[0] * self.stream.dimension for _ in range(self.levels)]
        return {"sums": zeros, "estimates": copy.deepcopy(zeros)}

    def _advance(self, content: Content, step: int, query: list[int], drawn: Drawn) -> tuple[Content, list[float]]:
        sums, estimates = list(content["sums"]), list(content["estimates"])
        weights = self._variances
        raw: list[Any] = query
        noisy: list[Any] = [value + noise for value, noise in zip(raw, drawn.vector(), strict=True)]
        for level in range(self.levels):
            sums[level] = [a + b for a, b in zip(sums[level], raw, strict=True)]
            estimates[level] = [a + b for a, b in zip(estimates[level], noisy, strict=True)]
            if step % self.branching ** (level + 1):
                break
            # The node above is complete: it takes over the sums of its children.
            raw, below = sums[level], estimates[level]
            noisy = [value + noise for value, noise in zip(raw, drawn.vector(), strict=True)]
            if self.refined:
                own = weights[level + 1]
                noisy = [own * mine + (1 - own) * theirs for mine, theirs in zip(noisy, below, strict=True)]
            sums[level] = estimates[level] = [0] * self.stream.dimension
        answer = [sum(values) for values in zip(*estimates, strict=True)]
        return {"sums": sums, "estimates": estimates}, answer


def _levels(steps: int, branching: int) -> int:
    _check.integer("branching", branching, "it is the number of children of a node", at_least=2)
    levels, reach = 1, branching - 1
    while reach < steps:
        levels, reach = levels + 1, reach * branching + branching - 1
    return levels


@dataclass(frozen=True)
class SubtractionTree(Counter):
    """A tree whose answers add some noisy nodes and subtract others (Andersson, Pagh, Steiner & Torkamani 2024).

    arXiv 2408.07021, Algorithm 1: for odd k, t = Σ wᵢkⁱ with |wᵢ| ≤ (k−1)/2. On level i the answer adds the nodes
    between the multiples of kⁱ⁺¹ and kⁱ next to t, or subtracts them. A subtracted node is not complete yet, but
    its steps after t cancel, so only its noise is used before its data are there.

    Privacy: see `calibrated`. Error: Σ|wᵢ| times the variance of a node's noise.

    Attributes:
        branching: k: an odd number ≥ 3.
    """

    branching: int = 3

    def __post_init__(self) -> None:
        _check.settle_integers(self, "branching", remedy="it is the number of children of a node", at_least=3)
        if self.branching % 2 == 0:
            raise _check.fail("branching", "be odd", self.branching, "digits lie evenly around 0")

    @classmethod
    def for_epsilon(
        cls, stream: Stream, epsilon: float, delta: float | None = None, *, branching: int
    ) -> SubtractionTree:
        """The least noise for ε-DP (Laplace), or for (ε, δ)-DP (Gaussian)."""
        noise = calibrated(stream, _balanced_levels(stream.steps, branching), branching, epsilon, delta)
        return cls(stream, noise, branching)

    @cached_property
    def levels(self) -> int:
        """h: the least number of digits with (kʰ − 1)/2 ≥ T."""
        return _balanced_levels(self.stream.steps, self.branching)

    @property
    def event(self) -> events.Event:
        return tree_event(self.stream, self.noise, self.levels, self.branching)

    @property
    def state_size(self) -> int:
        return 1 + self.levels * (self.branching // 2 + 1)

    def _digits(self, steps: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The balanced digits of each step, lowest first."""
        half, digits = self.branching // 2, []
        remaining = steps
        for _ in range(self.levels):
            shifted = remaining + half
            digits.append(shifted % self.branching - half)
            remaining = shifted // self.branching
        return digits

    def errors(self) -> Vector:
        total = np.zeros(self.stream.steps)
        for digit in self._digits(np.arange(1, self.stream.steps + 1)):
            total += np.abs(digit)
        return total * self._noise_variance

    def _initial(self) -> Content:
        zero = [0] * self.stream.dimension
        return {"total": zero, "added": [zero] * self.levels, "ahead": [[] for _ in range(self.levels)]}

    def _advance(self, content: Content, step: int, query: list[int], drawn: Drawn) -> tuple[Content, list[float]]:
        half, zero = self.branching // 2, [0] * self.stream.dimension
        total = [a + b for a, b in zip(content["total"], query, strict=True)]
        added, ahead = list(content["added"]), list(content["ahead"])
        remaining = step
        for level in range(self.levels):
            remaining, digit = divmod(remaining + half, self.branching)
            digit -= half
            if digit == -half:  # a carry: the answer now counts back from the next multiple of k^(level + 1)
                added[level], ahead[level] = zero, [drawn.vector() for _ in range(half)]
                continue
            if digit <= 0:
                ahead[level] = ahead[level][1:]
            else:
                added[level] = [a + b for a, b in zip(added[level], drawn.vector(), strict=True)]
            break
        answer = list(total)
        for plus, minus in zip(added, ahead, strict=True):
            for coordinate in range(self.stream.dimension):
                answer[coordinate] += plus[coordinate] - sum(noise[coordinate] for noise in minus)
        return {"total": total, "added": added, "ahead": ahead}, answer


def _balanced_levels(steps: int, branching: int) -> int:
    _check.integer("branching", branching, "it is the number of children of a node", at_least=3)
    levels = 1
    while (branching**levels - 1) // 2 < steps:
        levels += 1
    return levels
