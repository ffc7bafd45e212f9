"""What is answered at each step: the sum so far, the sum of the last steps, or a sum that forgets.

Each is a linear function of the stream with a Toeplitz matrix, and is computed from the noisy stream: post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet import _check
from discreet.mechanisms.continual.stream import Vector


@dataclass(frozen=True)
class Total:
    """The sum of all steps so far."""

    def column(self, count: int) -> Vector:
        """The weight of a step, by its age."""
        return np.ones(count)

    @property
    def memory(self) -> int:
        """How many noisy steps must be kept."""
        return 1

    def answer(self, kept: list[list[float]], noisy: list[float]) -> tuple[list[list[float]], list[float]]:
        """What is kept after a noisy step, and the answer."""
        last = kept[0] if kept else [0.0] * len(noisy)
        total = [a + b for a, b in zip(last, noisy, strict=True)]
        return [total], total


@dataclass(frozen=True)
class Window:
    """The sum of the last `width` steps."""

    width: int

    def __post_init__(self) -> None:
        _check.settle_integers(self, "width", remedy="it is the number of steps that are summed")

    def column(self, count: int) -> Vector:
        """The weight of a step, by its age."""
        return (np.arange(count) < self.width).astype(np.float64)

    @property
    def memory(self) -> int:
        """How many noisy steps must be kept."""
        return self.width

    def answer(self, kept: list[list[float]], noisy: list[float]) -> tuple[list[list[float]], list[float]]:
        """What is kept after a noisy step, and the answer."""
        recent = [*kept, noisy][-self.width :]
        return recent, [sum(values) for values in zip(*recent, strict=True)]


@dataclass(frozen=True)
class Decayed:
    """A sum in which a step's weight falls by the factor `rate` with each later step."""

    rate: float

    def __post_init__(self) -> None:
        rate = float(_check.positive("rate", self.rate, "it is the factor by which older steps lose weight"))
        if rate >= 1:
            raise _check.fail("rate", "be < 1", rate, "with 1 nothing is forgotten: use Total()")
        object.__setattr__(self, "rate", rate)

    def column(self, count: int) -> Vector:
        """The weight of a step, by its age."""
        return np.asarray(self.rate ** np.arange(count, dtype=np.float64))

    @property
    def memory(self) -> int:
        """How many noisy steps must be kept."""
        return 1

    def answer(self, kept: list[list[float]], noisy: list[float]) -> tuple[list[list[float]], list[float]]:
        """What is kept after a noisy step, and the answer."""
        last = kept[0] if kept else [0.0] * len(noisy)
        total = [self.rate * a + b for a, b in zip(last, noisy, strict=True)]
        return [total], total


Workload = Total | Window | Decayed

#: The default: the sum of all steps so far.
TOTAL = Total()
