"""Encoders with few diagonals: any coefficients, or those of the square root of the prefix sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from discreet import _check, events
from discreet.accounting import correlation
from discreet.accounting.prices.correlated import sensitivity
from discreet.mechanisms.continual import series
from discreet.mechanisms.continual.encoders import Encoded, combined, least_noise
from discreet.mechanisms.continual.series import FINE_BITS
from discreet.mechanisms.continual.stream import Stream, Vector
from discreet.mechanisms.continual.workloads import TOTAL, Workload
from discreet.numeric.rounding import float_root_up, up


@dataclass(frozen=True)
class Banded(Encoded):
    """A lower triangular Toeplitz encoder with few diagonals.

    Privacy: μ-GDP with μ = Δ/σ, where Δ is the sensitivity of the encoder under the stream's pattern of participation
    (Denisov et al. 2022, arXiv 2202.08312, Theorem 2.1). Event: `ToeplitzNoise`. State: two numbers for each diagonal.

    Attributes:
        coefficients: the diagonals, from 1 on; multiples of 2^−30.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        _check.settle_each(self, "coefficients", _check.real, "they are the diagonals of the encoder")
        rounded = tuple(series.on_grid(np.array(self.coefficients, dtype=np.float64)))
        object.__setattr__(self, "coefficients", rounded)
        if not 1 <= len(rounded) <= self.stream.steps or rounded[0] != 1:
            remedy = "they are the diagonals of the encoder, and the main one is 1"
            raise _check.fail("coefficients", f"be 1 to {self.stream.steps} numbers from 1 on", rounded, remedy)

    @classmethod
    def for_epsilon(
        cls,
        stream: Stream,
        epsilon: float,
        delta: float,
        *,
        coefficients: Sequence[float],
        workload: Workload = TOTAL,
    ) -> Banded:
        """The least noise for (ε, δ)-DP."""
        made: Banded = least_noise(lambda noise: cls(stream, noise, workload, tuple(coefficients)), epsilon, delta)
        return made

    @staticmethod
    def optimized(
        stream: Stream,
        epsilon: float,
        delta: float,
        *,
        bands: int | None = None,
        measure: Literal["mean", "max"] = "mean",
        workload: Workload = TOTAL,
    ) -> Banded:
        """The least noise for (ε, δ)-DP, with the diagonals that have the smallest squared error.

        They are best for a stream in which a unit takes part once; the price holds for every pattern. With all
        diagonals, which is the default, the state grows with the stream.

        Args:
            stream: what arrives.
            epsilon: the ε of the whole stream.
            delta: its δ.
            bands: the number of diagonals.
            measure: make the mean over all steps small, or the largest.
            workload: what is answered at each step.
        """
        _check.one_of("measure", measure, ("mean", "max"), "it says which squared error is made small")
        steps = stream.steps
        if bands is not None:
            _check.integer("bands", bands, at_least=1, at_most=steps, remedy="it is the number of diagonals")
        ages = np.arange(steps, dtype=np.float64)
        weights = (steps - ages) / steps if measure == "mean" else np.ones(steps)
        column = series.optimized_column(workload.column(steps), steps if bands is None else bands, weights)
        return Banded.for_epsilon(stream, epsilon, delta, coefficients=tuple(column.tolist()), workload=workload)

    @property
    def state_size(self) -> int:
        return 2 * (len(self._integers) - 1) + self.workload.memory

    def column(self, count: int) -> Vector:
        padded = np.zeros(count)
        padded[: len(self._floats)] = self._floats[:count]
        return padded

    def _inverse(self, count: int) -> Vector:
        return series.inverse(np.array(self._floats), count)

    @property
    def _floats(self) -> tuple[float, ...]:
        return self.coefficients

    @cached_property
    def _integers(self) -> tuple[int, ...]:
        return tuple(int(value * 2**FINE_BITS) for value in self._floats)

    def _event_with(self, multiplier: float) -> events.Event:
        stream = self.stream
        return events.ToeplitzNoise(
            multiplier, self.coefficients, stream.steps, stream.participations, stream.separation
        )

    def _sensitivity(self) -> float:
        return sensitivity(self._event_with(1.0))[1]  # type: ignore[arg-type]  # an event of correlated noise

    def _distortion(self, bits: int) -> float:
        return 0.0 if bits == FINE_BITS else self._rounding(bits)

    def _encode(self, memory: list[list[int]], query: list[int]) -> tuple[list[list[int]], list[int]]:
        recent = [query, *memory][: len(self._integers)]
        encoded = combined(self._integers, recent, self._zeros())
        return recent[: len(self._integers) - 1], [value >> (FINE_BITS - self.bits) for value in encoded]

    def _decode(self, memory: list[list[float]], encoded: list[float]) -> tuple[list[list[float]], list[float]]:
        noisy = combined([-value for value in self._floats[1:]], memory, encoded)
        return [noisy, *memory][: len(self._floats) - 1], noisy


@dataclass(frozen=True)
class SquareRoot(Banded):
    """The square root of the prefix-sum matrix, cut to some diagonals (Fichtenberger, Henzinger & Upadhyay 2023).

    With all diagonals it has the least error of all Toeplitz encoders known in closed form, within a constant of the
    optimum, but its state grows with the stream. Event: `SquareRootNoise`. Rounding its coefficients to multiples of
    2^−30 moves a column by at most √bands·2^−31, which is part of the distortion.

    Attributes:
        bands: the number of diagonals.
    """

    coefficients: tuple[float, ...] = ()
    bands: int = 1

    def __post_init__(self) -> None:
        remedy = "it is the number of diagonals that are kept"
        _check.settle_integers(self, "bands", remedy=remedy, at_most=self.stream.steps)
        if self.coefficients:
            raise _check.fail("coefficients", "be left out", self.coefficients, "they follow from bands")

    @classmethod
    def for_epsilon(  # type: ignore[override]  # it takes the number of diagonals instead of the diagonals
        cls, stream: Stream, epsilon: float, delta: float, *, bands: int | None = None, workload: Workload = TOTAL
    ) -> SquareRoot:
        """The least noise for (ε, δ)-DP; by default with all diagonals."""
        count = stream.steps if bands is None else bands
        made: SquareRoot = least_noise(lambda noise: cls(stream, noise, workload, (), count), epsilon, delta)
        return made

    @cached_property
    def _floats(self) -> tuple[float, ...]:
        return series.on_grid(correlation.square_root_coefficients(self.bands))

    def _event_with(self, multiplier: float) -> events.Event:
        stream = self.stream
        return events.SquareRootNoise(multiplier, self.bands, stream.steps, stream.participations, stream.separation)

    def _distortion(self, bits: int) -> float:
        moved = self.stream.most_participations * float_root_up(Fraction(self.stream.sensitivity.l2_squared))
        columns = moved * math.sqrt(self.bands) * (2.0 ** (-FINE_BITS - 1) + correlation.square_root_error(self.bands))
        return up(columns) + super()._distortion(bits)
