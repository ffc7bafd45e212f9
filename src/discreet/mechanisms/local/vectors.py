"""The mean of unit vectors: each person reports a random vector of integers, more often one that points their way.

PrivUnit (Bhowmick et al. 2018) is optimal among unbiased reports (Asi, Feldman & Talwar 2022) but draws real numbers.
Here a report is drawn from a public finite grid P₀: vectors of normal numbers, rounded to integers, from a table of
exact weights. The cap of a person's vector x holds the directions whose inner product with x is ≥ γ. With probability λ
a report is drawn from P₀ inside of the cap, by trying vectors until one lies there, else from all of P₀. So its
probability over that in P₀ lies between 1 − λ and 1 − λ + λ/q(x), where q(x) is the mass of the cap. λ is such that the
larger is e^ε times the smaller for a q that no q(x) falls below (docs/proofs/unit-vectors.md). Rounding in an inner
product changes which vectors the cap holds and nothing else.

A vector is tested at a random place in its cell of the grid, which is not reported. This makes the edge of a cap soft,
so that the mean of a report points along x also where that edge follows the lines of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from discreet import _check
from discreet.mechanisms.local.protocol import Protocol, bounded_share
from discreet.mechanisms.local.reports import Payloads, Reports
from discreet.mechanisms.sampling import entropy
from discreet.mechanisms.sampling.alias import UNIT_BITS, AliasTable
from discreet.mechanisms.sampling.fixed_point import coins, exp_neg, logistic

Floats = NDArray[np.float64]

#: The standard deviation of a coordinate on the grid, a power of two. Coordinates reach ±8 of them, in two bytes.
SCALE = 1 << 12
_REACH = 8
#: The random bits for the place in a cell, for each coordinate: at most 8.
PLACE_BITS = 8
# Numbers that are drawn or read at once: their arrays fit in the processor's cache.
_BLOCK_NUMBERS = 1 << 17
# The smallest cap that is considered: a device tries about 1/2q vectors, so narrower ones would take too long.
_SMALLEST_CAP = 2.0**-10
_CAPS = 512
# Ends of shells for the length of a normal vector, as quantiles, denser for short ones. Each is taken at its inner end.
_SHELLS = np.linspace(0, 1, 65) ** 3
# SciPy's incomplete beta and gamma functions have a relative error of about 1e-13; far more is allowed.
_ROUNDING = 1e-9


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
        dimension: the dimension d of the vectors, from 2 to 2²⁰.
    """

    dimension: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.settle_integers(self, "dimension", remedy="it is the length of a vector", at_least=2, at_most=1 << 20)

    @property
    def version(self) -> int:
        return 2  # reports of version 1 held a seed and the index of a direction

    @property
    def bits(self) -> float:
        return self.dimension * math.log2(2 * _reach() + 1)

    @property
    def size(self) -> int:
        return 2 * self.dimension

    @property
    def informative(self) -> float:
        # Two reports differ in total variation by at most λ, and a binary one with weight w by w·tanh(ε/2).
        return bounded_share(self._tilt / math.tanh(self.epsilon / 2))

    # --- the cap

    @cached_property
    def _cap(self) -> tuple[float, Fraction]:
        """γ and q: the cap that makes readings shortest, and a lower bound on its mass, whatever the vector."""
        half = (self.dimension - 1) / 2
        masses = np.geomspace(0.5, _SMALLEST_CAP, _CAPS)[1:]
        thresholds = 1 - 2 * special.betaincinv(half, half, masses)
        bounds = [self._mass_from_below(float(threshold)) for threshold in thresholds]
        gains = [self._mean_product(float(t)) * self._chance(q) for t, q in zip(thresholds, bounds, strict=True)]
        best = int(np.argmax(gains))
        return float(thresholds[best]), Fraction(math.floor(bounds[best] * 2**40), 2**40)

    def _tail(self, products: Floats) -> Floats:
        """P(t ≥ each product) for the inner product t of a fixed and a uniform direction: (1 + t)/2 ~ Beta."""
        half = (self.dimension - 1) / 2
        return np.asarray(special.betainc(half, half, np.clip((1 - products) / 2, 0.0, 1.0)))

    def _mass_from_below(self, threshold: float) -> float:
        """A lower bound on the mass of a cap for every unit vector x; docs/proofs/unit-vectors.md has the proof."""
        moved = (math.expm1(_REACH / SCALE) / 4 + 2.0 ** -(PLACE_BITS + 1)) * math.sqrt(self.dimension)
        lengths = SCALE * np.sqrt(2 * special.gammaincinv(self.dimension / 2, _SHELLS[1:-1]))
        raised = threshold + (1 + threshold) * moved / lengths * (1 + _ROUNDING) + _ROUNDING
        mass = float(self._tail(raised) @ np.diff(_SHELLS)[1:])
        return max(0.0, mass * (1 - _ROUNDING) - self.dimension * 2.0**-UNIT_BITS)

    def _mean_product(self, threshold: float) -> float:
        """E[t | t ≥ γ]: the density of t is ∝ (1 − t²)^((d − 3)/2)."""
        dimension = self.dimension
        log_scale = special.gammaln(dimension / 2) - special.gammaln((dimension - 1) / 2) - math.log(math.pi) / 2
        log_mass = math.log(float(self._tail(np.array(threshold))))
        return math.exp(log_scale + (dimension - 1) / 2 * math.log1p(-(threshold**2)) - log_mass) / (dimension - 1)

    def _chance(self, mass: float) -> float:
        """λ: 1 + λ/((1 − λ)q) = e^ε."""
        return mass * -math.expm1(-self.epsilon) / (mass + (1 - mass) * math.exp(-self.epsilon))

    @cached_property
    def _tilt(self) -> float:
        return self._chance(float(self._cap[1]))

    @property
    def _tries(self) -> int:
        """How many vectors are tried at once: about as many as it takes to find one in the cap."""
        return max(1, round(0.5 / float(self._cap[1])))

    @cached_property
    def _gain(self) -> float:
        """κ with E[direction] = κ·vector."""
        return self._tilt * self._mean_product(self._cap[0])

    def variance(self, people: int) -> float:
        """The expected squared distance of the mean of `people` equal vectors from the truth: (1/κ² − 1)/n."""
        return (self._gain**-2 - 1) / people

    def influence(self) -> float:
        """The length of the vector that one dishonest report can add to the sum of all vectors."""
        return 1 / self._gain

    # --- the device

    def _randomized(self, vectors: ArrayLike, bits: entropy.Bits) -> Payloads:
        """A vector is scaled to length 1; one that is zero or not finite is replaced by a random direction."""
        given = np.array(vectors, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self.dimension:
            raise _check.fail("vectors", f"have {self.dimension} columns", given.shape, "one row for each person")
        mass = self._cap[1]
        # λ = P(e^ε/(e^ε + (1 − q)/q)) · (1 − e^{−ε})
        tilted = coins(logistic(self.epsilon, (1 - mass) / mass), len(given), bits)
        tilted &= ~coins(partial(exp_neg, self.epsilon), len(given), bits)
        out = np.empty(given.shape, dtype=np.int16)
        for rows in self._blocks(len(given), self._tries):
            everywhere = self._draw(rows.stop - rows.start, bits)
            # Both are drawn for everybody: how long a device takes then says nothing about which of them it sends.
            inside = self._draw_inside(self._unit(given[rows], bits), bits)
            out[rows] = np.where(tilted[rows, None], inside, everywhere)
        return out.astype("<i2", copy=False).view(np.uint8)

    def _unit(self, vectors: Floats, bits: entropy.Bits) -> Floats:
        largest = np.abs(vectors).max(axis=1)
        for row in np.flatnonzero(~np.isfinite(largest) | (largest <= 0)):
            vectors[row] = 0.0
            while not vectors[row].any():
                vectors[row] = self._draw(1, bits)[0]
        vectors /= np.abs(vectors).max(axis=1, keepdims=True)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))

    def _draw(self, count: int, bits: entropy.Bits) -> NDArray[np.int16]:
        """Vectors from P₀."""
        outcomes = _normal_table(SCALE).draw(count * self.dimension, bits)
        # Modulo 2^16, so that outcomes below the middle become negative.
        return (outcomes - np.uint16(_REACH * SCALE)).view(np.int16).reshape(count, self.dimension)

    def _draw_inside(self, units: Floats, bits: entropy.Bits) -> NDArray[np.int16]:
        """A vector from P₀ inside of the cap of each unit vector.

        P₀ is symmetric, so a vector outside is turned around before it is given up.
        """
        tries = self._tries
        out = np.empty(units.shape, dtype=np.int16)
        waiting = np.arange(len(units))
        while waiting.size:
            drawn = self._draw(waiting.size * tries, bits).reshape(waiting.size, tries, self.dimension)
            places = np.frombuffer(bits.read(drawn.size), dtype=np.uint8) >> np.uint8(8 - PLACE_BITS)
            products, within = self._products(drawn, places.reshape(drawn.shape), units[waiting])
            first = np.argmax(within, axis=1)
            accepted = np.flatnonzero(within[np.arange(waiting.size), first])
            first = first[accepted]
            sign = np.where(products[accepted, first] < 0, -1, 1).astype(np.int16)
            out[waiting[accepted]] = drawn[accepted, first] * sign[:, None]
            waiting = np.delete(waiting, accepted)
        return out

    def _products(
        self, drawn: NDArray[np.int16], places: NDArray[np.uint8], units: Floats
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """The inner products of placed vectors with their unit vectors; whether they or their opposites are inside."""
        numbers = places * 2.0**-PLACE_BITS
        numbers += drawn
        numbers -= 0.5 - 2.0 ** -(PLACE_BITS + 1)  # places are symmetric around the middle of the cell
        products = np.einsum("pjd,pd->pj", numbers, units)
        return products, np.abs(products) >= self._cap[0] * np.sqrt(np.einsum("pjd,pjd->pj", numbers, numbers))

    # --- the server

    def _vectors(self, payloads: Payloads) -> NDArray[np.int16]:
        return np.ascontiguousarray(payloads).view("<i2").reshape(len(payloads), self.dimension).astype(np.int16)

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        vectors, reach = self._vectors(payloads), _reach()
        return np.asarray(((vectors >= -reach) & (vectors <= reach)).all(axis=1))

    def directions(self, payloads: Payloads) -> Floats:
        """The direction of each report, of length 1; zero for a vector of zeros."""
        numbers = self._vectors(payloads).astype(np.float64)
        lengths = np.sqrt(np.einsum("pd,pd->p", numbers, numbers))
        return np.asarray(numbers / np.maximum(lengths, 1.0)[:, None])

    def estimate(self, reports: Reports | Iterable[bytes]) -> VectorEstimate:
        """The mean of the unit vectors. Malformed and foreign reports are rejected and counted.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = self._accepted(reports, at_least=2)
        count = len(payloads)
        total = np.zeros(self.dimension)
        for rows in self._blocks(count):
            total += self.directions(payloads[rows]).sum(axis=0)
        mean = total / (count * self._gain)
        # Readings have length 1/κ, so their mean squared distance from their own mean is 1/κ² − |mean|².
        spread = max(0.0, self._gain**-2 - float(mean @ mean)) / (count - 1)
        return VectorEstimate(mean, math.sqrt(spread), count, rejected)

    def _blocks(self, people: int, vectors: int = 1) -> list[slice]:
        size = max(1, _BLOCK_NUMBERS // (self.dimension * vectors))
        return [slice(start, min(start + size, people)) for start in range(0, people, size)]


def normal_weights(scale: int) -> NDArray[np.int64]:
    """The weights of the integers from −8s to 8s − 1 in units of 2^−32/16s, for a power of two s.

    They are those of a normal number of standard deviation s, rounded to an integer: symmetric, with what rounding
    leaves at 0.
    """
    outcomes = 2 * _REACH * scale
    far = np.abs(np.arange(-_REACH * scale, _REACH * scale)).astype(np.float64)
    shares = special.ndtr(-(far - 0.5) / scale) - special.ndtr(-(far + 0.5) / scale)
    weights = np.rint(shares * outcomes * 2.0**UNIT_BITS).astype(np.int64)
    weights[0] = 0  # −8s has no opposite
    weights[outcomes // 2] += outcomes * (1 << UNIT_BITS) - int(weights.sum())
    return weights


@cache
def _normal_table(scale: int) -> AliasTable:
    return AliasTable.of(normal_weights(scale))


@cache
def _largest(scale: int) -> int:
    return int(np.flatnonzero(normal_weights(scale))[-1]) - _REACH * scale


def _reach() -> int:
    """The largest coordinate with a probability above 0."""
    return _largest(SCALE)
