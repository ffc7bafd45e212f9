"""The mean of unit vectors: each person reports one of a few random directions, usually one near their own.

In the spirit of PrivUnit (Bhowmick et al. 2018), which is optimal among unbiased reports (Asi, Feldman & Talwar 2022)
but draws real numbers. Here a report is a seed and an index, as in the compression of Feldman & Talwar 2021 and Shah
et al. 2022: the seed names m directions that everybody can compute, and the index chooses one of them. The directions
are ranked by their inner product with the person's vector. One of the ω nearest is chosen with probability ωe^ε/(ωe^ε
+ m − ω), else one of the others. Rounding in the ranking changes which directions are near and nothing else, so the
report is ε-DP exactly: given the seed, which is independent of the vector, each index has one of two probabilities
with the ratio e^ε.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from discreet import _check
from discreet.mechanisms.local.hashing import mix
from discreet.mechanisms.local.protocol import Protocol, odds_of_disjoint_sets
from discreet.mechanisms.local.reports import Payloads, Reports
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import coins, logistic

Floats = NDArray[np.float64]

_SEED_BYTES = 6
# Reports that are encoded or decoded at once: it bounds the memory for their directions.
_BLOCK_NUMBERS = 1 << 22
# Points of an integral over smooth functions: it is exact to about ten digits.
_NODES = 200


@dataclass(frozen=True, eq=False)
class VectorEstimate:
    """An estimated mean vector.

    Attributes:
        mean: an unbiased estimate.
        standard_error: the root of the expected squared distance from the truth, estimated from the reports.
        reports: the number of valid reports.
        rejected: the number of reports that were malformed or belong to another protocol.
    """

    mean: Floats
    standard_error: float
    reports: int
    rejected: int


@dataclass(frozen=True)
class UnitVectors(Protocol):
    """The mean of one unit vector of each person.

    Attributes:
        epsilon: the privacy loss ε of one report.
        dimension: the dimension d ≥ 2 of the vectors.
        directions: m: how many directions a seed names. About e^ε of them get most of what is possible.
    """

    dimension: int
    directions: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.settle_integers(self, "dimension", remedy="it is the length of a vector", at_least=2)
        _check.settle_integers(self, "directions", remedy="a report is one of them", at_least=2, at_most=1 << 16)

    @property
    def bits(self) -> float:
        return 8 * _SEED_BYTES + math.log2(self.directions)

    @property
    def size(self) -> int:
        return _SEED_BYTES + 2

    @property
    def informative(self) -> float:
        return odds_of_disjoint_sets(self.epsilon, min(self.near, self.directions // 2), self.directions)

    @cached_property
    def near(self) -> int:
        """ω: how many directions count as near: the number that makes readings shortest."""
        sizes = np.unique(np.geomspace(1, self.directions - 1, 40).astype(int))
        return int(max(sizes, key=lambda size: self._shrinkage(int(size))))

    @cached_property
    def _gain(self) -> float:
        return self._shrinkage(self.near)

    @cached_property
    def _coordinates(self) -> tuple[Floats, Floats, Floats]:
        """Quantiles of one coordinate of a uniform direction, at tail probabilities u, with the weights of an integral.

        (1 + t)/2 ~ Beta((d − 1)/2, (d − 1)/2). Gauss–Legendre in s, where u = (1 − cos πs)/2 is smooth at both ends.
        """
        nodes, weights = _gauss()
        angle = math.pi * (nodes + 1) / 2
        tails = (1 - np.cos(angle)) / 2
        half = (self.dimension - 1) / 2
        return tails, 1 - 2 * special.betaincinv(half, half, tails), weights * math.pi / 4 * np.sin(angle)

    def _shrinkage(self, near: int) -> float:
        """κ with E[direction] = κ·vector: directions are uniform, so their mean lies along the vector.

        The mean inner product of the ω nearest of m is (m/ω)∫ t(u) P(Bin(m − 1, u) < ω) du over the tail probability u
        of the inner product t. All m average to 0.
        """
        count = self.directions
        tails, products, weights = self._coordinates
        top = float(np.sum(weights * products * special.bdtr(near - 1, count - 1, tails))) * count / near
        chance = 1 / (1 + (count - near) / near * math.exp(-self.epsilon))
        return chance * top - (1 - chance) * top * near / (count - near)

    def variance(self, people: int) -> float:
        """The expected squared distance of the mean of `people` equal vectors from the truth: (1/κ² − 1)/n."""
        return (self._gain**-2 - 1) / people

    def _randomized(self, vectors: ArrayLike, bits: entropy.Bits) -> Payloads:
        """A vector is scaled to length 1; one that is zero or not finite is replaced by a random direction."""
        given = np.array(vectors, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self.dimension:
            raise _check.fail("vectors", f"have {self.dimension} columns", given.shape, "one row for each person")
        people, count, near = len(given), self.directions, self.near
        inside = coins(logistic(self.epsilon, Fraction(count - near, near)), people, bits)
        among_near = samplers.uniform(near, people, bits)
        among_far = near + samplers.uniform(count - near, people, bits)
        rank = np.where(inside, among_near, among_far)
        seeds = bits.words(people) & np.uint64((1 << 8 * _SEED_BYTES) - 1)
        broken = ~np.isfinite(given).all(axis=1) | (np.abs(given).max(axis=1) <= 0)
        given[broken] = 0.0  # all inner products tie: the choice is then independent of the vector
        given /= np.maximum(np.abs(given).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        chosen = np.empty(people, dtype=np.uint64)
        for rows in self._blocks(people):
            products = np.einsum("pmd,pd->pm", self._directions(seeds[rows]), given[rows])
            order = np.argsort(-products, axis=1, kind="stable")
            chosen[rows] = np.take_along_axis(order, rank[rows, None], axis=1)[:, 0].astype(np.uint64)
        packed = seeds | (chosen << np.uint64(8 * _SEED_BYTES))
        return np.ascontiguousarray(packed.astype("<u8")).view(np.uint8).reshape(people, 8)

    def _split(self, payloads: Payloads) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        packed = np.ascontiguousarray(payloads).view("<u8").reshape(len(payloads)).astype(np.uint64)
        seeds = packed & np.uint64((1 << 8 * _SEED_BYTES) - 1)
        return seeds, (packed >> np.uint64(8 * _SEED_BYTES)).astype(np.int64)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return np.asarray(self._split(payloads)[1] < self.directions)

    def estimate(self, reports: Reports | Iterable[bytes]) -> VectorEstimate:
        """The mean of the unit vectors. Malformed and foreign reports are rejected and counted.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = self._accepted(reports, at_least=2)
        seeds, chosen = self._split(payloads)
        total = np.zeros(self.dimension)
        for rows in self._blocks(chosen.size):
            directions = self._directions(seeds[rows])
            total += directions[np.arange(len(directions)), chosen[rows]].sum(axis=0)
        mean = total / (chosen.size * self._gain)
        # Readings have length 1/κ, so their mean squared distance from their own mean is 1/κ² − |mean|².
        spread = max(0.0, self._gain**-2 - float(mean @ mean)) / (chosen.size - 1)
        return VectorEstimate(mean, math.sqrt(spread), int(chosen.size), rejected)

    def influence(self) -> float:
        """The length of the vector that one dishonest report can add to the sum of all vectors."""
        return 1 / self._gain

    def _blocks(self, people: int) -> list[slice]:
        size = max(1, _BLOCK_NUMBERS // (self.directions * self.dimension))
        return [slice(start, min(start + size, people)) for start in range(0, people, size)]

    def _directions(self, seeds: NDArray[np.uint64]) -> Floats:
        """The m unit vectors that each seed names: normal numbers from mixed counters, scaled to length 1."""
        count = self.directions * self.dimension
        counters = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        words = mix(mix(seeds)[:, None] + counters)
        uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
        normal = special.ndtri(uniform).reshape(len(seeds), self.directions, self.dimension)
        return np.asarray(normal / np.linalg.norm(normal, axis=2, keepdims=True))


@cache
def _gauss() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights
