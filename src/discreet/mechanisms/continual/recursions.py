"""Encoders that are recursions with a small state: buffers that forget, and inverses with few diagonals."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from discreet import _check, events
from discreet.accounting import correlation
from discreet.accounting.prices.correlated import sensitivity
from discreet.mechanisms.continual import series
from discreet.mechanisms.continual.encoders import GUARD_BITS, MOST_SCALE, Encoded, combined, least_noise
from discreet.mechanisms.continual.series import DECAY_BITS, FINE_BITS
from discreet.mechanisms.continual.stream import Stream, Vector
from discreet.mechanisms.continual.workloads import TOTAL, Workload
from discreet.numeric.rounding import UNIT, float_down


@dataclass(frozen=True)
class Buffered(Encoded):
    """A buffered linear Toeplitz encoder: a few buffers that each forget at their own rate (arXiv 2404.16706).

    Its coefficients are 1 and Σᵢ ωᵢλᵢ^{j−1}. With about as many buffers as log T has digits it is as good as the square
    root, at a state of two numbers for each buffer. Event: `BufferedNoise`.

    Attributes:
        scales: the ωᵢ > 0, multiples of 2^−52.
        decays: the λᵢ in [0, 1), multiples of 2^−52.
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]

    def __post_init__(self) -> None:
        _check.settle_each(self, "scales", _check.positive, "each buffer adds its scale times its content")
        _check.settle_each(self, "decays", _check.nonnegative, "each step multiplies a buffer by its decay")
        for name in ("scales", "decays"):
            rounded = series.on_grid(np.array(getattr(self, name), dtype=np.float64), DECAY_BITS)
            object.__setattr__(self, name, rounded)
        self._event_with(1.0)  # refuses decays ≥ 1 and lists of different lengths
        if sum(self.scales) > MOST_SCALE:
            raise _check.fail("scales", f"add up to at most {MOST_SCALE}", sum(self.scales), "encoders start at 1")

    @classmethod
    def for_epsilon(
        cls,
        stream: Stream,
        epsilon: float,
        delta: float,
        *,
        buffers: int = 6,
        forgetting: float = 0.0,
        workload: Workload = TOTAL,
    ) -> Buffered:
        """The least noise for (ε, δ)-DP, with buffers that imitate the square root of the workload.

        With some `forgetting` f, they imitate (1 − (1 − f/T)x)^{−1/2}: the sensitivity and the mean error are smaller,
        and the largest error is larger. The mean error is least near 3/4.
        """
        buffers = _check.integer("buffers", buffers, "it is the number of buffers", at_most=32)
        share = float(_check.nonnegative("forgetting", forgetting, "buffers forget e^−forgetting over the stream"))
        horizon = min(stream.steps, getattr(workload, "width", stream.steps))
        rate = getattr(workload, "rate", 1.0) * max(0.0, 1 - share / horizon)
        scales, decays = series.fitted_buffers(buffers, horizon, rate)
        made: Buffered = least_noise(lambda noise: cls(stream, noise, workload, scales, decays), epsilon, delta)
        return made

    @property
    def state_size(self) -> int:
        return 2 * len(self.scales) + self.workload.memory

    def column(self, count: int) -> Vector:
        return correlation.buffered_coefficients(self.scales, self.decays, count)

    def _event_with(self, multiplier: float) -> events.Event:
        stream = self.stream
        return events.BufferedNoise(
            multiplier, self.scales, self.decays, stream.steps, stream.participations, stream.separation
        )

    def _sensitivity(self) -> float:
        return sensitivity(self._event_with(1.0))[1]  # type: ignore[arg-type]  # an event of correlated noise

    @cached_property
    def _integers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        unit = 1 << DECAY_BITS
        return tuple(int(w * unit) for w in self.scales), tuple(int(decay * unit) for decay in self.decays)

    def _encode(self, memory: list[list[int]], query: list[int]) -> tuple[list[list[int]], list[int]]:
        scales, decays = self._integers
        buffers = memory or [self._zeros() for _ in scales]
        state_bits = FINE_BITS + GUARD_BITS
        if len(query) == 1:  # the same for one number, several times as fast
            past, arrived, kept = 0, query[0] << state_bits, []
            for scale, decay, (old,) in zip(scales, decays, buffers, strict=True):
                past += scale * old
                kept.append([(decay * old >> DECAY_BITS) + arrived])
            return kept, [(query[0] << self.bits) + (past >> (DECAY_BITS + state_bits - self.bits))]
        held = combined(scales, buffers, self._zeros())
        encoded = [
            (value << self.bits) + (past >> (DECAY_BITS + state_bits - self.bits))
            for value, past in zip(query, held, strict=True)
        ]
        after = [
            [(decay * old >> DECAY_BITS) + (value << state_bits) for old, value in zip(buffer, query, strict=True)]
            for decay, buffer in zip(decays, buffers, strict=True)
        ]
        return after, encoded

    def _decode(self, memory: list[list[float]], encoded: list[float]) -> tuple[list[list[float]], list[float]]:
        buffers = memory or [[0.0] * self.stream.dimension for _ in self.scales]
        if len(encoded) == 1:  # the same for one number, several times as fast
            noisy_value = encoded[0] + sum([-scale * old for scale, (old,) in zip(self.scales, buffers, strict=True)])
            return [[decay * old + noisy_value] for decay, (old,) in zip(self.decays, buffers, strict=True)], [
                noisy_value
            ]
        noisy = combined([-scale for scale in self.scales], buffers, encoded)
        after = [
            [decay * old + value for old, value in zip(buffer, noisy, strict=True)]
            for decay, buffer in zip(self.decays, buffers, strict=True)
        ]
        return after, noisy


@dataclass(frozen=True)
class BandedInverse(Encoded):
    """An encoder whose inverse has few diagonals: those of the inverse square root (arXiv 2505.12128).

    The noise of a step is then a moving average of few draws. The encoder has as many coefficients as there are steps,
    all ≥ 0, and its sensitivity is summed. Event: `Gaussian`, σ over that sensitivity. State: two numbers for each
    diagonal.

    Attributes:
        bands: the number of diagonals of the inverse.
    """

    bands: int

    def __post_init__(self) -> None:
        remedy = "it is the number of diagonals of the inverse"
        _check.settle_integers(self, "bands", remedy=remedy, at_most=min(self.stream.steps, 1 << 12))

    @classmethod
    def for_epsilon(
        cls, stream: Stream, epsilon: float, delta: float, *, bands: int, workload: Workload = TOTAL
    ) -> BandedInverse:
        """The least noise for (ε, δ)-DP."""
        made: BandedInverse = least_noise(lambda noise: cls(stream, noise, workload, bands), epsilon, delta)
        return made

    @property
    def state_size(self) -> int:
        return 2 * (self.bands - 1) + self.workload.memory

    @cached_property
    def _diagonals(self) -> tuple[float, ...]:
        rate = getattr(self.workload, "rate", 1.0)
        decays = rate ** np.arange(self.bands, dtype=np.float64)
        return series.on_grid(series.inverse_square_root(self.bands) * decays, DECAY_BITS)

    def column(self, count: int) -> Vector:
        return series.divided_out(self._diagonals, count)

    def _inverse(self, count: int) -> Vector:
        padded = np.zeros(count)
        padded[: self.bands] = self._diagonals
        return padded

    def _event_with(self, multiplier: float) -> events.Event:
        return events.Gaussian(float_down(Fraction(multiplier) / Fraction(self._sensitivity())))

    @cached_property
    def _summed(self) -> float:
        steps, stream = self.stream.steps, self.stream
        # Each coefficient is a sum of products of positive numbers, so relative errors add up over the recursion.
        error = 2 * steps * (self.bands + 2) * UNIT
        bounds = correlation.toeplitz(
            self.column(steps), steps, stream.participations, stream.separation, relative_error=error
        )
        return bounds[1]

    def _sensitivity(self) -> float:
        return self._summed

    @cached_property
    def _integers(self) -> tuple[int, ...]:
        return tuple(int(value * (1 << DECAY_BITS)) for value in self._diagonals)

    def _encode(self, memory: list[list[int]], query: list[int]) -> tuple[list[list[int]], list[int]]:
        state_bits = FINE_BITS + GUARD_BITS
        past = combined(self._integers[1:], memory, self._zeros())
        whole = [(value << state_bits) - (old >> DECAY_BITS) for value, old in zip(query, past, strict=True)]
        encoded = [value >> (state_bits - self.bits) for value in whole]
        return [whole, *memory][: self.bands - 1], encoded

    def _decode(self, memory: list[list[float]], encoded: list[float]) -> tuple[list[list[float]], list[float]]:
        noisy = combined(self._diagonals[1:], memory, [self._diagonals[0] * value for value in encoded])
        return [encoded, *memory][: self.bands - 1], noisy
