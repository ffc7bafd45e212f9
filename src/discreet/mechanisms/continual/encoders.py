"""Factorizations: Gaussian noise on an encoded stream Cx, from which every answer is computed.

The counter forms uₜ = (Cx)ₜ + zₜ at each step, in integers on a grid of 2^−30, and decodes the answer from u₁, …, uₜ:
post-processing, so that its floating-point arithmetic reveals nothing. The noise z is exact, and no noise is kept in
the state. Answers have the errors of B·z for A = BC, with A the matrix of the workload.

Integer arithmetic rounds in some encoders. `_distortion` bounds how much further one unit can move u because of that;
the event's noise multiplier is smaller by as much (docs/proofs/continual.md).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from discreet import events
from discreet.accounting import closed_forms
from discreet.mechanisms._gaussian import Gaussian
from discreet.mechanisms.continual import series
from discreet.mechanisms.continual.counter import Content, Counter, Drawn
from discreet.mechanisms.continual.series import FINE_BITS
from discreet.mechanisms.continual.stream import Vector
from discreet.mechanisms.continual.trees import MARGIN
from discreet.mechanisms.continual.workloads import Workload
from discreet.mechanisms.sampling import entropy, samplers
from discreet.numeric.rounding import float_down, float_root_up, root_up, up

#: Bits of the state of a recursion beyond the grid, so that its own rounding is far below the grid's.
GUARD_BITS = 40
#: The rounding of buffers grows with their scales; `_rounding` allows for this much.
MOST_SCALE = 16
# The noise is drawn on the fine grid, where its scale may have this many bits.
_SCALE_BITS = samplers.MAX_SCALE.bit_length() - 2


@dataclass(frozen=True)
class Encoded(Counter):
    """Gaussian noise on an encoded stream. Abstract.

    Attributes:
        workload: what is answered at each step.
    """

    noise: Gaussian
    workload: Workload

    # --- what each encoder defines

    @abstractmethod
    def column(self, count: int) -> Vector:
        """The first coefficients of the encoder's first column."""

    @abstractmethod
    def _event_with(self, multiplier: float) -> events.Event:
        """The event, for σ over the L2 sensitivity of one step."""

    @abstractmethod
    def _sensitivity(self) -> float:
        """How far one unit can move the encoded stream, if it moves each of its steps by at most 1: an upper bound."""

    @abstractmethod
    def _encode(self, memory: list[list[int]], query: list[int]) -> tuple[list[list[int]], list[int]]:
        """What is kept of the stream, and the encoded step in units of 2^−bits."""

    @abstractmethod
    def _decode(self, memory: list[list[float]], encoded: list[float]) -> tuple[list[list[float]], list[float]]:
        """What is kept of the noisy stream, and the noisy step."""

    def _distortion(self, bits: int) -> float:
        """How much further than stated one unit can move the encoded stream, because integers are rounded."""
        return self._rounding(bits)

    # --- what all of them share

    def _rounding(self, bits: int) -> float:
        """‖rounding‖₂ where a unit moves coordinates, if each encoded integer is rounded to a multiple of 2^−bits."""
        moved = self.stream.sensitivity.l0 * self.stream.most_participations
        guard = 1 + self.stream.steps * MOST_SCALE * 2.0**-GUARD_BITS  # for the rounding of the recursion itself
        return up(2.0**-bits * guard * math.sqrt(self.stream.steps * min(moved, self.stream.dimension)))

    @cached_property
    def bits(self) -> int:
        """The noisy stream lies on a grid of 2^−bits: 30, or fewer where samplers could not draw such large noise."""
        return _fine_bits(self.noise.standard_deviation)

    @cached_property
    def _fine_step(self) -> float:
        return 2.0**-self.bits

    @cached_property
    def event(self) -> events.Event:
        moved = Fraction(float_root_up(Fraction(self.stream.sensitivity.l2_squared)))
        # Encoders have unit diagonals, so their sensitivity is at least 1, and the distortion is at most this share.
        moved += Fraction(self._distortion(self.bits))
        return self._event_with(float_down(self.noise.standard_deviation / moved))

    @classmethod
    def _calibrated(cls, counter: Self, epsilon: float, delta: float) -> Gaussian:
        """The least noise for the encoder of `counter`, whose own noise is not used."""
        multiplier = Fraction(up(closed_forms.gaussian_noise_multiplier(epsilon, delta)))
        moved = root_up(Fraction(counter.stream.sensitivity.l2_squared))
        encoder = Fraction(up(counter._sensitivity()))
        first = multiplier * moved * encoder
        moved += Fraction(counter._distortion(_fine_bits(2 * first)))
        return Gaussian(root_up((multiplier * moved * encoder * MARGIN) ** 2))

    def errors(self) -> Vector:
        steps = self.stream.steps
        decoder = series.product(self.workload.column(steps), self._inverse(steps), steps)
        return np.cumsum(decoder**2) * (self._noise_variance * 4.0**-self.bits)

    def _inverse(self, count: int) -> Vector:
        return series.inverse(self.column(count), count)

    @property
    def _noise_variance(self) -> float:
        return self.noise.noise_law(Fraction(1, 1 << self.bits)).standard_deviation() ** 2

    def _draw(self, size: int, bits: entropy.Bits) -> NDArray[np.int64]:
        return self.noise.draw(Fraction(1, 1 << self.bits), size, bits)

    def _initial(self) -> Content:
        return {"stream": [], "noisy": [], "kept": []}

    def _advance(self, content: Content, step: int, query: list[int], drawn: Drawn) -> tuple[Content, list[float]]:
        stream, encoded = self._encode(content["stream"], query)
        scale = self._fine_step
        observed = [(value + noise) * scale for value, noise in zip(encoded, drawn.vector(), strict=True)]
        noisy, noisy_now = self._decode(content["noisy"], observed)
        kept, answer = self.workload.answer(content["kept"], noisy_now)
        return {"stream": stream, "noisy": noisy, "kept": kept}, answer

    def _zeros(self) -> list[int]:
        return [0] * self.stream.dimension


def _fine_bits(standard_deviation: Fraction) -> int:
    return max(0, min(FINE_BITS, _SCALE_BITS - math.ceil(standard_deviation).bit_length()))


def least_noise(make: Any, epsilon: float, delta: float) -> Any:
    """The counter that `make` makes of the least noise for (ε, δ)."""
    draft = make(Gaussian(Fraction(1)))
    return make(type(draft)._calibrated(draft, epsilon, delta))


def combined(weights: Sequence[float], rows: Sequence[Sequence[Any]], start: Sequence[Any]) -> list[Any]:
    """start + Σ weight·row, coordinate by coordinate."""
    return [
        base + sum(weight * row[coordinate] for weight, row in zip(weights, rows, strict=False))
        for coordinate, base in enumerate(start)
    ]
